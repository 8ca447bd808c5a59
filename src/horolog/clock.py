"""Two kinds of time.  The core never reads a clock: these are for the server, which passes the time in.

`wall_ms`       UTC epoch milliseconds, rounded down, so that nothing is ever early; may step.
`monotonic_ms`  for durations; never steps back.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the server needs of a clock."""

    simulated: bool

    def wall_ms(self) -> int:
        """UTC epoch milliseconds, rounded down."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds of an arbitrary, never stepping origin."""
        ...


class SystemClock:
    """The machine's clocks."""

    simulated = False

    def wall_ms(self) -> int:
        """UTC epoch milliseconds, rounded down."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary origin."""
        return time.monotonic_ns() // 1_000_000


class SimulatedClock:
    """A clock that stands still until it is moved: 30 days pass in one call of `advance`."""

    simulated = True

    def __init__(self, wall_ms: int, monotonic_ms: int = 0) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    def wall_ms(self) -> int:
        """UTC epoch milliseconds."""
        return self._wall_ms

    def monotonic_ms(self) -> int:
        """Milliseconds since this clock was made."""
        return self._monotonic_ms

    def advance(self, by_ms: int) -> None:
        """Let `by_ms` ≥ 0 milliseconds pass on both clocks."""
        if by_ms < 0:
            raise ValueError("a clock advances by 0 ms or more; use step_wall for a backward step")
        self._wall_ms += by_ms
        self._monotonic_ms += by_ms

    def step_wall(self, by_ms: int) -> None:
        """Step the wall clock alone, forwards or backwards, as an operator or NTP would."""
        self._wall_ms += by_ms
