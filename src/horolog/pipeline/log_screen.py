"""The screen of an audit: three values a row, from which one aggregation clears most messages.

A message that the screen clears needs no closer look.  Rows are grouped by `key`, the 64-bit hash
of topic and message id.  `proof` is a hash of (origin, due time, key), equal for a schedule and for
the record that settles it, so the XOR of a group is 0 when everything in it is settled once.  A
hand-over that is early or too late has a proof that matches nothing.  Where keys collide, two
messages share a group and get a closer look: the screen may suspect in vain, but never clears a
fault.

=====  =========================================================================================
value  meaning
=====  =========================================================================================
key    hash of topic and message id
proof  XOR to 0 if settled once; 0 for a message whose schedule is not in the log any more
what   `HANDED`, `SETTLED` (a recall or move), `DUE` (a schedule due by the horizon), or 0
=====  =========================================================================================

Spark moves these values in pieces: a row has the values of one part of all keys from one stretch of
the log, one binary column for each.  Shuffling and grouping twenty million rows one by one took two
thirds of an audit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from horolog.delay.row_sum import mix
from horolog.pipeline.data_files import LogPlan, plan_of
from horolog.pipeline.log_source import LogPart, Window, need, parts_of, read_part, window_of
from horolog.pipeline.log_table import SCHEDULES, LogRows, RowKind
from horolog.pipeline.log_totals import is_early, is_forgotten
from horolog.spark.message_columns import arrow_schema

SCREEN_SCHEMA = StructType(
    [
        StructField("part", IntegerType()),
        *(StructField(name, BinaryType()) for name in ("key", "proof", "what")),
    ]
)
HANDED, SETTLED, DUE = 1, 2, 4
PART_ROWS = 1_000_000
PART_LOG_BYTES = 256 << 20  # log bytes that hold about PART_ROWS rows
_SCREENED = (
    *SCHEDULES,
    RowKind.HANDED,
    RowKind.RECALL,
    RowKind.MOVED,
    RowKind.EXPIRED,
)
_DTYPES = (np.int64, np.uint64, np.uint8)  # of the columns of Screened
_ODD = np.uint64(0x9E3779B97F4A7C15)


def proofs(rows: LogRows) -> npt.NDArray[np.uint64]:
    """Hash origin, due time and key of each row."""
    rows_part = mix(rows.origin_row.astype(np.uint64) * _ODD)
    mixed = mix(rows.origin.astype(np.uint64) ^ rows_part)
    mixed ^= rows.due_ms.astype(np.uint64) * _ODD
    mixed ^= rows.key.view(np.uint64)
    return mix(mixed)


class Screened(NamedTuple):
    """The values of some rows, as columns."""

    key: npt.NDArray[np.int64]
    proof: npt.NDArray[np.uint64]
    what: npt.NDArray[np.uint8]

    @classmethod
    def joined(cls, parts: Sequence[Screened]) -> Screened:
        """Join several parts."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def screened(plan: LogPlan, rows: LogRows, *, horizon_ms: int, late_ms: int) -> Screened:
    """Compute the values of rows; a hand-over later than `late_ms` becomes a suspect."""
    forgotten = is_forgotten(plan, rows)
    is_schedule = np.isin(rows.kind, np.array(SCHEDULES, np.uint8))
    handed = rows.kind == RowKind.HANDED
    proof = proofs(rows)
    proof[forgotten] = 0
    bad = is_early(rows) | (handed & (rows.store_ms - rows.due_ms > late_ms))
    proof[bad] = mix(rows.position[bad].astype(np.uint64))
    what = np.where(handed, HANDED, np.where(forgotten, 0, SETTLED)).astype(np.uint8)
    what[is_schedule] = np.where(rows.due_ms[is_schedule] <= horizon_ms, DUE, 0)
    return Screened(rows.key, proof, what)


def parts_for(plan: LogPlan) -> int:
    """Return into how many parts the keys are divided.

    A task holds and sorts one part, of some PART_ROWS rows.
    """
    log_bytes = sum(segment.stop - segment.start for segment in plan.segments)
    adopted = sum(file.rows for file in plan.adopted)
    return 1 + log_bytes // PART_LOG_BYTES + adopted // PART_ROWS


class ScreenReader(DataSourceReader):
    """Reader of SCREEN_SCHEMA: one row a part for every PART_ROWS rows of the log."""

    def __init__(self, plan: LogPlan, window: Window, *, horizon_ms: int, late_ms: int) -> None:
        self._plan = plan
        self._window = window
        self._horizon_ms = horizon_ms
        self._late_ms = late_ms
        self._parts = parts_for(plan)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions of the log."""
        return parts_of(self._plan)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the pieces of a partition."""
        assert isinstance(partition, LogPart)
        gathered: list[Screened] = []
        count = 0
        for rows in read_part(self._plan, partition):
            chosen = self._window.select(rows)
            limits = {"horizon_ms": self._horizon_ms, "late_ms": self._late_ms}
            gathered.append(screened(self._plan, chosen, **limits))
            count += len(chosen)
            if count >= PART_ROWS:
                yield self._pieces(Screened.joined(gathered))
                gathered, count = [], 0
        if count:
            yield self._pieces(Screened.joined(gathered))

    def _pieces(self, rows: Screened) -> pa.RecordBatch:
        part = rows.key.view(np.uint64) % np.uint64(self._parts)
        order = np.argsort(part.astype(np.min_scalar_type(self._parts)), kind="stable")
        starts = np.searchsorted(part[order], np.arange(self._parts + 1, dtype=np.uint64))
        numbers = pa.array(np.arange(self._parts, dtype=np.int32))
        columns = [_cut(column[order], starts) for column in rows]
        return pa.RecordBatch.from_arrays([numbers, *columns], schema=arrow_schema(SCREEN_SCHEMA))


def _cut(column: npt.NDArray[Any], starts: npt.NDArray[np.int64]) -> pa.Array:
    """Return the bytes of a column as one binary value for each stretch."""
    offsets = (starts * column.itemsize).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(column)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(starts) - 1, buffers)


class ScreenSource(DataSource):
    """The data source `format("horolog_log_screen")` of a plan, up to a horizon."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "horolog_log_screen"

    def schema(self) -> StructType:
        """Return the schema, which is fixed."""
        return SCREEN_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Build a reader for the plan in the options."""
        del schema
        window = window_of(self.options)
        return ScreenReader(
            plan_of(need(self.options, "plan")),
            Window(window.from_ms, window.to_ms, tuple(int(kind) for kind in _SCREENED)),
            horizon_ms=int(need(self.options, "horizon")),
            late_ms=int(need(self.options, "late")),
        )


def suspects(screen: DataFrame, plan: LogPlan) -> DataFrame:
    """Return the keys that need a closer look (`key long`)."""
    return screen.repartition(parts_for(plan), "part").mapInArrow(_suspects, "key long")


def _suspects(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = [
        Screened(*(_join_pieces(batch.column(at), of) for at, of in enumerate(_DTYPES, 1)))
        for batch in batches
    ]
    if found:
        keys = suspect_keys(Screened.joined(found))
        yield pa.RecordBatch.from_arrays([pa.array(keys)], names=["key"])


def _join_pieces(pieces: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    return np.frombuffer(b"".join(piece.as_buffer() for piece in pieces), dtype)


def suspect_keys(rows: Screened) -> npt.NDArray[np.int64]:
    """Return the keys that are not cleared, ascending; the rows must hold all rows of each key."""
    order = np.argsort(rows.key)
    key, proof, what = rows.key[order], rows.proof[order], rows.what[order]
    is_first = np.ones(len(key), bool)
    is_first[1:] = key[1:] != key[:-1]
    starts = np.flatnonzero(is_first)
    if not len(starts):
        return key
    left = np.bitwise_xor.reduceat(proof, starts)
    any_of = np.bitwise_or.reduceat(what, starts)
    hand_overs = np.add.reduceat(what & HANDED, starts, dtype=np.int64)
    found: npt.NDArray[np.int64] = key[starts[(hand_overs >= 2) | ((left != 0) & (any_of != 0))]]
    return found
