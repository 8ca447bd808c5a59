"""A set of queue offsets, kept as runs of offsets that follow each other.

What a group has acknowledged above its floor is of this kind: between the floor and what comes next every offset is
consumed or leased, so there are no more runs than leases, however many messages were consumed after one that is
extended for ever.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class OffsetRuns:
    """Runs [first, stop), in order, none of which touches the next one."""

    __slots__ = ("_firsts", "_stops")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._stops: list[int] = []

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._firsts, offset) - 1
        return at >= 0 and offset < self._stops[at]

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __len__(self) -> int:
        """How many offsets."""
        return sum(self._stops) - sum(self._firsts)

    def __iter__(self) -> Iterator[int]:
        """All offsets; for few of them."""
        for first, stop in self.runs():
            yield from range(first, stop)

    @property
    def stop(self) -> int:
        """After the last offset; 0 if there is none."""
        return self._stops[-1] if self._stops else 0

    def runs(self) -> Iterator[tuple[int, int]]:
        """(first, stop) of each run."""
        return zip(self._firsts, self._stops, strict=True)

    def copied(self) -> tuple[list[int], list[int]]:
        """Firsts and stops of the runs, as they are now."""
        return self._firsts.copy(), self._stops.copy()

    def add(self, first: int, stop: int = 0) -> None:
        """Add [first, stop), or one offset; some of it may be there."""
        stop = stop or first + 1
        assert 0 <= first < stop, (first, stop)
        low = bisect_left(self._stops, first)  # the first run that ends at `first` or after it
        # After the last one that begins at `stop` or before
        high = bisect_right(self._firsts, stop)
        if low < high:
            first = min(first, self._firsts[low])
            stop = max(stop, self._stops[high - 1])
        self._firsts[low:high] = [first]
        self._stops[low:high] = [stop]

    def take_from(self, offset: int) -> int:
        """Take away the run that begins at an offset; gives where it ended, or the offset if there is none."""
        if not self._firsts or self._firsts[0] != offset:
            return offset
        del self._firsts[0]
        return self._stops.pop(0)

    def drop_below(self, offset: int) -> None:
        """Forget all offsets below."""
        gone = bisect_right(self._stops, offset)
        del self._firsts[:gone], self._stops[:gone]
        if self._firsts:
            self._firsts[0] = max(self._firsts[0], offset)

    def clear(self) -> None:
        """Forget all of them."""
        self._firsts.clear()
        self._stops.clear()

    def count_below(self, offset: int) -> int:
        """How many offsets lie below."""
        return sum(min(stop, offset) - first for first, stop in self.runs() if first < offset)

    def check_invariants(self) -> None:
        """AssertionError if runs overlap, touch, or are empty."""
        assert len(self._firsts) == len(self._stops)
        assert all(first < stop for first, stop in self.runs())
        pairs = zip(self._stops, self._firsts[1:], strict=False)
        assert all(stop < following for stop, following in pairs), "runs that touch"
