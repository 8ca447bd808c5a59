"""Deadlines by key, the earliest first: of polls, of leases, of lease renewals.

The keys of one moment are kept together, in the order they were set, and the moments in a heap with
lazy deletion: a moment that has lost its keys stays in the heap until it reaches the top, or until
more than half of the heap is such leftovers; then the heap is rebuilt.  So every change costs O(log
n) amortised, many keys with the same moment cost little more than one, and memory follows the
current keys, not the most there ever were.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
_LEFT_MAX = 64  # leftovers that are not worth a rebuild


class Deadlines(Generic[K]):
    """A moment, monotonic ms, for each key; keys of one moment keep the order they were set in."""

    __slots__ = ("_gone", "_heap", "_keys", "_moments")

    def __init__(self) -> None:
        self._moments: dict[K, int] = {}
        self._keys: dict[int, dict[K, None]] = {}  # moment → its keys, one or more
        self._heap: list[int] = []  # every moment of `_keys`, some twice, and leftovers
        self._gone = 0  # keys removed since `_moments` was copied

    def __len__(self) -> int:
        """Return how many keys have a moment."""
        return len(self._moments)

    def __contains__(self, key: object) -> bool:
        """Return whether a key has a moment."""
        return key in self._moments

    def has_all(self, keys: Sequence[K]) -> bool:
        """Return whether all keys have a moment."""
        return all(map(self._moments.__contains__, keys))

    def at(self, key: K) -> int | None:
        """Return the moment of a key; None if it has none."""
        return self._moments.get(key)

    def items(self) -> Iterator[tuple[K, int]]:
        """Yield (key, moment) pairs in no order."""
        yield from self._moments.items()

    def set(self, key: K, at_ms: int) -> None:
        """Set the moment of a key; replace the moment it had."""
        if (before := self._moments.get(key)) is not None:
            self._leave(key, before)
        self._moments[key] = at_ms
        keys = self._keys.get(at_ms)
        if keys is None:
            self._begin(at_ms, {key: None})
        else:
            keys[key] = None

    def set_all(self, keys: Sequence[K], at_ms: int) -> None:
        """Set the same moment for many keys."""
        if not self._moments.keys().isdisjoint(keys):
            for key in keys:
                self.set(key, at_ms)
            return
        self._moments.update(dict.fromkeys(keys, at_ms))
        together = self._keys.get(at_ms)
        if together is not None:
            together.update(dict.fromkeys(keys))
        elif keys:
            self._begin(at_ms, dict.fromkeys(keys))

    def _begin(self, at_ms: int, keys: dict[K, None]) -> None:
        self._keys[at_ms] = keys
        heapq.heappush(self._heap, at_ms)
        if len(self._heap) > 2 * len(self._keys) + _LEFT_MAX:
            self._heap = list(self._keys)
            heapq.heapify(self._heap)

    def drop(self, key: K) -> bool:
        """Remove a key; return whether it had a moment."""
        at_ms = self._moments.pop(key, None)
        if at_ms is None:
            return False
        self._leave(key, at_ms)
        self._shrink(1)
        return True

    def drop_all(self, keys: Sequence[K]) -> None:
        """Remove many keys, each of which has a moment."""
        for key in keys:
            self._leave(key, self._moments.pop(key))
        self._shrink(len(keys))

    def _leave(self, key: K, at_ms: int) -> None:
        keys = self._keys[at_ms]
        if len(keys) > 1:
            del keys[key]
        else:
            del self._keys[at_ms]

    def first(self) -> int | None:
        """Return the earliest moment; None if there are no keys."""
        heap, keys = self._heap, self._keys
        while heap:
            if heap[0] in keys:
                return heap[0]
            heapq.heappop(heap)
        return None

    def count_after(self, now_ms: int) -> int:
        """Return how many keys have a moment that has not come."""
        first = self.first()
        if first is None or first > now_ms:
            return len(self)
        return sum(len(keys) for at_ms, keys in self._keys.items() if at_ms > now_ms)

    def take(self, now_ms: int) -> list[K]:
        """Remove the keys whose moment has come, and return them, the earliest first."""
        taken: list[K] = []
        while (at_ms := self.first()) is not None and at_ms <= now_ms:
            heapq.heappop(self._heap)
            taken += self._keys.pop(at_ms)
        for key in taken:
            del self._moments[key]
        self._shrink(len(taken))
        return taken

    def _shrink(self, gone: int) -> None:
        self._gone += gone
        if self._gone > 2 * len(self._moments) + _LEFT_MAX:
            # A dict frees its memory only when it is copied.
            self._moments, self._keys = dict(self._moments), dict(self._keys)
            self._heap = list(self._keys)
            heapq.heapify(self._heap)
            self._gone = 0

    def check_invariants(self) -> None:
        """Assert that every moment will come, and that leftovers are few."""
        moments = set(self._heap)
        for at_ms, keys in self._keys.items():
            assert keys, f"nothing happens at {at_ms}"
            assert at_ms in moments, f"{at_ms} will never come"
            assert all(self._moments.get(key) == at_ms for key in keys), at_ms
        assert sum(map(len, self._keys.values())) == len(self._moments)
        assert len(self._heap) <= 2 * len(self._keys) + _LEFT_MAX + self._gone + 1, len(self._heap)
