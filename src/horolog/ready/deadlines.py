"""Moments by key, the earliest first: what ends a poll, a lease, or asks for a renewal.

A heap with lazy deletion: what is dropped or moved stays in the heap until it comes to its top, or until more than
half of the heap is such leftovers; then it is built anew.  So every change costs O(log n) amortised, and memory
follows what is there now, not what once was.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
_LEFT_MAX = 64  # leftovers that are not worth the work


class Deadlines(Generic[K]):
    """One moment, monotonic ms, for each key.  What has the same moment comes in the order it was set."""

    __slots__ = ("_entries", "_heap", "_set")

    def __init__(self) -> None:
        self._entries: dict[K, tuple[int, int, K]] = {}  # key → (moment, serial, key)
        self._heap: list[tuple[int, int, K]] = []
        self._set = 0

    def __len__(self) -> int:
        """How many keys have a moment."""
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        """Whether a key has one."""
        return key in self._entries

    def at(self, key: K) -> int | None:
        """The moment of a key, None if it has none."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def items(self) -> Iterator[tuple[K, int]]:
        """(Key, moment) in no order."""
        for key, entry in self._entries.items():
            yield key, entry[0]

    def set(self, key: K, at_ms: int) -> None:
        """Give a key its moment, whatever it had before."""
        self._set += 1
        entry = (at_ms, self._set, key)
        self._entries[key] = entry
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._entries) + _LEFT_MAX:
            self._sweep()

    def drop(self, key: K) -> bool:
        """A key has none any more; whether it had one."""
        dropped = self._entries.pop(key, None) is not None
        if dropped and len(self._heap) > 2 * len(self._entries) + _LEFT_MAX:
            self._sweep()
        return dropped

    def first(self) -> int | None:
        """The earliest moment."""
        heap, entries = self._heap, self._entries
        while heap:
            if entries.get(heap[0][2]) is heap[0]:
                return heap[0][0]
            heapq.heappop(heap)
        return None

    def take(self, now_ms: int) -> list[K]:
        """The keys whose moment has come, the earliest first; they have none any more."""
        taken = []
        heap, entries = self._heap, self._entries
        while heap and (heap[0][0] <= now_ms or entries.get(heap[0][2]) is not heap[0]):
            entry = heapq.heappop(heap)
            if entries.get(entry[2]) is entry:
                del entries[entry[2]]
                taken.append(entry[2])
        if taken:
            self._sweep()
        return taken

    def _sweep(self) -> None:
        if len(self._heap) > 2 * len(self._entries) + _LEFT_MAX:
            self._entries = dict(self._entries)  # a dict gives back its room only when it is copied
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)

    def check_invariants(self) -> None:
        """AssertionError unless everything that has a moment is in the heap, and leftovers are few."""
        heap = {id(entry) for entry in self._heap}
        for key, entry in self._entries.items():
            assert entry[2] == key, (entry, key)
            assert id(entry) in heap, f"{key} has a moment that will never come"
        assert len(self._heap) <= 2 * len(self._entries) + _LEFT_MAX, len(self._heap)
