"""Binary search in the index of a run that damaged rows cannot mislead.

Fences are covered by a CRC that is compared when the run is opened, so a search begins in the right
block of 1 024 rows, whatever has happened to the index.  In the block a damaged row may mislead the
search.  But if the two rows where the search ends, one below the key and one not, have right sums,
the place is proved, because the rows were sorted when they were written.  If not, the search is
repeated with every row verified.

The place of an unreadable row is decided the same way everywhere: it precedes the key only if a
later good row, a later fence or the last due time does, which the footer states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import is_readable
from horolog.delay.run.format import FENCE_ROWS
from horolog.delay.run.keys import Rows

_Column = npt.NDArray[Any]
Columns = tuple[_Column, _Column, _Column]  # due ms, origins, rows of the origins


class RowSearch:
    """Searches in the rows of one run.

    last_ms   the last due time
    readable  returns the rows of [first, stop) with the right sum, their row numbers, and how many
              are damaged; reports damaged rows
    """

    def __init__(
        self,
        index: npt.NDArray[Any],
        fences: npt.NDArray[np.int64],
        last_ms: int,
        readable: Callable[[int, int], tuple[npt.NDArray[Any], Rows, int]],
    ) -> None:
        self.rows = len(index)
        self._index = index
        self._due = index["due_ms"]
        self._fences = fences
        self._last_ms = last_ms
        self._readable = readable

    def rows_with_key(self, first: int, stop: int, key: int) -> list[int]:
        """Return those of rows [first, stop) that have a key hash, not verified."""
        rows: list[int] = np.flatnonzero(self._index["key"][first:stop] == np.uint64(key)).tolist()
        return [first + row for row in rows]

    def fence_ms(self, row: int) -> int | None:
        """Return the due time of the first fence at or after a row; None: there is none."""
        fence = -(-row // FENCE_ROWS)
        return int(self._fences[fence]) if fence < len(self._fences) else None

    def row_at(self, due_ms: int) -> int:
        """Return the first row due at or after a moment; `rows` if there is none."""
        fence = int(self._fences.searchsorted(due_ms))
        if not fence:
            return 0
        if due_ms > self._last_ms:
            return self.rows
        low = (fence - 1) * FENCE_ROWS + 1  # the row of the fence itself is before
        high = min(self.rows, fence * FENCE_ROWS)
        row = low + int(self._due[low:high].searchsorted(due_ms))
        ends = self._index[max(low, row - 1) : min(high, row + 1)]
        if bool(is_readable(ends).all()):
            return row
        entries, rows, _ = self._readable(low, high)
        before = int(entries["due_ms"].searchsorted(due_ms))
        return int(rows[before - 1]) + 1 if before else low

    def rows_from(self, keys: Columns) -> Rows:
        """Return the first row at or above each (due ms, origin, row of the origin)."""
        low: Rows = np.maximum(0, (self._fences.searchsorted(keys[0]) - 1) * FENCE_ROWS + 1)
        high = self._fences.searchsorted(keys[0], side="right") * FENCE_ROWS
        high = np.maximum(low, np.minimum(self.rows, high))
        found, above = low.copy(), high.copy()
        for _ in range(int((high - low).max(initial=0)).bit_length()):
            middle = np.minimum((found + above) // 2, self.rows - 1)
            below = self._is_below(middle, keys) & (found < above)
            found = np.where(below, middle + 1, found)
            above = np.where(below, above, middle)
            above = np.maximum(found, above)
        doubtful = (found > low) & ~self._are_readable(found - 1)
        doubtful |= (found < high) & ~self._are_readable(found)
        again = np.flatnonzero(doubtful)
        if len(again):
            found[again] = self._rows_from_verified(_some(keys, again), low[again], high[again])
        found[keys[0] > self._last_ms] = self.rows
        return found

    def readable_from(self, rows: Rows) -> Rows:
        """Return the first readable row at or after each row; `rows` if there is none."""
        found = rows.copy()
        for row in np.unique(rows[(rows < self.rows) & ~self._are_readable(rows)]).tolist():
            found[rows == row] = self._good_after(row, self.rows)
        return found

    def _is_below(self, rows: Rows, keys: Columns) -> npt.NDArray[np.bool_]:
        """Return which rows, as they are on the disk, are below their keys."""
        due = self._due[rows]
        below: npt.NDArray[np.bool_] = due < keys[0]
        ties = np.flatnonzero(due == keys[0])
        if len(ties):
            entries = self._index.take(rows[ties])
            origins, origin_rows = keys[1][ties], keys[2][ties]
            same = entries["origin"] == origins
            below[ties] = (entries["origin"] < origins) | (same & (entries["row"] < origin_rows))
        return below

    def _are_readable(self, rows: Rows) -> npt.NDArray[np.bool_]:
        return is_readable(self._index.take(np.clip(rows, 0, self.rows - 1)))

    def _rows_from_verified(self, keys: Columns, low: Rows, high: Rows) -> Rows:
        """Do the search of `rows_from` within [low, high), stepping over damaged rows."""
        left = np.flatnonzero(low < high)
        while len(left):
            middle = (low[left] + high[left]) // 2
            for row in np.unique(middle[~self._are_readable(middle)]).tolist():
                at = left[middle == row]
                low[at], high[at] = self._narrow(row, low[at], high[at], _some(keys, at))
                left, middle = left[middle != row], middle[middle != row]
            below = self._is_below(middle, _some(keys, left))
            low[left] = np.where(below, middle + 1, low[left])
            high[left] = np.where(below, high[left], middle)
            left = np.flatnonzero(low < high)
        return low

    def _narrow(self, row: int, low: Rows, high: Rows, keys: Columns) -> tuple[Rows, Rows]:
        """Narrow [low, high) of searches that met damaged `row`, by the good rows next to it."""
        before = np.full(len(low), self._good_before(row, int(low.min())))
        after = np.full(len(low), self._good_after(row, int(high.max())))
        has_before, has_after = before >= low, after < high
        down = has_before & ~self._is_below(np.maximum(0, before), keys)
        up = ~down & has_after & self._is_below(np.minimum(after, self.rows - 1), keys)
        here = np.where(has_before, before + 1, low)
        return (
            np.where(down, low, np.where(up, after + 1, here)),
            np.where(down, before, np.where(up, high, here)),
        )

    def _good_before(self, row: int, first: int) -> int:
        """Return the last readable row in [first, row); −1: none."""
        for stop in range(row, first, -FENCE_ROWS):
            _, rows, _ = self._readable(max(first, stop - FENCE_ROWS), stop)
            if len(rows):
                return int(rows[-1])
        return -1

    def _good_after(self, row: int, stop: int) -> int:
        """Return the first readable row in (row, stop); `rows`: none."""
        for first in range(row + 1, stop, FENCE_ROWS):
            _, rows, _ = self._readable(first, min(stop, first + FENCE_ROWS))
            if len(rows):
                return int(rows[0])
        return self.rows


def _some(keys: Columns, places: Rows) -> Columns:
    return keys[0][places], keys[1][places], keys[2][places]
