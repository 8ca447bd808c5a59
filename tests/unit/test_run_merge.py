"""Run files: flush and merge."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from run_rows import (
    HOUR_MS,
    LOG_ID,
    Row,
    Source,
    code_of,
    content,
    made,
    many,
    new_disk,
    opened,
    rows_of,
    sorted_rows,
)

from horolog.delay.run.format import (
    FOOTER_BYTES,
    HEADER_BYTES,
    decode_footer,
    decode_header,
)
from horolog.delay.run.merge import Part, merge
from horolog.errors import ErrorCode
from horolog.testing.disk import FaultyDisk

# --- flush and merge --------------------------------------------------------------------------------


def test_flush_leaves_out_entries_that_are_damaged() -> None:
    disk, source = new_disk(), many(100)
    truth = sorted_rows(source)
    lost = rows_of(source.entries[7:8], source.read(source.entries[7:8]))[0]
    source.entries["due_ms"][7] += 1
    assert source.flush(disk, "a").rows == 99
    assert content(opened(disk, "a")) == [row for row in truth if row != lost]
    source.entries["sum"] = 0
    assert source.flush(disk, "b") == ("b", 0, 0, 0, 0)
    assert disk.list("runs") == ["a.run"]


def test_flush_says_when_records_are_missing() -> None:
    source = many(100)
    source.content = source.content[:-1]
    assert code_of(lambda: source.flush(new_disk(), "a")) is ErrorCode.DAMAGED


def merged(
    disk: FaultyDisk, parts: list[Part], bounds: list[int], **options: Any
) -> dict[str, list[Row]]:
    names = [f"out{i}" for i in range(len(bounds))]
    found = merge(disk, "runs", parts, bounds, names, log_id=LOG_ID, **options)
    runs = {info.name: opened(disk, info.name) for info in found}
    assert [run.info for run in runs.values()] == found
    return {name: content(run) for name, run in runs.items()}


def test_merge_into_partitions() -> None:
    disk = new_disk()
    sources = [many(n, first_origin=n * 100_000) for n in (3_000, 1, 4_000, 700)]
    runs = [made(disk, source, f"r{i}") for i, source in enumerate(sources)]
    truth = sorted_rows(*sources)
    bounds = [0, 500_000, HOUR_MS + 1_000_000, HOUR_MS + 2_000_500, 1 << 50]
    parts = [Part(run, 0, run.rows, None) for run in runs]
    found = merged(disk, parts, bounds, slice_rows=400)
    assert set(found) == {"out1", "out2", "out3"}
    assert [row for name in sorted(found) for row in found[name]] == truth
    for i in (1, 2, 3):
        assert all(bounds[i] <= row.due_ms < bounds[i + 1] for row in found[f"out{i}"])


def test_merge_takes_stretches_and_leaves_out_what_is_gone() -> None:
    disk, chance = new_disk(), np.random.default_rng(1)
    sources = [many(2_000, first_origin=i * 100_000) for i in range(3)]
    parts, truth = [], []
    for i, source in enumerate(sources):
        run = made(disk, source, f"r{i}")
        first, stop = 100 * i, run.rows - 30 * i
        gone = chance.random(stop - first) < 0.4
        parts.append(Part(run, first, stop, gone if i else None))
        rows = content(run)[first:stop]
        truth += [row for row, is_gone in zip(rows, gone, strict=True) if not (i and is_gone)]
    assert merged(disk, parts, [0], slice_rows=100)["out0"] == sorted(truth)


def test_merge_of_nothing() -> None:
    disk = new_disk()
    run = made(disk, many(20))
    assert merged(disk, [], [0, 5]) == {}
    assert merged(disk, [Part(run, 5, 5, None), Part(run, 0, 20, np.ones(20, bool))], [0, 5]) == {}
    assert disk.list("runs") == ["a.run"]
    with pytest.raises(AssertionError):
        merged(disk, [Part(run, 0, 20, None)], [HOUR_MS * 500])


def test_merge_when_one_millisecond_has_most_rows() -> None:
    disk, n = new_disk(), 40_000
    order = np.random.default_rng(2).permutation(3 * n)
    runs = []
    for i in range(3):
        source = Source([HOUR_MS] * n, size=1)
        source.entries["origin"] = order[i * n : (i + 1) * n]
        source.sum_up()
        runs.append(made(disk, source, f"r{i}"))
    merge(
        disk,
        "runs",
        [Part(r, 0, n, None) for r in runs],
        [0],
        ["m"],
        log_id=LOG_ID,
        slice_rows=5_000,
    )
    run = opened(disk, "m")
    assert (run.slice(0, run.rows)["origin"] == np.arange(3 * n)).all()


def test_equal_rows_keep_the_order_of_the_parts() -> None:
    disk = new_disk()
    runs = []
    for i in range(3):
        source = Source([HOUR_MS + j % 5 for j in range(300)], size=2)
        source.entries["key"] = i
        source.sum_up()
        runs.append(made(disk, source, f"r{i}"))
    parts = [Part(runs[i], 0, 300, None) for i in (2, 0, 1)]
    found = merged(disk, parts, [0], slice_rows=50)["out0"]
    assert [row.key for row in found] == [2, 0, 1] * 300


def test_merge_leaves_out_damaged_rows_and_says_so() -> None:
    disk = new_disk()
    sources = [many(1_000, first_origin=i * 10_000) for i in range(2)]
    for i, source in enumerate(sources):
        made(disk, source, f"r{i}")
    truth = content(opened(disk, "r0"))
    for row in (3, 500):
        disk.flip("runs/r0.run", HEADER_BYTES + 64 * row + 30, 2)
    run, other = opened(disk, "r0"), opened(disk, "r1")
    parts = [Part(run, 0, 1_000, None), Part(other, 0, 1_000, np.zeros(1_000, bool))]
    lost = {truth[3], truth[500]}
    expected = [row for row in sorted_rows(*sources) if row not in lost]
    assert merged(disk, parts, [0], slice_rows=64)["out0"] == expected
    assert len(run.problems) == 2
    assert other.problems == []


def test_a_merge_that_fails_leaves_no_new_file() -> None:
    disk = new_disk()
    run = made(disk, many(2_000))
    bounds = [0, HOUR_MS + 1_000_000, HOUR_MS + 2_000_000]
    for operation, after in [("write", 1), ("write", 20), ("sync", 5), ("create", 2)]:
        disk.fail_next(operation, after)
        parts = [Part(run, 0, run.rows, None)]
        assert code_of(lambda: merged(disk, parts, bounds)) is ErrorCode.DISK_FAILED  # noqa: B023
        assert disk.list("runs") == ["a.run"]
    assert (
        sum(len(rows) for rows in merged(disk, [Part(run, 0, 2_000, None)], bounds).values())
        == 2_000
    )


@pytest.mark.parametrize("size", [0, 10, HEADER_BYTES, HEADER_BYTES + FOOTER_BYTES])
def test_any_bytes_are_refused_with_damaged(size: int) -> None:
    chance = random.Random(size)
    for _ in range(200):
        content = chance.randbytes(size)
        assert code_of(lambda: decode_header("x", content, None)) is ErrorCode.DAMAGED  # noqa: B023
        assert code_of(lambda: decode_footer("x", content, 1, 1)) is ErrorCode.DAMAGED  # noqa: B023
