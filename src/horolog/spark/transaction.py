"""The client's half of an adoption: begin, files, one commit (docs/reference/http.md, adoptions).

A transaction (app, version) is committed once, however often its parts are sent.  A broker that
does not answer is asked again until the timeout; a commit whose answer was lost is then answered
with "already".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import orjson

from horolog.admin.client import AdminClient, one_call_s, path_of
from horolog.admin.status import UnreachableError
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import ADOPTION_FILES_MAX
from horolog.spark.sink_columns import Target
from horolog.units import counted

PIECE_BYTES = 4 << 20
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_COMMIT_TIMEOUT_S = 600.0  # the broker opens and syncs every file before it answers
_T = TypeVar("_T")


class StagedRun(NamedTuple):
    """One file of a manifest."""

    name: str
    rows: int
    bytes: int
    first_ms: int
    last_ms: int
    crc32: int  # of the file's footer


class Transaction(NamedTuple):
    """A transaction that was begun; plain values, which are sent to the tasks."""

    broker: str
    app: str
    version: int
    token: str
    staging: str
    already: bool
    target: Target
    timeout_ms: int
    fingerprint: str = ""  # when it is known before the rows are read


class Committed(NamedTuple):
    """Result of a commit.

    already  the transaction was committed before, and nothing was changed
    """

    already: bool
    rows: int
    files: int


def begin(
    broker: str,
    app: str,
    version: int,
    topic: str,
    timeout_ms: int,
    *,
    join: bool = False,
    fingerprint: str = "",
) -> Transaction:
    """Begin a transaction.

    join  take part in a transaction of this name that another task has begun
    Errors: FORBIDDEN if the transaction is committed with another fingerprint.
    """
    begun = _call_with_retries(
        lambda client: client.post(
            "/v1/adoptions/begin",
            {
                "app": app,
                "version": version,
                "topic": topic,
                "join": join,
                "fingerprint": fingerprint,
            },
        ),
        broker,
        timeout_ms,
    )
    host, _, port = str(begun.get("born_host") or "0.0.0.0:0").rpartition(":")
    target = Target(
        begun["topic"],
        begun["topic_number"],
        begun["queues"],
        int(begun["log_id"], 16),
        begun["max_due_ms"],
        begun["now_ms"],
        (bytes(int(part) for part in host.split(".")), int(port)),
    )
    return Transaction(
        broker,
        app,
        version,
        begun.get("token") or "",
        begun.get("staging") or "",
        bool(begun["already"]),
        target,
        timeout_ms,
        fingerprint,
    )


def check_is_newest(transaction: Transaction) -> None:
    """Raise FORBIDDEN if a later version is committed than this one, which is committed too.

    Spark replays only the last batch of a query, with the rows that its checkpoint names.  An
    earlier batch comes from a checkpoint that forgot the later ones, and may have other rows.
    """
    app, version = transaction.app, transaction.version
    answer = _call_with_retries(
        lambda client: client.get("/v1/adoptions", {"app": app}),
        transaction.broker,
        transaction.timeout_ms,
    )
    if answer["version"] > version:
        raise refused(
            "checkpointLocation", rewound(version, answer["version"]), code=ErrorCode.FORBIDDEN
        )


def rewound(batch: int, newest: int) -> str:
    """Return why a batch is refused that comes again after a later one."""
    return (
        f"batch {batch} of the query comes again, but its batch {newest} is committed: the "
        "checkpoint is an old copy, or files of it are missing; its rows may be others, so nothing "
        "is changed: put back the checkpoint, or begin another one under another name"
    )


def is_reachable(transaction: Transaction) -> bool:
    """Return whether this machine sees the staging directory, with the broker's file in it."""
    try:
        begun = orjson.loads((Path(transaction.staging) / "begin.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(begun, dict) and begun.get("token") == transaction.token


def upload(transaction: Transaction, path: Path, name: str) -> None:
    """Send a file in pieces; each piece may be sent again."""
    place = path_of("adoptions", transaction.token, "files", name)
    with path.open("rb") as file:
        offset = 0
        while piece := file.read(PIECE_BYTES):
            send = partial(
                AdminClient.put_bytes, path=place, content=piece, parameters={"offset": offset}
            )
            _call_with_retries(send, transaction.broker, transaction.timeout_ms)
            offset += len(piece)


def commit(
    transaction: Transaction, topic: str, files: Sequence[StagedRun], fingerprint: str = ""
) -> Committed:
    """Commit the files; after a failure ask the broker first whether the commit took place.

    fingerprint  of the rows; "": the fingerprint of the transaction
    Errors: FORBIDDEN if the transaction is committed with another fingerprint; BAD_REQUEST for more
    files than a transaction may have.
    """
    if len(files) > ADOPTION_FILES_MAX:
        raise refused(
            "files",
            f"the tasks have staged {counted(len(files), 'file')}, at least one for each partition "
            f"with rows; a transaction has at most {ADOPTION_FILES_MAX:,}: write fewer partitions "
            "(coalesce), or use bulk_load",
            f"{ADOPTION_FILES_MAX} files",
        )
    transaction = transaction._replace(fingerprint=fingerprint or transaction.fingerprint)
    body = {
        "fingerprint": transaction.fingerprint,
        "app": transaction.app,
        "version": transaction.version,
        "topic": topic,
        "token": transaction.token,
        "files": [file._asdict() for file in files],
    }
    try:
        answer = _call_with_retries(
            lambda client: client.post("/v1/adoptions/commit", body, timeout_s=_COMMIT_TIMEOUT_S),
            transaction.broker,
            transaction.timeout_ms,
        )
    except (HorologError, UnreachableError):
        if is_committed(transaction):
            return Committed(True, 0, 0)
        raise
    return Committed(
        bool(answer["already"]), int(answer.get("rows") or 0), int(answer.get("files") or 0)
    )


def is_committed(transaction: Transaction) -> bool:
    """Return whether the broker says that the transaction is committed.

    False also when the broker does not answer, or has committed another fingerprint under this
    name.
    """
    with suppress(HorologError, UnreachableError):
        answer = _client(transaction).get("/v1/adoptions", {"app": transaction.app})
        ours = transaction.fingerprint
        is_other = ours and answer.get("fingerprint") and answer["fingerprint"] != ours
        return int(answer["version"]) >= transaction.version and not is_other
    return False


def abort(transaction: Transaction) -> None:
    """Remove the staged files of an uncommitted transaction.

    Best effort: the broker sweeps what is left.
    """
    with suppress(HorologError, UnreachableError):
        _client(transaction).post(
            "/v1/adoptions/abort",
            {
                "app": transaction.app,
                "version": transaction.version,
                "token": transaction.token,
            },
        )


def _client(transaction: Transaction) -> AdminClient:
    return AdminClient(transaction.broker, timeout_s=one_call_s(transaction.timeout_ms))


def check_topic_exists(broker: str, topic: str, timeout_ms: int) -> None:
    """Raise TOPIC_NOT_FOUND or TYPE_CONFLICT before any work is done."""
    answer = _call_with_retries(
        lambda client: client.get(path_of("topics", topic)), broker, timeout_ms
    )
    if answer["type"] not in ("delay", "mixed"):
        raise refused(
            "topic",
            f"{topic!r} takes {answer['type']} messages, not delay",
            code=ErrorCode.TYPE_CONFLICT,
        )


def _call_with_retries(call: Callable[[AdminClient], _T], broker: str, timeout_ms: int) -> _T:
    """Call until the broker answers or the timeout ends; calls that fail retriably are repeated."""
    client = AdminClient(broker, timeout_s=one_call_s(timeout_ms))
    until = time.monotonic() + timeout_ms / 1_000
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return call(client)
        except UnreachableError:
            if time.monotonic() + pause_s > until:
                raise
        except HorologError as error:
            if not error.retriable or time.monotonic() + pause_s > until:
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def manifest(found: Sequence[Any]) -> list[StagedRun]:
    """Return the files of all tasks, in the order of their names."""
    return sorted(StagedRun(*each) for each in found)
