"""The closer look of an audit: the faults of messages that the screen could not clear.

===============  =================================================================================
fault            meaning
===============  =================================================================================
lost             due before the log's newest time, never handed over or recalled, and no file or
                 log record still has it pending
duplicate        handed over twice from one schedule
duplicate_id     handed over twice from two schedules of one message id, outside retry topics
early            visible before its due time
late             visible later than the audit allows
never_scheduled  handed over, and the log has no schedule of it
after_recall     handed over and recalled
altered          handed over with another due time or message id than scheduled
quarantined      its record does not verify: reported by the broker, never handed over
unproven         the log is damaged where its schedule, hand-over or recall would be: what became
                 of it is not known
overdue          not a fault: due and pending; the broker was stopped or is about to hand it over
===============  =================================================================================
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StructType

from horolog.pipeline.adopted_files import are_in_files
from horolog.pipeline.data_files import AdoptedFile, LogPlan, plan_of, plan_text
from horolog.pipeline.log_source import (
    LOG_SCHEMA,
    PlannedReader,
    log_columns,
    message_ids,
    need,
    window_of,
)
from horolog.pipeline.log_source import Window as Wanted
from horolog.pipeline.log_table import SCHEDULES, LogRows, RowKind, no_rows

FAULTS = (
    "lost",
    "duplicate",
    "duplicate_id",
    "early",
    "late",
    "never_scheduled",
    "after_recall",
    "altered",
    "quarantined",
    "unproven",
)
OVERDUE = "overdue"
FINDING_COLUMNS = (
    "fault string, topic int, message_id string, due_ms long, late_ms long, hand_overs long,"
    " origin long, origin_row long, position long"
)
KEYS_MAX = 100_000  # above it Spark joins the keys, instead of the readers filtering by them
# Hand-over goes by due time; a message due less than this before the newest hand-over may not have
# been durable yet.
_PASSED_MS = 1_000
SUSPECT_COLUMNS = (
    "kind string, position long, origin long, origin_row long, topic int, key long, due_ms long,"
    " append_ms long, store_ms long, size int"
)


class SuspectSource(DataSource):
    """The data source `format("horolog_log_suspects")`: the log's rows of a plan.

    Option `keys` keeps only rows of these keys; option `all` adds the rows of MESSAGE.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "horolog_log_suspects"

    def schema(self) -> StructType:
        """Return the schema of the log."""
        return LOG_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Build a reader for the plan in the options."""
        window = window_of(self.options)
        left = () if self.options.get("all") else (RowKind.MESSAGE,)
        kinds = tuple(int(kind) for kind in RowKind if kind not in left)
        keys = None
        if self.options.get("keys"):
            keys = np.frombuffer(base64.b64decode(self.options["keys"]), np.int64)
        wanted = Wanted(window.from_ms, window.to_ms, kinds, keys)
        return PlannedReader(plan_of(need(self.options, "plan")), schema, wanted, log_columns)


def suspect_rows(
    spark: SparkSession, plan: LogPlan, options: dict[str, str], keys: DataFrame, count: int
) -> DataFrame:
    """Return all rows of the log about the keys."""
    reader = spark.read.format("horolog_log_suspects").options(**options).schema(SUSPECT_COLUMNS)
    reader = reader.option("plan", plan_text(plan))
    if count <= KEYS_MAX:
        table = np.sort(np.array([row.key for row in keys.collect()], np.int64))
        return reader.option("keys", base64.b64encode(table.tobytes()).decode()).load()
    return reader.load().join(keys, "key", "left_semi")


def per_message(rows: DataFrame, plan: LogPlan) -> DataFrame:
    """Group rows to one row an origin: its schedule, its hand-overs and its recalls."""
    handed = f.col("kind") == "HANDED"
    planned = f.col("kind").isin([kind.name for kind in SCHEDULES])
    known = f.when(f.col("origin") < 0, -1 - f.col("position")).otherwise(f.col("origin"))
    grouped = rows.groupBy(known.alias("origin"), "origin_row").agg(
        f.count(f.when(planned, 1)).alias("scheduled"),
        f.count(f.when(handed, 1)).alias("hand_overs"),
        f.count(f.when(f.col("kind").isin("RECALL", "MOVED", "EXPIRED"), 1)).alias("recalls"),
        f.max("topic").alias("topic"),
        f.max(f.col("kind") == RowKind.PROMOTED.name).alias("came_back"),
        f.max(f.when(planned, f.col("due_ms"))).alias("planned_ms"),
        f.max(f.when(handed, f.col("due_ms"))).alias("handed_due_ms"),
        f.max(f.when(planned, f.col("key"))).alias("planned_key"),
        f.max(f.when(handed, f.col("key"))).alias("handed_key"),
        f.min(f.when(handed, f.least("store_ms", "append_ms"))).alias("seen_ms"),
        f.max(f.when(handed, f.col("store_ms"))).alias("stored_ms"),
        f.min(f.when(handed, f.col("position"))).alias("handed_at"),
        f.min(f.when(handed, f.col("size"))).alias("handed_size"),
        f.max(f.when(planned, f.col("size"))).alias("planned_size"),
    )
    forgotten = (f.col("origin") >= 0) & (f.col("origin") < plan.start)
    if plan.adopted:
        forgotten &= ~f.col("origin").isin([file.position for file in plan.adopted])
    if plan.forgotten:
        forgotten |= _is_in_files(plan.forgotten)("origin", "origin_row")
    return grouped.withColumn("forgotten", forgotten).withColumn(
        "due_ms", f.coalesce("planned_ms", "handed_due_ms")
    )


def faults_of_messages(
    messages: DataFrame,
    *,
    horizon_ms: int,
    late_ms: int,
    promoted: list[int],
    damaged: list[tuple[int, int]],
    retried: list[int],
) -> DataFrame:
    """Return a row a fault; messages that were never settled get the fault `missing`.

    `settle_missing` then replaces `missing` after a look at the files.
    damaged   log positions [from, to) that cannot be read: a message scheduled there is known by
              its hand-over only
    promoted  positions of the ADOPT records that brought messages back from the lake, as files or
              in their frames: the schedules of these messages continue there
    retried   ids of retry topics: there each attempt is a schedule of its own, with the id of its
              message
    """
    seen = f.col("hand_overs") > 0
    # By the planned key where there was no hand-over: else one task had all such messages.
    same_id = Window.partitionBy(f.coalesce("handed_key", "planned_key"))
    messages = messages.withColumns(
        {
            "first_at": f.when(seen, f.min("handed_at").over(same_id)),
            "late_ms": f.col("stored_ms") - f.col("due_ms"),
            "goes_on": _goes_on(promoted),
        }
    )
    in_damage = _is_within(damaged)("origin") if damaged else f.lit(False)
    rules = _rules(horizon_ms, late_ms, retried, in_damage)
    found = f.array_compact(f.array(*(f.when(when, name) for name, when in rules.items())))
    return messages.select(
        f.explode(found).alias("fault"),
        "topic",
        "due_ms",
        "late_ms",
        "hand_overs",
        "origin",
        "origin_row",
        f.coalesce("handed_at", f.col("origin")).alias("position"),
        f.when(seen, f.col("handed_size")).otherwise(f.col("planned_size")).alias("size"),
    )


def _rules(
    horizon_ms: int, late_ms: int, retried: list[int], in_damage: Column
) -> dict[str, Column]:
    """Return the condition of each fault."""
    seen, recalled = f.col("hand_overs") > 0, f.col("recalls") > 0
    known = f.col("scheduled") > 0
    unknown = ~known & ~f.col("forgotten")
    is_repeat = f.col("handed_at") > f.col("first_at")
    differs = (f.col("planned_ms") != f.col("handed_due_ms")) | (
        f.col("planned_key") != f.col("handed_key")
    )
    is_due = f.col("due_ms") <= horizon_ms
    return {
        "duplicate": f.col("hand_overs") >= 2,
        "duplicate_id": seen & is_repeat & ~f.col("topic").isin(retried),
        "early": seen & (f.col("seen_ms") < f.col("due_ms")),
        "late": seen & (f.col("late_ms") > late_ms),
        "never_scheduled": seen & unknown & ~in_damage,
        "unproven": seen & unknown & in_damage,
        "after_recall": seen & recalled,
        "altered": seen & known & differs,
        "missing": known & ~f.col("goes_on") & ~seen & ~recalled & is_due,
    }


def _goes_on(promoted: list[int]) -> Column:
    """Return whether a later schedule of the message brought it back from the lake."""
    if not promoted:
        return f.lit(False)
    same_message = Window.partitionBy(f.coalesce("planned_key", "handed_key"), "due_ms")
    came_back = f.col("came_back") | f.col("origin").isin(promoted)
    newest = f.max(f.when(came_back, f.col("origin"))).over(same_message)
    return f.coalesce(f.col("origin") < newest, f.lit(False))


def _is_within(stretches: list[tuple[int, int]]) -> Callable[[str], Column]:
    """Build a function of a column of log positions: is each one in a stretch [from, to)?

    A log may have any number of damaged stretches, so they are searched, not listed in the query.
    """
    starts, stops = np.array(sorted(stretches), np.int64).T
    stops = np.maximum.accumulate(stops)  # stretches may overlap

    def is_within(positions: pa.Array) -> pa.Array:
        found = positions.to_numpy(zero_copy_only=False)
        before = starts.searchsorted(found, "right")  # stretches that begin at or before it
        return pa.array((before > 0) & (found < stops[before - 1]))

    # Naming the kind of function, as the stubs ask, makes Spark warn: it is in the type hints.
    wrapped: Callable[[str], Column] = arrow_udf(is_within, "boolean")  # type: ignore[call-overload]
    return wrapped


def _is_in_files(files: Sequence[AdoptedFile]) -> Callable[[str, str], Column]:
    """Build a function of the columns of origin and row: is the message in one of the files?"""

    def is_in_files(origins: pa.Array, rows: pa.Array) -> pa.Array:
        columns = (column.to_numpy(zero_copy_only=False) for column in (origins, rows))
        return pa.array(are_in_files(files, *columns))

    wrapped: Callable[[str, str], Column] = arrow_udf(is_in_files, "boolean")  # type: ignore[call-overload]
    return wrapped


def settle_missing(
    faults: DataFrame,
    pending: DataFrame,
    plan: LogPlan,
    newest_due_ms: int,
    damaged: list[tuple[int, int]],
) -> DataFrame:
    """Decide which missing messages are lost, and which still wait.

    A message waits in a file, or after the checkpoint.  With damage after the schedule of a
    message, its hand-over or recall may be in the damage: the fault is `unproven`.
    """
    last = max((stop for _, stop in damaged), default=-1)
    state = pending.select("origin", "origin_row", "state")
    joined = faults.join(state, ["origin", "origin_row"], "left")
    passed = f.col("due_ms") < newest_due_ms - _PASSED_MS
    replayed = f.lit(True) if plan.checkpoint < 0 else f.col("origin") >= plan.checkpoint
    become = (
        f.when(f.col("state") == "QUARANTINED", "quarantined")
        .when(f.col("state") == "WAITING", OVERDUE)
        .when(f.col("state").isNull() & replayed & ~passed, OVERDUE)
        .when(f.col("origin") < last, "unproven")
        .otherwise("lost")
    )
    fault = f.when(f.col("fault") == "missing", become).otherwise(f.col("fault"))
    return joined.withColumn("fault", fault).drop("state")


def with_ids(faults: DataFrame, plan: LogPlan) -> DataFrame:
    """Return the findings as they are written, with message ids from the log."""
    return faults.mapInArrow(partial(_add_ids, plan_text(plan)), FINDING_COLUMNS)


def _add_ids(text: str, batches: Iterator[Any]) -> Iterator[Any]:
    plan = plan_of(text)
    names = [column.split()[0] for column in FINDING_COLUMNS.split(", ")]
    for batch in batches:
        rows: LogRows = no_rows()
        position = _numbers(batch, "position")
        in_log = (position >= plan.start) & (position < plan.end)
        in_log &= ~np.isin(position, [file.position for file in plan.adopted])
        rows.kind = np.where(in_log, RowKind.HANDED, RowKind.ADOPTED).astype(np.uint8)
        rows.position, rows.size = position, _numbers(batch, "size")
        columns = {name: batch.column(name) for name in names if name != "message_id"}
        columns["message_id"] = message_ids(plan, rows)
        yield pa.RecordBatch.from_pydict({name: columns[name] for name in names})


def _numbers(batch: Any, name: str) -> Any:
    return batch.column(name).fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
