"""Recalled messages in the lake: the table still has them, so the broker remembers their origins.

An origin takes 32 bytes until the hour of the message is promoted or its offload is over.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

LAKE_ROW = np.dtype(
    [("number", "<u8"), ("position", "<u8"), ("row", "<u4"), ("topic", "<u4"), ("due_ms", "<i8")]
)
assert LAKE_ROW.itemsize == 32
_IDENTITY = ["number", "position", "row"]
_Rows = npt.NDArray[Any]  # of LAKE_ROW
_Mask = npt.NDArray[np.bool_]


class RecalledSet:
    """LAKE_ROW rows in the order in which they were added."""

    def __init__(self, rows: _Rows | None = None) -> None:
        # Doubled when it is full
        self._room = np.empty(0, LAKE_ROW) if rows is None else rows.copy()
        self._count = len(self._room)

    def __len__(self) -> int:
        """Return the count of rows."""
        return self._count

    @property
    def all(self) -> _Rows:
        """All rows; a view, valid until the next change."""
        return self._room[: self._count]

    def add(self, rows: _Rows) -> None:
        """Append rows of recalled messages."""
        count = self._count + len(rows)
        if count > len(self._room):
            room = np.empty(max(count, 2 * len(self._room)), LAKE_ROW)
            room[: self._count] = self.all
            self._room = room
        self._room[self._count : count] = rows
        self._count = count

    def knows(self, rows: _Rows) -> _Mask:
        """Return a mask of the rows that are known to be recalled."""
        if not len(rows) or not self._count:
            return np.zeros(len(rows), bool)
        known = self.all
        dues = known["due_ms"]  # the rows of one call are due close together
        known = known[(dues >= rows["due_ms"].min()) & (dues <= rows["due_ms"].max())]
        there = set(known[_IDENTITY].tolist())
        return np.array([row in there for row in rows[_IDENTITY].tolist()], bool)

    def has(self, position: int, row: int) -> bool:
        """Return whether the message with an origin is recalled."""
        return bool(((self.all["position"] == position) & (self.all["row"] == row)).any())

    def drop(self, rows: _Mask) -> bool:
        """Remove the rows of a mask; return whether there were any."""
        if not bool(rows.any()):
            return False
        self._room = self.all[~rows]
        self._count = len(self._room)
        return True
