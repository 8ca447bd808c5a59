"""The reader of records: log position → record, or a hole.  Every read of a record goes through it.

A record is served only out of a frame that verifies, and only if a record of that frame begins at
the position and has the expected size.  So a wrong derived file never leads to a garbled record,
and no body can pass for a record.  Frames are verified when they are opened; the frames opened or
written most recently stay in memory and are not read again.

A record that cannot be read is a `Hole`.  A hole is a value: it never ends a turn, and states its
reason in a sentence.  Each damaged frame, and each gap in which no intact header is left, is
reported once in `problems`.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import NamedTuple

from horolog.errors import HorologError, Problem, Repair
from horolog.limits import (
    DAMAGED_FRAMES_MAX,
    FRAMES_AHEAD_BYTES,
    FRAMES_OPEN_BYTES,
    FRAMES_OPEN_MAX,
)
from horolog.log.flipped_frame import FlippedFrame, flipped_frame
from horolog.log.frame import HEADER_BYTES, FrameHeader, body_intact, parse
from horolog.log.frame_index import FrameIndex
from horolog.log.queue_runs import QueueRun, runs_of
from horolog.log.record import offsets_of
from horolog.log.segment import SegmentReader


class Hole(NamedTuple):
    """A log position at which no record can be read, and why.

    dropped  retention has dropped the record: nothing is wrong
    """

    position: int
    why: str
    dropped: bool = False


class OpenFrame:
    """A verified frame; `body` may be a view of a buffer."""

    __slots__ = ("_ends", "_runs", "append_ms", "base", "body", "count", "end", "epoch", "start")

    def __init__(
        self, base: int, body: bytes | bytearray, count: int, append_ms: int, epoch: int
    ) -> None:
        self.base = base
        self.start = base + HEADER_BYTES
        self.end = self.start + len(body)
        self.body = body
        self.count = count
        self.append_ms = append_ms
        self.epoch = epoch
        self._ends: dict[int, int] | None = None  # where a record begins → where it ends
        self._runs: dict[tuple[int, int], QueueRun] | None = None

    def ends(self) -> dict[int, int]:
        """Return where each record ends, by where it begins, as offsets in the body."""
        if self._ends is None:
            if self.count == 1:
                self._ends = {0: len(self.body)}
            else:
                offsets = offsets_of(self.body, self.count).tolist()
                self._ends = dict(zip(offsets, [*offsets[1:], len(self.body)], strict=True))
        return self._ends

    def run(self, topic: int, queue: int) -> QueueRun | None:
        """Return the visible messages of a queue (by ids); None if absent or not consecutive."""
        if self._runs is None:
            self._runs = runs_of(self.body, self.start, self.ends())
        return self._runs.get((topic, queue))


class FrameReader:
    """Reader of a log's frames; keeps the frames opened or written most recently in memory."""

    def __init__(self, segments: SegmentReader, log_id: int) -> None:
        self.problems: list[Problem] = []  # each reported once; the caller clears the list
        self.repairs: list[Repair] = []  # repaired frames; the caller clears the list
        self.index = FrameIndex(
            segments.segment_bytes, segments.bytes_around, log_id, self._header_of, self._report_gap
        )
        self._segments = segments
        self._log_id = log_id
        segments.on_lost = self._report_unread
        self._open: OrderedDict[int, OpenFrame] = OrderedDict()
        self._open_bytes = 0
        self._last: OpenFrame | None = None
        self._after = -FRAMES_AHEAD_BYTES  # log position where the frame read last ends
        self._ahead = 0, b""  # log position and bytes of the last read-ahead
        self._damaged: dict[int, str] = {}  # position of a frame → why it cannot be read

    def written(
        self,
        base: int,
        body: bytes | bytearray,
        count: int,
        committed: int,
        append_ms: int,
        epoch: int,
    ) -> None:
        """Record a frame that this process has appended; `committed` as for `FrameIndex.add`."""
        self.index.add(base, committed)
        if count:
            self._keep(OpenFrame(base, body, count, append_ms, epoch))

    def record(self, position: int, size: int, end: int) -> bytes | Hole:
        """Read the record of `size` bytes (0: any) at a position below log position `end`."""
        frame = self._last
        if frame is None or not frame.start <= position < frame.end:
            opened = self.frame(position, end)
            if isinstance(opened, Hole):
                return opened
            frame = opened
        at = position - frame.start
        ends = frame.ends()
        stop = ends.get(at, 0)
        if not stop or (size and stop - at != size):
            what = f"no record of {size} bytes begins" if stop else "no record begins"
            return Hole(position, f"commit log: {what} at log position {position}")
        return bytes(frame.body[at:stop])

    def frame(self, position: int, end: int) -> OpenFrame | Hole:
        """Open the frame whose body holds a log position; a hole if no intact frame does."""
        last = self._last
        if last is not None and last.start <= position < last.end:
            return last
        # In a sequence of small frames, the record is mostly the first one of its frame
        base = position - HEADER_BYTES
        frame = self._open.get(base)
        if frame is None:
            base = self.index.find(position, end)
            frame = self._open.get(base)
        if frame is None:
            if base in self._damaged:
                return Hole(position, self._damaged[base])
            frame = self._read(base, end) if base >= 0 else None
            if frame is None and base in self._damaged:
                return Hole(position, self._damaged[base])
        if frame is None or not frame.start <= position < frame.end:
            return Hole(position, f"commit log: no intact frame holds log position {position}")
        self._last = frame
        return frame

    def opened(self, base: int) -> OpenFrame | None:
        """Return the frame at `base` if it is in memory, else None."""
        return self._open.get(base)

    def _read(self, base: int, end: int) -> OpenFrame | None:
        """Read and verify the frame at `base`; None if it is damaged or holds no records."""
        header, body = parse(self._bytes(base, HEADER_BYTES, end)), b""
        if header is not None and header.count:
            body = self._bytes(base + HEADER_BYTES, header.length, end)
            self._after = header.end
        if header is None or not body_intact(header, body):
            flipped = self._repair(base, end)
            if flipped is None:
                self._report_damage(base, header)
                return None
            header, body = flipped.header, flipped.body
        if not header.count:
            return None
        frame = OpenFrame(base, body, header.count, header.append_ms, header.epoch)
        self._keep(frame)
        return frame

    def _bytes(self, at: int, length: int, end: int) -> bytes:
        """Read bytes of the log; sequential reads of frames share one larger read-ahead.

        No bytes from `end` on are kept: they may not be written yet.
        """
        first, chunk = self._ahead
        if not first <= at <= at + length <= first + len(chunk):
            if not 0 <= at - self._after < FRAMES_AHEAD_BYTES:
                return self._segments.bytes_around(at, length)
            first = at
            chunk = self._segments.bytes_around(at, max(length, min(FRAMES_AHEAD_BYTES, end - at)))
            self._ahead = first, chunk
        return chunk[at - first : at - first + length]

    def _header_of(self, base: int, end: int) -> FrameHeader | None:
        flipped = self._repair(base, end)
        return None if flipped is None else flipped.header

    def _repair(self, base: int, end: int) -> FlippedFrame | None:
        """Repair the frame at `base` if one bit has flipped; write it back if the disk can."""
        stop = min(end, base - base % self._segments.segment_bytes + self._segments.segment_bytes)
        flipped = flipped_frame(self._segments.bytes_around, self._log_id, base, stop)
        if flipped is None:
            return None
        self._ahead = 0, b""
        if flipped.pieces:
            with suppress(HorologError):
                self._segments.write_back(flipped.pieces)
            self.repairs.append(flipped.repair)
        return flipped

    def _keep(self, frame: OpenFrame) -> None:
        self._open[frame.base] = frame
        self._open_bytes += len(frame.body)
        while len(self._open) > 1 and (
            self._open_bytes > FRAMES_OPEN_BYTES or len(self._open) > FRAMES_OPEN_MAX
        ):
            self._open_bytes -= len(self._open.popitem(last=False)[1].body)

    def _report_damage(self, base: int, header: FrameHeader | None) -> None:
        if len(self._damaged) >= DAMAGED_FRAMES_MAX:
            return
        why, what = f"commit log: the frame at log position {base} is damaged", "its records"
        if header is None:
            why += " in its header"
        else:
            what = f"its {header.count} records, {header.length} bytes,"
        self._damaged[base] = why
        self._report(base, f"{why}: {what} cannot be read")

    def _report_gap(self, first: int, end: int) -> None:
        why = "cannot be read: the header of a frame is damaged"
        self._report(first, f"commit log: {end - first} bytes from log position {first} on {why}")

    def _report_unread(self, first: int, end: int, why: HorologError) -> None:
        text = f"commit log: {end - first} bytes from log position {first} on cannot be read: {why}"
        self._report(first, text)

    def _report(self, position: int, text: str) -> None:
        self.problems.append(Problem(text, self._segments.path(position)))

    def drop_below(self, position: int) -> None:
        """Forget the frames below a log position."""
        self.index.drop_below(position)
        self._last = None
        self._ahead = 0, b""
        for base in [base for base in self._open if base < position]:
            self._open_bytes -= len(self._open.pop(base).body)
        for base in [base for base in self._damaged if base < position]:
            del self._damaged[base]
