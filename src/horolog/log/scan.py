"""The scan of the log's tail at start: yields valid frames, and classifies the first bad one.

A bad frame at p is *damage* if the checkpoint or any later intact frame states a durable position
above p: those bytes had been promised.  Otherwise p begins a *torn tail*: writes that were under
way and not yet acknowledged to any client.  A frame of an older epoch than the one before it is a
ghost of a tail that was cut off, and counts as bad.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from horolog.log.flipped_frame import FlippedFrame, flipped_frame
from horolog.log.frame import HEADER_BYTES, MAGIC, FrameHeader, body_intact, check_version, parse
from horolog.log.resync import frame_at, headers_in, next_frame
from horolog.log.segment import SegmentReader

_CHUNK = 4 << 20


class LogEnd(StrEnum):
    """How a scan ended."""

    WHOLE = "whole"  # only zeros after the last frame
    TORN = "torn"
    DAMAGED = "damaged"
    FOREIGN = "foreign"  # an intact frame of another log


class Identity(NamedTuple):
    """The log and shard that every frame must name."""

    log_id: int
    shard: int


class LogScan:
    """A pass over the frames from `start` on: iterate `frames` to its end, then read the results.

    Results: `end`, `outcome`, `epoch`, `last_frame`, `stated`, `stated_by`, `flipped`.
    """

    def __init__(
        self,
        reader: SegmentReader,
        identity: Identity,
        *,
        start: int,
        limit: int,
        epoch: int,
        durable: int,
        judge: bool = True,
    ) -> None:
        self._reader = reader
        self._identity = identity
        self._limit = limit  # log position after the last segment file
        self._durable = durable  # stated by the checkpoint
        self._wants_judgement = judge  # a second pass over the same frames needs no outcome
        self.end = start
        self.epoch = epoch
        self.last_frame = -1
        # The highest durable position that the checkpoint or a valid frame states
        self.stated = durable
        self.outcome = LogEnd.WHOLE
        self.stated_by = -1  # position of the frame that proves damage; −1: the checkpoint
        # Valid frames with a flipped bit that has to be repaired on disk
        self.flipped: list[FlippedFrame] = []

    def frames(self) -> Iterator[tuple[FrameHeader, bytes]]:
        """Yield the valid frames in order, including padding and marks."""
        size = self._reader.segment_bytes
        at = self.end
        while at < self._limit:
            rest = size - at % size
            if rest < HEADER_BYTES:
                at += rest
                continue
            header = parse(self._reader.bytes_at(at, HEADER_BYTES))
            flipped = None
            if header is None or header.base != at or header.end > at + rest:
                flipped = self._flipped(at, at + rest)
                header = None if flipped is None else flipped.header
            if header is None:
                break
            if header.log_id != self._identity.log_id or header.shard != self._identity.shard:
                self.end, self.outcome = at, LogEnd.FOREIGN
                return
            if header.epoch < self.epoch:
                break
            check_version(header)
            body = b"" if flipped is None else flipped.body
            if flipped is None and not header.padding:
                body = self._reader.bytes_at(at + HEADER_BYTES, header.length)
            if flipped is None and not body_intact(header, body):
                flipped = self._flipped(at, at + rest)
                if flipped is None:
                    break
                header, body = flipped.header, flipped.body
            if flipped is not None and flipped.pieces:
                self.flipped.append(flipped)
            self.epoch = header.epoch
            self.stated = max(self.stated, header.durable)
            self.last_frame = at
            at = self.end = header.end
            yield header, body
        self.end = at
        if self._wants_judgement:
            self._judge(at)

    def _flipped(self, at: int, stop: int) -> FlippedFrame | None:
        return flipped_frame(self._reader.bytes_at, self._identity.log_id, at, stop)

    def _judge(self, at: int) -> None:
        """Set the outcome by what follows `at`: nothing, a torn tail, or damage."""
        size = self._reader.segment_bytes
        self.outcome = LogEnd.DAMAGED if self._durable > at else LogEnd.WHOLE
        position = at
        while position < self._limit and self.outcome is not LogEnd.DAMAGED:
            stop = min(position + _CHUNK, position - position % size + size)
            chunk = self._reader.bytes_at(position, stop - position)
            if chunk and np.frombuffer(chunk, np.uint8).any():
                self.outcome = LogEnd.TORN
                first = max(at, position - position % size, position - len(MAGIC) + 1)
                for header in headers_in(self._reader.bytes_at, first, stop):
                    if header.log_id == self._identity.log_id and header.durable > at:
                        self.outcome, self.stated_by = LogEnd.DAMAGED, header.base
                        break
            position = stop


class SalvageScan:
    """A pass over frames that continues after damage; iterate `frames`, then read `gaps`.

    Only for the log below a checkpoint: there a bad frame is neither the end of the log nor a
    reason to refuse the log, if only derived files are to be rebuilt from the rest.
    """

    def __init__(self, reader: SegmentReader, identity: Identity, *, start: int, stop: int) -> None:
        self._reader = reader
        self._identity = identity
        self._start = start
        self._stop = stop
        # Log positions [from, to) that fail their check, or were given up by salvage
        self.gaps: list[tuple[int, int]] = []

    def frames(self) -> Iterator[tuple[FrameHeader, bytes]]:
        """Yield the valid frames in order, including padding and marks."""
        size = self._reader.segment_bytes
        at = self._start
        while at < self._stop:
            rest = size - at % size
            if rest < HEADER_BYTES:
                at += rest
                continue
            read, log_id = self._reader.bytes_around, self._identity.log_id
            found = frame_at(read, log_id, at, at + rest)
            if found is None:
                following = next_frame(read, log_id, at + 1, at + rest)
                after = at + rest if following is None else following.base
                self.gaps.append((at, min(after, self._stop)))
                at = after
                continue
            at = found[0].end
            if found[0].salvaged:
                self.gaps.append((found[0].base, at))
            yield found
