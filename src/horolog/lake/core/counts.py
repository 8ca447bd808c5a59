"""Counts of the messages in the lake by offload, hour and topic, with sums for recalls."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

Key = tuple[int, int, int]  # (offload, hour, topic)
_K = TypeVar("_K", bound=Hashable)


class LakeCounts:
    """Counts of waiting messages, all above 0.

    Only `items`, `by_hour` and `first_of` cost more with more counts.
    """

    def __init__(self, counts: Iterable[tuple[Key, int]] = ()) -> None:
        self.total = 0
        self._counts: dict[Key, int] = {}
        self._by_hour: dict[int, int] = {}
        self._by_both: dict[tuple[int, int], int] = {}  # (hour, topic) → waiting
        self._first: int | None = None  # first hour with messages; None: not known
        for key, n in counts:
            self.put(key, n)

    def __len__(self) -> int:
        """Return how many (offload, hour, topic) keys have messages."""
        return len(self._counts)

    def items(self) -> Iterator[tuple[Key, int]]:
        """Yield each key with its count."""
        yield from self._counts.items()

    def get(self, key: Key) -> int:
        """Return the count of an offload, hour and topic."""
        return self._counts.get(key, 0)

    def has(self, hour: int, topic: int) -> bool:
        """Return whether any offload has messages of an hour and topic."""
        return (hour, topic) in self._by_both

    def by_hour(self, topic: int | None) -> dict[int, int]:
        """Return the counts by hour, of one topic or (None) of all."""
        if topic is None:
            return dict(self._by_hour)
        return {hour: n for (hour, of_topic), n in self._by_both.items() if of_topic == topic}

    def in_hour(self, hour: int, topic: int | None) -> int:
        """Return the count of an hour, of one topic or (None) of all."""
        if topic is None:
            return self._by_hour.get(hour, 0)
        return self._by_both.get((hour, topic), 0)

    def first_hour(self) -> int | None:
        """Return the first hour with messages; searched again only when that hour is empty."""
        if self._first is None:
            self._first = min(self._by_hour, default=None)
        return self._first

    def first_of(self, offload_id: int, topic: int) -> int | None:
        """Return the first hour with messages of an offload and topic."""
        hours = (key[1] for key in self._counts if key[0] == offload_id and key[2] == topic)
        return min(hours, default=None)

    def put(self, key: Key, n: int) -> int:
        """Set the count of a key and return the former one."""
        assert n >= 0, (key, n)
        before = self._counts.pop(key, 0)
        if n:
            self._counts[key] = n
        _, hour, topic = key
        self.total += n - before
        _add(self._by_hour, hour, n - before)
        _add(self._by_both, (hour, topic), n - before)
        if self._first is not None and (hour < self._first or hour not in self._by_hour):
            self._first = None
        return before

    def check_invariants(self) -> None:
        """Assert that the sums match the counts."""
        assert self.total == sum(self._counts.values()) == sum(self._by_hour.values())
        again = LakeCounts(self._counts.items())
        assert (again._by_hour, again._by_both) == (self._by_hour, self._by_both)
        assert self._first in (None, min(self._by_hour, default=None))


def _add(sums: dict[_K, int], key: _K, n: int) -> None:
    left = sums.get(key, 0) + n
    assert left >= 0, key
    if left:
        sums[key] = left
    else:
        sums.pop(key, None)
