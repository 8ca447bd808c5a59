"""Why a broker ends: a sentence where the world is to blame, and not our own mistake.

Files are opened and mapped as they are needed, so whoever moves the data directory or cuts a file while the broker
runs meets it in the middle of a step.  What that raises there says nothing (`unpack requires a buffer …`); the
lengths of the files do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from horolog.broker.life.named_files import named_files
from horolog.broker.shard import Shard
from horolog.delay.entry import ENTRY_BYTES, INDEX_NAME, LOG_NAME
from horolog.errors import ErrorCode, HorologError, first_line
from horolog.log.checkpoint import newest_checkpoint
from horolog.log.segment import bases_on_disk, segment_name
from horolog.storage.api import Storage, size_of
from horolog.storage.lock import gone


def why_failed(error: BaseException, storage: Storage, shard: Shard) -> HorologError | None:
    """The failure as a sentence; None: nothing is wrong with the files, so it is a bug."""
    if isinstance(error, HorologError):
        return error
    if isinstance(error, AssertionError):
        return None  # also of a cut file it would say too little; the traceback says where
    if isinstance(error, FileNotFoundError):
        return gone(str(error.filename or error))
    if isinstance(error, OSError):
        return HorologError(
            ErrorCode.DISK_FAILED, first_line(error), field=str(error.filename or "")
        )
    if isinstance(error, MemoryError):
        said = str(error)  # of an allocation by numpy it says how much
        return HorologError(
            ErrorCode.INTERNAL, f"out of memory: {said}" if said else "out of memory"
        )
    with suppress(Exception):  # whatever is wrong with the files, the first error counts
        for path, written in _lengths(storage, shard):
            size = size_of(storage, path)
            if size < written:
                return HorologError(
                    ErrorCode.DAMAGED,
                    f"{path} has {size} bytes, and {written} were written: it was cut while the broker ran",
                    field=path,
                )
    return None


def _lengths(storage: Storage, shard: Shard) -> Iterator[tuple[str, int]]:
    """Files and the bytes that they must have at least: what is live, then what the newest checkpoint names."""
    for hour in shard.delay.hours.values():
        yield f"{hour.directory}/{LOG_NAME}", hour.log_bytes
        yield f"{hour.directory}/{INDEX_NAME}", hour.count * ENTRY_BYTES
    log = shard.log
    for base in bases_on_disk(storage, f"{shard.directory}/log"):
        written = min(log.segment_bytes, log.commit_position - base)
        yield f"{shard.directory}/log/{segment_name(base)}", written
    checkpoint = newest_checkpoint(storage, f"{shard.directory}/checkpoint", log.log_id)
    if checkpoint is not None:
        for file in named_files(storage, shard.directory, log.segment_bytes, checkpoint):
            yield file.path, file.bytes or 0
