"""The slices into which rows are cut before the shuffle, planned without a sampling pass.

A slice becomes one sorted run.  Hours with few rows share a slice; an hour with many rows has
slices of its own, cut between minutes; a minute with too many rows (half of an hour due in one
millisecond) is divided over several slices of the same time.  So slices have about one size
whatever the due times are.

Minutes are counted only in hours with many rows: a year has 8 760 hours but 525 600 minutes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.limits import ADOPTION_FILES_MAX

SLICE_ROWS = 300_000
SLICE_ROWS_MIN = 50_000  # with fewer rows, starting a task costs more than its work
MINUTES = 60
_FULL = 1.25  # a slice is closed before it grows beyond this share of the wanted size

Ints = npt.NDArray[np.int64]


class LoadPlan(NamedTuple):
    """Rows of `minutes[i]` go to one of the `salts[i]` slices from `first[i]` on.

    All rows of an hour are counted under its first minute, unless the hour is in `dense`.
    """

    minutes: Ints
    first: Ints
    salts: Ints
    slices: int
    dense: Ints  # hours since 1970
    rows: int  # rows that have a due time


def slice_rows(rows: int, parallelism: int) -> int:
    """Return the rows wanted in a slice.

    There are enough slices for all cores, and not more files than a transaction may have.
    """
    wanted = min(SLICE_ROWS, max(SLICE_ROWS_MIN, rows // max(1, 2 * parallelism)))
    return max(wanted, 2 * rows // ADOPTION_FILES_MAX)


def plan_slices(minutes: Ints, counts: Ints, wanted: int) -> LoadPlan:
    """Plan slices of about `wanted` rows.

    minutes  since 1970, ascending; the rows of an hour with fewer than `wanted` may be given under
             its first minute
    counts   rows of each minute
    """
    if not len(minutes):
        return LoadPlan(minutes, minutes, minutes, 1, minutes, 0)
    first = np.zeros(len(minutes), np.int64)
    salts = np.ones(len(minutes), np.int64)
    hours = minutes // MINUTES
    starts = np.flatnonzero(np.diff(hours, prepend=hours[:1] - 1))
    dense = []
    packer = _Packer(wanted)
    for at, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(minutes)], strict=True):
        total = int(counts[at:stop].sum())
        if total < wanted:
            first[at:stop] = packer.put(total)
            continue
        dense.append(hours[at])
        packer.close()
        for i, count in enumerate(counts[at:stop].tolist(), at):
            if count > _FULL * wanted:
                salts[i] = -(-count // wanted)
                first[i] = packer.deal(int(salts[i]))
            else:
                first[i] = packer.put(count)
        packer.close()
    packer.close()
    return LoadPlan(
        minutes, first, salts, packer.slices, np.array(dense, np.int64), int(counts.sum())
    )


class _Packer:
    """The state of slicing: the indices given so far, and the open slice."""

    def __init__(self, wanted: int) -> None:
        self.slices = 0  # closed slices
        self._wanted = wanted
        self._rows = 0  # in the open slice

    def put(self, rows: int) -> int:
        """Add rows to the open slice; return its index."""
        if self._rows and self._rows + rows > _FULL * self._wanted:
            self.close()
        self._rows += rows
        return self.slices

    def deal(self, slices: int) -> int:
        """Reserve as many slices as asked for; return the first index."""
        self.close()
        self.slices += slices
        return self.slices - slices

    def close(self) -> None:
        """Close the open slice, so that later rows go to another one."""
        if self._rows:
            self.slices += 1
            self._rows = 0
