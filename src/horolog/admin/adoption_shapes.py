"""What the admin API answers of messages that come and go as whole files: adoptions and offloads."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict


class AdoptedVersion(TypedDict):
    """The highest committed version of an app; −1: none."""

    app: str
    version: int
    fingerprint: str


# A field of it has a name that code does not use.
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
"""Where to stage files, and what must stand in them."""


class StagedBytes(TypedDict):
    """The length of a staged file."""

    bytes: int


class CommittedAdoption(TypedDict):
    """What was adopted."""

    already: bool
    rows: int
    files: int
    position: int


class AbortedAdoption(TypedDict):
    """Whether it was committed before."""

    committed: bool


class Offload(TypedDict):
    """An offload, and its frozen runs."""

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
    """`already`: it was committed before."""

    already: bool


class Offloads(TypedDict):
    """All of them, and what waits there by hour."""

    waiting: int
    offloads: list[Offload]
    hours: list[dict[str, Any]]


class AbortedOffload(TypedDict):
    """Whether there was something to abort."""

    aborted: bool


class RecalledRows(TypedDict):
    """Origins (position, row) that were recalled."""

    number: int
    recalled: list[tuple[int, int]]
