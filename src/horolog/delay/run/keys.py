"""The key groups of a run: sorted key hashes of 65 536 rows each (format in `delay.run.format`), mapped."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.delay.run.format import KEY_ROW_BYTES

Rows = npt.NDArray[np.int64]
_UNKNOWN, _GOOD, _BAD = 0, 1, 2


class KeyGroups:
    """All groups of a run.  `key_directory`: its KEY_GROUP rows, verified."""

    def __init__(self, view: memoryview, key_directory: npt.NDArray[Any]) -> None:
        self._view = view
        self._key_directory = key_directory
        self._state = np.zeros(len(key_directory), np.uint8)

    def is_new(self, group: int) -> bool:
        """Whether the CRC of a group has not been compared yet."""
        return bool(self._state[group] == _UNKNOWN)

    def is_intact(self, group: int) -> bool:
        """Whether a group is as it was written; compared at its first use, 65 µs."""
        if self._state[group] == _UNKNOWN:
            offset, count, crc = self._key_directory[group].tolist()
            content = self._view[offset : offset + KEY_ROW_BYTES * count]
            self._state[group] = _GOOD if crc32(content) == crc else _BAD
        return bool(self._state[group] == _GOOD)

    def find_one(self, group: int, key: int) -> list[int]:
        """Rows within one intact group that have this key."""
        offset, count, _ = self._key_directory[group].item()
        wanted = np.uint64(key)
        ordered = np.frombuffer(self._view, "<u8", count, offset)
        low = int(ordered.searchsorted(wanted))
        if low == count or ordered[low] != wanted:
            return []
        high = int(ordered.searchsorted(wanted, side="right"))
        rows: list[int] = np.frombuffer(
            self._view, "<u2", high - low, offset + 8 * count + 2 * low
        ).tolist()
        return rows

    def search(self, group: int, keys: npt.NDArray[np.uint64]) -> tuple[Rows, Rows]:
        """Pairs (place in `keys`, row within the group) of one intact group; quickest if `keys` ascend."""
        offset, count, _ = self._key_directory[group].tolist()
        ordered = np.frombuffer(self._view, "<u8", count, offset)
        low = ordered.searchsorted(keys)
        hit = np.flatnonzero(ordered[np.minimum(low, count - 1)] == keys)
        if not len(hit):
            return hit, hit
        low = low[hit]
        place, at = spread(hit, low, ordered.searchsorted(keys[hit], side="right") - low)
        return place, np.frombuffer(self._view, "<u2", count, offset + 8 * count)[at].astype(
            np.int64
        )


def spread(places: Rows, firsts: Rows, lengths: Rows) -> tuple[Rows, Rows]:
    """For each place all of first, first + 1 … first + length − 1: (place, number) pairs."""
    step = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(places, lengths), np.repeat(firsts, lengths) + step
