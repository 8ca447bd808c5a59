"""A lake's table as input of the due source: its Parquet files are sorted by due time, as runs are.

The Delta log states which files there are, with the first and last due time of each; the column
`due_ms` of a file locates a moment in it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from horolog.errors import ErrorCode, HorologError
from horolog.spark.due_runs import DueRows, Piece, SortedFiles, Span
from horolog.spark.message_decode import Records, Rows

if TYPE_CHECKING:
    from deltalake import DeltaTable

DELTA_LOG = "_delta_log"
_DUE, _RECORD = "due_ms", "record"
_COLUMNS_KEPT = 64  # files whose due times are cached: 8 bytes a row
_CHUNK_ROWS = 16_384


def is_lake(path: str) -> bool:
    """Return whether the directory is a Delta table."""
    return Path(path, DELTA_LOG).is_dir()


class LakeTable(SortedFiles):
    """The files of a Delta table that `pipeline offload` wrote, or of one with those columns."""

    def __init__(self, path: str) -> None:
        from deltalake import DeltaTable

        self._path = path
        self._table: DeltaTable = DeltaTable(path)
        self._files: dict[str, Span] | None = None
        self._due: OrderedDict[str, npt.NDArray[np.int64]] = OrderedDict()
        names = {field.name for field in self._table.schema().fields}
        if not {_DUE, _RECORD} <= names:
            raise HorologError(
                ErrorCode.BAD_REQUEST,
                f"option 'path': {path} is a Delta table without the columns {_DUE} and {_RECORD}",
                field="path",
            )

    def refresh(self) -> None:
        """Read the commits since the last refresh."""
        version = self._table.version()
        self._table.update_incremental()
        if self._files is not None and self._table.version() == version:
            return
        found: dict[str, Any] = pa.table(self._table.get_add_actions(flatten=True)).to_pydict()
        rows, firsts, lasts = (
            found[name] for name in ("num_records", f"min.{_DUE}", f"max.{_DUE}")
        )
        self._files = {
            name: Span(*span)
            for name, *span in zip(found["path"], rows, firsts, lasts, strict=True)
        }

    def files(self) -> dict[str, Span]:
        """Return the files that are there, by name."""
        if self._files is None:
            self.refresh()
        assert self._files is not None
        return self._files

    def _column(self, name: str) -> npt.NDArray[np.int64]:
        found = self._due.get(name)
        if found is None:
            with _content(f"{name}: {_DUE} cannot be read"):
                with pq.ParquetFile(
                    Path(self._path, name), page_checksum_verification=True
                ) as file:
                    found = file.read(columns=[_DUE]).column(_DUE).to_numpy()
                if len(found) != self.files()[name].rows:
                    raise pa.ArrowInvalid(f"{len(found)} rows")
            if bool((found[1:] < found[:-1]).any()):
                raise HorologError(
                    ErrorCode.DAMAGED, f"{name}: rows are not sorted by {_DUE}", field="path"
                )
            self._due[name] = found
            if len(self._due) > _COLUMNS_KEPT:
                self._due.popitem(last=False)
        else:
            self._due.move_to_end(name)
        return found

    def row_within(self, name: str, due_ms: int) -> int:
        """Search the file's column for the first row due at or after `due_ms`."""
        return int(self._column(name).searchsorted(due_ms))

    def due_of(self, name: str, row: int) -> int:
        """Return the due time of a row from the file's column."""
        return int(self._column(name)[row])


def read_lake_piece(path: str, piece: Piece, *, lossy: bool) -> Iterator[DueRows]:
    """Yield the rows of a piece, one row group at a time.

    lossy  leave out row groups that cannot be read, records that are not messages, and messages
           whose body does not match its CRC; else DAMAGED names the first of these rows
    """
    with _content(f"{piece.name}: its footer cannot be read"):
        file = pq.ParquetFile(Path(path, piece.name), page_checksum_verification=True)
        footer = file.metadata  # has no checksum
        groups = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    with file:
        if (rows := sum(groups)) != piece.rows_in_file:
            raise HorologError(
                ErrorCode.DAMAGED,
                f"{piece.name}: has {rows} rows, had {piece.rows_in_file}",
                field="path",
            )
        end = 0
        for group, count in enumerate(groups):
            begin, end = end, end + count
            first, stop = max(begin, piece.first), min(end, piece.stop)
            if first >= stop:
                continue
            try:
                with _content(_lossy_text(piece, f"rows {begin} to {end - 1} cannot be read")):
                    column = file.read_row_group(group, columns=[_RECORD]).column(_RECORD)
                    column = column.combine_chunks()
                    if len(column) != count:
                        raise pa.ArrowInvalid(f"{len(column)} rows")
            except HorologError:
                if not lossy:
                    raise
                continue
            for at in range(first, stop, _CHUNK_ROWS):
                until = min(stop, at + _CHUNK_ROWS)
                yield _rows(column.slice(at - begin, until - at), piece, at, lossy=lossy)


def _rows(column: Any, piece: Piece, first: int, *, lossy: bool) -> DueRows:
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    wide = pa.types.is_large_binary(column.type)
    ends = np.frombuffer(column.buffers()[1], np.int64 if wide else np.int32)
    offsets: npt.NDArray[np.int64] = ends[column.offset : column.offset + len(column) + 1].astype(
        np.int64
    )
    content = column.buffers()[2]
    raw = np.frombuffer(b"" if content is None else content, np.uint8)
    at, sizes = offsets[:-1], np.diff(offsets)
    rows = np.arange(first, first + len(column))
    records = _verified(raw, at, sizes)
    if records is None:
        good = _intact(raw, at, sizes)
        if not lossy:
            raise _damaged(piece, f"row {first + int(np.argmin(good))} is damaged")
        records, rows = Records(raw, at[good], sizes[good], verified=True), rows[good]
    return DueRows(records, rows)


def _verified(raw: npt.NDArray[np.uint8], at: Rows, sizes: Rows) -> Records | None:
    """Return the records; None unless all are messages whose bodies match their CRCs."""
    try:
        records = Records(raw, at, sizes)
        records.verify_bodies()
    except HorologError:
        return None
    return records


def _intact(raw: npt.NDArray[np.uint8], at: Rows, sizes: Rows) -> npt.NDArray[np.bool_]:
    """Return which records are messages whose bodies match their CRCs, by halving."""
    good = np.ones(len(at), np.bool_)
    unchecked = [(0, len(at))]
    while unchecked:
        first, stop = unchecked.pop()
        if _verified(raw, at[first:stop], sizes[first:stop]) is None:
            if stop - first == 1:
                good[first] = False
            else:
                middle = (first + stop) // 2
                unchecked += [(first, middle), (middle, stop)]
    return good


def _damaged(piece: Piece, what: str) -> HorologError:
    return HorologError(ErrorCode.DAMAGED, _lossy_text(piece, what), field="path")


def _lossy_text(piece: Piece, what: str) -> str:
    return f"{piece.name}: {what} (failOnDataLoss=false leaves such rows out)"


@contextmanager
def _content(what: str) -> Iterator[None]:
    """Raise DAMAGED for content that Arrow cannot read, or that has another checksum."""
    try:
        yield
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:  # of names too
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk has failed, not the content: Arrow's errors have no errno
        raise HorologError(ErrorCode.DAMAGED, what, field="path") from error
