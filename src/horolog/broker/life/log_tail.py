"""The end of the log, while a shard is opened: cut off a torn tail, make the valid rest durable."""

from __future__ import annotations

from collections.abc import Iterable

from horolog.log.segment import segment_name
from horolog.storage.api import Storage

_PIECE = 1 << 20


def cut_log(
    storage: Storage, directory: str, segment_bytes: int, end: int, bases: Iterable[int]
) -> None:
    """Cut the segments that begin at these positions, so that the log ends at `end`.

    Their space stays allocated.
    """
    for base in bases:
        if base + segment_bytes <= end:
            continue
        file = storage.open(f"{directory}/{segment_name(base)}")
        try:
            length = file.size()
            file.truncate(max(0, end - base))
            file.allocate(length)
            file.sync()
        finally:
            file.close()


def secure_log(storage: Storage, directory: str, segment_bytes: int, known: int, end: int) -> None:
    """Write and sync again log positions `known` to `end`, which nothing has stated to be durable.

    A process that was killed may not have synced these bytes.  If a sync of them failed, a later
    one says nothing: the kernel has marked those pages as clean, though they never reached the
    disk.
    """
    position = known
    while position < end:
        within = position % segment_bytes
        length = min(_PIECE, end - position, segment_bytes - within)
        file = storage.open(f"{directory}/{segment_name(position - within)}")
        try:
            file.write(within, file.read(within, length))
            file.sync()
        finally:
            file.close()
        position += length
