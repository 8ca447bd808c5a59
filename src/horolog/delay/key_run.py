"""Key runs: the sorted keys of consecutive entries of an hour.  Rebuilt from the delay index.

File `keys.<first>.<count>`, little-endian because the file is mapped and used in place; written
without sync.  The header is written last, and checked when the hour is opened; the columns are
checked at their first use, so that a start does not read them.  A file that is not intact is
dropped and rebuilt:

======  =====  ============  =====================================================================
offset  bytes  field         meaning
======  =====  ============  =====================================================================
0       4      magic         b"HLKR"
4       2      version       1
6       2      flags         unknown bit: the file is not used
8       8      first         global index of the first entry covered
16      4      count         rows; the run covers entries first … first + count − 1
20      4      columns CRC   CRC-32 of both columns
24      4      reserved      0
28      4      header CRC    CRC-32 of bytes 0–27
32      8 n    keys          u64, ascending; equal keys by global index
…       4 n    indexes       u32, global index minus first
======  =====  ============  =====================================================================

To change the format: raise the version, keep no reader of the old one (the files are rebuilt),
adapt `cli.inspection.hour_files` and the tests.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.log.key_merge import Columns, merge_slices
from horolog.storage.api import File, Storage
from horolog.storage.mapped import is_cut
from horolog.storage.sectors import read_around

MAGIC = b"HLKR"
VERSION = 1
_HEAD = struct.Struct("<4sHHQIII")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEAD.size + _CRC.size
assert HEADER_BYTES == 32
ROW_BYTES = 12
_CRC_STEP_BYTES = 1024 * 1024
_ROWS_MAX = 1 << 32  # the index column is u32
NO_COLUMNS = Columns(np.empty(0, np.uint64), np.empty(0, np.uint32))


def key_run_name(first: int, count: int) -> str:
    """Return the file name of a key run."""
    return f"keys.{first:010d}.{count:010d}"


def parse_key_run_name(name: str) -> tuple[int, int]:
    """Parse (first, count) from a key run's file name; return (0, 0) for any other name."""
    numbers = [int(part) for part in name.split(".")[1:] if part.isascii() and part.isdigit()]
    if len(numbers) != 2 or key_run_name(*numbers) != name:
        return 0, 0
    return numbers[0], numbers[1]


def _header(first: int, count: int, columns_crc: int) -> bytes:
    head = _HEAD.pack(MAGIC, VERSION, 0, first, count, columns_crc, 0)
    return head + _CRC.pack(crc32(head))


def encode_key_run(first: int, keys: npt.NDArray[Any], index: npt.NDArray[Any]) -> bytes:
    """Encode the complete file of sorted columns."""
    columns = keys.astype("<u8").tobytes() + index.astype("<u4").tobytes()
    return _header(first, len(keys), crc32(columns)) + columns


@dataclass(slots=True, eq=False)
class KeyRun:
    """Entries first … first + count − 1: in file `name`, or in memory ("") if the disk is full."""

    first: int
    count: int
    columns: Columns
    name: str = ""
    view: memoryview = field(default=memoryview(b""), repr=False)  # the mapped file
    unchecked: memoryview | None = None  # the columns as stored, until their CRC has been compared
    columns_crc: int = 0

    def map(self, view: memoryview) -> None:
        """Take the columns from `view`, a view of this run's file."""
        self.name = key_run_name(self.first, self.count)
        self.view = view
        self.columns = Columns(
            np.frombuffer(view, "<u8", self.count, HEADER_BYTES),
            np.frombuffer(view, "<u4", self.count, HEADER_BYTES + 8 * self.count),
        )

    def is_damaged(self) -> bool:
        """Return whether the file was cut or its columns differ from their CRC.

        The CRC is compared once, and only for columns that this process did not write.
        """
        if is_cut(self.view):
            return True
        unchecked, self.unchecked = self.unchecked, None
        return unchecked is not None and crc32(unchecked) != self.columns_crc

    def write(self, storage: Storage, directory: str) -> None:
        """Write the columns to a new file and map it; the caller removes the file if this fails."""
        path = f"{directory}/{key_run_name(self.first, self.count)}"
        storage.remove(path)  # never cut a file that may be mapped
        file = storage.open(path, create=True)
        try:
            file.write(0, encode_key_run(self.first, self.columns.keys, self.columns.rows))
            view = file.view()
        finally:
            file.close()
        self.map(view)


def load_key_run(storage: Storage, directory: str, name: str) -> KeyRun | None:
    """Open the file of a key run, without checking its columns.

    Returns None if name, length and header do not agree.
    """
    first, count = parse_key_run_name(name)
    file = storage.open(f"{directory}/{name}")
    try:
        head = read_around(file, 0, HEADER_BYTES)
        if not 0 < count < _ROWS_MAX or file.size() != HEADER_BYTES + ROW_BYTES * count:
            return None
        crc: int = _HEAD.unpack_from(head)[5]
        if head != _header(first, count, crc):
            return None
        view = file.view()
    finally:
        file.close()
    run = KeyRun(first, count, NO_COLUMNS, unchecked=view[HEADER_BYTES:], columns_crc=crc)
    run.map(view)
    return run


@dataclass(slots=True, eq=False)
class Merge:
    """A merge of neighbouring runs into one file, step by step.

    `run` may be used once `step` returns False.
    """

    inputs: list[KeyRun]
    run: KeyRun
    file: File
    step_rows: int
    _steps: Iterator[None] = field(init=False)

    def __post_init__(self) -> None:
        self._steps = self._write()

    def step(self) -> bool:
        """Do the next bounded piece of work; return False once the file is complete."""
        return next(self._steps, self) is None

    def _write(self) -> Iterator[None]:
        first, count = self.run.first, self.run.count
        columns = [each.columns._replace(offset=each.first - first) for each in self.inputs]
        written = 0
        for piece in merge_slices(columns, self.step_rows):
            keys_at = HEADER_BYTES + 8 * written
            index_at = HEADER_BYTES + 8 * count + 4 * written
            self.file.write(keys_at, piece.keys.astype("<u8").tobytes())
            self.file.write(index_at, piece.rows.astype("<u4").tobytes())
            written += len(piece.keys)
            yield
        crc = 0
        for at in range(HEADER_BYTES, HEADER_BYTES + ROW_BYTES * count, _CRC_STEP_BYTES):
            left = HEADER_BYTES + ROW_BYTES * count - at
            crc = crc32(self.file.read(at, min(left, _CRC_STEP_BYTES)), crc)
            yield
        self.file.write(0, _header(first, count, crc))
        self.run.map(self.file.view())
