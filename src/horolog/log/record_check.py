"""A check of many records of a mapped segment at once: which of them are in intact frames.

Readers beside the broker know records from the units of a consume queue: a position and a size.  A
record is good only if it is in a frame whose header and body are intact, and begins and ends where
a record of that frame does.  A frame of one record begins right before it, so all such records are
checked together as columns; a frame of many records is found by the first of them that is wanted,
and checked once for all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.errors import HorologError
from horolog.log.frame import HEADER_BYTES, MAGIC, FrameHeader, body_intact, parse
from horolog.log.record import offsets_of
from horolog.log.unaligned import get

Rows = npt.NDArray[np.int64]
_HEADER = np.dtype(  # the fields of a frame header (`log.frame`) that are compared here
    {
        "names": ["magic", "count", "log_id", "base", "length", "body_crc", "crc"],
        "formats": ["<u4", "<u4", "<u8", "<u8", "<u4", "<u4", "<u4"],
        "offsets": [0, 12, 16, 24, 52, 56, 60],
        "itemsize": HEADER_BYTES,
    }
)
_MAGIC = int.from_bytes(MAGIC, "little")


class SegmentRecords:
    """The records of the segment that begins at log position `base`; `raw` is its mapped file."""

    def __init__(self, raw: npt.NDArray[np.uint8], base: int, log_id: int) -> None:
        self._raw = raw
        self._view = raw.data
        self._base = base
        self._log_id = log_id

    def intact(self, at: Rows, sizes: Rows) -> npt.NDArray[np.bool_]:
        """Return a mask of the intact records; `at` is where each begins in the segment."""
        good = np.zeros(len(at), np.bool_)
        inside = (at >= HEADER_BYTES) & (sizes > 0) & (at + sizes <= len(self._raw))
        rows = np.flatnonzero(inside)
        good[rows] = self._alone(at[rows], sizes[rows])
        rows = rows[~good[rows]]
        if len(rows):
            rows = rows[np.argsort(at[rows], kind="stable")]
            self._together(at[rows], sizes[rows], good, rows)
        return good

    def _alone(self, at: Rows, sizes: Rows) -> npt.NDArray[np.bool_]:
        """Return a mask of the records that are the only record of an intact frame."""
        good = np.zeros(len(at), np.bool_)
        if not len(at):
            return good
        heads = get(self._raw, at - HEADER_BYTES, _HEADER)
        bases = (at + (self._base - HEADER_BYTES)).astype(np.uint64)
        one = (heads["magic"] == _MAGIC) & (heads["count"] == 1) & (heads["length"] == sizes)
        one &= (heads["log_id"] == np.uint64(self._log_id)) & (heads["base"] == bases)
        rows = np.flatnonzero(one)
        view = self._view
        starts, ends = at[rows].tolist(), (at[rows] + sizes[rows]).tolist()
        of_heads = [crc32(view[start - HEADER_BYTES : start - 4]) for start in starts]
        of_bodies = [crc32(view[a:b]) for a, b in zip(starts, ends, strict=True)]
        good[rows] = (heads["crc"][rows] == np.array(of_heads, np.uint32)) & (
            heads["body_crc"][rows] == np.array(of_bodies, np.uint32)
        )
        return good

    def _together(self, at: Rows, sizes: Rows, good: npt.NDArray[np.bool_], rows: Rows) -> None:
        """Check records, in ascending order, that may share frames; set `good` at their `rows`."""
        low = row = 0
        while row < len(at):
            first = int(at[row])
            frame = self._frame_of(first, low)
            if frame is None:
                low = first  # no frame that begins below reaches further
                row += 1
                continue
            header, start = frame
            end = start + header.length
            stop = int(np.searchsorted(at, end))
            good[rows[row:stop]] = self._in_frame(header, start, at[row:stop], sizes[row:stop])
            low, row = end, max(stop, row + 1)

    def _frame_of(self, first: int, low: int) -> tuple[FrameHeader, int] | None:
        """Find the intact header at or above `low` whose body holds byte `first`.

        Returns the header and where its body begins.
        """
        header = self._header(low)  # mostly the frame right after the last one
        if header is None or not low + HEADER_BYTES <= first < low + HEADER_BYTES + header.length:
            header, low = self._header_before(first, low)
        if header is None or first >= low + HEADER_BYTES + header.length:
            return None
        return header, low + HEADER_BYTES

    def _header_before(self, first: int, low: int) -> tuple[FrameHeader | None, int]:
        """Find the last intact header in [low, first), and where it begins."""
        stop, size = first, 1 << 16
        while stop > low:
            begin = max(low, stop - size)
            chunk = bytes(self._view[begin : min(stop + len(MAGIC) - 1, first)])
            found = chunk.rfind(MAGIC)
            while found >= 0:
                header = self._header(begin + found)
                if header is not None:
                    return header, begin + found
                found = chunk.rfind(MAGIC, 0, found + len(MAGIC) - 1)
            stop, size = begin, min(size * 4, 1 << 24)
        return None, low

    def _header(self, at: int) -> FrameHeader | None:
        header = parse(self._view, at)
        if header is None or (header.base, header.log_id) != (self._base + at, self._log_id):
            return None
        return None if header.padding else header

    def _in_frame(
        self, header: FrameHeader, start: int, at: Rows, sizes: Rows
    ) -> npt.NDArray[Any] | bool:
        """Return a mask of the good records of a frame; False if the frame is damaged."""
        body = self._view[start : start + header.length]
        if not body_intact(header, body):
            return False
        try:
            begins = offsets_of(body, header.count)
        except HorologError:
            return False
        ends = np.append(begins[1:], header.length)
        place = np.minimum(np.searchsorted(begins, at - start), len(begins) - 1)
        found: npt.NDArray[np.bool_] = (begins[place] == at - start) & (
            ends[place] - begins[place] == sizes
        )
        return found
