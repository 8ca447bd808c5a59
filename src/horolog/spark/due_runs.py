"""A directory of run files as one sequence in the order of due times.

It counts how many rows are due, and finds where they are stored.  Files come and go by name and are
never changed.  A file without a footer is still being written, and is looked at again later; when
it has not been written to for `UNFINISHED_S` seconds it is damaged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.delay.entry import is_readable, record_crcs
from horolog.delay.run.format import END_MAGIC
from horolog.delay.run.reader import Run
from horolog.errors import ErrorCode, HorologError
from horolog.spark.message_decode import Records
from horolog.spark.values import values_of
from horolog.storage.disk import Disk

SUFFIX = ".run"
UNFINISHED_S = 300.0
_CHUNK_ROWS = 16_384
TASK_ROWS_MIN = 20_000  # fewer rows are not worth a task


class Piece(NamedTuple):
    """Rows [first, stop) of a file, which had `rows_in_file` rows when the read was planned."""

    name: str
    rows_in_file: int
    first: int
    stop: int


class Span(NamedTuple):
    """Row count of a file, and the due times of its first and last row."""

    rows: int
    first_ms: int
    last_ms: int


class SortedFiles:
    """Files whose rows ascend by due time: which rows are due when.

    Implemented by `RunDirectory` and `due_lake.LakeTable`.
    """

    def refresh(self) -> None:
        """Look for files that have come or gone."""
        raise NotImplementedError

    def files(self) -> dict[str, Span]:
        """Return the files that are there, by name."""
        raise NotImplementedError

    def row_within(self, name: str, due_ms: int) -> int:
        """Return the first row of a file due at or after `due_ms`.

        `due_ms` lies between the due times of the file's first and last row.
        """
        raise NotImplementedError

    def due_of(self, name: str, row: int) -> int:
        """Return the due time of a row, in epoch ms."""
        raise NotImplementedError

    def _row_at(self, name: str, span: Span, due_ms: int) -> int:
        if due_ms <= span.first_ms:
            return 0
        return span.rows if due_ms > span.last_ms else self.row_within(name, due_ms)

    def below(self, due_ms: int) -> int:
        """Count the rows due before a moment."""
        return sum(self._row_at(name, span, due_ms) for name, span in self.files().items())

    def between(self, start_ms: int, end_ms: int) -> list[Piece]:
        """Return the rows due in [start, end), by file."""
        found = []
        for name, span in sorted(self.files().items()):
            first, stop = (self._row_at(name, span, each) for each in (start_ms, end_ms))
            if first < stop:
                found.append(Piece(name, span.rows, first, stop))
        return found

    def reach(self, start_ms: int, end_ms: int, limit: int) -> int:
        """Return the latest moment up to `end_ms` before which at most `limit` rows are due.

        Rows due before `start_ms` are not counted.  All rows of one millisecond go together, so
        more than `limit` rows may be due before the returned moment.
        """
        begins = {piece.name: piece for piece in self.between(start_ms, end_ms)}
        spans = {name: span for name, span in self.files().items() if name in begins}

        def due_before(moment: int) -> int:
            return sum(
                max(0, self._row_at(name, span, moment) - begins[name].first)
                for name, span in spans.items()
            )

        if due_before(end_ms) <= limit:
            return end_ms
        low = min(self.due_of(name, piece.first) for name, piece in begins.items()) + 1
        high = end_ms  # `low` is a possible result, even above the limit
        while low < high:
            middle = (low + high + 1) // 2
            if due_before(middle) <= limit:
                low = middle
            else:
                high = middle - 1
        return low


class RunDirectory(SortedFiles):
    """The run files of a directory."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        if not self._path.is_dir():
            raise HorologError(
                ErrorCode.BAD_REQUEST, f"option 'path': {path} is not a directory", field="path"
            )
        self._disk = Disk(self._path, read_only=True)
        self._runs: dict[str, Run] = {}

    def refresh(self) -> None:
        """Open new files, and close files that are gone."""
        names = {name for name in os.listdir(self._path) if name.endswith(SUFFIX)}
        for name in self._runs.keys() - names:
            self._runs.pop(name).close()
        for name in sorted(names - self._runs.keys()):
            run = self._opened(name)
            if run is not None:
                self._runs[name] = run

    def _opened(self, name: str) -> Run | None:
        try:
            return Run.open(self._disk, ".", name.removesuffix(SUFFIX), None)
        except HorologError:
            if self._is_unfinished(name):
                return None
            raise

    def _is_unfinished(self, name: str) -> bool:
        try:
            with open(self._path / name, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                foot = os.pread(file.fileno(), 8, max(0, size - 8))
                idle_s = time.time() - os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return True  # the file was removed meanwhile
        return foot[:4] != END_MAGIC and idle_s < UNFINISHED_S

    def files(self) -> dict[str, Span]:
        """Return the files that are there, by name."""
        return {
            name: Span(run.rows, run.info.first_ms, run.info.last_ms)
            for name, run in self._runs.items()
        }

    def row_within(self, name: str, due_ms: int) -> int:
        """Search the run's index for the first row due at or after `due_ms`."""
        return self._runs[name].row_at(due_ms)

    def due_of(self, name: str, row: int) -> int:
        """Return the due time of a row from the run's index."""
        return int(self._runs[name].slice(row, row + 1)["due_ms"][0])


def tasks_for(rows: int, per_task: int, cores: int) -> int:
    """Return how many tasks of at most `per_task` rows to run.

    The count is a multiple of the cores, so that no core waits while the last task runs, but
    smaller where tasks would have fewer than TASK_ROWS_MIN rows.  On a cluster the cores of the
    driver are counted.
    """
    least = -(-rows // per_task)
    return max(least, min(-(-least // cores) * cores, rows // TASK_ROWS_MIN))


def grouped(pieces: list[Piece], per_task: int, cores: int = 1) -> list[tuple[Piece, ...]]:
    """Divide the pieces among `tasks_for` tasks of about the same size; large pieces are cut."""
    total = sum(piece.stop - piece.first for piece in pieces)
    tasks = tasks_for(total, per_task, cores)
    each = -(-total // tasks) if tasks else 0
    found: list[tuple[Piece, ...]] = []
    group: list[Piece] = []
    room = each
    for piece in pieces:
        first = piece.first
        while first < piece.stop:
            stop = min(piece.stop, first + room)
            group.append(piece._replace(first=first, stop=stop))
            room -= stop - first
            first = stop
            if not room:
                found.append(tuple(group))
                group, room = [], each
    return [*found, tuple(group)] if group else found


class DueRows(NamedTuple):
    """Records of a piece in order, and the row of each in its file, without the rows left out."""

    records: Records
    rows: npt.NDArray[np.int64]


def _intact(run: Run, entries: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which records match the CRCs in their rows."""
    found = record_crcs(_records(run, entries), entries["origin"], entries["row"])
    intact: npt.NDArray[np.bool_] = found == entries["crc"]
    return intact


def _records(run: Run, entries: npt.NDArray[Any]) -> Iterable[bytes | memoryview]:
    """Return the records of the rows; rows stored side by side are read as one stretch."""
    at = entries["position"].astype(np.int64)
    ends = at + entries["size"]
    if not len(at) or bool((at[1:] != ends[:-1]).any()):
        return run.records(entries)
    offsets = pa.py_buffer(np.append(at, ends[-1]) - at[0])
    content = pa.py_buffer(run.view[int(at[0]) : int(ends[-1])])
    return values_of(
        pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(at), [None, offsets, content])
    )


def read_piece(path: str, piece: Piece, *, lossy: bool) -> Iterator[DueRows]:
    """Yield the rows of a piece.

    lossy  leave out rows that do not verify; else DAMAGED names the first of them
    """
    name = piece.name.removesuffix(SUFFIX)
    run = Run.open(Disk(Path(path), read_only=True), ".", name, None)
    if run.rows != piece.rows_in_file:
        raise HorologError(
            ErrorCode.DAMAGED,
            f"{piece.name}: has {run.rows} rows, had {piece.rows_in_file}; it is another file",
            field="path",
        )
    raw = np.frombuffer(run.view, np.uint8)
    for first in range(piece.first, piece.stop, _CHUNK_ROWS):
        entries = run.slice(first, min(piece.stop, first + _CHUNK_ROWS))
        good = is_readable(entries)
        if good.all():
            good = _intact(run, entries)
        kept = np.arange(first, first + len(entries))
        if not good.all():
            if not lossy:
                raise HorologError(
                    ErrorCode.DAMAGED,
                    f"{piece.name}: row {first + int(np.argmin(good))} is damaged "
                    "(failOnDataLoss=false leaves such rows out)",
                    field="path",
                )
            entries, kept = entries[good], kept[good]
            good = _intact(run, entries)
            entries, kept = entries[good], kept[good]
        at, sizes = entries["position"].astype(np.int64), entries["size"].astype(np.int64)
        yield DueRows(Records(raw, at, sizes, verified=True), kept)
