"""Take a data directory that no broker uses: lock it, and read what its `meta` says."""

from __future__ import annotations

from pathlib import Path

from horolog.errors import ErrorCode, HorologError, refused
from horolog.storage.api import Storage, read_file
from horolog.storage.lock import DirectoryLock
from horolog.storage.meta import META, RESTORING, SHARD, check_format, parse_meta
from horolog.verify.findings import Findings


def lock_directory(directory: Path, *, without_meta: bool = False) -> DirectoryLock | None:
    """Lock the directory against a broker; None if it is read-only, as a snapshot is.

    without_meta  accept a log without its `meta`, but not what an interrupted restore has left
    Errors: NOT_FOUND if it is no data directory; DIRECTORY_IN_USE names the holder of the lock.
    """
    if not (directory / META).is_file():
        has_log = any((directory / SHARD / "log").glob("*.log"))
        is_lost = has_log and not (directory / RESTORING).exists()
        if not (is_lost and without_meta):
            do = "; `horolog salvage` writes one that was lost again" if is_lost else ""
            raise refused(
                "DIR",
                f"{directory} is not a data directory (it has no file `meta`{do})",
                code=ErrorCode.NOT_FOUND,
            )
    try:
        return DirectoryLock(directory)
    except HorologError as error:
        if error.code is ErrorCode.DIRECTORY_READ_ONLY:
            return None
        why = error.message.removeprefix("--data-dir: ")
        raise refused("DIR", why, code=error.code) from error


def read_meta(storage: Storage, findings: Findings) -> tuple[int, int]:
    """Return (log id, segment bytes) of a data directory.

    Errors, which end a verification: NOT_FOUND without `meta`, VERSION_UNSUPPORTED, DAMAGED.
    """
    try:
        meta = parse_meta(read_file(storage, META))
        if meta.clock not in ("system", "simulated") or meta.shards != 1:
            findings.add(META, 0, "clock or shards is none of those that horolog writes")
    except FileNotFoundError:
        raise refused(
            "DIR", "not a data directory (there is no `meta`)", code=ErrorCode.NOT_FOUND
        ) from None
    except ValueError as error:
        raise refused("DIR", f"meta cannot be read ({error})", code=ErrorCode.DAMAGED) from error
    check_format(meta, "DIR")
    return meta.log_id, meta.segment_bytes
