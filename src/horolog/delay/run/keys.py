"""The key groups of a run: sorted key hashes of 65 536 rows each (`delay.run.format`), mapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.delay.run.format import KEY_ROW_BYTES

Rows = npt.NDArray[np.int64]
_UNKNOWN, _GOOD, _BAD = 0, 1, 2


class KeyGroups:
    """All key groups of a run.

    key_directory  the KEY_GROUP rows of the run, verified
    report         called once for each damaged group, with a sentence
    """

    def __init__(
        self, view: memoryview, key_directory: npt.NDArray[Any], report: Callable[[str], None]
    ) -> None:
        self._view = view
        self._key_directory = key_directory
        self._report = report
        self._state = np.zeros(len(key_directory), np.uint8)

    def is_intact(self, group: int) -> bool:
        """Return whether a group is as it was written; its CRC is compared at first use, 65 µs."""
        if self._state[group] == _UNKNOWN:
            offset, count, crc = self._key_directory[group].tolist()
            content = self._view[offset : offset + KEY_ROW_BYTES * count]
            self._state[group] = _GOOD if crc32(content) == crc else _BAD
            if self._state[group] == _BAD:
                self._report(f"key group {group} is damaged; its rows are scanned instead")
        return bool(self._state[group] == _GOOD)

    def rows_in_group(self, group: int, key: int) -> list[int]:
        """Return the rows within one intact group that have this key."""
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
