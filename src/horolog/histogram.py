"""Counts of values by size, as plain numbers: what a metric of Prometheus needs, and nothing more."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """How many values were at most each bound, and how many were larger than all of them.

    bounds  ascending; a value that is one of them counts as at most that
    counts  one more than bounds; not cumulated
    total   of all values
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total: float = 0

    def observe(self, value: float) -> None:
        """One more value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> Histogram:
        """A copy of what it is now."""
        other = Histogram(self.bounds)
        other.counts, other.total = self.counts.copy(), self.total
        return other


def quantile(bounds: Sequence[float], counts: Sequence[int], part: float) -> float | None:
    """The bound that at least `part` of the values do not pass; None without values, infinity above all bounds.

    What lies within a bucket is not known, so this is an upper bound, never too low.
    """
    wanted = part * sum(counts)
    if not wanted:
        return None
    seen = 0
    for bound, count in zip((*bounds, float("inf")), counts, strict=True):
        seen += count
        if seen >= wanted:
            return bound
    raise AssertionError("part lies between 0 and 1")
