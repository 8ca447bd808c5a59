"""Sources: where scheduled messages rest (hours, far buffers, runs), and loading one second from all of them.

A row of any source is named by a *reference*, one int64: source number << 40 | row.  Source numbers are of this
process only.  What is loaded is two columns of equal length, sorted by the first:

    order  int64: ms within the second << 52 | log position of the origin
    ref    int64: the reference

so that messages of all sources meet in (due time, origin) order.  Rows of one adopted run share a position; a
stable sort keeps them in the order of their row numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from horolog.delay.state import EntryState

ROW_BITS = 40
ROW_MASK = (1 << ROW_BITS) - 1
ORIGIN_BITS = 52  # 4 PiB of log; 10 bits of milliseconds and the sign are left

Rows = npt.NDArray[np.int64]


class Loaded(NamedTuple):
    """Rows of one second that wait: columns as the module says."""

    order: npt.NDArray[np.int64]
    ref: npt.NDArray[np.int64]


NOTHING = Loaded(np.empty(0, np.int64), np.empty(0, np.int64))


class PartLoad(Protocol):
    """One source's share of a second being loaded."""

    problem: str

    def walk(self, limit: int) -> tuple[int, bool]:
        """Take up to `limit` steps: (steps taken, whether done)."""
        ...

    def pieces(self) -> list[Loaded]:
        """What waits, once done; rows with equal order stand in ascending row order."""
        ...


class Source(Protocol):
    """A file (or a pair of them) of scheduled messages; rows are numbers within it."""

    number: int

    def entries(self, rows: Rows) -> npt.NDArray[Any]:
        """ENTRY rows (a contiguous copy), not verified."""
        ...

    def records(self, entries: npt.NDArray[Any]) -> list[memoryview]:
        """The bytes of these entries' records, not verified."""
        ...

    def states_at(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """`EntryState` of each row, with its in-flight bits."""
        ...

    def mark_inflight(self, rows: Rows, bits: EntryState) -> None:
        """Note what has been appended for these rows but is not committed yet."""
        ...

    def settle(self, rows: Rows, state: EntryState) -> None:
        """These waiting rows are now handed over, recalled, moved or quarantined, for good."""
        ...


class FarSource(Source, Protocol):
    """A far buffer or a run."""

    waiting: int

    def first_waiting_ms(self, from_ms: int) -> int | None:
        """Due time of the first row that waits and is due at or after `from_ms`."""
        ...

    def open_second(self, second: int) -> PartLoad:
        """Begin to load a second."""
        ...

    def find_key(self, key: int, due_ms: int | None) -> Rows:
        """Rows with that key hash (and due time, if given), ascending."""
        ...

    def find(
        self,
        due_ms: npt.NDArray[np.int64],
        origin: npt.NDArray[np.uint64],
        origin_rows: npt.NDArray[Any] | None = None,
    ) -> Rows:
        """Row of each (due time, origin), −1 where there is none; without `origin_rows` they are 0."""
        ...

    def waiting_by_hour(self, topic: int | None) -> tuple[Rows, Rows]:
        """(hours, counts) of what waits, ascending, from directories."""
        ...

    def waiting_by_topic(self) -> dict[int, int]:
        """Topic number → what waits."""
        ...

    def waiting_by_second(self, hour: int, topic: int | None) -> npt.NDArray[np.int64]:
        """3 600 counts of one hour."""
        ...


def refs_of(number: int, rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """References of rows of one source."""
    return rows.astype(np.int64) | number << ROW_BITS


def loaded(number: int, entries: npt.NDArray[Any], rows: npt.NDArray[Any]) -> Loaded:
    """Rows of one second, sorted."""
    order = (entries["due_ms"] % 1000 << ORIGIN_BITS) | entries["origin"].astype(np.int64)
    ref = refs_of(number, rows)
    if len(order) > 1 and bool((order[1:] < order[:-1]).any()):
        by = np.argsort(order, kind="stable")
        order, ref = order[by], ref[by]
    return Loaded(order, ref)


class SecondLoad:
    """One second of all sources that have a share in it."""

    def __init__(self, second: int, parts: Sequence[PartLoad]) -> None:
        self.second = second
        self._parts = parts
        self._at = 0

    def walk(self, limit: int) -> tuple[int, bool]:
        """Take up to `limit` steps: (steps taken, whether done)."""
        steps = 0
        while self._at < len(self._parts) and steps < limit:
            took, done = self._parts[self._at].walk(limit - steps)
            steps += took + 1
            self._at += done
        return steps, self._at == len(self._parts)

    def loaded(self) -> Loaded:
        """What waits, sorted."""
        pieces = [piece for part in self._parts for piece in part.pieces() if len(piece.order)]
        if len(pieces) == 1:
            return pieces[0]
        if not pieces:
            return NOTHING
        order = np.concatenate([piece.order for piece in pieces])
        ref = np.concatenate([piece.ref for piece in pieces])
        by = np.argsort(order, kind="stable")  # merges the sorted pieces
        return Loaded(order[by], ref[by])

    def problems(self) -> list[str]:
        """What was found to be damaged, once loaded."""
        return [part.problem for part in self._parts if part.problem]
