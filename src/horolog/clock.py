"""Clocks of the server.  The core never reads a clock; it gets the time as an argument.

`wall_ms`       UTC epoch milliseconds, rounded down, so that no message is ever early; may step.
`monotonic_ms`  milliseconds for durations; never steps back.
"""

from __future__ import annotations

import time
from typing import Protocol


def monotonic_ms() -> int:
    """Return the machine's monotonic milliseconds; connections keep to them under any `Clock`."""
    return time.monotonic_ns() // 1_000_000


class Clock(Protocol):
    """The interface of a clock for the server."""

    simulated: bool

    def wall_ms(self) -> int:
        """Return the wall time: UTC epoch milliseconds, rounded down."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary, never stepping origin."""
        ...


class SystemClock:
    """The machine's clocks."""

    simulated = False

    def wall_ms(self) -> int:
        """Return the wall time: UTC epoch milliseconds, rounded down."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary origin."""
        return monotonic_ms()


class SimulatedClock:
    """A clock that stands still until a call moves it: 30 days pass in one call of `advance`."""

    simulated = True

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = 0

    def wall_ms(self) -> int:
        """Return the wall time: UTC epoch milliseconds."""
        return self._wall_ms

    def monotonic_ms(self) -> int:
        """Return the milliseconds since the clock was made."""
        return self._monotonic_ms

    def advance(self, by_ms: int) -> None:
        """Let `by_ms` milliseconds pass on both clocks; ValueError if it is negative."""
        if by_ms < 0:
            raise ValueError("a clock advances by 0 ms or more; use step_wall for a backward step")
        self._wall_ms += by_ms
        self._monotonic_ms += by_ms

    def step_wall(self, by_ms: int) -> None:
        """Step only the wall clock, forwards or backwards, as an operator or NTP would."""
        self._wall_ms += by_ms
