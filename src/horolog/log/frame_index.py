"""The frame index: finds the frame that may hold a log position.  Rebuilt.

A look-up costs O(log n), and memory is bounded.

A segment has one *slot* for every 64 KiB block: the offset of the first frame header at or after
the beginning of the block, plus 1 (0: none known), 16 KiB for a full segment.  From a slot the
headers of a block are walked once and kept as a list of positions.  The newest blocks that this
process has written need no walk, because `add` records each frame.  So a log position that a client
names is served only if a real frame holds it; a message forged inside a body never is.

A damaged header does not end the walk.  A flipped bit is repaired (`log.flipped_frame`); after
other damage the walk continues at the next frame whose header is intact, names its own log position
and this log, and whose body verifies (`log.resync`).  The bytes between are a *gap*: remembered, so
that they are searched once, and reported to `on_gap`.

Frames of former processes are walked from the beginning of their segment up to the position that is
looked up, and from there on the next time: linear in the segment, however often and in whatever
order positions are looked up.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator

import numpy as np

from horolog.limits import FRAME_INDEX_BLOCK
from horolog.log.frame import HEADER_BYTES, FrameHeader, parse
from horolog.log.resync import next_frame

_SEGMENTS_MAX = 64  # 1 MiB of slots
# Blocks kept with the positions of all their frames: some 100 KiB, 2 MiB if all frames are marks
_BLOCKS_MAX = 256
_GAPS_MAX = 4_096  # remembered per segment; after so many its rest counts as lost


class _Segment:
    """The known frames and gaps of one segment."""

    __slots__ = ("base", "gaps", "own_from", "slots", "walked")

    def __init__(self, base: int, size: int) -> None:
        self.base = base
        self.slots = np.zeros(-(-size // FRAME_INDEX_BLOCK), np.uint32)
        self.walked = base  # slots are known below this log position
        self.own_from = base + size  # and from this one on: frames of this process
        self.gaps: dict[int, int] = {}  # log positions [from, to) that hold no intact header

    def note(self, at: int) -> None:
        """Record that a frame begins at log position `at`."""
        offset = at - self.base
        block = offset // FRAME_INDEX_BLOCK
        if self.slots[block] == 0 or offset < self.slots[block] - 1:
            self.slots[block] = offset + 1


class FrameIndex:
    """Index of the frames of the segments in use.

    read    returns `length` bytes of the log at a position, fewer at the end of a segment
    log_id  frames of other logs are ignored
    repair  repairs the damaged frame that begins at a log position and ends at or before another
            one; returns its header, None if the frame cannot be repaired
    on_gap  called once with log positions [from, to) that cannot be read
    """

    def __init__(
        self,
        segment_bytes: int,
        read: Callable[[int, int], bytes],
        log_id: int,
        repair: Callable[[int, int], FrameHeader | None],
        on_gap: Callable[[int, int], None],
    ) -> None:
        self._segment_bytes = segment_bytes
        self._read = read
        self._log_id = log_id
        self._repair = repair
        self._on_gap = on_gap
        self._segments: OrderedDict[int, _Segment] = OrderedDict()
        self._written = -1  # base of the segment that this process writes
        # Log position of a block → positions of this process's frames in it
        self._own: OrderedDict[int, array[int]] = OrderedDict()
        self._blocks: OrderedDict[tuple[int, bool], array[int]] = OrderedDict()

    # --- what this process writes -----------------------------------------------------------------

    def add(self, position: int, committed: int) -> None:
        """Record a frame that this process has appended at `position`; call in log order.

        committed  frames below it can be read from the segment, and need not be kept here
        """
        base = position - position % self._segment_bytes
        segment = self._segment(base)
        if self._written != base:
            self._written = base
            segment.own_from = min(segment.own_from, position)
        segment.note(position)
        block = base + (position - base) // FRAME_INDEX_BLOCK * FRAME_INDEX_BLOCK
        own = self._own.get(block)
        if own is None:
            own = self._own[block] = array("Q")
            while len(self._own) > _BLOCKS_MAX:
                oldest = next(iter(self._own))
                if oldest + FRAME_INDEX_BLOCK > committed:
                    break
                del self._own[oldest]
        own.append(position)

    def drop_below(self, position: int) -> None:
        """Forget the segments below a log position."""
        for base in [base for base in self._segments if base + self._segment_bytes <= position]:
            del self._segments[base]
        for block in [block for block in self._own if block < position]:
            del self._own[block]
        for key in [key for key in self._blocks if key[0] < position]:
            del self._blocks[key]

    # --- finding ----------------------------------------------------------------------------------

    def find(self, position: int, end: int) -> int:
        """Find the last intact header at or before `position` in its segment; −1 if none.

        The caller checks by the header whether the frame reaches `position`.  `end` is a log
        position right after a frame, up to which the segments can be read.
        """
        segment = self._segment(position - position % self._segment_bytes)
        is_own = position >= segment.own_from
        if not is_own:
            self._walk_to(segment, position, end)
        for slot in range((position - segment.base) // FRAME_INDEX_BLOCK, -1, -1):
            if segment.slots[slot]:
                frames = self._frames(segment, slot, end, is_own)
                at = bisect_right(frames, position)
                if at:
                    return frames[at - 1]
        return -1

    def _segment(self, base: int) -> _Segment:
        segment = self._segments.get(base)
        if segment is None:
            segment = self._segments[base] = _Segment(base, self._segment_bytes)
            if len(self._segments) > _SEGMENTS_MAX:
                oldest = next(other for other in self._segments if other != self._written)
                del self._segments[oldest]
        return segment

    def _frames(self, segment: _Segment, slot: int, end: int, is_own: bool) -> array[int]:
        """Return the positions of the frames in a block; `is_own`: also those of this process."""
        block = segment.base + slot * FRAME_INDEX_BLOCK
        own = self._own.get(block) if is_own else None
        if own is not None:
            return own
        found = self._blocks.get((block, is_own))
        if found is None:
            start = segment.base + int(segment.slots[slot]) - 1
            end = end if is_own else min(end, segment.own_from)
            stop = min(end, block + FRAME_INDEX_BLOCK)
            found = array("Q", (h.base for h in self._headers(segment, start, stop, end)))
            self._blocks[block, is_own] = found
            if len(self._blocks) > _BLOCKS_MAX:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end((block, is_own))
        return found

    # --- walking ----------------------------------------------------------------------------------

    def _walk_to(self, segment: _Segment, position: int, end: int) -> None:
        """Fill the slots of former processes' frames up to the block of `position`."""
        if segment.walked > position:
            return
        slot = (position - segment.base) // FRAME_INDEX_BLOCK
        wanted = segment.base + (slot + 1) * FRAME_INDEX_BLOCK
        stop = min(wanted, end, segment.own_from, segment.base + self._segment_bytes)
        at = segment.walked
        for header in self._headers(segment, at, stop, min(end, segment.own_from)):
            segment.note(header.base)
            # The block may have been cached when only frames of this process were known in it.
            offset = header.base - segment.base
            block = segment.base + offset // FRAME_INDEX_BLOCK * FRAME_INDEX_BLOCK
            self._blocks.pop((block, False), None)
            at = header.end
        while at in segment.gaps:
            at = segment.gaps[at]
        # A rest of the segment that is too small for a header holds no frame
        segment.walked = max(at, stop)

    def _headers(self, segment: _Segment, at: int, stop: int, end: int) -> Iterator[FrameHeader]:
        """Yield the intact headers that begin in [at, stop); skip damage, at most up to `end`."""
        end = min(end, segment.base + self._segment_bytes)
        chunk, first = b"", at
        while at < stop and at + HEADER_BYTES <= end:
            if at in segment.gaps:
                at = segment.gaps[at]
                continue
            if at + HEADER_BYTES > first + len(chunk):
                chunk, first = self._read(at, FRAME_INDEX_BLOCK), at
            header = parse(chunk, at - first)
            if header is None or not self._belongs(header, at, end):
                header, chunk = self._repair(at, end), b""
            if header is not None:
                yield header
                at = header.end
            else:
                at = self._pass_over(segment, at, end)

    def _belongs(self, header: FrameHeader, at: int, end: int) -> bool:
        return header.base == at and header.log_id == self._log_id and header.end <= end

    def _pass_over(self, segment: _Segment, at: int, end: int) -> int:
        """Record the gap that begins at `at`, report it, and return where it ends."""
        after = end
        if len(segment.gaps) < _GAPS_MAX:
            found = next_frame(self._read, self._log_id, at + 1, end)
            after = end if found is None else found.base
        segment.gaps[at] = after
        self._on_gap(at, after)
        return after
