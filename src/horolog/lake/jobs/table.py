"""The lake's table as a DataFrame."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from horolog.errors import ErrorCode, refused
from horolog.lake.jobs import broker as lake_broker
from horolog.lake.table.delta import local_path, open_table
from horolog.lake.table.schema import SCHEMA
from horolog.limits import HOUR_MS
from horolog.spark.file_damage import CHECKED_PAGES
from horolog.units import TIME_MAX_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from horolog.admin.client import AdminClient


def pending_view(
    spark: SparkSession, uri: str, admin: AdminClient | None = None, *, now_ms: int | None = None
) -> DataFrame:
    """Return the pending messages in the lake as a DataFrame; register it as a view for SQL.

    admin   client of their broker: only the messages that it counts in the lake now, each once.
            None: all rows of the table, also of messages recalled or promoted since
    now_ms  leave out messages due before this time
    Errors: DAMAGED for a file of 0 bytes; other damage ends the query, and Spark names the file.
    """
    from pyspark.sql import functions as f

    paths = [local_path(path) for path in open_table(uri).file_uris()]
    columns = [name for name in SCHEMA.names if name != "record"]
    if not paths:
        return spark.createDataFrame(SCHEMA.empty_table().select(columns))
    for path in paths:
        if not os.path.getsize(path):  # Spark passes over such a file
            raise refused("lake", f"{path} cannot be read (0 bytes)", code=ErrorCode.DAMAGED)
    reader = spark.read.option("basePath", str(Path(uri).absolute()))
    found = reader.options(**CHECKED_PAGES).parquet(*paths)
    found = found.select("number", "day", *columns)
    if now_ms is not None:
        found = found.where(f.col("due_ms") >= now_ms)
    return found if admin is None else _waiting(spark, found, uri, admin)


def _waiting(spark: SparkSession, found: DataFrame, uri: str, admin: AdminClient) -> DataFrame:
    """Keep the waiting rows: of an hour, topic and offload that the broker counts, not recalled."""
    from pyspark.sql import functions as f

    tables, hours = lake_broker.hours(admin, TIME_MAX_MS)
    here = {offload_id for offload_id, lake in tables.items() if not _is_elsewhere(lake, uri)}
    kept = [hour for hour in hours if hour.offload_id in here]
    columns = {
        "number": [hour.offload_id for hour in kept],
        "__hour": [hour.hour for hour in kept],
        "topic_number": [hour.topic for hour in kept],
    }
    counted = pa.table({name: pa.array(column, pa.int64()) for name, column in columns.items()})
    named = found.withColumn("__hour", f.expr(f"due_ms div {HOUR_MS}"))
    waiting = named.join(f.broadcast(spark.createDataFrame(counted)), list(columns), "left_semi")
    parts = [part for offload_id in sorted(here) if len(part := _recalled_of(admin, offload_id))]
    if parts:
        recalled = spark.createDataFrame(pa.concat_tables(parts))
        waiting = waiting.join(recalled, recalled.columns, "left_anti")
    return waiting.select(found.columns)


def _recalled_of(admin: AdminClient, offload_id: int) -> pa.Table:
    origins = lake_broker.recalled_origins(admin, offload_id)
    return origins.append_column("number", pa.array([offload_id] * len(origins), pa.int64()))


def _is_elsewhere(lake: str, uri: str) -> bool:
    """Return whether an offload went to another table that exists on this machine."""
    there = Path(lake)
    return bool(lake) and there.is_dir() and not there.samefile(uri)
