"""Merging sorted columns of (key, index) in slices, so that no slice takes long.

Each slice takes from every input the rows up to a common key, and sorts them: they are a few sorted stretches,
which a stable sort finds and merges.  Because the inputs come in the order of their indexes and the sort is
stable, equal keys stay in the order of their indexes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Columns(NamedTuple):
    """Rows sorted by key, equal keys by index; `offset` is added to each index of the column."""

    keys: npt.NDArray[np.uint64]
    index: npt.NDArray[np.uint32]
    offset: int = 0


def sorted_columns(keys: npt.NDArray[np.uint64]) -> Columns:
    """The keys of entries 0, 1, 2 … as sorted columns."""
    order = np.argsort(keys)  # four times faster than the stable sort, and hashes rarely repeat
    ordered = keys[order]
    if bool((ordered[1:] == ordered[:-1]).any()):
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
    return Columns(ordered, order.astype(np.uint32))


def merge_slices(inputs: list[Columns], rows: int) -> Iterator[Columns]:
    """The rows of all inputs in order, in slices of about `rows` rows, each at least one.

    A slice is longer only when one key has more than `rows` rows, since equal keys are never parted.
    """
    step = max(1, rows // max(1, len(inputs)))
    starts = [0] * len(inputs)
    while True:
        ahead = [
            each.keys[at + step]
            for each, at in zip(inputs, starts, strict=True)
            if at + step < len(each.keys)
        ]
        if ahead:
            bound = min(ahead)
            stops = [int(each.keys.searchsorted(bound, side="right")) for each in inputs]
        else:
            stops = [len(each.keys) for each in inputs]
        keys = np.concatenate(
            [each.keys[a:b] for each, a, b in zip(inputs, starts, stops, strict=True)]
        )
        index = np.concatenate(
            [
                each.index[a:b] + np.uint32(each.offset)
                for each, a, b in zip(inputs, starts, stops, strict=True)
            ]
        )
        order = np.argsort(keys, kind="stable")
        if len(keys):
            yield Columns(keys[order], index[order])
        if not ahead:
            return
        starts = stops
