"""The commit log as a table: `format("horolog_log")`.

Spark finds it through the package `pyspark_horolog_log`.

    log = spark.read.format("horolog_log").option("path", "/var/lib/horolog").load()
    log.groupBy("kind").count()

========  ====  ==================================================================================
option    type  meaning
========  ====  ==================================================================================
path      text  data directory, a copy of one, or a backup; no broker is needed or disturbed
from, to  time  ISO 8601 or epoch ms: only rows whose due time lies in [from, to)
kinds     text  only rows of these kinds, separated by commas (`log_table.RowKind`)
========  ====  ==================================================================================

One partition is a segment of the log, or a stretch of an adopted run.  The user's schema is a
projection; `message_id` must be decoded from the properties, and is set only in rows of messages in
the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from horolog.errors import HorologError
from horolog.pipeline.adopted_files import rows_of_run, with_adopted
from horolog.pipeline.data_files import FIELD, AdoptedFile, LogPlan, Segment, plan_log
from horolog.pipeline.log_rows import rows_of
from horolog.pipeline.log_table import LogRows, RowKind, rows_of_adopted
from horolog.pipeline.log_walk import SegmentWalk, mapped
from horolog.places import local_place
from horolog.spark.given_options import Given, check_times, refused
from horolog.spark.message_columns import arrow_schema, check_projection
from horolog.spark.message_decode import Records

LOG_SCHEMA = StructType(
    [
        StructField("kind", StringType()),
        StructField("position", LongType()),
        StructField("origin", LongType()),
        StructField("origin_row", LongType()),
        StructField("topic", IntegerType()),
        StructField("key", LongType()),
        StructField("due_ms", LongType()),
        StructField("append_ms", LongType()),
        StructField("store_ms", LongType()),
        StructField("queue", IntegerType()),
        StructField("queue_offset", LongType()),
        StructField("reconsume_times", IntegerType()),
        StructField("size", IntegerType()),
        StructField("message_id", StringType()),
    ]
)
"""Columns of a row: `topic` is a topic id, `key` the hash of topic and message id.

`log_table.LogRows` describes the others.
"""
ADOPTED_ROWS = 1_000_000  # most rows of a partition
LOG_OPTIONS = ("path", "from", "to", "kinds")
_IN_LOG = (RowKind.MESSAGE, RowKind.SCHEDULED, RowKind.HANDED, RowKind.PROMOTED)
_NAMES = pa.array([RowKind(n).name if n in set(RowKind) else "" for n in range(256)], pa.string())


@dataclass(frozen=True)
class Window:
    """Which rows are wanted: by due time, kind and key."""

    from_ms: int | None = None
    to_ms: int | None = None
    kinds: tuple[int, ...] = ()
    keys: npt.NDArray[np.int64] | None = None  # ascending

    def select(self, rows: LogRows) -> LogRows:
        """Return the rows that lie in the window."""
        mask: npt.NDArray[np.bool_] = np.ones(len(rows), np.bool_)
        if self.kinds:
            mask &= np.isin(rows.kind, np.array(self.kinds, np.uint8))
        if self.from_ms is not None:
            mask &= rows.due_ms >= self.from_ms
        if self.to_ms is not None:
            mask &= rows.due_ms < self.to_ms
        if self.keys is not None:
            place = np.minimum(np.searchsorted(self.keys, rows.key), len(self.keys) - 1)
            mask &= self.keys[place] == rows.key
        return rows.chosen(mask)


@dataclass
class LogPart(InputPartition):
    """A partition: a segment, or rows [first, stop) of an adopted run."""

    segment: Segment | None
    adopted: AdoptedFile | None = None
    first: int = 0
    stop: int = 0


def parts_of(plan: LogPlan) -> list[LogPart]:
    """Return the partitions of a log; at least one, since Spark misreads an empty list."""
    parts = [LogPart(segment) for segment in plan.segments]
    for file in plan.adopted:
        for first in range(0, file.rows, ADOPTED_ROWS):
            parts.append(LogPart(None, file, first, min(file.rows, first + ADOPTED_ROWS)))
    return parts or [LogPart(None)]


def read_part(plan: LogPlan, part: LogPart) -> Iterator[LogRows]:
    """Yield all rows of a partition."""
    if part.segment is not None:
        for stretch in SegmentWalk(plan, part.segment).stretches():
            yield from rows_of(plan, stretch)
    elif part.adopted is not None:
        entries = rows_of_run(plan.root, part.adopted.name)
        for first in range(part.first, min(part.stop, len(entries)), 65_536):
            stop = min(part.stop, first + 65_536)
            file = part.adopted
            yield rows_of_adopted(entries[first:stop], file.position, file.first_row)


class PlannedReader(DataSourceReader):
    """Reader of the log that the driver planned; `batch` builds Arrow columns from rows."""

    def __init__(
        self,
        plan: LogPlan,
        schema: StructType,
        window: Window,
        batch: Callable[[LogPlan, LogRows, Sequence[str]], dict[str, Any]],
    ) -> None:
        self._plan = plan
        self._schema = schema
        self._window = window
        self._batch = batch

    def partitions(self) -> Sequence[InputPartition]:
        """Return segments and stretches of adopted runs."""
        return parts_of(self._plan)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches with the columns in the order of the schema."""
        assert isinstance(partition, LogPart)
        schema = arrow_schema(self._schema)
        names = [field.name for field in self._schema.fields]
        for rows in read_part(self._plan, partition):
            chosen = self._window.select(rows)
            if len(chosen):
                columns = self._batch(self._plan, chosen, names)
                yield pa.RecordBatch.from_arrays(
                    [columns[field.name].cast(field.type) for field in schema], schema=schema
                )


def log_columns(plan: LogPlan, rows: LogRows, names: Sequence[str]) -> dict[str, Any]:
    """Build columns of LOG_SCHEMA."""
    found = {}
    for name in names:
        if name == "kind":
            found[name] = _NAMES.take(pa.array(rows.kind))
        elif name == "message_id":
            found[name] = message_ids(plan, rows)
        else:
            found[name] = pa.array(getattr(rows, name))
    return found


def message_ids(plan: LogPlan, rows: LogRows) -> Any:
    """Return the message ids of rows that are messages in the log; null for other rows."""
    found: list[str | None] = [None] * len(rows)
    bases = rows.position - rows.position % plan.segment_bytes
    is_message = np.isin(rows.kind, np.array(_IN_LOG, np.uint8))
    for base in np.unique(bases[is_message]).tolist():
        raw = mapped(plan.root, base)
        if raw is None:
            continue
        mine = np.flatnonzero(is_message & (bases == base))
        records = Records(raw, rows.position[mine] - base, rows.size[mine])
        ids = records.columns(["message_id"])["message_id"].to_pylist()
        for row, text in zip(mine.tolist(), ids, strict=True):
            found[row] = text
    return pa.array(found, pa.string())


class LogSource(DataSource):
    """The data source `format("horolog_log")`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "horolog_log"

    def schema(self) -> StructType:
        """Return all columns."""
        return LOG_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Plan the log once, and build its reader."""
        check_projection(schema, LOG_SCHEMA)
        window = window_of(self.options, LOG_OPTIONS)
        plan = with_adopted(plan_at(self.options))
        return PlannedReader(plan, schema, window, log_columns)


def plan_at(options: Mapping[str, str]) -> LogPlan:
    """Plan the log of the directory of option `path`; a refusal names the option."""
    path = path_of(options)
    try:
        return plan_log(path)
    except HorologError as error:
        if error.field != FIELD:
            raise
        why = error.message.removeprefix(f"{FIELD}: ")
        raise HorologError(error.code, f"option 'path': {why}", field="path") from None


def path_of(options: Mapping[str, str]) -> Path:
    """Return the directory of option `path`; BAD_REQUEST if it is missing or not on a disk."""
    return Path(local_place(need(options, "path"), "option 'path'"))


def need(options: Mapping[str, str], name: str) -> str:
    """Return an option that must be given; BAD_REQUEST names it."""
    found = options.get(name)
    if not found:
        raise refused(name, "is missing")
    return found


def window_of(options: Mapping[str, str], known: Iterable[str] = ()) -> Window:
    """Read the window from the options `from`, `to` and `kinds`.

    known  the options of a source for users; (): a job sets the options, and they are not checked
           by name
    Errors: BAD_REQUEST names the wrong option.
    """
    given = Given(options, known or options)
    kinds = []
    for name in filter(None, given.text("kinds").split(",")):
        if name.strip().upper() not in RowKind.__members__:
            raise refused("kinds", f"{name.strip()!r}; there are {', '.join(RowKind.__members__)}")
        kinds.append(int(RowKind[name.strip().upper()]))
    from_ms, to_ms = _ms(given, "from"), _ms(given, "to")
    check_times(from_ms, to_ms)
    return Window(from_ms, to_ms, tuple(kinds))


def _ms(given: Given, name: str) -> int | None:
    """Return a time in epoch ms; digits alone are ms, however few, since a job writes them so."""
    text = given.text(name)
    return int(text) if text.isascii() and text.isdigit() else given.time_ms(name)
