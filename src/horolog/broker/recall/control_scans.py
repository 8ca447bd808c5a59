"""Scan the log for control records, a bounded piece in every turn.

The key index of a log names messages, but no recall, lease or acknowledgement.  A search for these
reads the frames from the message's position on: HISTORY_FRAMES and HISTORY_BYTES of them in one
turn, so other clients do not wait, and at most HISTORY_FRAMES_MAX and HISTORY_BYTES_MAX altogether.
A frame that begins with a message, or with a hand-over, is skipped: control records come before the
messages of a frame, and a hand-over frame has no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.limits import (
    HISTORY_BYTES,
    HISTORY_BYTES_MAX,
    HISTORY_FRAMES,
    HISTORY_FRAMES_MAX,
)
from horolog.log.commit_log import CommitLog
from horolog.log.controls import Control, control_at
from horolog.log.frame import HEADER_BYTES, FrameHeader
from horolog.log.record import IS_MESSAGE, KIND_AT, Kind, kinds_of, offsets_of


class Logged(NamedTuple):
    """A control record, and the frame that contains it."""

    control: Control
    header: FrameHeader
    body: bytes
    offsets: npt.NDArray[np.int64]  # of all records of the frame
    row: int  # of the control record among them


class ControlScan:
    """The control records of the frames that begin in [start, stop), in log order.

    whole  whether all of them were read so far: no gap, nothing dropped, no limit reached
    """

    def __init__(self, log: CommitLog, start: int, stop: int) -> None:
        self._log = log
        self._at = start
        self._stop = stop
        self._frames = HISTORY_FRAMES_MAX
        self._bytes = HISTORY_BYTES_MAX
        self.whole = True
        self.done = start >= stop

    def scan_next(self) -> Iterator[Logged]:
        """Yield the control records of the next piece."""
        frames, left = HISTORY_FRAMES, HISTORY_BYTES
        if self._at < self._log.start:
            self._at, self.whole = self._log.start, False
        for header, body in self._log.intact_frames(self._at, self._stop):
            if header.base - self._at >= HEADER_BYTES:
                self.whole = False  # frames in between cannot be read
            self._at = header.end
            frames -= 1
            left -= header.length
            yield from _controls(header, body)
            if frames <= 0 or left <= 0:
                break
        else:
            self._at = self._stop
        self._frames -= HISTORY_FRAMES - frames
        self._bytes -= HISTORY_BYTES - left
        self.done = self._at >= self._stop
        if not self.done and (self._frames <= 0 or self._bytes <= 0):
            self.done, self.whole = True, False

    def end(self) -> None:
        """End the scan: the search has found all that it wants."""
        self.done = True


def _controls(header: FrameHeader, body: bytes) -> Iterator[Logged]:
    if header.padding or not header.count:
        return
    first = body[KIND_AT]
    if IS_MESSAGE[first] or first == Kind.HAND_OVER:
        return
    offsets = offsets_of(body, header.count)
    for row in np.flatnonzero(~IS_MESSAGE[kinds_of(body, offsets)]).tolist():
        yield Logged(control_at(header, body, int(offsets[row])), header, body, offsets, row)
