"""Sums over the log, made by numpy where records are read; Spark only adds those of segments.

==============  =====  ===============  ======================  ====================================
metric          topic  hour             a, b                    n; top
==============  =====  ===============  ======================  ====================================
`RowKind` name  id     of the due time  ADOPTED: position       rows; HANDED: newest due ms
late            id     of the due time  bucket of ms            hand-overs; most ms in that bucket
early           id     of the due time                          hand-overs before their due time
forgotten                               ADOPT's position or −1  rows whose schedule is gone
grant           id                      group, attempt          leases
ack             id                      group                   messages
topic, group                            position, 0             `text` is the record's JSON
adopt                                   position, 0             `text` is the record's JSON
kind                                    kind                    records
gap                                     from, to                log positions that do not verify
frames                                  records, bytes          frames; newest append ms
segment                                 log position            frames; newest append ms
store                                                           0; newest store ms
==============  =====  ===============  ======================  ====================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from horolog.limits import HOUR_MS
from horolog.log.control_records import IS_AGAIN
from horolog.log.controls import CONTROL_KINDS, UNREADABLE, Control
from horolog.log.record import Kind
from horolog.pipeline.adopted_files import are_in_files
from horolog.pipeline.data_files import LogPlan, plan_of
from horolog.pipeline.log_rows import rows_of
from horolog.pipeline.log_source import (
    LogPart,
    Window,
    need,
    parts_of,
    read_part,
    window_of,
)
from horolog.pipeline.log_table import LogRows, RowKind
from horolog.pipeline.log_walk import Rows, SegmentWalk, Stretch, controls_of
from horolog.spark.message_columns import arrow_schema

TOTALS_SCHEMA = StructType(
    [
        StructField("metric", StringType()),
        StructField("topic", IntegerType()),
        StructField("hour", LongType()),
        StructField("a", LongType()),
        StructField("b", LongType()),
        StructField("n", LongType()),
        StructField("top", LongType()),
        StructField("text", StringType()),
    ]
)
EXACT_MS = 1024  # below it lateness is counted by the millisecond, above it within 0.2 %
_Key = tuple[str, int, int, int, int, str]


def buckets_of(late_ms: Rows) -> Rows:
    """Return the lower end of each value's bucket."""
    shift = np.zeros(len(late_ms), np.int64)
    large = late_ms >= EXACT_MS
    if bool(large.any()):
        shift[large] = np.log2(late_ms[large]).astype(np.int64) - 9
    return late_ms >> shift << shift


def is_early(rows: LogRows) -> npt.NDArray[np.bool_]:
    """Return which hand-overs came before their due time, by frame clock or store time."""
    seen = np.minimum(rows.store_ms, rows.append_ms)
    early: npt.NDArray[np.bool_] = (rows.kind == RowKind.HANDED) & (seen < rows.due_ms)
    return early


def is_forgotten(plan: LogPlan, rows: LogRows) -> npt.NDArray[np.bool_]:
    """Return which rows are about a message whose schedule was dropped.

    The schedule was below the start of the log, or in a finished adopted run.
    """
    gone: npt.NDArray[np.bool_] = (rows.origin >= 0) & (rows.origin < plan.start)
    gone &= ~np.isin(rows.origin, [file.position for file in plan.adopted])
    return gone | are_in_files(plan.forgotten, rows.origin, rows.origin_row)


class Totals:
    """Sums of one partition."""

    def __init__(self, plan: LogPlan, window: Window) -> None:
        self._plan = plan
        self._window = window
        self._sums: dict[_Key, tuple[int, int]] = {}
        self._by_kind: Mapping[Kind, Callable[[Control], None] | None] = {
            Kind.HAND_OVER: None,  # None: only counted; `log_rows` reads hand-overs and recalls
            Kind.RECALL: None,
            Kind.RECALL_MANY: None,
            Kind.TOPIC: self._text,
            Kind.GROUP: self._text,
            Kind.GRANT: self._grant,
            Kind.ACK: self._ack,
            Kind.OFFSETS: None,
            Kind.EPOCH: None,
            Kind.ADOPT: self._text,
            Kind.OFFLOAD: None,
            Kind.HALF: None,
            Kind.HALF_CHECK: None,
            Kind.HALF_END: None,  # committed messages follow a HALF_END as ordinary messages
            Kind.SCHEDULE: None,
        }
        assert self._by_kind.keys() == CONTROL_KINDS

    def add(
        self,
        metric: str,
        n: int,
        top: int = 0,
        topic: int = -1,
        hour: int = 0,
        a: int = 0,
        b: int = 0,
        text: str = "",
    ) -> None:
        """Add to one sum."""
        key = (metric, topic, hour, a, b, text)
        sum_, most = self._sums.get(key, (0, -(1 << 62)))
        self._sums[key] = (sum_ + n, max(most, top))

    def take(self, rows: LogRows) -> None:
        """Add rows of messages."""
        rows = self._window.select(rows)
        hour = rows.due_ms // HOUR_MS
        for kind in np.unique(rows.kind).tolist():
            mine = rows.kind == kind
            by = rows.position if kind == RowKind.ADOPTED else None
            self._counted(RowKind(kind).name, rows, hour, mine, rows.due_ms, by)
        handed = rows.kind == RowKind.HANDED
        late = rows.store_ms - rows.due_ms
        self._counted(
            "late", rows, hour, handed & (late >= 0), late, buckets_of(np.maximum(late, 0))
        )
        self._counted("early", rows, hour, is_early(rows), rows.due_ms)
        if len(rows):
            self.add("store", 0, int(rows.store_ms.max()))
        origins = rows.origin[is_forgotten(self._plan, rows)]
        origins[~np.isin(origins, [file.position for file in self._plan.forgotten])] = -1
        for origin, n in zip(*np.unique(origins, return_counts=True), strict=True):
            self.add("forgotten", int(n), a=int(origin))

    def _counted(
        self,
        metric: str,
        rows: LogRows,
        hour: Rows,
        mask: npt.NDArray[np.bool_],
        tops: Rows,
        a: Rows | None = None,
    ) -> None:
        chosen = np.flatnonzero(mask)
        if not len(chosen):
            return
        columns = [rows.topic[chosen], hour[chosen]]
        columns.append(np.zeros(len(chosen), np.int64) if a is None else a[chosen])
        order = np.lexsort(columns[::-1])
        columns = [column[order] for column in columns]
        is_first = np.ones(len(chosen), bool)
        is_first[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
        starts = np.flatnonzero(is_first)
        counts = np.diff(np.append(starts, len(chosen)))
        most = np.maximum.reduceat(tops[chosen][order], starts)
        table = [column[starts].tolist() for column in columns]
        for topic, number, bucket, n, top in zip(
            *table, counts.tolist(), most.tolist(), strict=True
        ):
            self.add(metric, n, top, topic, number, bucket)

    def take_controls(self, stretch: Stretch) -> None:
        """Add grants, acks, and the records that name topics and groups."""
        kinds, counts = np.unique(stretch.kinds, return_counts=True)
        for kind, n in zip(kinds.tolist(), counts.tolist(), strict=True):
            self.add("kind", n, a=kind)
        for kind in CONTROL_KINDS.intersection(kinds.tolist()):
            take = self._by_kind[kind]
            if take is not None:
                for _, control in controls_of(stretch, kind):
                    take(control)

    def _grant(self, control: Control) -> None:
        if control.flags & IS_AGAIN:
            return
        grant = _whole(control)
        if grant is not None and grant.duration_ms:  # a duration of 0: leases that were taken back
            attempts, counts = np.unique(grant.granted["attempt"], return_counts=True)
            for attempt, n in zip(attempts.tolist(), counts.tolist(), strict=True):
                self.add("grant", n, topic=grant.topic, a=grant.group, b=attempt)

    def _ack(self, control: Control) -> None:
        ack = _whole(control)
        if ack is not None:
            self.add("ack", len(ack.offsets), topic=ack.topic, a=ack.group)

    def _text(self, control: Control) -> None:
        text = control.payload.decode("utf-8", "replace")
        self.add(control.kind.name.lower(), 1, control.position, a=control.position, text=text)

    def table(self) -> dict[str, Any]:
        """Return the columns of TOTALS_SCHEMA."""
        keys = list(self._sums)
        columns: list[Any] = [list(column) for column in zip(*keys, strict=True)] or [[]] * 6
        return {
            "metric": pa.array(columns[0], pa.string()),
            "topic": pa.array(columns[1], pa.int32()),
            "hour": pa.array(columns[2], pa.int64()),
            "a": pa.array(columns[3], pa.int64()),
            "b": pa.array(columns[4], pa.int64()),
            "n": pa.array([n for n, _ in self._sums.values()], pa.int64()),
            "top": pa.array([top for _, top in self._sums.values()], pa.int64()),
            "text": pa.array(columns[5], pa.string()),
        }


def _whole(control: Control) -> Any:
    """Return a record's content if its payload has exactly the rows that it counts; else None."""
    try:
        record = control.content
    except UNREADABLE:
        return None
    return record if len(control.payload) == record.payload_bytes else None


class TotalsReader(DataSourceReader):
    """Reader of the sums, one batch a partition."""

    def __init__(self, plan: LogPlan, window: Window) -> None:
        self._plan = plan
        self._window = window

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions of the log."""
        return parts_of(self._plan)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the sums of a partition."""
        assert isinstance(partition, LogPart)
        totals = Totals(self._plan, self._window)
        if partition.segment is not None:
            walk = SegmentWalk(self._plan, partition.segment)
            newest = 0
            for stretch in walk.stretches():
                newest = max(newest, int(stretch.append_ms.max()))
                for rows in rows_of(self._plan, stretch):
                    totals.take(rows)
                totals.take_controls(stretch)
            for first, stop in walk.gaps:
                totals.add("gap", 1, a=first, b=stop)
            size = partition.segment.stop - partition.segment.start
            totals.add("frames", walk.frames, newest, a=walk.records, b=size)
            totals.add("segment", walk.frames, newest, a=partition.segment.base)
        else:
            for rows in read_part(self._plan, partition):
                totals.take(rows)
        columns = totals.table()
        schema = arrow_schema(TOTALS_SCHEMA)
        yield pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)


class TotalsSource(DataSource):
    """The data source `format("horolog_log_totals")` of a plan."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "horolog_log_totals"

    def schema(self) -> StructType:
        """Return the schema, which is fixed."""
        return TOTALS_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Build a reader for the plan in the options."""
        return TotalsReader(plan_of(need(self.options, "plan")), window_of(self.options))
