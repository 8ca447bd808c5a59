"""The lake's table as a DataFrame."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from horolog.lake.table.delta import local_path, open_table
from horolog.lake.table.schema import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def pending_view(
    spark: SparkSession, uri: str, *, now_ms: int | None = None, gone: pa.Table | None = None
) -> DataFrame:
    """Pending messages as a DataFrame, before they are due; register it as a view to ask in SQL.

    now_ms  leave out what is due before
    gone    (origin_position, origin_row) of what was recalled since (`lake.jobs.broker.gone_rows`)
    """
    from pyspark.sql import functions as f

    paths = [local_path(path) for path in open_table(uri).file_uris()]
    columns = [name for name in SCHEMA.names if name != "record"]
    if not paths:
        return spark.createDataFrame(SCHEMA.empty_table().select(columns))
    found = spark.read.option("basePath", str(Path(uri).absolute())).parquet(*paths)
    found = found.select("number", "day", *columns)
    if now_ms is not None:
        found = found.where(f.col("due_ms") >= now_ms)
    if gone is not None and len(gone):
        recalled = spark.createDataFrame(gone)
        found = found.join(recalled, ["origin_position", "origin_row"], "left_anti")
    return found
