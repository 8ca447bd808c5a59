"""Finding the entries of one hour by key hash: sorted runs of (key, global index).  Rebuilt.

Memory must not grow with what is pending, and a look-up must not scan.  So the newest keys wait in memory until
there are 32 768 of them; then they are written as a sorted run, and eight runs of one size are merged into one,
up to 4 194 304 rows.  A look-up is a binary search in each run's mapped key column: O(log n) runs of O(log n)
steps.  Every key is sorted once and merged at most three times (measured: see docs/internals/keys.md).

Run file `keys.<first>.<count>`, little-endian, written without sync; one that is not intact is ignored and its
range read again from the delay index:

======  =====  ============  =====================================================================
offset  bytes  field         meaning
======  =====  ============  =====================================================================
0       4      magic         b"HLKR"
4       2      version       1
6       2      flags         unknown bit: the file is ignored
8       8      first         global index of the first entry covered
16      4      count         rows; the run covers entries first … first + count − 1
20      4      columns CRC   CRC-32 of both columns
24      4      reserved      0
28      4      header CRC    CRC-32 of bytes 0–27
32      8 n    keys          u64, ascending; equal keys by global index
…       4 n    indexes       u32, global index minus first
======  =====  ============  =====================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from isal.isal_zlib import crc32

from horolog.errors import ErrorCode, HorologError
from horolog.storage.api import File, Storage

MAGIC = b"HLKR"
VERSION = 1
_HEAD = struct.Struct("<4sHHQIII")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEAD.size + _CRC.size
assert HEADER_BYTES == 32

BUFFER_ROWS = 32_768
_FANOUT = 8
_RUN_ROWS_MAX = BUFFER_ROWS * _FANOUT**2 * 2  # 4 194 304: one merge blocks for about 0.2 s


class _Run(NamedTuple):
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs
    name: str
    file: File
    keys: npt.NDArray[np.uint64]
    index: npt.NDArray[np.uint32]  # type: ignore[assignment]  # hides tuple.index


def run_name(first: int, count: int) -> str:
    """File name of a run."""
    return f"keys.{first:010d}.{count:010d}"


def encode_run(first: int, keys: npt.NDArray[Any], index: npt.NDArray[Any]) -> bytes:
    """The whole file for sorted columns."""
    columns = keys.astype("<u8").tobytes() + index.astype("<u4").tobytes()
    head = _HEAD.pack(MAGIC, VERSION, 0, first, len(keys), crc32(columns), 0)
    return head + _CRC.pack(crc32(head)) + columns


class KeyRuns:
    """The key hashes of an hour's entries, added in the order of global indexes."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self._runs: list[_Run] = []
        self._buffer: list[npt.NDArray[np.uint64]] = []
        self._sorted: tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]] | None = None
        self._flushed = 0  # entries below are in runs
        self.count = 0

    def open(self, count: int, read_keys: Callable[[int, int], npt.NDArray[np.uint64]]) -> None:
        """After a restart: use the run files below `count`, read the other keys [a, b) with `read_keys`."""
        found = []
        for name in self._storage.list(self._directory):
            parts = name.split(".")
            if parts[0] == "keys" and len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit():
                found.append((int(parts[1]), -int(parts[2]), name))
        for first, minus_count, name in sorted(found):
            run = None
            if first == self._flushed and first - minus_count <= count:
                run = self._load(first, -minus_count, name)
            if run is None:
                self._storage.remove(f"{self._directory}/{name}")
            else:
                self._runs.append(run)
                self._flushed = first + run.count
        self.count = self._flushed
        while self.count < count:
            stop = min(count, self.count + BUFFER_ROWS)
            self.add(read_keys(self.count, stop))

    def _load(self, first: int, count: int, name: str) -> _Run | None:
        file = self._storage.open(f"{self._directory}/{name}")
        view = file.view()
        if len(view) == HEADER_BYTES + 12 * count:
            head = bytes(view[:HEADER_BYTES])
            magic, version, flags, at, rows, crc, _ = _HEAD.unpack_from(head)
            if (
                magic == MAGIC
                and version == VERSION
                and not flags
                and (at, rows) == (first, count)
                and _CRC.unpack_from(head, _HEAD.size)[0] == crc32(head[: _HEAD.size])
                and crc32(view[HEADER_BYTES:]) == crc
            ):
                return self._run(first, count, name, file, view)
        file.close()
        return None

    @staticmethod
    def _run(first: int, count: int, name: str, file: File, view: memoryview) -> _Run:
        keys = np.frombuffer(view, "<u8", count, HEADER_BYTES)
        index = np.frombuffer(view, "<u4", count, HEADER_BYTES + 8 * count)
        return _Run(first, count, name, file, keys, index)

    def add(self, keys: npt.NDArray[np.uint64]) -> None:
        """The keys (u64) of the next entries."""
        self._buffer.append(keys)
        self._sorted = None
        self.count += len(keys)
        if self.count - self._flushed >= BUFFER_ROWS:
            self._flush()

    def _flush(self) -> None:
        keys, index = self._sorted_buffer()
        try:
            self._runs.append(self._write(self._flushed, keys, index - self._flushed))
        except HorologError as error:
            if error.code is not ErrorCode.DISK_FULL:
                raise
            return  # stays in memory; tried again with the next keys
        self._flushed = self.count
        self._buffer, self._sorted = [], None
        self._merge()

    def _write(self, first: int, keys: npt.NDArray[Any], index: npt.NDArray[Any]) -> _Run:
        name = run_name(first, len(keys))
        path = f"{self._directory}/{name}"
        file = self._storage.open(path, create=True)
        try:
            file.truncate(0)
            file.write(0, encode_run(first, keys, index))
        except HorologError:
            file.close()
            self._storage.remove(path)
            raise
        return self._run(first, len(keys), name, file, file.view())

    def _merge(self) -> None:
        while len(self._runs) >= _FANOUT:
            last = self._runs[-_FANOUT:]
            total = sum(run.count for run in last)
            if last[0].count >= 2 * last[-1].count or total > _RUN_ROWS_MAX:
                return
            first = last[0].first
            keys = np.concatenate([run.keys for run in last])
            index = np.concatenate(
                [run.index.astype(np.int64) + (run.first - first) for run in last]
            )
            order = np.argsort(keys, kind="stable")
            try:
                merged = self._write(first, keys[order], index[order])
            except HorologError as error:
                if error.code is not ErrorCode.DISK_FULL:
                    raise
                return
            self._runs[-_FANOUT:] = [merged]
            for run in last:
                run.file.close()
                self._storage.remove(f"{self._directory}/{run.name}")

    def _sorted_buffer(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        if self._sorted is None:
            keys = np.concatenate(self._buffer) if self._buffer else np.empty(0, np.uint64)
            self._buffer = [keys]
            order = np.argsort(keys, kind="stable")
            self._sorted = keys[order], order + self._flushed
        return self._sorted

    def find(self, key: int) -> list[int]:
        """Global indexes of all entries with that key, ascending."""
        wanted = np.uint64(key)
        found: list[int] = []
        for run in self._runs:
            low = int(np.searchsorted(run.keys, wanted, side="left"))
            high = int(np.searchsorted(run.keys, wanted, side="right"))
            found += [run.first + int(i) for i in run.index[low:high]]
        if self.count > self._flushed:
            if self._sorted is None and self.count - self._flushed < 4_096:
                keys = np.concatenate(self._buffer)
                self._buffer = [keys]
                found += (np.flatnonzero(keys == wanted) + self._flushed).tolist()
            else:
                keys, index = self._sorted_buffer()
                low = int(np.searchsorted(keys, wanted, side="left"))
                high = int(np.searchsorted(keys, wanted, side="right"))
                found += index[low:high].tolist()
        return found

    def close(self) -> None:
        """Give views and files back."""
        runs, self._runs = self._runs, []
        files = [run.file for run in runs]
        del runs
        for file in files:
            file.close()
