"""Open transactions, from the log, for the checkpoint of a rebuild.

Ended transactions are not collected: half messages whose end is in the log are removed first, and
of the others only the columns of a checkpoint are collected.  The broker asks producers about them
after it starts; how often they were asked before is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from horolog.broker.transactions.open_halves import Half, OpenHalves, half_of
from horolog.log.controls import content_of
from horolog.log.record import Kind
from horolog.pipeline.audit_tables import Sums

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyspark.sql import DataFrame, SparkSession

_HALF = (
    "position long, key string, number long, begun_ms long, topic int, group string, size int, "
    "queue int"
)
_HALF_ARROW = pa.schema(
    [
        ("position", pa.int64()),
        ("key", pa.string()),  # a u64 in decimal
        ("number", pa.int64()),
        ("begun_ms", pa.int64()),
        ("topic", pa.int32()),
        ("group", pa.string()),
        ("size", pa.int32()),
        ("queue", pa.int32()),
    ]
)


def open_halves(
    spark: SparkSession, plan: str, sums: Sums, living: set[int]
) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return fields of a checkpoint's registry and its columns, as `OpenHalves.captured` does.

    living  ids of the topics that are not deleted
    """
    from pyspark.sql import functions as f

    if not any(row["a"] == Kind.HALF for row in sums.rows_of_metric("kind")):
        return {}, {}

    def of_kind(kind: Kind) -> DataFrame:
        reader = spark.read.format("horolog_log_controls").option("plan", plan)
        return reader.option("kinds", kind.name).load()

    halves = of_kind(Kind.HALF).mapInArrow(_halves, _HALF)
    last = halves.agg(f.max("number")).collect()[0][0]
    ends = of_kind(Kind.HALF_END).mapInArrow(_ends, "position long")
    checks = of_kind(Kind.HALF_CHECK).mapInArrow(_checks, "position long, checks int")
    times = checks.groupBy("position").agg(f.max("checks").alias("checks"))
    rows = halves.join(ends, "position", "left_anti").join(times, "position", "left")
    found = OpenHalves()
    for row in rows.orderBy("position").collect():
        if row["topic"] in living:
            found.restore_half(_half(row))
    found.last_offset = last
    return found.captured()


def _half(row: Any) -> Half:
    begun_ms = row["begun_ms"]
    return Half(
        row["position"],
        row["topic"],
        int(row["key"]),
        row["number"],
        row["group"],
        row["queue"],
        row["size"],
        begun_ms,
        begun_ms,
        begun_ms,
        row["checks"] or 0,
    )


def _halves(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        rows = []
        for row in batch.to_pylist():
            message = content_of(Kind.HALF, row["payload"])
            half = half_of(row["position"], message, row["append_ms"], 0)
            rows.append(
                {
                    "position": half.position,
                    "key": str(half.key),
                    "number": half.half_offset,
                    "begun_ms": half.begun_ms,
                    "topic": half.topic,
                    "group": half.group,
                    "size": half.size,
                    "queue": half.queue,
                }
            )
        yield pa.RecordBatch.from_pylist(rows, schema=_HALF_ARROW)


def _ends(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        found: list[int] = []
        for payload in batch.column("payload").to_pylist():
            found += content_of(Kind.HALF_END, payload)["position"].tolist()
        yield pa.RecordBatch.from_pydict({"position": pa.array(found, pa.int64())})


def _checks(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        positions: list[int] = []
        checks: list[int] = []
        for payload in batch.column("payload").to_pylist():
            rows = content_of(Kind.HALF_CHECK, payload)
            positions += rows["position"].tolist()
            checks += rows["checks"].tolist()
        yield pa.RecordBatch.from_pydict(
            {"position": pa.array(positions, pa.int64()), "checks": pa.array(checks, pa.int32())}
        )
