"""`mode=due` through Spark: every message once into a table, as messages and as pieces, whatever dies in between."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from available_now import run_available
from deltalake import DeltaTable
from due_rows import START, all_due, numbered, three_runs
from dying_sink import DyingSink

from horolog.spark.delta_append import DeltaAppend
from horolog.spark.due_pieces import DueMessages
from horolog.spark.due_source import now_ms
from horolog.spark.reading_options import due_options
from horolog.testing.due_files import write_run


@pytest.fixture
def runs(tmp_path) -> Path:
    """Three files of 3 000 messages."""
    return three_runs(tmp_path / "runs")


def due_frame(spark, place: Path, **options: object):
    frame = spark.readStream.format("horolog").option("mode", "due")
    return frame.options(**options).load(str(place))


def test_as_a_batch(spark, runs) -> None:
    frame = spark.read.format("horolog").option("mode", "due").option("to", START + 5_000)
    want = {number: due for number, due in all_due(runs).items() if due < START + 5_000}
    rows = frame.load(str(runs)).collect()
    assert {
        numbered(row.body): int(row.deliver_at.timestamp() * 1000 + 0.5) for row in rows
    } == want
    assert {row.topic for row in rows} == {"t"}
    assert len({(row.file, row.row) for row in rows}) == len(rows)


def run_once(spark, broker, runs: Path, tmp_path: Path, sink, rows: str) -> None:
    """Everything that is due by the broker's clock, in small batches."""
    frame = due_frame(spark, runs, clock=broker.admin_url, maxRowsPerTrigger=400, rows=rows)
    run_available(frame, sink, tmp_path)


def delivered(table: Path) -> list[tuple[int, int]]:
    found = DeltaTable(table).to_pyarrow_table(columns=["body", "deliver_at"]).to_pydict()
    return sorted(
        (numbered(body), int(due.timestamp() * 1000 + 0.5))
        for body, due in zip(found["body"], found["deliver_at"], strict=True)
    )


@pytest.mark.parametrize(("rows", "times"), [("messages", 1), ("pieces", 2)])
def test_exactly_once_into_delta_over_restarts(spark, broker, tmp_path, rows, times) -> None:
    restarts(spark, broker, tmp_path, rows, times=times)


@pytest.mark.slow
def test_exactly_once_into_delta_over_ten_restarts(spark, broker, tmp_path) -> None:
    restarts(spark, broker, tmp_path, "pieces", times=10)


def restarts(spark, broker, tmp_path: Path, carried: str, *, times: int) -> None:
    """Each start is followed by more that is due, and dies after the commit of its first batch."""
    runs, table = tmp_path / "runs", tmp_path / "table"
    runs.mkdir()
    begin = broker.now_ms()
    spread = np.sort(np.random.default_rng(1).integers(0, 1_000 * times, 500 * times))
    write_run(runs, "a", begin + spread, first=0)
    write_run(runs, "b", begin + spread + 1, first=100_000)
    sink = DeltaAppend(str(table), unpack=DueMessages() if carried == "pieces" else None)
    for _ in range(times):
        now = broker.advance(1_000)
        with pytest.raises(Exception, match="killed"):
            run_once(spark, broker, runs, tmp_path, DyingSink(sink, after=True), carried)
        run_once(spark, broker, runs, tmp_path, sink, carried)
        rows = delivered(table)
        want = {number: due for number, due in all_due(runs).items() if due < now}
        assert rows == sorted(want.items())  # none early, none lost, none twice
    broker.advance(10_000)
    run_once(spark, broker, runs, tmp_path, sink, carried)
    assert delivered(table) == sorted(all_due(runs).items())


def test_by_the_clock_of_this_machine(spark, tmp_path) -> None:
    """A live query: rows come within seconds of their time, and not before."""
    runs, out = tmp_path / "runs", tmp_path / "out"
    runs.mkdir()
    begin = time.time_ns() // 1_000_000 + 2_000
    due = begin + np.arange(2_000)
    write_run(runs, "a", due)
    assert now_ms(due_options({"path": "x"})) < begin
    query = (
        due_frame(spark, runs)
        .selectExpr("CAST(deliver_at AS double) AS due", "row", "current_timestamp() AS seen")
        .writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        deadline = time.monotonic() + 120
        seen = 0
        while seen < 2_000 and time.monotonic() < deadline:
            query.processAllAvailable()
            seen = sum(int(each["numInputRows"]) for each in query.recentProgress)
    finally:
        query.stop()
    rows = (
        spark.read.parquet(str(out))
        .selectExpr("due", "row", "CAST(seen AS double) AS seen")
        .collect()
    )
    assert sorted(row.row for row in rows) == list(range(2_000))
    assert all(row.seen >= row.due for row in rows)
