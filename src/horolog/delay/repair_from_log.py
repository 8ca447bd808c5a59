"""Repair of index entries from the log, where their records are damaged as well.

Files hold their messages in log order, and a replay files the same messages.  So the messages of
damaged rows are in the log between the origins of the sound neighbours: they are the scheduled
messages there that belong to the file.  The messages found are accepted only if they are as many as
the rows, and their records exactly fill the space between the neighbours' records.

Worked example: rows 4 to 6 of an hour are overwritten, and the record of row 5.  Row 3 has log
position 10 000 and its record ends at byte 1 600; row 7 has log position 18 000 and its record
begins at 2 800.  Between 10 000 and 18 000 the log has three messages that are due in this hour, of
400 bytes each: those are rows 4 to 6.
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
        """Log position of the first frame."""
        ...

    @property
    def commit_position(self) -> int:
        """Log position below which all is committed."""
        ...

    def record(self, position: int, size: int) -> bytes | Hole:
        """Read the record at a log position."""
        ...

    def frames_around(self, start: int, stop: int) -> Iterator[tuple[FrameHeader, bytes]]:
        """Yield the intact frames that hold positions from `start` to before `stop`."""
        ...


class Gap(NamedTuple):
    """Consecutive damaged rows, and what their sound neighbours state.

    first, stop  the rows
    at, end      byte range of these rows in the file of records
    low, high    their origins lie between these log positions; the log's own ends where there is no
                 neighbour
    """

    first: int
    stop: int
    at: int
    end: int
    low: int
    high: int


class Found(NamedTuple):
    """A message for a damaged row: its ENTRY row, complete except for the chain, and its record."""

    row: int
    entry: npt.NDArray[Any]
    record: bytes


def find_rows(log: ReadableLog, source: Hour | FarBuffer, gap: Gap) -> list[Found]:
    """Find the messages of all rows of a gap; return an empty list unless all are found."""
    count = gap.stop - gap.first
    if gap.high - gap.low > REPAIR_SEARCH_BYTES:
        return []
    found: list[tuple[int, Any, bytes]] = []
    for header, body in log.frames_around(gap.low, gap.high):
        found += _filed(header, body, source, gap)
    # Messages after the last row are not filed yet; those before the first one were filed
    # elsewhere.
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
    """Yield (origin, HEAD row, record) of a frame's messages filed in a source, in order."""
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
