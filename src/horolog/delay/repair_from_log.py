"""Index entries whose records are lost as well, made again from the log.

Files hold their messages in the order of the log, and a replay files the same ones.  So what damaged rows had lies in the
log between the origins of their sound neighbours: those of its scheduled messages there that belong to the file.  It is
taken only if they are as many as the rows, and their records just fill the space between the neighbours'.

Worked example: rows 4 to 6 of an hour are overwritten, and the record of row 5.  Row 3 is of log position 10 000 and its
record ends at byte 1 600; row 7 is of 18 000 and begins at 2 800.  Between 10 000 and 18 000 the log has three
messages that are due in this hour, of 400 bytes each: those are rows 4 to 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.delay.entry import ENTRY, origin_seed
from horolog.delay.near.hour import Hour
from horolog.limits import HOUR_MS, NEAR_HOURS, REPAIR_SEARCH_BYTES
from horolog.log.frame import HEADER_BYTES, FrameHeader
from horolog.log.frame_reader import Hole
from horolog.log.record import Kind, heads_of, kinds_of, offsets_of

if TYPE_CHECKING:
    from horolog.delay.far.buffer import FarBuffer


class ReadableLog(Protocol):
    """The commit log, as far as a repair needs it."""

    @property
    def start(self) -> int:
        """Log position of its first frame."""
        ...

    @property
    def commit_position(self) -> int:
        """What lies below it is committed."""
        ...

    def record(self, position: int, size: int) -> bytes | Hole:
        """That record."""
        ...

    def frames_around(self, start: int, stop: int) -> Iterator[tuple[FrameHeader, bytes]]:
        """Intact frames that hold positions from `start` to before `stop`."""
        ...


class Gap(NamedTuple):
    """Damaged rows that follow each other, and what their sound neighbours say.

    first, stop  the rows
    at, end      bytes of the file of records that are theirs
    low, high    their origins lie between these log positions; the log's own ends where there is no neighbour
    """

    first: int
    stop: int
    at: int
    end: int
    low: int
    high: int


class Found(NamedTuple):
    """A message for a damaged row: its ENTRY row, complete but for the chain, and its record."""

    row: int
    entry: npt.NDArray[Any]
    record: bytes


def find_rows(log: ReadableLog, source: Hour | FarBuffer, gap: Gap) -> list[Found]:
    """The messages of all rows of a gap, or none."""
    count = gap.stop - gap.first
    if gap.high - gap.low > REPAIR_SEARCH_BYTES:
        return []
    found: list[tuple[int, Any, bytes]] = []
    for header, body in log.frames_around(gap.low, gap.high):
        found += _filed(header, body, source, gap)
    # What comes after the last row is not filed yet, and what comes before the first one was filed elsewhere.
    found = found[-count:] if gap.stop < source.count else found[:count]
    if len(found) != count or sum(len(record) for _, _, record in found) != gap.end - gap.at:
        return []
    made, position = [], gap.at
    for row, (origin, head, record) in enumerate(found, gap.first):
        made.append(Found(row, _entry(position, origin, head, record), record))
        position += len(record)
    return made


def _filed(
    header: FrameHeader, body: bytes, source: Hour | FarBuffer, gap: Gap
) -> Iterator[tuple[int, Any, bytes]]:
    """(Origin, HEAD row, record) of a frame's messages that were filed in a source, in order."""
    offsets = offsets_of(body, header.count)
    offsets = offsets[kinds_of(body, offsets) == Kind.SCHEDULED]
    if not len(offsets):
        return
    heads = heads_of(body, offsets)
    hours = heads["due_ms"] // HOUR_MS
    is_near = hours <= header.append_ms // HOUR_MS + NEAR_HOURS
    mine = is_near & (hours == source.hour) if isinstance(source, Hour) else ~is_near
    base = header.base + HEADER_BYTES
    mine &= (offsets + base > gap.low) & (offsets + base < gap.high)
    for row in np.flatnonzero(mine).tolist():
        at = int(offsets[row])
        yield base + at, heads[row], body[at : at + int(heads["size"][row])]


def _entry(position: int, origin: int, head: Any, record: bytes) -> npt.NDArray[Any]:
    entry = np.zeros(1, ENTRY)
    entry["position"], entry["size"], entry["origin"] = position, len(record), origin
    for name in ("due_ms", "key", "topic"):
        entry[name] = head[name]
    entry["crc"] = crc32(record, origin_seed(origin))
    return entry
