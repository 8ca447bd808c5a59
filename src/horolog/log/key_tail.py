"""The newest rows of the key index, in memory until they are written."""

from __future__ import annotations

import numpy as np

from horolog.log.key_rows import Keys, Positions

TAIL_ROWS = 4_096  # rows gathered for one write


class KeyTail:
    """Rows {key u64, log position u64} in log order; above `TAIL_ROWS` only on a full disk."""

    def __init__(self) -> None:
        self._keys = np.empty(TAIL_ROWS, np.uint64)
        self._positions = np.empty(TAIL_ROWS, np.uint64)
        self._count = 0  # rows in use in both arrays

    def __len__(self) -> int:
        """Return the count of rows."""
        return self._count

    @property
    def keys(self) -> Keys:
        """Keys of all rows; a view, valid until the next change."""
        return self._keys[: self._count]

    @property
    def positions(self) -> Positions:
        """Log positions of all rows; a view, valid until the next change."""
        return self._positions[: self._count]

    def has_room(self, rows: int) -> bool:
        """Return whether `rows` more rows can be added without more memory."""
        return self._count + rows <= len(self._keys)

    def add(self, keys: Keys, positions: Positions) -> None:
        """Append rows (copied); grow the memory if they do not fit."""
        stop = self._count + len(keys)
        if stop > len(self._keys):
            room = np.empty(max(stop, 2 * len(self._keys)) - self._count, np.uint64)
            self._keys = np.concatenate([self.keys, room])
            self._positions = np.concatenate([self.positions, room])
        self._keys[self._count : stop] = keys
        self._positions[self._count : stop] = positions
        self._count = stop

    def forget(self, written: int) -> None:
        """Drop the first `written` rows, and free memory above `TAIL_ROWS` that is not needed."""
        left = self._count - written
        room = max(left, TAIL_ROWS)
        if written or len(self._keys) > room:
            keys, positions = self._keys, self._positions
            if len(keys) > room:
                self._keys, self._positions = np.empty(room, np.uint64), np.empty(room, np.uint64)
            self._keys[:left] = keys[written : self._count].copy()
            self._positions[:left] = positions[written : self._count].copy()
            self._count = left

    def check_invariants(self) -> None:
        """Assert what must hold between the fields."""
        assert 0 <= self._count <= len(self._keys) == len(self._positions)
