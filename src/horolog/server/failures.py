"""Explain why a broker ends: a sentence if the world is to blame, and not a bug of our own.

Files are opened and mapped as they are needed.  If a user moves the data directory or cuts a file
while the broker runs, the error is raised in the middle of a step and explains nothing (`unpack
requires a buffer …`); the lengths of the files show the cause.
"""

from __future__ import annotations

import asyncio
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


def too_late(failed: asyncio.Future[None]) -> HorologError:
    """Return the refusal of a command to a broker that has failed, with the reason, or is stopping.

    failed  of the engine
    """
    if failed.done():
        return HorologError(ErrorCode.DISK_FAILED, f"the broker has failed: {failed.exception()}")
    return HorologError(ErrorCode.INTERNAL, "the broker is stopping; try another time")


def why_failed(error: BaseException, storage: Storage, shard: Shard) -> HorologError | None:
    """Return the failure as a sentence; None: nothing is wrong with the files, so it is a bug."""
    if isinstance(error, HorologError):
        return error
    if isinstance(error, AssertionError):
        return None  # the traceback says where; a cut file's length would explain too little
    if isinstance(error, FileNotFoundError):
        return gone(str(error.filename or error))
    if isinstance(error, OSError):
        return HorologError(
            ErrorCode.DISK_FAILED, first_line(error), field=str(error.filename or "")
        )
    if isinstance(error, MemoryError):
        said = str(error)  # numpy's message says how many bytes it wanted
        return HorologError(
            ErrorCode.INTERNAL, f"out of memory: {said}" if said else "out of memory"
        )
    with suppress(Exception):  # if this check fails too, the first error counts
        for path, written in _lengths(storage, shard):
            size = size_of(storage, path)
            if size < written:
                return HorologError(
                    ErrorCode.DAMAGED,
                    f"{path} has {size} bytes, and {written} were written: it was cut while the "
                    "broker ran",
                    field=path,
                )
    return None


def _lengths(storage: Storage, shard: Shard) -> Iterator[tuple[str, int]]:
    """Yield files and the bytes each must have at least: live ones, then checkpointed ones."""
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
