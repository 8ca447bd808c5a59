"""Holes of the log: stretches of log positions that cannot be read.

The content of a hole is not known, so a file that points into a hole is not wrong: a flipped bit of
the log is one finding, and not another one for every unit and row that has lost its message.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt


class Holes:
    """Log positions [first, stop) that do not verify, in the order of the log."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._stops: list[int] = []

    def __len__(self) -> int:
        """Return how many holes there are."""
        return len(self._firsts)

    @property
    def bytes(self) -> int:
        """Bytes of all holes."""
        return sum(self._stops) - sum(self._firsts)

    @property
    def stop(self) -> int:
        """End of the last hole; 0 if there is none."""
        return self._stops[-1] if self._stops else 0

    def add(self, first: int, stop: int) -> None:
        """Add a hole after the others; one that begins where the last one ends extends that one."""
        assert first < stop, "a hole has bytes"
        assert not self._stops or self._stops[-1] <= first, "the log is read in order"
        if self._stops and self._stops[-1] == first:
            self._stops[-1] = stop
            return
        self._firsts.append(first)
        self._stops.append(stop)

    def cut(self, end: int) -> None:
        """Forget everything after `end`: the torn tail of the log is no hole."""
        n = bisect_left(self._firsts, end)
        del self._firsts[n:], self._stops[n:]
        if n:
            self._stops[-1] = min(self._stops[-1], end)

    def has(self, position: int) -> bool:
        """Return whether a log position lies in a hole."""
        at = bisect_right(self._firsts, position) - 1
        return at >= 0 and position < self._stops[at]

    def contains(self, positions: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return which log positions lie in a hole."""
        if not self._firsts:
            return np.zeros(len(positions), bool)
        at = np.searchsorted(
            np.array(self._firsts, np.uint64), positions.astype(np.uint64), "right"
        )
        inside: npt.NDArray[np.bool_] = at > 0
        stops = np.array(self._stops, np.uint64)
        below: npt.NDArray[np.bool_] = positions.astype(np.uint64) < stops[np.maximum(at, 1) - 1]
        return inside & below
