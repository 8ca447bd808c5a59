"""The Spark half of a bulk load: histogram, slices, shuffle, and tasks that stage sorted runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from horolog.delay.row_sum import MASK
from horolog.errors import ErrorCode, refused
from horolog.spark.load_plan import MINUTES, LoadPlan, plan_slices, slice_rows
from horolog.spark.row_sums import RowSum, SumOfRows, signed, totalled
from horolog.spark.sink_columns import ARROW_TYPES, Unit
from horolog.spark.sink_options import SinkOptions
from horolog.spark.staged_runs import Rejected, Task, Written, stage
from horolog.spark.transaction import StagedRun, Transaction

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_MINUTE, _SLICE = "__horolog_minute", "__horolog_slice"
_RECORDS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES_PER_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"
_BATCH_ROWS = 2_000  # half a megabyte of small messages, which stays in a core's cache
_UNLIMITED = (1 << 31) - 1
SMALL_BYTES = 16_384  # most bytes of a small row
REJECTED_MAX = 1_000_000  # refused rows that the driver takes from one task; more fail the job


class Loaded(NamedTuple):
    """Files that the tasks of a load have staged, and rows that they refused."""

    files: list[StagedRun]
    rejected: pa.Table  # the refused rows, and the column `reason`
    sum: RowSum  # of all rows, refused ones included


def plan_of(df: DataFrame, unit: Unit | None) -> LoadPlan:
    """Plan the slices: one pass over the due times, and a second pass if an hour has many rows."""
    hours, counts = _histogram(df, _since_1970(df, unit, 3_600))
    parallelism = df.sparkSession.sparkContext.defaultParallelism
    wanted = slice_rows(int(counts.sum()), parallelism)
    minutes, is_dense = hours * MINUTES, counts >= wanted
    if is_dense.any():
        among = df.where(_since_1970(df, unit, 3_600).isin(hours[is_dense].tolist()))
        of_dense, more = _histogram(among, _since_1970(df, unit, 60))
        minutes = np.concatenate([minutes[~is_dense], of_dense])
        counts = np.concatenate([counts[~is_dense], more])
    order = np.argsort(minutes)
    return plan_slices(minutes[order], counts[order], wanted)


def _histogram(df: DataFrame, unit: Column) -> tuple[np.ndarray, np.ndarray]:
    """Count the rows of each unit of time; return (units, rows) in any order.

    Rows without a due time are not counted.
    """
    from pyspark.sql import functions as sql

    counted = df.select(unit.alias("unit")).groupBy("unit").agg(sql.count("*").alias("n"))
    table = counted.where(sql.col("unit").isNotNull()).toArrow()
    units = table.column("unit").to_numpy().astype(np.int64)
    counts = table.column("n").to_numpy().astype(np.int64)
    return units, counts


def run_load(
    df: DataFrame, plan: LoadPlan, options: SinkOptions, transaction: Transaction
) -> Loaded:
    """Shuffle the rows into their slices and stage them; return what is to be committed."""
    sliced = _shuffled(df, options.unit, plan).select(*df.columns)
    result_schema = _result_schema(df.schema)
    work = _staging(options, transaction, _arrow_schema(df.schema))
    with batch_settings(df, plan.rows):
        table = sliced.mapInArrow(work, result_schema).toArrow()
    files, rejected, total = [], [], RowSum()
    for batch in table.to_batches():
        is_file = np.asarray(batch.column("file").is_valid())
        files += [StagedRun(**row) for row in batch.column("file").to_pylist() if row is not None]
        is_sum = np.asarray(batch.column("sum").is_valid())
        for row in batch.column("sum").filter(pa.array(is_sum)).to_pylist():
            total = total.plus(RowSum(row["rows"], row["sum"] & MASK))
        rejected.append(batch.filter(pa.array(~(is_file | is_sum))))
    refused = pa.Table.from_batches(rejected, table.schema).drop_columns(["file", "sum"])
    return Loaded(sorted(files), refused, total)


def sum_of_rows(df: DataFrame, unit: Unit | None) -> RowSum:
    """Return the sum of all rows, equal to the sum that a load of these rows returns."""
    work = SumOfRows(unit)
    parts = df.mapInArrow(work, work.schema).toArrow().to_pylist()
    return totalled(RowSum(part["rows"], part["sum"] & MASK) for part in parts)


@contextmanager
def batch_settings(df: DataFrame, rows: int) -> Iterator[None]:
    """Set how many rows Spark sends to Python at once; settings that the user has made stay.

    Batches are small, and without a limit of bytes where Spark's statistics (`row_bytes`) say that
    rows are small: to keep the limit, Spark sums up a batch after every row, a quarter of all that
    the JVM does in a load.
    """
    conf = df.sparkSession.conf
    wanted = {_RECORDS_PER_BATCH: _BATCH_ROWS}
    if row_bytes(df, rows) <= SMALL_BYTES:
        wanted[_BYTES_PER_BATCH] = _UNLIMITED
    made = [name for name in wanted if not conf._jconf.contains(name)]
    for name in made:
        conf.set(name, wanted[name])
    try:
        yield
    finally:
        for name in made:
            conf.unset(name)


def row_bytes(df: DataFrame, rows: int) -> int:
    """Return the bytes of a row by Spark's statistics.

    For files this is their size on disk; for an input that Spark cannot estimate it is larger than
    any row.
    """
    stats = df._jdf.queryExecution().optimizedPlan().stats()
    return int(stats.sizeInBytes()) // max(1, rows)


def _result_schema(schema: StructType) -> StructType:
    """Return the schema of a task's result: rows for files, for the sum, and for refused rows."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    numbers = [StructField(name, LongType()) for name in StagedRun._fields[1:]]
    file = StructType([StructField("name", StringType()), *numbers])
    given = [StructField(field.name, field.dataType) for field in schema.fields]
    total = StructType([StructField("rows", LongType()), StructField("sum", LongType())])
    results = [
        StructField("file", file),
        StructField("sum", total),
        StructField("reason", StringType()),
    ]
    return StructType([*results, *given])


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema of a task's result for Arrow; the columns' types are checked before."""
    numbers = [(name, pa.int64()) for name in StagedRun._fields[1:]]
    file = pa.struct([("name", pa.string()), *numbers])
    given = [(field.name, ARROW_TYPES[field.dataType.simpleString()]) for field in schema.fields]
    total = pa.struct([("rows", pa.int64()), ("sum", pa.int64())])
    return pa.schema([("file", file), ("sum", total), ("reason", pa.string()), *given])


def _since_1970(df: DataFrame, unit: Unit | None, seconds: int) -> Column:
    """Return the whole units of `seconds` seconds from 1970 to the due time."""
    from pyspark.sql import functions as sql

    if dict(df.dtypes)["deliver_at"] == "timestamp":
        return sql.expr(f"unix_seconds(deliver_at) div {seconds}")
    assert unit is not None
    return sql.expr(f"deliver_at div {seconds * unit.in_second}")


def _minute(df: DataFrame, unit: Unit | None, plan: LoadPlan) -> Column:
    """Return the minute since 1970 under which the plan lists a row."""
    from pyspark.sql import functions as sql

    hour = _since_1970(df, unit, 3_600)
    of_hour = hour * MINUTES
    if not len(plan.dense):
        return of_hour
    in_dense = hour.isin(plan.dense.tolist())
    return sql.when(in_dense, _since_1970(df, unit, 60)).otherwise(of_hour)


def _shuffled(df: DataFrame, unit: Unit | None, plan: LoadPlan) -> DataFrame:
    from pyspark.sql import functions as sql

    if plan.slices == 1:
        return df.coalesce(1)
    session = df.sparkSession
    slices = session.createDataFrame(
        pa.table({_MINUTE: plan.minutes, "first": plan.first, "salts": plan.salts})
    )
    # Hash content and partition: a task that runs again sends every row to the same slice. Rows
    # that the histogram did not see, and rows that will be refused, are spread over all slices.
    # Spark cannot hash maps.
    hashed = [name for name, kind in df.dtypes if not kind.startswith("map")]
    dealt = sql.xxhash64(*hashed, sql.spark_partition_id())
    first, salts = sql.col("first"), sql.col("salts")
    place = (
        sql.when(salts == 1, first)  # nearly all rows: their bodies need not be hashed
        .when(salts > 1, first + sql.pmod(dealt, salts))
        .otherwise(sql.pmod(dealt, sql.lit(plan.slices)))
    )
    joined = (
        df.withColumn(_MINUTE, _minute(df, unit, plan))
        .join(sql.broadcast(slices), _MINUTE, "left")
        .select(*df.columns, place.cast("int").alias(_SLICE))
    )
    return joined.repartitionById(plan.slices, sql.col(_SLICE))


def _staging(
    options: SinkOptions, transaction: Transaction, result_schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Build the function that a task runs."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task = Task(
            transaction,
            options,
            context.partitionId(),
            int(context.taskAttemptId()),
        )
        rejects: list[Rejected] = []
        done = stage(task, batches, rejects)
        count = sum(len(group.reasons) for group in rejects)
        if count > REJECTED_MAX:
            raise refused(
                "rows",
                f"{count} of one part may not become messages, the first because of "
                f"{rejects[0].reasons[0]}; at most {REJECTED_MAX} are kept",
                f"{REJECTED_MAX} rows",
                code=ErrorCode.MESSAGE_CORRUPTED,
            )
        yield from _result_batches(done, rejects, result_schema)

    return work


def _result_batches(
    done: Written, rejects: list[Rejected], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    nothing = dict.fromkeys(schema.names)
    rows = [{**nothing, "file": file._asdict()} for file in done.files]
    rows.append({**nothing, "sum": {"rows": done.sum.rows, "sum": signed(done.sum.sum)}})
    yield from pa.Table.from_pylist(rows, schema).to_batches()
    for group in rejects:
        columns = {name: group.rows.column(name) for name in group.rows.column_names}
        columns["reason"] = pa.array(group.reasons)
        for name in ("file", "sum"):
            columns[name] = pa.nulls(len(group.reasons), schema.field(name).type)
        ordered = pa.table({name: columns[name] for name in schema.names})
        yield from ordered.cast(schema).combine_chunks().to_batches()
