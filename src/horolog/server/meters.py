"""What a loop measures for metrics: how long turns take, how full they are, wall-clock steps.

A turn costs two reads of a clock; nothing here is done for each message.
"""

from __future__ import annotations

from time import perf_counter

from horolog.histogram import Histogram

SECONDS = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
    0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip
_COMMANDS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000)
_STEP_MS = 250  # a smaller difference is a clock that is slewed
_SLEWED_PER_S = 1  # ms; no clock is slewed faster than by 500 µs a second


class Meters:
    """Measures turns.  Belongs to the event loop's thread.

    turn_s         seconds that steps of the core took
    recent_turn_s  moving average of the last of these; each weighs a tenth less than the next
    commands       in each turn
    refused        commands refused because too much waited for the disk
    steps          of the wall clock, forwards and backwards, since the start
    stepped_ms     the sum of the sizes of these steps, forwards and backwards
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
        """Begin to measure a turn of so many commands; count a wall-clock step since the last."""
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
        """Stop counting time until `resume`: the turn does work that is not the core's."""
        self._paused = perf_counter()

    def resume(self) -> None:
        """Count time again."""
        self._began += perf_counter() - self._paused

    def end(self) -> None:
        """End the measurement of a turn, before its effects."""
        took_s = perf_counter() - self._began
        self.turn_s.observe(took_s)
        self.recent_turn_s += (took_s - self.recent_turn_s) / 10
