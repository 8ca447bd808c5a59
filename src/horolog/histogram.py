"""A histogram of values with fixed bounds, as Prometheus needs it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts of values between bounds, and of values above all bounds.

    bounds  ascending upper bounds; a value equal to a bound counts there
    counts  one more than bounds; not cumulated
    total   sum of all values
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total: float = 0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> Histogram:
        """Return a copy."""
        other = Histogram(self.bounds)
        other.counts, other.total = self.counts.copy(), self.total
        return other


def quantile(bounds: Sequence[float], counts: Sequence[int], part: float) -> float | None:
    """Return the lowest bound that at least `part` (0 to 1) of the values do not exceed.

    None without values, infinity if it is above all bounds.  The values within a bucket are not
    known, so the result is an upper bound of the quantile, never too low.
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
