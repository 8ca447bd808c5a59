"""What a loop measures of itself for metrics: how long turns take, how full they are, and steps of the wall clock.

A turn costs two looks at a clock; nothing here is done for a message.
"""

from __future__ import annotations

from time import perf_counter

from horolog.histogram import Histogram

SECONDS = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip
_COMMANDS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000)
_STEP_MS = 250  # less is a clock that is slewed
_SLEWED_PER_S = 1  # ms; no clock is slewed faster than by 500 µs a second


class Meters:
    """Belongs to the event loop's thread.

    turn_s         seconds that steps of the core took
    recent_turn_s  the same of the last ones: an average in which each weighs a tenth less than the next
    commands       of each turn
    refused        commands that nothing was done for, because too much waited for the disk
    steps          of the wall clock, forwards and backwards, since the start
    stepped_ms     the sum of their sizes, forwards and backwards
    """

    def __init__(self) -> None:
        self.turn_s = Histogram(SECONDS)
        self.recent_turn_s = 0.0
        self.commands = Histogram(_COMMANDS)
        self.refused = 0
        self.steps = [0, 0]
        self.stepped_ms = [0, 0]
        self._began = self._paused = 0.0
        self._wall_ms: int | None = None
        self._mono_ms = 0

    def begin(self, commands: int, wall_ms: int, mono_ms: int) -> None:
        """A turn of so many commands begins."""
        self.commands.observe(commands)
        if self._wall_ms is not None:
            passed_ms = mono_ms - self._mono_ms
            step_ms = wall_ms - self._wall_ms - passed_ms
            if abs(step_ms) > _STEP_MS + passed_ms * _SLEWED_PER_S // 1_000:
                way = int(step_ms < 0)
                self.steps[way] += 1
                self.stepped_ms[way] += abs(step_ms)
        self._wall_ms, self._mono_ms = wall_ms, mono_ms
        self._began = perf_counter()

    def pause(self) -> None:
        """Something else is done in it, which does not count, until `resume`."""
        self._paused = perf_counter()

    def resume(self) -> None:
        """The turn goes on."""
        self._began += perf_counter() - self._paused

    def end(self) -> None:
        """It is over, but for its effects."""
        took_s = perf_counter() - self._began
        self.turn_s.observe(took_s)
        self.recent_turn_s += (took_s - self.recent_turn_s) / 10
