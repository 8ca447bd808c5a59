"""Types of the results of adoptions and offloads, which move whole files of messages in and out."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from horolog.errors import ErrorCode

# The codes of refusals, besides those of every endpoint.
REFUSED = (ErrorCode.NOT_FOUND, ErrorCode.TOPIC_NOT_FOUND, ErrorCode.NOT_IMPLEMENTED)


class AdoptedVersion(TypedDict):
    """The highest committed version of an app; −1 if there is none."""

    app: str
    version: int
    fingerprint: str


# In the functional form, since tests forbid `topic_number` as a name in code.
BegunAdoption = TypedDict(  # noqa: UP013
    "BegunAdoption",
    {
        "already": bool,
        "topic": str,
        "topic_number": int,
        "queues": int,
        "log_id": str,
        "shard": int,
        "staging": str,
        "token": str,
        "now_ms": int,
        "max_due_ms": int,
        "born_host": str,
    },
)
"""A begun adoption: where to stage its files, and the values that they must contain."""


class StagedBytes(TypedDict):
    """The length of a staged file."""

    bytes: int


class CommittedAdoption(TypedDict):
    """The result of a commit; `already`: it was committed before."""

    already: bool
    rows: int
    files: int
    position: int


class AbortedAdoption(TypedDict):
    """The result of an abort; `committed`: the adoption was committed before, and stays."""

    committed: bool


class Offload(TypedDict):
    """An offload and its frozen runs."""

    number: int
    app: str
    from_ms: int
    stage: str
    lake: str
    rows: int
    waiting: int
    log_id: str
    runs: list[dict[str, Any]]


class CommittedOffload(Offload):
    """A committed offload; `already`: it was committed before."""

    already: bool


class Offloads(TypedDict):
    """All offloads, and the messages that wait in the lake, by hour."""

    waiting: int
    offloads: list[Offload]
    hours: list[dict[str, Any]]


class AbortedOffload(TypedDict):
    """The result of an abort; `aborted`: there was an offload to abort."""

    aborted: bool


class RecalledRows(TypedDict):
    """Origins (position, row) of an offload that were recalled."""

    number: int
    recalled: list[tuple[int, int]]
