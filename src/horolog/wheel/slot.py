"""One loaded second: sorted runs of (order, reference) pairs, taken from the front.

An order is ms within the second << 52 | log position, so orders sort as messages are handed over
(`delay.source`).  Messages filed while the second is already loaded are added as further small
runs; when there are many runs they are merged, so a message costs O(log n) comparisons however it
arrives.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

ORDER_BITS = 52
_RUNS_MAX = 8
Column: TypeAlias = npt.NDArray[np.int64]


class Slot:
    """The waiting rows of one second."""

    def __init__(self, *, loading: bool) -> None:
        self.loading = loading
        self._runs: list[tuple[Column, Column]] = []

    def __len__(self) -> int:
        return sum(len(order) for order, _ in self._runs)

    def add(self, order: Column, ref: Column) -> None:
        """Add rows sorted by order."""
        if not len(order):
            return
        self._runs.append((order, ref))
        if len(self._runs) > _RUNS_MAX:
            self._runs.sort(key=lambda run: len(run[0]))
            self._runs[:_RUNS_MAX] = [_merged(self._runs[:_RUNS_MAX])]

    def check_invariants(self) -> None:
        """Assert that the runs are few, not empty and sorted, with columns of equal length."""
        assert len(self._runs) <= _RUNS_MAX, len(self._runs)
        for order, ref in self._runs:
            assert len(order) == len(ref) > 0, (len(order), len(ref))
            assert bool((order[1:] >= order[:-1]).all()), "rows of a slot are out of order"

    @property
    def refs(self) -> Column:
        """References of all rows, in no order."""
        return np.concatenate([np.empty(0, np.int64), *(ref for _, ref in self._runs)])

    def first_ms(self) -> int:
        """Return the ms within the second of the first row; only if the slot is not empty."""
        return min(int(order[0]) for order, _ in self._runs) >> ORDER_BITS

    def take(self, before_ms: int, limit: int) -> tuple[Column, Column]:
        """Remove and return up to `limit` rows due before that ms of the second, in order."""
        bound = before_ms << ORDER_BITS
        if len(self._runs) == 1:
            order, ref = self._runs[0]
            whole = len(order) <= limit and order[-1] < bound  # usual where few messages wait
            n = len(order) if whole else min(limit, int(order.searchsorted(bound)))
            self._drop_front([n])
            return order[:n], ref[:n]
        lengths = [min(limit, int(np.searchsorted(order, bound))) for order, _ in self._runs]
        heads = [(o[:n], r[:n]) for (o, r), n in zip(self._runs, lengths, strict=True)]
        order, ref = _merged(heads)
        order, ref = order[:limit], ref[:limit]
        if len(order):
            # Rows of one adopted run may share an order: count the rows taken by reference.
            taken = np.sort(ref)
            self._drop_front([_count_taken(head, taken) for _, head in heads])
        return order, ref

    def _drop_front(self, lengths: list[int]) -> None:
        pairs = zip(self._runs, lengths, strict=True)
        self._runs = [(o[n:], r[n:]) for (o, r), n in pairs if n < len(o)]


def _count_taken(head: Column, taken: Column) -> int:
    at = np.minimum(np.searchsorted(taken, head), len(taken) - 1)
    return int((taken[at] == head).sum())


def _merged(runs: list[tuple[Column, Column]]) -> tuple[Column, Column]:
    order = np.concatenate([run[0] for run in runs])
    ref = np.concatenate([run[1] for run in runs])
    by = np.lexsort((ref, order))
    return order[by], ref[by]
