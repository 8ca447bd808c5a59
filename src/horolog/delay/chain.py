"""Loading one second of an hour: walk its chain in bounded pieces, then sort what waits.

A loaded message is one int64, `key` = (ms within the second) << 40 | global index: sorting the keys gives
hand-over order, because within an hour the order of global indexes is the order of origins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import entry_sums
from horolog.delay.hour import Hour
from horolog.delay.state import SECONDS, EntryState

INDEX_BITS = 40
INDEX_MASK = (1 << INDEX_BITS) - 1


def keys_of(due_ms: npt.NDArray[Any], index: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Keys of entries of one second, unsorted."""
    return (due_ms.astype(np.int64) % 1000 << INDEX_BITS) | index.astype(np.int64)


class ChainLoad:
    """The chain of one second as it was when the load began; later entries are told to the wheel directly."""

    def __init__(self, hour: Hour, second: int) -> None:
        head = hour.heads[second - hour.hour * SECONDS]
        self.second = second
        self.problem = ""
        self._hour = hour
        self._next = int(head["newest"])
        self._expected = int(head["filed"])
        self._walked = 0
        self._sound = True
        self._keys: list[npt.NDArray[np.int64]] = []

    def walk(self, limit: int) -> tuple[int, bool]:
        """Take up to `limit` steps and read the entries met: (steps taken, whether the end was reached)."""
        limit = min(limit, self._expected - self._walked + 1)
        found, self._next = self._hour.walk(self._next, limit)
        self._walked += len(found)
        if found:
            index = np.array(found, np.int64)
            entries = self._hour.entries(index)
            good = self._are_mine(entries)
            self._sound = self._sound and bool(good.all())
            self._keys.append(self._waiting(entries[good], index[good]))
        ended = self._next < 0 or not self._sound or self._walked > self._expected
        return len(found), ended

    def keys(self) -> npt.NDArray[np.int64]:
        """Sorted keys of what waits; a broken chain is repaired by a scan of the hour, and said in `problem`."""
        if not self._sound or self._walked != self._expected:
            self._scan()
        keys = np.concatenate(self._keys) if self._keys else np.empty(0, np.int64)
        keys.sort(kind="stable")  # merges the sorted pieces
        return keys

    def _are_mine(self, entries: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        mine: npt.NDArray[np.bool_] = (entry_sums(entries) == entries["sum"]) & (
            entries["due_ms"] // 1000 == self.second
        )
        return mine

    def _waiting(
        self, entries: npt.NDArray[Any], index: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        waits = self._hour.states[index] == EntryState.WAITING
        keys = keys_of(entries["due_ms"][waits], index[waits])
        keys.sort()
        return keys

    def _scan(self) -> None:
        self._keys = []
        readable = 0
        for first, entries in self._hour.scan():
            rows = np.flatnonzero(self._are_mine(entries))
            readable += len(rows)
            self._keys.append(self._waiting(entries[rows], rows + first))
        self.problem = (
            f"hour {self._hour.hour}: delay index of second {self.second % SECONDS} is damaged, "
            f"{readable} of {self._expected} entries are readable"
        )
