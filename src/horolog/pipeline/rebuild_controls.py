"""Control records of the log as a table, and the progress of groups from leases and acks.

The rows of a queue of a group are applied in log order by the broker's own `QueueProgress`; queues
are independent of each other, so tasks share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from horolog.log.control_records import AckRecord, Grant, OffsetsRecord
from horolog.log.controls import Control, content_of
from horolog.log.record import Kind
from horolog.pipeline.data_files import LogPlan, plan_of
from horolog.pipeline.log_source import LogPart, need, parts_of
from horolog.pipeline.log_walk import SegmentWalk, controls_of
from horolog.ready.leases import Lease
from horolog.ready.progress import QueueProgress
from horolog.ready.replayed import ack_again, grant_again
from horolog.spark.message_columns import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONTROL_SCHEMA = StructType(
    [
        StructField("group", IntegerType()),
        StructField("topic", IntegerType()),
        StructField("queue", IntegerType()),
        StructField("position", LongType()),
        StructField("kind", IntegerType()),
        StructField("append_ms", LongType()),
        StructField("epoch", LongType()),
        StructField("payload", BinaryType()),
    ]
)
_PROGRESS = (Kind.GRANT, Kind.ACK, Kind.OFFSETS)
_BATCH = 10_000
_Row = tuple[int, int, int, int, int, int, int, bytes]


class ControlReader(DataSourceReader):
    """Reader of control records of some kinds.

    Group, topic and queue are 0 except for GRANT, ACK and OFFSETS.  An OFFSETS record is a row for
    each of its queues.
    """

    def __init__(self, plan: LogPlan, kinds: tuple[Kind, ...]) -> None:
        self._plan = plan
        self._kinds = kinds

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions of the log."""
        return parts_of(self._plan)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches."""
        assert isinstance(partition, LogPart)
        if partition.segment is None:
            return
        rows: list[_Row] = []
        for stretch in SegmentWalk(self._plan, partition.segment, check=False).stretches():
            for kind in self._kinds:
                for row, control in controls_of(stretch, kind):
                    frame = stretch.frame[row]
                    for address in _addresses(control):
                        rows.append(
                            (
                                *address,
                                control.position,
                                int(kind),
                                int(stretch.append_ms[frame]),
                                int(stretch.epoch[frame]),
                                control.payload,
                            )
                        )
            if len(rows) >= _BATCH:
                yield _batch(rows)
                rows = []
        yield _batch(rows)


def _addresses(control: Control) -> list[tuple[int, int, int]]:
    """Return the (group, topic, queue) triples that a record is about."""
    if control.kind not in _PROGRESS:
        return [(0, 0, 0)]
    record = control.content
    if isinstance(record, OffsetsRecord):
        queues = sorted(set(record.committed["queue"].tolist()))
        return [(record.group, record.topic, queue) for queue in queues]
    return [(record.group, record.topic, record.queue)]


def _batch(rows: list[_Row]) -> Any:
    schema = arrow_schema(CONTROL_SCHEMA)
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class ControlSource(DataSource):
    """The data source `format("horolog_log_controls")` of a plan.

    Option `kinds` holds names of kinds; by default the kinds of progress: GRANT, ACK and OFFSETS.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "horolog_log_controls"

    def schema(self) -> StructType:
        """Return the schema, which is fixed."""
        return CONTROL_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Build a reader for the plan in the options."""
        names = self.options.get("kinds", "")
        kinds = tuple(Kind[name] for name in names.split(",")) if names else _PROGRESS
        return ControlReader(plan_of(need(self.options, "plan")), kinds)


def progress_rows(controls: DataFrame) -> dict[str, list[tuple[Any, ...]]]:
    """Return rows by name: those of a checkpoint's columns `progress` and `leases`, and two more.

    `held` is the input of `held_columns`; `acked` has the runs of acknowledged offsets.
    """
    by = ["group", "topic", "queue"]
    sorted_rows = controls.repartition(*by).sortWithinPartitions(*by, "position")
    found: dict[str, list[tuple[Any, ...]]] = {
        "progress": [],
        "acked": [],
        "leases": [],
        "held": [],
    }
    for row in sorted_rows.mapInArrow(_apply, "result string").collect():
        for name, rows in orjson.loads(row["result"]).items():
            found[name] += [tuple(each) for each in rows]
    return found


def _apply(batches: Iterator[Any]) -> Iterator[Any]:
    address: tuple[int, int, int] | None = None
    progress = QueueProgress()
    texts = []
    for batch in batches:
        for row in batch.to_pylist():
            found = row["group"], row["topic"], row["queue"]
            if found != address:
                if address is not None:
                    texts.append(_progress_row(address, progress))
                address, progress = found, QueueProgress()
            apply_control(progress, row)
    if address is not None:
        texts.append(_progress_row(address, progress))
    yield pa.RecordBatch.from_pydict({"result": pa.array(texts, pa.string())})


def apply_control(progress: QueueProgress, row: dict[str, Any]) -> None:
    """Apply one record to the progress of a queue, as a replay does."""
    record = content_of(Kind(row["kind"]), row["payload"])
    match record:
        case AckRecord():
            ack_again(progress, record)
        case OffsetsRecord():
            committed = record.committed
            for offset in committed["offset"][committed["queue"] == row["queue"]].tolist():
                progress.commit(offset)
        case Grant():
            epoch, append_ms = row["epoch"], row["append_ms"]
            duration_ms, (client_id, renewable_ms, _) = record.duration_ms, record.holder
            until = renewable_ms - duration_ms  # relative to lease ends, which are 0 here
            grant_again(
                progress,
                record,
                epoch,
                lambda attempt, grant: Lease(
                    attempt, grant, 0, append_ms, duration_ms, client_id, until
                ),
            )


def _progress_row(address: tuple[int, int, int], progress: QueueProgress) -> str:
    group, topic, queue = address
    return orjson.dumps(
        {
            "progress": [(*address, progress.floor, progress.next)],
            "acked": [(*address, *run) for run in progress.acked.runs()],
            "leases": [
                (group, topic, queue, x.attempt, x.grant, offset, x.granted_ms, x.duration_ms)
                for offset, x in progress.leases.items()
            ],
            "held": [
                (*address, offset, x.client_id, x.renewable_ms)
                for offset, x in progress.leases.items()
                if x.client_id
            ],
        }
    ).decode()
