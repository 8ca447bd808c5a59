"""Run files: searches against plain Python, mistakes of ours, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from run_rows import (
    HOUR_MS,
    LOG_ID,
    Source,
    code_of,
    content,
    made,
    many,
    new_disk,
    opened,
    sorted_rows,
)

from horolog.cli.inspection.files import inspect_file
from horolog.delay.entry import record_crcs
from horolog.delay.run.format import (
    FENCE_ROWS,
    GROUP_ROWS,
    HEADER_BYTES,
    layout_of,
)
from horolog.delay.run.format import (
    RunInfo as FormatRunInfo,
)
from horolog.delay.run.reader import RunInfo
from horolog.delay.run.writer import RunWriter
from horolog.errors import ErrorCode

# --- what is written is read ------------------------------------------------------------------------


def test_a_run_keeps_all_of_its_rows_in_order() -> None:
    disk = new_disk()
    source = many(5_000)
    info = source.flush(disk, "a")
    run = opened(disk, "a")
    assert content(run) == sorted_rows(source)
    assert run.info == info
    assert RunInfo is FormatRunInfo
    due = source.entries["due_ms"]
    assert info == ("a", 5_000, disk.open("runs/a.run").size(), due.min(), due.max())
    entries = run.slice(0, run.rows)
    assert (record_crcs(run.records(entries), entries["origin"]) == entries["crc"]).all()
    assert not entries["previous"].any()
    assert run.problems == []
    assert run.log_id == opened(disk, "a", None).log_id == LOG_ID


@pytest.mark.parametrize("n", [1, 2, FENCE_ROWS, FENCE_ROWS + 1, 3 * FENCE_ROWS + 5])
def test_searches_by_time(n: int) -> None:
    run = made(new_disk(), source := many(n))
    due = np.sort(source.entries["due_ms"])
    for moment in {0, 1 << 60, HOUR_MS, *due[:: max(1, n // 200)].tolist()}:
        for at in (moment - 1, moment, moment + 1):
            assert run.row_at(at) == due.searchsorted(at)
    second = int(due[n // 2]) // 1000
    first, stop = run.row_at(second * 1000), run.row_at(second * 1000 + 1000)
    assert due[first:stop].tolist() == [each for each in due.tolist() if each // 1000 == second]
    for hour in (0, 1, 2, 900):
        inside = due[2 : n - 3][due[2 : n - 3] // HOUR_MS == hour] // 1000 % 3_600
        assert (
            run.second_counts(hour, 2, max(2, n - 3)).tolist()
            == np.bincount(inside, minlength=3_600).tolist()
        )


def test_finds_origins_even_when_one_millisecond_has_most_rows() -> None:
    n = 20_000
    source = Source([HOUR_MS + (i % 1_000 if i % 10 == 0 else 500) for i in range(n)])
    run = made(new_disk(), source)
    found = run.find(source.entries["due_ms"], source.entries["origin"])
    assert sorted(found.tolist()) == list(range(n))
    assert (run.entries(found)["origin"] == source.entries["origin"]).all()
    assert (run.find(source.entries["due_ms"], source.entries["origin"] + 1) == -1).all()
    assert (run.find(source.entries["due_ms"] + 1, source.entries["origin"]) == -1).all()
    none = run.find(np.empty(0, np.int64), np.empty(0, np.uint64))
    assert none.tolist() == []
    ends = run.find(np.array([0, 1 << 60]), np.array([0, 0], np.uint64))
    assert ends.tolist() == [-1, -1]


def test_rows_of_an_origin_are_distinguished() -> None:
    source = Source([HOUR_MS] * 100)
    source.entries["origin"] = 77
    source.entries["row"] = np.arange(100)[::-1]
    source.sum_up()
    run = made(new_disk(), source)
    rows = np.arange(100, dtype=np.uint32)
    due, origins = np.full(100, HOUR_MS), np.full(100, 77, np.uint64)
    assert run.find(due, origins, rows).tolist() == list(range(100))
    assert run.find(due[:1], origins[:1]).tolist() == [0]
    assert run.find(due[:1], origins[:1], np.array([100], np.uint32)).tolist() == [-1]


def test_finds_keys_over_several_groups() -> None:
    n = 2 * GROUP_ROWS + 500
    run = made(new_disk(), source := many(n, keys=20_000, size=1))
    keys = run.slice(0, n)["key"]
    for key in (0, 5, 9, 19_999, 20_000, 1 << 63):
        assert run.rows_of_key(key) == np.flatnonzero(keys == key).tolist()
    assert len(source.entries) == n


def test_finds_keys_of_a_millisecond_that_has_most_rows() -> None:
    n = 3 * FENCE_ROWS
    source = Source([HOUR_MS + (500 if i % 9 else i) for i in range(n)], keys=50, size=1)
    run = made(new_disk(), source)
    entries = run.slice(0, n)
    for due in (HOUR_MS + 9, HOUR_MS + 500):
        expected = np.flatnonzero((entries["key"] == 7) & (entries["due_ms"] == due))
        found = run.rows_of_key(7, due)
        assert set(expected.tolist()) <= set(found)
        assert (run.entries(np.array(found, np.int64))["key"] == 7).all()


def test_the_directory_counts_every_topic_of_every_hour() -> None:
    source = many(GROUP_ROWS + 3_000, seconds=20_000, size=3)
    directory = made(new_disk(), source).directory
    expected: dict[tuple[int, int], list[int]] = {}
    for entry in source.entries[["due_ms", "topic", "size"]].tolist():
        counts = expected.setdefault((entry[0] // HOUR_MS, entry[1]), [0, 0])
        counts[0] += 1
        counts[1] += entry[2]
    assert directory.tolist() == [(*at, *counts) for at, counts in sorted(expected.items())]


def test_records_larger_than_one_write() -> None:
    source = Source([HOUR_MS - i for i in range(9)], size=1 << 20)
    assert content(made(new_disk(), source)) == sorted_rows(source)


def test_a_closed_run_lets_go_of_its_file() -> None:
    run = made(new_disk(), many(10))
    run.close()
    assert len(run.view) == 0


def test_inspect_reads_a_run_and_names_what_is_damaged(tmp_path: Path) -> None:
    disk, source = new_disk(), many(30, size=3)
    made(disk, source)
    path = tmp_path / "a.run"
    size = disk.open("runs/a.run").size()
    whole = disk.open("runs/a.run").read(0, size)
    path.write_bytes(whole)
    report = inspect_file(path, limit=10, show_records=False)
    assert report.problems == []
    assert report.fields["rows"] == report.fields["messages"] == 30
    assert len(report.rows) == 10
    at = layout_of(30, int(source.entries["size"].sum()), 0)
    flips = {
        3: "is not a run",
        20: "header is damaged",
        HEADER_BYTES + 64 + 40: "1 bad entry",
        at.records_at + 1: "1 bad record",
        at.records_end: "gaps",
        at.key_groups_at + 3: "key groups",
        at.fences_at + 3: "fences",
        at.key_directory_at + 3: "key directory",
        at.directory_at + 3: "directory",
        size - 70: "footer is damaged",
        size - 6: "not finished",
    }
    for place, problem in flips.items():
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        problems = inspect_file(path, limit=0, show_records=False).problems
        assert len(problems) == 1
        assert problem in problems[0]
    path.write_bytes(whole[:200])
    assert inspect_file(path, limit=0, show_records=False).problems


# --- mistakes of our own ----------------------------------------------------------------------------


def test_records_that_are_joined_already_make_the_same_file() -> None:
    disk, source = new_disk(), many(30)
    order = np.lexsort((source.entries["origin"], source.entries["due_ms"]))
    entries = source.entries[order]
    records = source.read(entries)
    apart = RunWriter(disk, "runs", "apart", log_id=LOG_ID, rows=30)
    joined = RunWriter(disk, "runs", "joined", log_id=LOG_ID, rows=30)
    for rows in (slice(0, 7), slice(7, 7), slice(7, 30)):
        apart.add(entries[rows], records[rows])
        joined.add_joined(entries[rows], memoryview(b"".join(records[rows])))
    apart.finish()
    joined.finish()
    files = [disk.open(f"runs/{name}.run") for name in ("apart", "joined")]
    assert files[0].read(0, files[0].size()) == files[1].read(0, files[1].size())
    short = RunWriter(disk, "runs", "short", log_id=LOG_ID, rows=30)
    with pytest.raises(AssertionError):
        short.add_joined(entries, memoryview(b"".join(records)[:-1]))


def test_the_writer_wants_its_rows_sorted_and_all_of_them() -> None:
    disk, source = new_disk(), many(10)
    order = np.lexsort((source.entries["origin"], source.entries["due_ms"]))
    entries = source.entries[order]
    records = source.read(entries)

    def writer() -> RunWriter:
        return RunWriter(disk, "runs", "w", log_id=LOG_ID, rows=10)

    with pytest.raises(AssertionError):
        writer().add(entries[::-1], records)
    with pytest.raises(AssertionError):
        writer().add(entries, records[:9])
    halves = writer()
    halves.add(entries[5:], records[5:])
    with pytest.raises(AssertionError):
        halves.add(entries[:5], records[:5])
    with pytest.raises(AssertionError):
        halves.add(entries, records)
    with pytest.raises(AssertionError):
        halves.finish()
    with pytest.raises(AssertionError):
        RunWriter(disk, "runs", "w", log_id=LOG_ID, rows=0)
    halves.abandon()
    assert disk.names() == ()


# --- refusals ---------------------------------------------------------------------------------------


def test_refuses_what_is_not_its_own() -> None:
    disk = new_disk()
    made(disk, many(10))
    assert code_of(lambda: opened(disk, "a", LOG_ID + 1)) is ErrorCode.DIRECTORY_FOREIGN
    assert code_of(lambda: opened(disk, "missing")) is ErrorCode.DAMAGED
    disk.open("runs/empty.run", create=True)
    assert code_of(lambda: opened(disk, "empty")) is ErrorCode.DAMAGED


@pytest.mark.parametrize(("at", "content"), [(4, b"\x02"), (6, b"\x01")])
def test_refuses_newer_versions_and_unknown_flags(at: int, content: bytes) -> None:
    from zlib_ng.zlib_ng import crc32

    disk = new_disk()
    made(disk, many(10))
    file = disk.open("runs/a.run")
    file.write(at, content)
    file.write(60, crc32(file.read(0, 60)).to_bytes(4, "little"))
    assert code_of(lambda: opened(disk, "a")) is ErrorCode.VERSION_UNSUPPORTED


def test_refuses_a_file_cut_anywhere_or_grown() -> None:
    disk = new_disk()
    made(disk, many(30, size=1))
    whole = disk.open("runs/a.run").read(0, 1 << 20)
    for size in range(len(whole)):
        disk.open("runs/cut.run", create=True).truncate(0)
        disk.open("runs/cut.run").write(0, whole[:size])
        assert code_of(lambda: opened(disk, "cut")) is ErrorCode.DAMAGED
    disk.open("runs/cut.run").write(0, whole + b"\0")
    assert code_of(lambda: opened(disk, "cut")) is ErrorCode.DAMAGED
    disk.open("runs/cut.run").write(0, whole[:100] + whole[101:] + whole[-1:])
    assert code_of(lambda: opened(disk, "cut")) is ErrorCode.DAMAGED
