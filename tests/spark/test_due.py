"""`mode=due`: rows come when they are due, never before, each once, whatever is stopped in between."""

from __future__ import annotations

import pickle
import random
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

from horolog.delay.run import Run
from horolog.errors import ErrorCode, HorologError
from horolog.spark.delta_append import DeltaAppend
from horolog.spark.due_runs import RunDirectory, grouped, read_piece
from horolog.spark.due_source import DueStream, now_ms
from horolog.spark.message_columns import DUE_SCHEMA
from horolog.spark.reading_options import due_options
from horolog.spark.stream_api import ReadMaxRows
from horolog.storage.disk import Disk
from horolog.testing.due_files import write_run

START = 1_700_000_000_000


@pytest.fixture
def runs(tmp_path) -> Path:
    """Three files of 3 000 messages in all, due within ten seconds; half of one file in one millisecond."""
    place = tmp_path / "runs"
    place.mkdir()
    chance = np.random.default_rng(5)
    for number in range(3):
        due = START + chance.integers(0, 10_000, 1_000)
        if number == 1:
            due[:500] = START + 5_000
        write_run(place, f"r{number}", np.sort(due), first=1_000 * number)
    return place


def all_due(place: Path) -> dict[int, int]:
    """Number of each message and when it is due, from the files."""
    found = {}
    directory = RunDirectory(str(place))
    directory.refresh()
    for piece in directory.between(0, 1 << 60):
        for due in read_piece(str(place), piece, lossy=False):
            bodies = due.records.columns(["body"])["body"].to_pylist()
            found.update(zip(map(numbered, bodies), due.records.due_ms.tolist(), strict=True))
    return found


def numbered(body: bytes) -> int:
    return int(bytes(body)[:16])


def stream(place: Path, **options: object) -> DueStream:
    return DueStream({"mode": "due", "path": str(place), **options}, DUE_SCHEMA)


def rows_of(part, reader: DueStream) -> list[tuple[int, int]]:
    return [
        (numbered(body), int(due.timestamp() * 1000 + 0.5))
        for batch in reader.read(part)
        for body, due in zip(
            batch.column("body").to_pylist(), batch.column("deliver_at").to_pylist(), strict=True
        )
    ]


# --- without Spark ------------------------------------------------------------------------------


def test_batches_of_any_clock_give_every_row_once_and_none_early(runs, monkeypatch) -> None:
    want = all_due(runs)
    assert len(want) == 3_000
    clock = [START]
    monkeypatch.setattr("horolog.spark.due_source.now_ms", lambda options: clock[0])
    chance = random.Random(3)
    got: dict[int, int] = {}
    reader = stream(runs, maxRecordsPerPartition=100)
    offset = reader.initialOffset()
    while clock[0] < START + 11_000:
        clock[0] += chance.randrange(1, 700)
        if chance.random() < 0.3:  # a restart
            reader = pickle.loads(pickle.dumps(stream(runs, maxRecordsPerPartition=100)))
        limit = ReadMaxRows(chance.choice([1, 50, 10**6]))
        end = reader.latestOffset(offset, limit)
        assert end["due_ms"] <= clock[0]
        for part in reader.partitions(offset, end):
            for number, due in rows_of(part, reader):
                assert number not in got
                assert due < clock[0]
                got[number] = due
        offset = end
    while (end := reader.latestOffset(offset, ReadMaxRows(400))) != offset:
        for part in reader.partitions(offset, end):
            got.update(rows_of(part, reader))
        offset = end
    assert got == want


def test_a_limit_is_kept_but_for_one_millisecond(runs, monkeypatch) -> None:
    monkeypatch.setattr("horolog.spark.due_source.now_ms", lambda options: START + 60_000)
    reader = stream(runs)
    offset, sizes = reader.initialOffset(), []
    while (end := reader.latestOffset(offset, ReadMaxRows(100))) != offset:
        sizes.append(end["rows"])
        offset = end
    assert sum(sizes) == 3_000
    assert sorted(sizes)[-1] >= 500  # due in one millisecond
    assert sorted(sizes)[-2] <= 100


def test_groups_are_even_and_cover_all(runs) -> None:
    directory = RunDirectory(str(runs))
    directory.refresh()
    pieces = directory.between(START + 100, START + 9_000)
    total = sum(piece.stop - piece.first for piece in pieces)
    groups = grouped(pieces, 300)
    sizes = [sum(piece.stop - piece.first for piece in group) for group in groups]
    assert sum(sizes) == total
    assert max(sizes) <= 300
    assert len(sizes) == -(-total // 300)
    joined: dict[str, list[tuple[int, int]]] = {}
    for group in groups:
        for piece in group:
            joined.setdefault(piece.name, []).append((piece.first, piece.stop))
    for piece in pieces:
        ends = joined[piece.name]
        assert ends[0][0] == piece.first
        assert ends[-1][1] == piece.stop
        assert all(a[1] == b[0] for a, b in pairwise(ends))


def test_a_file_that_comes_too_late_is_told(runs, monkeypatch) -> None:
    clock = [START + 5_000]
    monkeypatch.setattr("horolog.spark.due_source.now_ms", lambda options: clock[0])
    reader, lossy = stream(runs), stream(runs, failOnDataLoss="false")
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    write_run(runs, "later", np.array([START + 7_000]), first=9_000)
    assert reader.latestOffset(end, None) == end  # in time
    assert len(reader.partitions(start, end)) == 1
    write_run(runs, "late", np.array([START + 4_000]), first=9_001)
    for call in (lambda: reader.latestOffset(end, None), lambda: reader.partitions(start, end)):
        with pytest.raises(HorologError) as refused:
            call()
        assert refused.value.field == "failOnDataLoss"
    clock[0] += 1
    lossy.latestOffset(end, None)


def test_a_finished_file_may_go(runs, monkeypatch) -> None:
    clock = [START + 20_000]
    monkeypatch.setattr("horolog.spark.due_source.now_ms", lambda options: clock[0])
    reader = stream(runs)
    end = reader.latestOffset(reader.initialOffset(), None)
    assert end["rows"] == 3_000
    for path in runs.iterdir():
        path.unlink()
    assert reader.latestOffset(end, None) == end
    write_run(runs, "next", np.array([START + 19_999, START + 20_500]), first=9_000)
    clock[0] += 1_000
    with pytest.raises(HorologError, match="1 rows that are due before"):
        # Fewer rows are below than were: only a file with more would be noticed.
        stream(runs).latestOffset({**end, "below": 0}, None)
    assert reader.latestOffset(end, None)["rows"] == 1


def test_a_file_that_is_being_written_is_waited_for(runs, monkeypatch) -> None:
    whole = (runs / "r0.run").read_bytes()
    (runs / "half.run").write_bytes(whole[: len(whole) // 2])
    directory = RunDirectory(str(runs))
    directory.refresh()
    assert directory.below(1 << 60) == 3_000
    (runs / "half.run").write_bytes(whole)
    directory.refresh()
    assert directory.below(1 << 60) == 4_000
    (runs / "other.run").write_bytes(whole[: len(whole) // 2])
    monkeypatch.setattr("horolog.spark.due_runs.UNFINISHED_S", -1.0)
    with pytest.raises(HorologError) as refused:
        directory.refresh()
    assert refused.value.code is ErrorCode.DAMAGED


def test_a_damaged_row_is_told_or_left_out(runs) -> None:
    content = bytearray((runs / "r2.run").read_bytes())
    at = content.index(b"%016d" % 2_500)
    content[at] ^= 1
    (runs / "r2.run").write_bytes(content)
    directory = RunDirectory(str(runs))
    directory.refresh()
    pieces = [piece for piece in directory.between(0, 1 << 60) if piece.name == "r2.run"]
    with pytest.raises(HorologError, match=r"r2.run: row 500 is damaged"):
        list(read_piece(str(runs), pieces[0], lossy=False))
    kept = [row for due in read_piece(str(runs), pieces[0], lossy=True) for row in due.rows]
    assert sorted(set(range(1_000)) - set(kept)) == [500]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "option 'path': is missing"),
        ({"path": "x", "clock": "sundial"}, "option 'clock': 'sundial' is not a URL"),
        ({"path": "x", "maxRowsPerTrigger": "-1"}, "option 'maxRowsPerTrigger'"),
        ({"path": "x", "broker": "http://a:1"}, "option 'broker': there is no such option"),
    ],
)
def test_refusals_name_the_option(options, says: str) -> None:
    with pytest.raises(HorologError) as refused:
        due_options(options)
    assert says in refused.value.message


def as_lake(runs: Path, lake: Path) -> Path:
    """The same rows in a Delta table of one file a run, with small row groups."""
    for path in sorted(runs.iterdir()):
        rows = Run.open(Disk(runs), ".", path.stem, None)
        entries = rows.slice(0, rows.rows)
        records = [bytes(record) for record in rows.records(entries)]
        table = pa.table({"due_ms": entries["due_ms"], "record": pa.array(records, pa.binary())})
        groups = WriterProperties(max_row_group_size=128)
        write_deltalake(lake, table, mode="append", writer_properties=groups)
    return lake


def test_a_lake_gives_the_same_as_its_runs(runs, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("horolog.spark.due_source.now_ms", lambda options: START + 60_000)
    lake = as_lake(runs, tmp_path / "lake")
    found = []
    for place in (runs, lake):
        reader = stream(place, maxRecordsPerPartition=150)
        offset, batches = reader.initialOffset(), []
        while (end := reader.latestOffset(offset, ReadMaxRows(333))) != offset:
            rows = [row for part in reader.partitions(offset, end) for row in rows_of(part, reader)]
            batches.append((end["due_ms"], end["rows"], sorted(rows)))
            offset = end
        found.append(batches)
    assert found[0] == found[1]
    assert sum(rows for _, rows, _ in found[1]) == 3_000
    reader = stream(lake)
    offset = reader.latestOffset(reader.initialOffset(), None)
    as_lake(runs, lake)  # more of the same, too late
    with pytest.raises(HorologError, match="3000 rows that are due before"):
        reader.latestOffset(offset, None)


def test_a_table_of_something_else_is_refused(tmp_path) -> None:
    write_deltalake(tmp_path / "other", pa.table({"a": [1]}))
    with pytest.raises(HorologError, match="without the columns due_ms and record"):
        stream(tmp_path / "other").initialOffset()


# --- with Spark ---------------------------------------------------------------------------------


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


def run_once(spark, broker, runs: Path, tmp_path: Path, sink) -> None:
    """Everything that is due by the broker's clock, in small batches."""
    frame = due_frame(spark, runs, clock=broker.admin_url, maxRowsPerTrigger=400)
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


class FailsBehindTheCommit:
    """A sink whose process dies between the table's commit and Spark's."""

    def __init__(self, sink: DeltaAppend, batch: int) -> None:
        self._sink = sink
        self._batch = batch

    def __call__(self, frame, batch: int) -> None:
        self._sink(frame, batch)
        if batch == self._batch:
            raise RuntimeError("killed")


def delivered(table: Path) -> list[tuple[int, int]]:
    found = DeltaTable(table).to_pyarrow_table(columns=["body", "deliver_at"]).to_pydict()
    return sorted(
        (numbered(body), int(due.timestamp() * 1000 + 0.5))
        for body, due in zip(found["body"], found["deliver_at"], strict=True)
    )


def test_exactly_once_into_delta_over_restarts(spark, broker, tmp_path) -> None:
    restarts(spark, broker, tmp_path, times=3)


@pytest.mark.slow
def test_exactly_once_into_delta_over_ten_restarts(spark, broker, tmp_path) -> None:
    restarts(spark, broker, tmp_path, times=10)


def restarts(spark, broker, tmp_path: Path, *, times: int) -> None:
    """Each start is followed by more that is due, and dies behind the commit of its first batch."""
    runs, table = tmp_path / "runs", tmp_path / "table"
    runs.mkdir()
    begin = broker.now_ms()
    spread = np.sort(np.random.default_rng(1).integers(0, 1_000 * times, 500 * times))
    write_run(runs, "a", begin + spread, first=0)
    write_run(runs, "b", begin + spread + 1, first=100_000)
    sink = DeltaAppend(str(table))
    batch = 0
    for _ in range(times):
        now = broker.advance(1_000)
        with pytest.raises(Exception, match="killed"):
            run_once(spark, broker, runs, tmp_path, FailsBehindTheCommit(sink, batch))
        run_once(spark, broker, runs, tmp_path, sink)
        rows = delivered(table)
        want = {number: due for number, due in all_due(runs).items() if due < now}
        assert rows == sorted(want.items())  # none early, none lost, none twice
        batch = DeltaTable(table).history(1)[0]["version"]  # a table of n batches has version n
    broker.advance(10_000)
    run_once(spark, broker, runs, tmp_path, sink)
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
