"""Messages in the lake that were recalled: the table still has them, so the broker remembers their origins.

They are forgotten when their hour is promoted, or their offload is over; until then they take 32 bytes each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

GONE = np.dtype(
    [("number", "<u8"), ("position", "<u8"), ("row", "<u4"), ("topic", "<u4"), ("due_ms", "<i8")]
)
assert GONE.itemsize == 32
_IDENTITY = ["number", "position", "row"]
_Rows = npt.NDArray[Any]  # of GONE
_Mask = npt.NDArray[np.bool_]


class GoneRows:
    """GONE rows in the order they came."""

    def __init__(self, rows: _Rows | None = None) -> None:
        self._room = np.empty(0, GONE) if rows is None else rows.copy()  # doubled when it is full
        self._count = len(self._room)

    def __len__(self) -> int:
        """How many."""
        return self._count

    @property
    def all(self) -> _Rows:
        """All of them; a view until something changes."""
        return self._room[: self._count]

    def add(self, rows: _Rows) -> None:
        """These are gone, too."""
        count = self._count + len(rows)
        if count > len(self._room):
            room = np.empty(max(count, 2 * len(self._room)), GONE)
            room[: self._count] = self.all
            self._room = room
        self._room[self._count : count] = rows
        self._count = count

    def knows(self, rows: _Rows) -> _Mask:
        """Which of these rows are known to be gone."""
        if not len(rows) or not self._count:
            return np.zeros(len(rows), bool)
        known = self.all
        dues = known["due_ms"]  # what is asked for is near together
        known = known[(dues >= rows["due_ms"].min()) & (dues <= rows["due_ms"].max())]
        there = set(known[_IDENTITY].tolist())
        return np.array([row in there for row in rows[_IDENTITY].tolist()], bool)

    def has(self, position: int, row: int) -> bool:
        """Whether a message with that origin is gone."""
        return bool(((self.all["position"] == position) & (self.all["row"] == row)).any())

    def drop(self, rows: _Mask) -> bool:
        """Forget these; whether there were any."""
        if not bool(rows.any()):
            return False
        self._room = self.all[~rows]
        self._count = len(self._room)
        return True
