"""`mode=due`: rows come when they are due, never before, each once, whatever is stopped in between."""

from __future__ import annotations

import pickle
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import WriterProperties, write_deltalake
from due_rows import START, all_due, numbered, three_runs
from pyspark.sql.types import StringType, StructField, StructType

from horolog.delay.run.reader import Run
from horolog.errors import ErrorCode, HorologError
from horolog.spark.due_lake import read_lake_piece
from horolog.spark.due_pieces import DueMessages, messages_of
from horolog.spark.due_runs import Piece, RunDirectory, grouped, read_piece, tasks_for
from horolog.spark.due_source import DueStream
from horolog.spark.message_columns import DUE_SCHEMA, PIECE_SCHEMA, arrow_schema
from horolog.spark.reading_options import due_options
from horolog.spark.stream_api import ReadMaxRows
from horolog.storage.disk import Disk
from horolog.testing.due_files import numbered as numbered_rows
from horolog.testing.due_files import write_run


@pytest.fixture
def runs(tmp_path) -> Path:
    """Three files of 3 000 messages."""
    return three_runs(tmp_path / "runs")


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


@pytest.mark.parametrize("topic", ["", "t", "other"])
def test_pieces_hold_what_the_messages_are(runs, monkeypatch, topic) -> None:
    """Unpacked in the task of a sink, in the order and with the columns of the source itself."""
    monkeypatch.setattr("horolog.spark.due_source.now_ms", lambda options: START + 7_000)
    messages = stream(runs, topic=topic, maxRecordsPerPartition=700)
    pieces = DueStream(
        {"mode": "due", "path": str(runs), "rows": "pieces", "topic": topic}, PIECE_SCHEMA
    )
    offset = messages.initialOffset()
    end = messages.latestOffset(offset, ReadMaxRows(1_000))
    assert pieces.initialOffset() == offset
    assert pieces.latestOffset(offset, ReadMaxRows(1_000)) == end
    unpack = pickle.loads(pickle.dumps(DueMessages()))
    want = [b for part in messages.partitions(offset, end) for b in messages.read(part)]
    rows = [b for part in pieces.partitions(offset, end) for b in pieces.read(part)]
    got = list(unpack(iter(rows)))
    assert sum(int(r["stop"] - r["first"]) for b in rows for r in b.to_pylist()) == end["rows"]
    schema = unpack.schema
    assert (
        pa.Table.from_batches(got, schema).to_pylist()
        == pa.Table.from_batches(want, schema).to_pylist()
    )
    assert sum(batch.num_rows for batch in got) == (0 if topic == "other" else end["rows"])


def test_pieces_of_a_lake_and_of_damaged_rows(runs, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("horolog.spark.due_source.now_ms", lambda options: START + 60_000)
    bodies = []
    for place in (runs, as_lake(runs, tmp_path / "lake")):
        pieces = DueStream({"path": str(place), "rows": "pieces"}, PIECE_SCHEMA)
        offset = pieces.initialOffset()
        rows = [
            batch
            for part in pieces.partitions(offset, pieces.latestOffset(offset, None))
            for batch in pieces.read(part)
        ]
        found = [row for batch in DueMessages()(iter(rows)) for row in batch["body"].to_pylist()]
        bodies.append(sorted(map(numbered, found)))
    assert bodies == [list(range(3_000))] * 2


def test_what_pieces_may_hold_is_checked_before() -> None:
    with pytest.raises(HorologError, match="'rows': 'files' is neither messages nor pieces"):
        due_options({"path": "x", "rows": "files"})
    with pytest.raises(HorologError, match="column 'colour': there is no such column"):
        DueMessages(StructType([StructField("colour", StringType())]))


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


@pytest.mark.parametrize(
    ("rows", "cores", "tasks"),
    [
        (0, 2, 0),
        (900, 2, 1),
        (60_000, 2, 2),
        (225_000, 2, 2),
        (225_000, 16, 11),
        (600_000, 2, 4),
        (1_000_000, 4, 4),
        (1_000_001, 4, 8),
    ],
)
def test_tasks_keep_all_cores_busy(rows: int, cores: int, tasks: int) -> None:
    assert tasks_for(rows, 250_000, cores) == tasks


def test_a_file_that_comes_too_late_is_reported(runs, monkeypatch) -> None:
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
    with pytest.raises(HorologError, match="1 row due before"):
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


def test_a_damaged_row_is_reported_or_left_out(runs) -> None:
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
        ({"path": "x", "topic": "a b"}, "option 'topic': topic 'a b' has characters other than"),
        (
            {"path": "x", "topic": "t" * 128},
            "option 'topic': topic has 128 characters; at most 127",
        ),
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
    with pytest.raises(HorologError, match="3,000 rows due before"):
        reader.latestOffset(offset, None)


def damaged_lake(lake: Path) -> Piece:
    """Four hundred rows in four row groups; 7, 250 and 399 are damaged, and so is the group from 100 on."""
    _, views = numbered_rows(
        np.arange(START, START + 400), first=0, topic="t", body_bytes=16, row=0
    )
    records = [bytes(view) for view in views]
    at = records[7].index(b"%016d" % 7)
    records[7] = records[7][:at] + b"x" + records[7][at + 1 :]
    records[250] = records[250][:-3]
    records[399] = b""
    table = pa.table({"due_ms": np.arange(START, START + 400), "record": pa.array(records)})
    groups = WriterProperties(max_row_group_size=100, compression="UNCOMPRESSED")
    write_deltalake(lake, table, writer_properties=groups)
    (path,) = lake.glob("*.parquet")
    chunk = pq.read_metadata(path).row_group(1).column(1)
    with path.open("r+b") as file:
        file.seek(chunk.dictionary_page_offset or chunk.data_page_offset)
        file.write(b"\xff" * 16)
    return Piece(path.name, 400, 0, 400)


def test_damaged_rows_of_a_lake_are_reported_or_left_out(tmp_path) -> None:
    lake = tmp_path / "lake"
    piece = damaged_lake(lake)
    for part, says in (
        (piece, "row 7 is damaged"),
        (piece._replace(first=110, stop=120), "rows 100 to 199 cannot be read"),
        (piece._replace(first=200, stop=260), "row 250 is damaged"),
        (piece._replace(first=399), "row 399 is damaged"),
    ):
        with pytest.raises(HorologError, match=says + r" \(failOnDataLoss=false") as refused:
            list(read_lake_piece(str(lake), part, lossy=False))
        assert refused.value.code is ErrorCode.DAMAGED
    intact = sorted({*range(400)} - {7, 250, 399, *range(100, 200)})
    for part, rows in ((piece, intact), (piece._replace(first=399), [])):
        batches = list(messages_of(str(lake), part, "t", arrow_schema(DUE_SCHEMA), lossy=True))
        found = pa.Table.from_batches(batches, arrow_schema(DUE_SCHEMA))
        assert found["row"].to_pylist() == rows
        assert list(map(numbered, found["body"].to_pylist())) == rows


def test_a_table_of_something_else_is_refused(tmp_path) -> None:
    write_deltalake(tmp_path / "other", pa.table({"a": [1]}))
    with pytest.raises(HorologError, match="without the columns due_ms and record"):
        stream(tmp_path / "other").initialOffset()
