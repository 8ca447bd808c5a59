"""Where frames begin, sparsely: one slot for every 64 KiB of a segment.  Rebuilt.

Slot i holds the offset of the first frame header at or after byte i · 64 KiB of the segment, plus 1 (0: none
known).  A position is resolved by walking headers forward from the nearest slot before it, so what a client
names is served only if it is the start of a record of a real frame: a message forged inside a body never is.
16 KiB of memory for a full segment; walked anew from the segment when needed after a restart.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from horolog.limits import FRAME_INDEX_BLOCK
from horolog.log.frame import HEADER_BYTES, FrameHeader, parse

_SEGMENTS_MAX = 64  # 1 MiB of slots


class FrameIndex:
    """Slots of the segments in use; `read(position, length)` gives bytes of the log."""

    def __init__(self, segment_bytes: int, read: Callable[[int, int], bytes]) -> None:
        self._segment_bytes = segment_bytes
        self._read = read
        self._slots: OrderedDict[int, npt.NDArray[np.uint32]] = OrderedDict()

    def add(self, position: int) -> None:
        """A frame begins at `position`; told in log order, from the first frame of a segment on."""
        base = position - position % self._segment_bytes
        slots = self._slots.get(base)
        if slots is None:
            if position != base:
                return  # the beginning is not known: walked when needed
            slots = self._empty(base)
        at = position - base
        block = at // FRAME_INDEX_BLOCK
        if slots[block] == 0 or at % FRAME_INDEX_BLOCK == 0:
            slots[block] = at + 1

    def drop_below(self, position: int) -> None:
        """Forget segments that lie below."""
        for base in [base for base in self._slots if base + self._segment_bytes <= position]:
            del self._slots[base]

    def _empty(self, base: int) -> npt.NDArray[np.uint32]:
        blocks = -(-self._segment_bytes // FRAME_INDEX_BLOCK)
        slots = self._slots[base] = np.zeros(blocks, np.uint32)
        if len(self._slots) > _SEGMENTS_MAX:
            self._slots.popitem(last=False)
        return slots

    def _walk(self, base: int, end: int) -> npt.NDArray[np.uint32]:
        slots = self._empty(base)
        at = base
        while at < end and (header := self._header(at)) is not None:
            self.add(at)
            at = header.end
        return slots

    def _header(self, at: int) -> FrameHeader | None:
        header = parse(self._read(at, HEADER_BYTES))
        return header if header is not None and header.base == at else None

    def find(self, position: int, end: int) -> FrameHeader | None:
        """The frame that holds `position`, below log position `end`; None if no frame does."""
        base = position - position % self._segment_bytes
        end = min(end, base + self._segment_bytes)
        slots = self._slots.get(base)
        if slots is None:
            slots = self._walk(base, end)
        block = (position - base) // FRAME_INDEX_BLOCK
        while block >= 0 and (slots[block] == 0 or base + int(slots[block]) - 1 > position):
            block -= 1
        at = base + int(slots[block]) - 1 if block >= 0 else base
        while at <= position and at < end:
            header = self._header(at)
            if header is None:
                return None
            if position < header.end:
                return header if position >= at + HEADER_BYTES else None
            at = header.end
        return None
