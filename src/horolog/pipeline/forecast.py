"""The forecast: a count of pending messages by the time at which they will be handed over.

It reads the hours, far buffers and runs that the newest checkpoint names, and the log after it; no
broker is asked, and the sum equals exactly the broker's own count of pending messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from horolog.clock import SystemClock
from horolog.limits import HOUR_MS
from horolog.log.record import Kind
from horolog.pipeline.data_files import (
    FIELD,
    LogPlan,
    files_of,
    must_see,
    need_checkpoint,
    plan_log,
)
from horolog.pipeline.log_walk import controls_of, walk_log
from horolog.pipeline.pending_source import LoadSource
from horolog.pipeline.progress import Stages, quiet
from horolog.places import local_place
from horolog.spark.shared_place import prove_shared
from horolog.spark.work_directory import work_directory
from horolog.storage.api import read_file
from horolog.storage.meta import META

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOTTEST = 20
_TRIES = 3


@dataclass
class Forecast:
    """The pending messages by time; tables are Arrow's, times UTC epoch milliseconds."""

    data_dir: str
    now_ms: int  # the broker's time: the log's newest time, or the system clock if that is later
    to_ms: int | None  # only messages due before this time; None: all
    total: int
    overdue: int  # due before now
    in_lake: int  # known by the hour only
    topics: Any  # topic, messages, first_ms, last_ms
    # topic, minute_ms, messages, peak (of the hottest second); in the lake, the hour's first minute
    minutes: Any
    hottest: Any  # second_ms, messages; over all topics


def forecast(
    spark: SparkSession,
    data_dir: Path,
    *,
    out: Path | None = None,
    hours: int | None = None,
    report: Stages = quiet,
) -> Forecast:
    """Forecast the due load of a data directory, a copy of one, or a backup.

    out    directory for topics, minutes and hottest seconds as Parquet
    hours  count only messages due within so many hours
    """
    from pyspark.errors import PySparkException

    data_dir = Path(local_place(data_dir, FIELD))
    if out is not None:
        out = Path(local_place(out, "--out"))
        out.mkdir(parents=True, exist_ok=True)
    spark.dataSource.register(LoadSource)
    for again in range(_TRIES, 0, -1):
        try:
            return _forecast(spark, data_dir, out, hours, report)
        except PySparkException as error:
            # A newer checkpoint has replaced the one that was read.
            if "FileNotFoundError" not in str(error) or again == 1:
                raise
    raise AssertionError


def _forecast(
    spark: SparkSession, data_dir: Path, out: Path | None, hours: int | None, report: Stages
) -> Forecast:
    report("reading the end of the log")
    plan = plan_log(data_dir)
    need_checkpoint(plan)
    now_ms = now_of(plan)
    to_ms = None if hours is None else now_ms + hours * HOUR_MS
    reader = spark.read.format("horolog_load").option("path", plan.root)
    if to_ms is not None:
        reader = reader.option("to", str(to_ms))
    report("counting what waits")
    with work_directory("forecast", out) as work:
        prove_shared(spark, str(work), "--out", must_see(plan.root))
        at = f"{work}/seconds"
        summed = reader.load().groupBy("topic", "second", "in_lake").agg({"n": "sum"})
        summed.withColumnRenamed("sum(n)", "n").where("n <> 0").write.parquet(at)
        seconds = spark.read.parquet(at)
        report("adding up")
        found = _tables(seconds, topic_names(plan))
    topics, minutes, hottest, in_lake = found
    overdue = 0
    for row in minutes.to_pylist():
        overdue += row["messages"] if row["minute_ms"] + 60_000 <= now_ms else 0
    result = Forecast(
        str(data_dir),
        now_ms,
        to_ms,
        sum(topics["messages"].to_pylist()),
        overdue,
        in_lake,
        topics,
        minutes,
        hottest,
    )
    for name in ("topics", "minutes", "hottest") if out is not None else ():
        assert out is not None
        pq.write_table(getattr(result, name), out / f"{name}.parquet")
    return result


def _tables(seconds: DataFrame, names: dict[int, str]) -> tuple[Any, Any, Any, int]:
    from pyspark.sql import functions as f

    minute = (f.floor(f.col("second") / 60) * 60_000).alias("minute_ms")
    topics = seconds.groupBy("topic").agg(
        f.sum("n").alias("messages"),
        (f.min("second") * 1000).alias("first_ms"),
        (f.max("second") * 1000).alias("last_ms"),
    )
    minutes = seconds.groupBy("topic", minute).agg(
        f.sum("n").alias("messages"), f.max("n").alias("peak")
    )
    hottest = (
        seconds.where(~f.col("in_lake"))
        .groupBy((f.col("second") * 1000).alias("second_ms"))
        .agg(f.sum("n").alias("messages"))
        .orderBy(f.desc("messages"), "second_ms")
        .limit(HOTTEST)
    )
    return (
        _named(topics.orderBy("topic").toArrow(), names),
        _named(minutes.orderBy("topic", "minute_ms").toArrow(), names),
        hottest.toArrow(),
        int(seconds.where("in_lake").agg(f.coalesce(f.sum("n"), f.lit(0))).first()[0]),  # type: ignore[index]
    )


def _named(table: Any, names: dict[int, str]) -> Any:
    column = [names.get(number, f"topic {number}") for number in table["topic"].to_pylist()]
    place = table.schema.get_field_index("topic")
    return table.set_column(place, "topic", pa.array(column, pa.string()))


def topic_names(plan: LogPlan) -> dict[int, str]:
    """Return topic id → name, from the checkpoint and from the log after it."""
    names = {row["number"]: row["name"] for row in plan.registry.get("topics", [])}
    for stretch in walk_log(plan, start=max(plan.start, plan.checkpoint), check=False):
        for _, control in controls_of(stretch, Kind.TOPIC):
            row = control.content
            names[row["number"]] = row["name"]
    return names


def now_of(plan: LogPlan) -> int:
    """Return the broker's time as far as its files show.

    A system clock has gone on since the last frame; a simulated clock stands at the last frame.
    """
    meta = orjson.loads(read_file(files_of(plan.root), META))
    if meta.get("clock") == "simulated":
        return plan.newest_ms
    return max(plan.newest_ms, SystemClock().wall_ms())
