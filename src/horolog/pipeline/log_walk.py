"""Walk over the frames of a mapped segment: where every record begins, in stretches for numpy.

A log of single sends has a frame for each message, so only check sums are computed frame by frame:
the offsets of many frames are gathered, and the content of records is read as columns of the mapped
segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.errors import HorologError
from horolog.log.controls import Control, read_control
from horolog.log.frame import HEADER_BYTES, FrameHeader, body_intact, check_version, parse
from horolog.log.record import Kind, offsets_of
from horolog.log.resync import headers_in
from horolog.log.segment import segment_name
from horolog.pipeline.data_files import Bytes, LogPlan, Segment, files_of, mapped_file
from horolog.storage.meta import SHARD

Rows = npt.NDArray[np.int64]
STRETCH_ROWS = 65_536


class Stretch(NamedTuple):
    """Records of consecutive frames; `raw` is the whole segment."""

    raw: Bytes
    base: int  # log position of raw[0]
    at: Rows  # where each record begins in `raw`
    frame: Rows  # of each record: index of its frame in the stretch
    append_ms: Rows  # of each frame
    epoch: Rows  # of each frame
    kinds: Bytes  # of each record


def mapped(root: str, base: int) -> Bytes | None:
    """Map a segment of the log; return None if it does not exist."""
    return mapped_file(files_of(root).path(f"{SHARD}/log/{segment_name(base)}"))


class SegmentWalk:
    """One pass over a segment; iterate `stretches` to the end, then read the other attributes.

    The walk goes on after a frame that does not verify, or that marks records which a salvage gave
    up: `gaps` are the log positions [from, to) that were passed over.
    """

    def __init__(self, plan: LogPlan, segment: Segment, *, check: bool = True) -> None:
        self._plan = plan
        self._segment = segment
        self._check = check  # also verify the bodies of frames
        self.gaps: list[tuple[int, int]] = []
        self.frames = 0
        self.records = 0

    def stretches(self) -> Iterator[Stretch]:
        """Yield all records in order."""
        raw = mapped(self._plan.root, self._segment.base)
        if raw is None:
            self.gaps.append((self._segment.start, self._segment.stop))
            return
        offsets: list[Rows] = []
        headers: list[tuple[int, int, int]] = []  # count, append ms, epoch
        gathered = 0
        for header, at in self._walk(raw.data):
            offsets.append(at)
            headers.append((header.count, header.append_ms, header.epoch))
            gathered += header.count
            if gathered >= STRETCH_ROWS:
                yield self._stretch(raw, offsets, headers)
                offsets, headers, gathered = [], [], 0
        if gathered:
            yield self._stretch(raw, offsets, headers)

    def _stretch(
        self, raw: Bytes, offsets: list[Rows], headers: list[tuple[int, int, int]]
    ) -> Stretch:
        table = np.array(headers, np.int64)
        at = np.concatenate(offsets)
        frame = np.repeat(np.arange(len(table)), table[:, 0])
        return Stretch(raw, self._segment.base, at, frame, table[:, 1], table[:, 2], raw[at + 4])

    def _walk(self, view: memoryview) -> Iterator[tuple[FrameHeader, Rows]]:
        base, stop = self._segment.base, min(self._segment.stop - self._segment.base, len(view))
        at = self._segment.start - base
        while at + HEADER_BYTES <= stop:
            header = self._frame(view, at)
            records = None
            if header is not None:
                records = self._offsets(view, header, at)
            if header is None or records is None:
                after = self._next_frame(view, at + 1, stop)
                self.gaps.append((base + at, base + after))
                at = after
                continue
            at += HEADER_BYTES + header.length
            self.frames += 1
            self.records += header.count
            if header.count:
                yield header, records

    def _frame(self, view: memoryview, at: int) -> FrameHeader | None:
        header = parse(view, at)
        if header is None or header.log_id != self._plan.log_id:
            return None
        if header.base != self._segment.base + at:
            return None
        check_version(header)
        if header.salvaged:
            return None
        if self._check and not header.padding:
            first = at + HEADER_BYTES
            if not body_intact(header, view[first : first + header.length]):
                return None
        return header

    def _offsets(self, view: memoryview, header: FrameHeader, at: int) -> Rows | None:
        first = at + HEADER_BYTES
        if header.count == 1:
            return np.array([first])
        if not header.count:
            return np.empty(0, np.int64)
        try:
            return offsets_of(view[first : first + header.length], header.count) + first
        except HorologError:
            return None

    def _next_frame(self, view: memoryview, at: int, stop: int) -> int:
        base = self._segment.base

        def read(position: int, length: int) -> memoryview:
            return view[position - base : position - base + length]

        for header in headers_in(read, base + at, base + stop):
            if self._frame(view, header.base - base) is not None:
                return header.base - base
        return stop


def walk_log(plan: LogPlan, *, start: int = 0, check: bool = True) -> Iterator[Stretch]:
    """Yield all records from a frame's log position on, in this process."""
    for segment in plan.segments:
        if segment.stop <= start:
            continue
        part = segment._replace(start=max(segment.start, start))
        yield from SegmentWalk(plan, part, check=check).stretches()


def last_frame(plan: LogPlan) -> FrameHeader | None:
    """Return the frame that ends where the log ends; None if the log is empty."""
    found = None
    for segment in plan.segments[-1:]:
        raw = mapped(plan.root, segment.base)
        at = segment.start - segment.base
        while raw is not None and segment.base + at < plan.end:
            header = parse(raw.data, at)
            if header is None:
                break
            found, at = header, at + HEADER_BYTES + header.length
    return found


def controls_of(stretch: Stretch, kind: Kind) -> Iterator[tuple[int, Control]]:
    """Yield the control records of one kind, with the row of each in the stretch."""
    for row in np.flatnonzero(stretch.kinds == kind).tolist():
        at = int(stretch.at[row])
        yield row, read_control(stretch.raw, at, stretch.base + at)
