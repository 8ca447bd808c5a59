"""Sources: where scheduled messages rest (hours, far buffers, runs), and loading seconds from all of them.

A row of any source is named by a *reference*, one int64: source id << 40 | row.  Source ids are of this
process only.  What is loaded is three columns of equal length, sorted by the first two:

    second  int64: of the due time
    order   int64: ms within the second << 52 | log position of the origin
    ref     int64: the reference

so that messages of all sources meet in (due time, origin) order.  Rows of one adopted run share a position; a
stable sort keeps them in the order of their row numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from horolog.errors import Problem

ROW_BITS = 40
ROW_MASK = (1 << ROW_BITS) - 1
ORIGIN_BITS = 52  # 4 PiB of log; 10 bits of milliseconds and the sign are left

Rows = npt.NDArray[np.int64]


class Loaded(NamedTuple):
    """Rows that wait: columns as the module says."""

    second: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]
    ref: npt.NDArray[np.int64]


NOTHING = Loaded(*(np.empty(0, np.int64) for _ in Loaded._fields))


class PartLoad(Protocol):
    """One source's share of seconds being loaded."""

    problem: Problem | None

    def walk(self, limit: int) -> tuple[int, bool]:
        """Take up to `limit` steps: (steps taken, whether done)."""
        ...

    def pieces(self) -> list[Loaded]:
        """What waits, once done; rows with equal order stand in ascending row order."""
        ...


class FarSource(Protocol):
    """A far buffer or a run, as far as seconds are loaded from it."""

    def span_stop_ms(self, from_ms: int, to_ms: int, rows: int) -> int:
        """A moment before which about `rows` rows are due from `from_ms` on, at most `to_ms`."""
        ...

    def open_span(self, second: int, stop: int) -> PartLoad:
        """Begin to load the seconds from `second` to before `stop`."""
        ...


def refs_of(source_id: int, rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """References of rows of one source."""
    return rows.astype(np.int64) | source_id << ROW_BITS


def loaded(source_id: int, entries: npt.NDArray[Any], rows: npt.NDArray[Any]) -> Loaded:
    """Rows of one source, sorted; those with equal order stay as they are."""
    second, ms = np.divmod(entries["due_ms"], 1000)
    found = Loaded(
        second, (ms << ORIGIN_BITS) | entries["origin"].astype(np.int64), refs_of(source_id, rows)
    )
    first, after = found.order[:-1], found.order[1:]
    if bool(((second[1:] < second[:-1]) | ((second[1:] == second[:-1]) & (after < first))).any()):
        return _sorted(found)
    return found


def merged(pieces: Sequence[Loaded]) -> Loaded:
    """Sorted pieces as one; of equal orders those of the earlier piece come first."""
    return _sorted(Loaded(*(np.concatenate(column) for column in zip(*pieces, strict=True))))


def _sorted(rows: Loaded) -> Loaded:
    by = np.lexsort((rows.order, rows.second))  # stable
    return Loaded(*(column[by] for column in rows))
