"""One loaded second: sorted runs of keys, taken from the front.

A key is (ms within the second) << 40 | global index (`delay.chain` says why).  What is filed while the second
is already loaded comes as further small runs; when there are many they are merged, so a message costs
O(log n) comparisons however it arrives.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

KEY_BITS = 40
_RUNS_MAX = 8


class Slot:
    """Keys that wait in one second."""

    def __init__(self, *, loading: bool) -> None:
        self.loading = loading
        self._runs: list[npt.NDArray[np.int64]] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def add(self, keys: npt.NDArray[np.int64]) -> None:
        """Add sorted keys."""
        if not len(keys):
            return
        self._runs.append(keys)
        if len(self._runs) > _RUNS_MAX:
            self._runs.sort(key=len)
            small = np.concatenate(self._runs[:_RUNS_MAX])
            small.sort()
            self._runs[:_RUNS_MAX] = [small]

    def first_ms(self) -> int:
        """Millisecond within the second of the first key; only when not empty."""
        return min(int(run[0]) for run in self._runs) >> KEY_BITS

    def take(self, before_ms: int, limit: int) -> npt.NDArray[np.int64]:
        """Remove and give up to `limit` keys due before that millisecond of the second, in order."""
        bound = before_ms << KEY_BITS
        heads = [run[: min(limit, int(np.searchsorted(run, bound)))] for run in self._runs]
        if len(heads) == 1:
            taken = heads[0]
            self._cut([len(taken)])
            return taken
        merged = np.concatenate(heads)
        merged.sort()
        taken = merged[:limit]
        if len(taken):
            last = taken[-1]
            self._cut([int(np.searchsorted(head, last, side="right")) for head in heads])
        return taken

    def _cut(self, lengths: list[int]) -> None:
        pairs = zip(self._runs, lengths, strict=True)
        self._runs = [run[n:] for run, n in pairs if n < len(run)]
