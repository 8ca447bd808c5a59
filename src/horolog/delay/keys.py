"""Finding the entries of one hour by key hash: sorted runs of (key, global index).  Rebuilt.

Memory must not grow with what is pending, and a look-up must not scan.  So the newest keys wait in memory, at
most 32 768 of them; a full buffer is written as a sorted run, and eight runs of one size are merged into one, up
to 2 097 152 rows.  A look-up is a binary search in each run's mapped key column: of 10⁷ keys, in at most some 35
runs.  A run longer than that would make look-ups little faster, but much would have to be read again at a start
if it were lost.

A merge does not block: each `add` does its share of it, `_MERGE_SHARE` rows for a key, in steps of 16 384 rows, and
until the merge ends its inputs are used.  Every key is sorted once and merged twice.

Measured (one core of an AMD EPYC, real disk, batches of 1 000; `add` includes sort, write and merges):

=========  ===============  ================  ================  =============  =====================
keys       add              longest `add`     find              open           first find after open
=========  ===============  ================  ================  =============  =====================
10⁶        @ADD6            @MAX6             @FIND6            @OPEN6         @FIRST6
10⁷        @ADD7            @MAX7             @FIND7            @OPEN7         @FIRST7
=========  ===============  ================  ================  =============  =====================

Run file `keys.<first>.<count>`, little-endian, written without sync.  Its header is written last, and checked at
`open`; its columns are checked when they are first used, so that a start does not read them.  A file that is not
intact is dropped and its rows are read again from the delay index:

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from isal.isal_zlib import crc32

from horolog.delay.key_merge import Columns, merge_slices, sorted_columns
from horolog.errors import ErrorCode, HorologError
from horolog.limits import CONTROL_RESERVE_BYTES
from horolog.storage.api import File, Storage

MAGIC = b"HLKR"
VERSION = 1
_HEAD = struct.Struct("<4sHHQIII")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEAD.size + _CRC.size
assert HEADER_BYTES == 32
ROW_BYTES = 12

BUFFER_ROWS = 32_768
_FANOUT = 8
_RUN_ROWS_MAX = BUFFER_ROWS * _FANOUT**2
_STEP_ROWS = 16_384
_MERGE_SHARE = 4  # rows merged for each key added: twice what is needed, so that merges end
_MERGE_PAUSE = BUFFER_ROWS * _FANOUT  # keys until a merge that met a full disk is tried again


def run_name(first: int, count: int) -> str:
    """File name of a run."""
    return f"keys.{first:010d}.{count:010d}"


def _header(first: int, count: int, columns_crc: int) -> bytes:
    head = _HEAD.pack(MAGIC, VERSION, 0, first, count, columns_crc, 0)
    return head + _CRC.pack(crc32(head))


def encode_run(first: int, keys: npt.NDArray[Any], index: npt.NDArray[Any]) -> bytes:
    """The whole file for sorted columns."""
    columns = keys.astype("<u8").tobytes() + index.astype("<u4").tobytes()
    return _header(first, len(keys), crc32(columns)) + columns


@dataclass(slots=True, eq=False)
class _Run:
    """Entries first … first + count − 1: in the file `name`, or in memory ("") until the disk has room."""

    first: int
    count: int
    name: str
    columns: Columns
    unchecked: memoryview | None = None  # the columns as stored, until their CRC has been compared
    crc: int = 0

    def map(self, name: str, view: memoryview) -> None:
        """Use the columns of this file."""
        self.name = name
        self.columns = Columns(
            np.frombuffer(view, "<u8", self.count, HEADER_BYTES),
            np.frombuffer(view, "<u4", self.count, HEADER_BYTES + 8 * self.count),
        )


@dataclass(slots=True, eq=False)
class _Merge:
    """A merge under way: `written` of `run.count` rows are in the new file, which has no header yet."""

    inputs: list[_Run]
    run: _Run
    file: File
    slices: Iterator[Columns]
    written: int = 0

    def step(self) -> bool:
        """Write one slice; False at the end, when the new file is whole and `run` maps it."""
        piece = next(self.slices, None)
        count = self.run.count
        if piece is None:
            crc = crc32(self.file.view()[HEADER_BYTES:])
            self.file.write(0, _header(self.run.first, count, crc))
            self.run.map(run_name(self.run.first, count), self.file.view())
            return False
        keys_at = HEADER_BYTES + 8 * self.written
        index_at = HEADER_BYTES + 8 * count + 4 * self.written
        self.file.write(keys_at, piece.keys.astype("<u8").tobytes())
        self.file.write(index_at, piece.index.astype("<u4").tobytes())
        self.written += len(piece.keys)
        return True


class KeyRuns:
    """The key hashes of an hour's entries, added in the order of global indexes.

    Any disk failure but DISK_FULL is raised.  On a full disk keys stay in memory and are written later.
    """

    def __init__(self, storage: Storage, directory: str) -> None:
        self.count = 0
        self._storage = storage
        self._directory = directory
        self._runs: list[_Run] = []  # by `first`, without gaps
        self._buffer = np.empty(BUFFER_ROWS, np.uint64)  # keys of the last `_buffered` entries
        self._buffered = 0
        self._merge: _Merge | None = None
        self._credit = 0  # rows of merging that are due
        self._merge_from = 0  # no merge starts below this count
        self._read_keys: Callable[[int, int], npt.NDArray[np.uint64]] | None = None

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    # --- opening --------------------------------------------------------------------------------

    def open(self, count: int, read_keys: Callable[[int, int], npt.NDArray[np.uint64]]) -> None:
        """After a restart: use the run files below `count`, read the other keys [a, b) with `read_keys`.

        Files that are not intact, overlap others or go beyond `count` are removed.  `read_keys` is kept for
        runs that turn out to be damaged when they are used.
        """
        self._read_keys = read_keys
        found = []
        for name in self._storage.list(self._directory):
            parts = name.split(".")
            if parts[0] == "keys":
                numbers = [int(part) for part in parts[1:] if part.isascii() and part.isdigit()]
                if len(numbers) != 2 or run_name(*numbers) != name:
                    numbers = [count, 1]  # no name of ours: refused below
                found.append((numbers[0], -numbers[1], name))
        for first, minus_rows, name in sorted(found):
            run = None
            if first >= self.count and minus_rows and first - minus_rows <= count:
                run = self._load(first, -minus_rows, name)
            if run is None:
                self._storage.remove(self._path(name))
                continue
            self._read_up_to(first, read_keys)
            if self._buffered:
                self._flush()
            self._runs.append(run)
            self.count += run.count
        self._read_up_to(count, read_keys)

    def _read_up_to(
        self, stop: int, read_keys: Callable[[int, int], npt.NDArray[np.uint64]]
    ) -> None:
        while self.count < stop:
            self.add(read_keys(self.count, min(stop, self.count + BUFFER_ROWS)))

    def _load(self, first: int, count: int, name: str) -> _Run | None:
        file = self._storage.open(self._path(name))
        try:
            head = file.read(0, HEADER_BYTES)
            if file.size() != HEADER_BYTES + ROW_BYTES * count:
                return None
            crc = _HEAD.unpack_from(head)[5]
            if head != _header(first, count, crc):
                return None
            view = file.view()
        finally:
            file.close()
        run = _Run(first, count, name, _NO_COLUMNS, view[HEADER_BYTES:], crc)
        run.map(name, view)
        return run

    # --- adding ---------------------------------------------------------------------------------

    def add(self, keys: npt.NDArray[np.uint64]) -> None:
        """The keys (u64) of the next entries; they are copied."""
        at = 0
        while at < len(keys):
            n = min(len(keys) - at, BUFFER_ROWS - self._buffered)
            self._buffer[self._buffered : self._buffered + n] = keys[at : at + n]
            at += n
            self._buffered += n
            self.count += n
            if self._buffered == BUFFER_ROWS:
                self._flush()
        self._credit += _MERGE_SHARE * len(keys)
        while self._credit >= _STEP_ROWS:
            self._credit = self._credit - _STEP_ROWS if self._merge_step() else 0

    def _flush(self) -> None:
        columns = sorted_columns(self._buffer[: self._buffered])
        self._runs.append(_Run(self.count - self._buffered, self._buffered, "", columns))
        self._buffered = 0
        for run in self._runs:
            if not run.name and not self._store(run):
                return  # a full disk: tried again with the next flush

    def _store(self, run: _Run) -> bool:
        name = run_name(run.first, run.count)
        self._storage.remove(self._path(name))
        try:
            file = self._storage.open(self._path(name), create=True)
            try:
                file.write(0, encode_run(run.first, run.columns.keys, run.columns.index))
                view = file.view()
            finally:
                file.close()
        except HorologError as error:
            self._survive(error, name)
            return False
        run.map(name, view)
        return True

    def _survive(self, error: HorologError, name: str) -> None:
        """Go on without this file if the disk is full; else the error stands."""
        self._storage.remove(self._path(name))
        if error.code is not ErrorCode.DISK_FULL:
            raise error

    # --- merging --------------------------------------------------------------------------------

    def _merge_step(self) -> bool:
        merge = self._merge or self._start_merge()
        if merge is None:
            return False
        try:
            if merge.step():
                return True
        except HorologError as error:
            self._end_merge(merge)
            self._merge_from = self.count + _MERGE_PAUSE
            self._survive(error, run_name(merge.run.first, merge.run.count))
            return False
        self._end_merge(merge)
        at = self._runs.index(merge.inputs[0])
        self._runs[at : at + len(merge.inputs)] = [merge.run]
        for run in merge.inputs:
            self._storage.remove(self._path(run_name(run.first, run.count)))
        return True

    def _end_merge(self, merge: _Merge) -> None:
        self._merge = None
        merge.file.close()

    def _start_merge(self) -> _Merge | None:
        inputs = self._mergeable()
        first, count = (inputs[0].first, sum(run.count for run in inputs)) if inputs else (0, 0)
        room = self._storage.free_bytes() - CONTROL_RESERVE_BYTES if inputs else 0
        if not inputs or self.count < self._merge_from or room < HEADER_BYTES + ROW_BYTES * count:
            return None
        for run in inputs:
            self._check(run)
        name = run_name(first, count)
        try:
            file = self._storage.open(self._path(name), create=True)
        except HorologError as error:
            self._survive(error, name)
            return None
        file.truncate(0)
        columns = [run.columns._replace(offset=run.first - first) for run in inputs]
        run = _Run(first, count, "", _NO_COLUMNS)
        self._merge = _Merge(inputs, run, file, merge_slices(columns, _STEP_ROWS))
        return self._merge

    def _mergeable(self) -> list[_Run]:
        """The oldest eight neighbours of one size class, or nothing."""
        same: list[_Run] = []
        for run in self._runs:
            if same and _size_class(run.count) != _size_class(same[0].count):
                same = []
            same.append(run)
            if len(same) == _FANOUT and _size_class(run.count) < _size_class(_RUN_ROWS_MAX):
                return same
        return []

    # --- finding --------------------------------------------------------------------------------

    def _check(self, run: _Run) -> None:
        """Compare the CRC of columns from before the start; damaged ones are made anew from the delay index."""
        if run.unchecked is None:
            return
        good = crc32(run.unchecked) == run.crc
        run.unchecked = None
        if not good and self._read_keys is not None:
            stops = range(run.first, run.first + run.count, BUFFER_ROWS)
            stop = run.first + run.count
            keys = [self._read_keys(at, min(stop, at + BUFFER_ROWS)) for at in stops]
            run.columns = sorted_columns(np.concatenate(keys))
            run.name = ""
            self._store(run)

    def find(self, key: int) -> list[int]:
        """Global indexes of all entries with that key, ascending."""
        wanted = np.uint64(key)
        found: list[int] = []
        for run in self._runs:
            self._check(run)
            low = int(run.columns.keys.searchsorted(wanted))
            if low < run.count and run.columns.keys[low] == wanted:
                high = int(run.columns.keys.searchsorted(wanted, side="right"))
                found += [run.first + i for i in run.columns.index[low:high].tolist()]
        # a scan of the buffer takes 15 µs; sorting it first would take 300 µs after each `add`
        buffered = np.flatnonzero(self._buffer[: self._buffered] == wanted)
        return found + (buffered + (self.count - self._buffered)).tolist()

    def find_many(
        self, keys: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Pairs (position in `keys`, global index) of all entries with any of these keys, ordered.

        A key that is given twice is found twice.
        """
        order = np.argsort(keys, kind="stable")
        wanted = np.asarray(keys, np.uint64)[order]
        positions: list[npt.NDArray[np.int64]] = []
        indexes: list[npt.NDArray[np.int64]] = []
        for run in self._runs:
            self._check(run)
            at, row = _ranges(run.columns.keys, wanted)
            positions.append(order[at])
            indexes.append(run.columns.index[row].astype(np.int64) + run.first)
        # the other way round, since the buffer is not sorted
        row, at = _ranges(wanted, self._buffer[: self._buffered])
        positions.append(order[at])
        indexes.append(row + (self.count - self._buffered))
        position, index = np.concatenate(positions), np.concatenate(indexes)
        ordered = np.lexsort((index, position))
        return position[ordered], index[ordered]

    def close(self) -> None:
        """Drop the views; the keys in memory and a merge under way are made anew at the next `open`."""
        if self._merge is not None:
            self._end_merge(self._merge)
        self._runs = []
        self._buffered = 0


_NO_COLUMNS = Columns(np.empty(0, np.uint64), np.empty(0, np.uint32))


def _size_class(count: int) -> int:
    found = 0
    while count > BUFFER_ROWS * _FANOUT**found:
        found += 1
    return found


def _ranges(
    ordered: npt.NDArray[np.uint64], wanted: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Pairs (place in `wanted`, place in `ordered`) of equal keys; `ordered` is sorted."""
    low = ordered.searchsorted(wanted)
    length = ordered.searchsorted(wanted, side="right") - low
    hit = np.flatnonzero(length)
    low, length = low[hit], length[hit]
    at = np.repeat(hit, length)
    step = np.arange(len(at)) - np.repeat(np.cumsum(length) - length, length)
    return at, np.repeat(low, length) + step
