"""Sources: the places where scheduled messages rest (hours, far buffers, runs), and loaded rows.

A row of any source is named by a *reference*, one int64: source id << 40 | row.  A source id is
valid in this process only.  Loaded rows are three columns of equal length, sorted by the first two:

    second  int64: second of the due time
    order   int64: ms within the second << 52 | log position of the origin
    ref     int64: the reference

so that messages of all sources meet in (due time, origin) order.  Rows of one adopted run share a
position; a stable sort keeps them in row order.
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
    """Waiting rows, in the columns that the module describes."""

    second: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]
    ref: npt.NDArray[np.int64]


NOTHING = Loaded(*(np.empty(0, np.int64) for _ in Loaded._fields))


class Wanted(Protocol):
    """What a load keeps, if it does not keep all rows: the first `rows` of those that match."""

    @property
    def rows(self) -> int:
        """How many rows to keep."""
        ...

    def matches(self, entries: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return which ENTRY rows match."""
        ...


class PartLoad(Protocol):
    """One source's share of the seconds that are being loaded."""

    problem: Problem | None

    def walk(self, limit: int) -> tuple[int, bool]:
        """Take up to `limit` steps; return (steps taken, whether the load is done)."""
        ...

    def pieces(self) -> list[Loaded]:
        """Return the waiting rows, once done; rows with equal order ascend by row."""
        ...


class FarSource(Protocol):
    """A far buffer or a run, as far as seconds are loaded from it."""

    def span_stop_ms(self, from_ms: int, to_ms: int, rows: int) -> int:
        """Return up to which moment (≤ `to_ms`) about `rows` rows are due from `from_ms` on."""
        ...

    def open_span(self, second: int, stop: int, wanted: Wanted | None) -> PartLoad:
        """Begin to load the seconds from `second` to before `stop`."""
        ...


def refs_of(source_id: int, rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Build the references of rows of one source."""
    return rows.astype(np.int64) | source_id << ROW_BITS


def loaded(source_id: int, entries: npt.NDArray[Any], rows: npt.NDArray[Any]) -> Loaded:
    """Build `Loaded` of one source's rows, sorted; rows with equal order stay as they are."""
    second, ms = np.divmod(entries["due_ms"], 1000)
    found = Loaded(
        second, (ms << ORIGIN_BITS) | entries["origin"].astype(np.int64), refs_of(source_id, rows)
    )
    first, after = found.order[:-1], found.order[1:]
    if bool(((second[1:] < second[:-1]) | ((second[1:] == second[:-1]) & (after < first))).any()):
        return _sorted(found)
    return found


def add_piece(
    pieces: list[Loaded],
    wanted: Wanted | None,
    source_id: int,
    entries: npt.NDArray[Any],
    rows: npt.NDArray[Any],
) -> None:
    """Add one source's rows to the pieces of a load; with `wanted`, the pieces become one short piece."""
    if wanted is None:
        pieces.append(loaded(source_id, entries, rows))
        return
    match = wanted.matches(entries)
    pieces.append(loaded(source_id, entries.compress(match), rows[match]))
    if len(pieces) > 1:
        pieces[:] = [Loaded(*(column[: wanted.rows] for column in merged(pieces)))]


def merged(pieces: Sequence[Loaded]) -> Loaded:
    """Merge sorted pieces into one; among equal orders, rows of the earlier piece come first."""
    return _sorted(Loaded(*(np.concatenate(column) for column in zip(*pieces, strict=True))))


def _sorted(rows: Loaded) -> Loaded:
    by = np.lexsort((rows.order, rows.second))  # stable
    return Loaded(*(column[by] for column in rows))
