"""A set of queue offsets, kept as runs of consecutive offsets.

It holds the offsets that a group has acknowledged above its floor.  Between `floor` and `next`
every offset is consumed or leased, so there are no more runs than leases, however many messages are
consumed after one whose lease is extended for ever.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class OffsetRuns:
    """A set of offsets as runs [first, stop), in order, with a gap between any two."""

    __slots__ = ("_count", "_firsts", "_stops")

    def __init__(self) -> None:
        self._count = 0
        self._firsts: list[int] = []
        self._stops: list[int] = []

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._firsts, offset) - 1
        return at >= 0 and offset < self._stops[at]

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __len__(self) -> int:
        """Return the count of offsets."""
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Yield all offsets; for small sets."""
        for first, stop in self.runs():
            yield from range(first, stop)

    @property
    def stop(self) -> int:
        """The last offset plus 1; 0 if the set is empty."""
        return self._stops[-1] if self._stops else 0

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield (first, stop) of each run."""
        return zip(self._firsts, self._stops, strict=True)

    def copied(self) -> tuple[list[int], list[int]]:
        """Return copies of the firsts and stops of the runs."""
        return self._firsts.copy(), self._stops.copy()

    def add(self, first: int, stop: int = 0) -> None:
        """Add [first, stop), or the offset `first` alone; some of it may be in the set already."""
        stop = stop or first + 1
        assert 0 <= first < stop, (first, stop)
        low = bisect_left(self._stops, first)  # the first run that ends at `first` or after it
        # The run after the last one that begins at `stop` or before it
        high = bisect_right(self._firsts, stop)
        self._count -= sum(self._stops[low:high]) - sum(self._firsts[low:high])
        if low < high:
            first = min(first, self._firsts[low])
            stop = max(stop, self._stops[high - 1])
        self._firsts[low:high] = [first]
        self._stops[low:high] = [stop]
        self._count += stop - first

    def take_from(self, offset: int) -> int:
        """Remove the run that begins at `offset` and return its stop; `offset` if there is none."""
        if not self._firsts or self._firsts[0] != offset:
            return offset
        del self._firsts[0]
        stop = self._stops.pop(0)
        self._count -= stop - offset
        return stop

    def drop_below(self, offset: int) -> None:
        """Remove all offsets below `offset`."""
        self._count -= self.count_below(offset)
        gone = bisect_right(self._stops, offset)
        del self._firsts[:gone], self._stops[:gone]
        if self._firsts:
            self._firsts[0] = max(self._firsts[0], offset)

    def clear(self) -> None:
        """Remove all offsets."""
        self._count = 0
        self._firsts.clear()
        self._stops.clear()

    def count_below(self, offset: int) -> int:
        """Return the count of offsets below `offset`."""
        return sum(min(stop, offset) - first for first, stop in self.runs() if first < offset)

    def check_invariants(self) -> None:
        """Assert that no runs overlap, touch, or are empty."""
        assert len(self._firsts) == len(self._stops)
        assert all(first < stop for first, stop in self.runs())
        pairs = zip(self._stops, self._firsts[1:], strict=False)
        assert all(stop < following for stop, following in pairs), "runs that touch"
        assert self._count == sum(self._stops) - sum(self._firsts), self._count
