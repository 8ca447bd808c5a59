"""Pending messages as a table: `format("horolog_pending")`.

Spark finds it through the package `pyspark_horolog_pending`.

==============  ====  ==============================================================================
option          type  meaning
==============  ====  ==============================================================================
path            text  data directory, a copy of one, or a backup
from, to        time  ISO 8601 or epoch ms: only rows whose due time lies in [from, to)
failOnDataLoss  flag  false: leave out files and rows that cannot be read; by default the read fails
==============  ====  ==============================================================================

A row is a message, as stated by the files of the newest checkpoint; `state` is a name of
`delay.state.EntryState` such as `WAITING` or `QUARANTINED`.

`format("horolog_load")` counts the messages that are pending at the end of the log, by topic and
second.  It reads the files and the log after the checkpoint, so its rows must be summed up (`n` is
negative where the log has settled messages).  Messages in the lake are known by the hour only, and
counted at the first second of their hour.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from horolog.delay.state import EntryState
from horolog.errors import ErrorCode, HorologError
from horolog.lake.jobs.load import lake_rows
from horolog.log.checkpoint import Checkpoint, newest_checkpoint, position_of
from horolog.pipeline.adopted_files import with_adopted
from horolog.pipeline.data_files import LogPlan, files_of
from horolog.pipeline.log_source import LogPart, Window, parts_of, plan_at, read_part, window_of
from horolog.pipeline.log_table import SCHEDULES, LogRows, RowKind
from horolog.pipeline.pending_rows import PendingPart, damaged, pending_parts, read_pending
from horolog.spark.given_options import Given
from horolog.spark.message_columns import arrow_schema, check_projection
from horolog.storage.meta import SHARD

_log = logging.getLogger("horolog.spark")
_CHECKPOINTS = f"{SHARD}/checkpoint"
_LOAD_OPTIONS = ("path", "from", "to")
_OPTIONS = (*_LOAD_OPTIONS, "failOnDataLoss")
PENDING_SCHEMA = StructType(
    [
        StructField("origin", LongType()),
        StructField("origin_row", LongType()),
        StructField("topic", IntegerType()),
        StructField("key", LongType()),
        StructField("due_ms", LongType()),
        StructField("size", IntegerType()),
        StructField("state", StringType()),
    ]
)
LOAD_SCHEMA = StructType(
    [
        StructField("topic", IntegerType()),
        StructField("second", LongType()),
        StructField("n", LongType()),
        StructField("in_lake", BooleanType()),
    ]
)
_SECOND_BITS = 36  # bits of an epoch second; the bits above hold the topic id
_STATES = pa.array([EntryState(n).name if n in set(EntryState) else "" for n in range(256)])


@dataclass
class LakePart(InputPartition):
    """Pending messages in the lake: (topic, second, messages)."""

    rows: list[tuple[int, int, int]]


@dataclass
class FilePart(InputPartition):
    """A stretch of one file."""

    part: PendingPart


class PendingReader(DataSourceReader):
    """Reader of the messages in the files of the newest checkpoint."""

    def __init__(
        self,
        root: str,
        parts: list[PendingPart],
        schema: StructType,
        window: Window,
        *,
        lossy: bool,
    ) -> None:
        self._root = root
        self._parts = parts
        self._schema = schema
        self._window = window
        self._lossy = lossy

    def partitions(self) -> Sequence[InputPartition]:
        """Return stretches of files; at least one partition."""
        return [FilePart(part) for part in self._parts] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches with the columns in the order of the schema."""
        if not isinstance(partition, FilePart):
            return
        schema = arrow_schema(self._schema)
        for rows in read_pending(files_of(self._root), partition.part, lossy=self._lossy):
            due = rows.entries["due_ms"]
            mask = np.ones(len(due), np.bool_)
            if self._window.from_ms is not None:
                mask &= due >= self._window.from_ms
            if self._window.to_ms is not None:
                mask &= due < self._window.to_ms
            entries = rows.entries.compress(mask)
            columns = {
                "origin": pa.array(rows.origin[mask]),
                "origin_row": pa.array(rows.origin_row[mask]),
                "topic": pa.array(entries["topic"].astype(np.int32)),
                "key": pa.array(entries["key"].copy().view(np.int64)),
                "due_ms": pa.array(np.ascontiguousarray(entries["due_ms"])),
                "size": pa.array(entries["size"].astype(np.int32)),
                "state": _STATES.take(pa.array(rows.state[mask])),
            }
            yield pa.RecordBatch.from_arrays([columns[each.name] for each in schema], schema=schema)


class PendingSource(DataSource):
    """The data source `format("horolog_pending")`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "horolog_pending"

    def schema(self) -> StructType:
        """Return all columns."""
        return PENDING_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Build a reader of the newest checkpoint."""
        check_projection(schema, PENDING_SCHEMA)
        window = window_of(self.options, _OPTIONS)
        plan = plan_at(self.options)
        lossy = not Given(self.options, _OPTIONS).fails_on_loss()
        checkpoint = _newest(plan, lossy=lossy)
        return PendingReader(plan.root, pending_parts(checkpoint), schema, window, lossy=lossy)


def _newest(plan: LogPlan, *, lossy: bool) -> Checkpoint:
    """Return the newest checkpoint.

    lossy  if the newest is damaged, log it and return an older one, instead of raising
    Errors: DAMAGED names the newest; NOT_FOUND if there is none that can be read.
    """
    files = files_of(plan.root)
    there = files.list(_CHECKPOINTS)  # first: a broker may replace them meanwhile, by newer ones
    found = newest_checkpoint(files, _CHECKPOINTS, plan.log_id)
    if found is None:  # without rows every count would be a wrong 0
        raise HorologError(
            ErrorCode.NOT_FOUND,
            f"option 'path': {plan.root} has no checkpoint that can be read; "
            "a broker takes one within ten seconds",
            field="path",
        )
    newest = max(there, key=position_of, default="")
    if position_of(newest) > found.position:
        what = "is not intact; the checkpoint before it says what was pending earlier"
        name = f"{_CHECKPOINTS}/{newest}"
        if not lossy:
            raise damaged(name, f"{what} (failOnDataLoss=false reads that)")
        _log.warning("%s: %s, and is read", name, what)
    return found


class LoadReader(DataSourceReader):
    """Reader of counts by topic and second, from files and from the log after the checkpoint."""

    def __init__(
        self,
        plan: LogPlan,
        parts: list[PendingPart],
        window: Window,
        lake: list[tuple[int, int, int]],
    ) -> None:
        self._plan = plan
        self._parts = parts
        self._window = window
        self._lake = lake

    def partitions(self) -> Sequence[InputPartition]:
        """Return stretches of files, of the log after the checkpoint, and of later adoptions."""
        tail = [
            LogPart(part.segment._replace(start=max(part.segment.start, self._plan.checkpoint)))
            for part in parts_of(self._plan)
            if part.segment is not None and part.segment.stop > self._plan.checkpoint
        ]
        adopted = [
            part
            for part in parts_of(self._plan)
            if part.adopted is not None and part.adopted.position >= self._plan.checkpoint
        ]
        files = [FilePart(part) for part in self._parts]
        return [*files, *tail, *adopted, LakePart(self._lake)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield one batch a partition."""
        sums: dict[tuple[int, int], int] = {}
        if isinstance(partition, FilePart):
            for rows in read_pending(files_of(self._plan.root), partition.part):
                waits = rows.state == EntryState.WAITING
                entries = rows.entries.compress(waits)
                self._add(
                    sums, entries["topic"], entries["due_ms"], np.ones(len(entries), np.int64)
                )
        elif isinstance(partition, LogPart):
            for found in read_part(self._plan, partition):
                chosen, change = changes(found)
                self._add(sums, chosen.topic, chosen.due_ms, change)
        elif isinstance(partition, LakePart):
            table = np.array(partition.rows, np.int64).reshape(-1, 3)
            self._add(sums, table[:, 0], table[:, 1] * 1000, table[:, 2])
        schema = arrow_schema(LOAD_SCHEMA)
        topics = [topic for topic, _ in sums]
        seconds = [second for _, second in sums]
        in_lake = [isinstance(partition, LakePart)] * len(sums)
        columns = [topics, seconds, list(sums.values()), in_lake]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
            schema=schema,
        )

    def _add(self, sums: dict[tuple[int, int], int], topic: Any, due_ms: Any, change: Any) -> None:
        window = self._window
        mask = np.ones(len(due_ms), np.bool_)
        if window.from_ms is not None:
            mask &= due_ms >= window.from_ms
        if window.to_ms is not None:
            mask &= due_ms < window.to_ms
        both = topic[mask].astype(np.int64) << _SECOND_BITS | due_ms[mask] // 1000
        numbers, place = np.unique(both, return_inverse=True)
        counts = np.zeros(len(numbers), np.int64)
        np.add.at(counts, place, change[mask])
        for number, n in zip(numbers.tolist(), counts.tolist(), strict=True):
            key = number >> _SECOND_BITS, number & (1 << _SECOND_BITS) - 1
            sums[key] = sums.get(key, 0) + n


def changes(rows: LogRows) -> tuple[LogRows, Any]:
    """Return the rows that change what is pending, and the change of each: 1 or −1."""
    scheduled = np.isin(rows.kind, np.array(SCHEDULES, np.uint8))
    chosen = rows.chosen(rows.kind != RowKind.MESSAGE)
    return chosen, np.where(scheduled[rows.kind != RowKind.MESSAGE], 1, -1)


class LoadSource(DataSource):
    """The data source `format("horolog_load")`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "horolog_load"

    def schema(self) -> StructType:
        """Return the schema, which is fixed."""
        return LOAD_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Build a reader of the newest checkpoint, and of the log as it is now."""
        window = window_of(self.options, _LOAD_OPTIONS)
        plan = with_adopted(plan_at(self.options))
        checkpoint = newest_checkpoint(files_of(plan.root), _CHECKPOINTS, plan.log_id)
        lake = lake_rows(plan, checkpoint)
        return LoadReader(plan, pending_parts(checkpoint), window, lake)
