"""The log positions from which the log has grown lately, by time, without an entry for each append.

Appends are put into spans of a second, or of a 120th of the window if that is longer.  Of each span
only its beginning and its first log position are kept, so there are never more than some 122.  A
window is thus kept a span too long rather than a moment too short.

Time is the monotonic clock, so that a step of the wall clock neither ends a window nor makes it
endless.  A checkpoint keeps the spans by the wall clock, and replay adds the spans after it; after
a restart their age is what the wall clock says, but never less than 0.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from horolog.limits import SECOND_MS

_SPANS = 120


class _Span(NamedTuple):
    mono_ms: int  # when it began
    wall_ms: int
    position: int  # log position of its first append


class LogTimes:
    """Spans of appends within the last `window_ms`; none if that is 0."""

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self.span_ms = max(SECOND_MS, window_ms // _SPANS)
        self._spans: deque[_Span] = deque()

    def note(self, mono_ms: int, wall_ms: int, position: int) -> None:
        """Note that messages are being appended from that log position on."""
        if not self.window_ms:
            return
        if self._spans:
            last = self._spans[-1]
            stepped = (wall_ms - last.wall_ms) - (mono_ms - last.mono_ms)
            # After a restart spans are dated by the wall clock, so appends before and after a step
            # of it must not share a span.
            if mono_ms < last.mono_ms + self.span_ms and abs(stepped) < self.span_ms:
                return
        self._spans.append(_Span(mono_ms, wall_ms, position))
        self._forget(mono_ms)

    def _forget(self, mono_ms: int) -> None:
        while self._spans and self._spans[0].mono_ms + self.span_ms + self.window_ms <= mono_ms:
            self._spans.popleft()

    def since(self, mono_ms: int) -> int | None:
        """Return the log position from which on all appends of the window are, if any."""
        self._forget(mono_ms)
        return self._spans[0].position if self._spans else None

    def needs_below(self, position: int, mono_ms: int) -> int | None:
        """Return the ms until no append of the window is below that position; None if none is."""
        self._forget(mono_ms)
        lasts = [span.mono_ms for span in self._spans if span.position < position]
        if not lasts:
            return None
        return max(1, lasts[-1] + self.span_ms + self.window_ms - mono_ms)

    # --- over a restart -------------------------------------------------------------------------

    def captured(self, position: int) -> list[tuple[int, int]]:
        """Return (wall clock ms, log position) of the spans that begin below `position`.

        They are kept in a checkpoint.
        """
        return [(span.wall_ms, span.position) for span in self._spans if span.position < position]

    def restore_span(self, wall_ms: int, position: int, now_wall_ms: int, now_mono_ms: int) -> None:
        """Restore at start a span of a former process; called in log order."""
        mono_ms = now_mono_ms - max(0, now_wall_ms - wall_ms)
        if self._spans:
            mono_ms = max(mono_ms, self._spans[-1].mono_ms)  # the wall clock was stepped
        self.note(mono_ms, wall_ms, position)
