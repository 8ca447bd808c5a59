"""Run files: every flipped byte, every kill and power cut."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from run_rows import (
    HOUR_MS,
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

from horolog.delay.entry import record_crcs
from horolog.delay.run.format import (
    FENCE_ROWS,
    FOOTER_BYTES,
    GROUP_ROWS,
    HEADER_BYTES,
    layout_of,
    run_path,
)
from horolog.delay.run.reader import PROBLEMS_MAX, Run
from horolog.errors import ErrorCode, HorologError
from horolog.testing.disk import FaultyDisk, Killed

# --- damage -----------------------------------------------------------------------------------------


def check_damaged(run: Run, truth: list[Row], sample: Sequence[int]) -> set[int]:
    """Nothing wrong is served and nothing else is missed; the rows of `sample` that are lost, which is said."""
    entries, rows, damaged = run.readable(0, run.rows)
    found = dict(zip(rows.tolist(), rows_of(entries, run.records(entries)), strict=True))
    verified = record_crcs(run.records(entries), entries["origin"]) == entries["crc"]
    served = {row for row, intact in zip(rows.tolist(), verified.tolist(), strict=True) if intact}
    assert all(found[row] == truth[row] for row in served)
    assert len(served) + damaged + int((~verified).sum()) == len(truth)
    assert damaged == 0 or run.problems
    readable = set(rows.tolist())
    due = np.array([truth[row].due_ms for row in sample])
    origins = np.array([truth[row].origin for row in sample], np.uint64)
    assert run.find(due, origins).tolist() == [row if row in readable else -1 for row in sample]
    having: dict[int, list[int]] = {}
    for row in sorted(readable):
        having.setdefault(truth[row].key, []).append(row)
    for key in {truth[row].key for row in sample}:
        assert [row for row in run.rows_of_key(key) if row in readable] == having.get(key, [])
    check_seconds(run, truth, readable, {truth[row].due_ms // 1000 for row in sample[:20]})
    return set(range(len(truth))) - served


def check_seconds(run: Run, truth: list[Row], readable: set[int], seconds: set[int]) -> None:
    for second in seconds:
        first, stop = run.row_at(second * 1000), run.row_at(second * 1000 + 1000)
        inside = {row for row in readable if first <= row < stop}
        assert inside == {row for row in readable if truth[row].due_ms // 1000 == second}
    counts = run.second_counts(second // 3_600, 0, run.rows)  # the last one's hour
    assert counts[second % 3_600] == stop - first


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_any_flipped_byte_is_noticed(step: int) -> None:
    disk, source = new_disk(), Source([HOUR_MS + 250 * (i % 7) for i in range(14)], size=4, keys=9)
    made(disk, source)
    truth = sorted_rows(source)
    path = run_path("runs", "a")
    size = disk.open(path).size()
    for at in range(0, size, step):
        bit = at % 8
        disk.flip(path, at, bit)
        try:
            run = opened(disk, "a")
        except HorologError as error:
            assert error.code is ErrorCode.DAMAGED
        else:
            lost = check_damaged(run, truth, range(len(truth)))
            in_groups = not lost
            assert len(lost) <= 1
            assert not in_groups or any("key group 0" in problem for problem in run.problems)
        disk.flip(path, at, bit)
    assert check_damaged(opened(disk, "a"), truth, range(len(truth))) == set()


@pytest.mark.parametrize("same_ms", [False, True])
def test_damage_in_a_large_run_misleads_no_search(same_ms: bool) -> None:
    disk, n = new_disk(), 5 * FENCE_ROWS + 300
    source = Source([HOUR_MS] * n, size=2) if same_ms else many(n, seconds=300, size=2)
    made(disk, source)
    truth = sorted_rows(source)
    chance = random.Random(3)
    for _ in range(6):
        flips = [
            (HEADER_BYTES + chance.randrange(64 * n), chance.randrange(8))
            for _ in range(chance.choice([1, 3, 300]))
        ]
        flips += [(HEADER_BYTES + 64 * (n // 2) + 24, 7)]  # where a binary search begins
        for flip in flips:
            disk.flip("runs/a.run", *flip)
        check_damaged(opened(disk, "a"), truth, range(0, n, 7))
        for flip in flips:
            disk.flip("runs/a.run", *flip)


def test_a_stretch_of_zeros_costs_only_its_own_rows() -> None:
    disk, n = new_disk(), 6 * FENCE_ROWS
    source = Source([HOUR_MS + i // 3_000 for i in range(n)], size=2)
    made(disk, source)
    truth = sorted_rows(source)
    disk.open("runs/a.run").write(HEADER_BYTES + 64 * 500, bytes(64 * 2_500))
    run = opened(disk, "a")
    assert check_damaged(run, truth, range(n)) == set(range(500, 3_000))
    assert run.problems == ["run a: 2500 index rows are damaged (first: row 500)"]
    # The fence of row 2 048 says that this row belongs to the first millisecond.
    assert [run.row_at(HOUR_MS + ms) for ms in range(4)] == [0, 2_049, 6_000, 6_144]


def test_a_damaged_key_group_is_scanned() -> None:
    disk, n = new_disk(), GROUP_ROWS + 100
    source = many(n, keys=1 << 40, size=1)
    made(disk, source)
    groups_at = layout_of(n, int(source.entries["size"].sum()), 0).key_groups_at
    disk.flip("runs/a.run", groups_at + 12_345, 3)
    run = opened(disk, "a")
    assert check_damaged(run, sorted_rows(source), range(0, n, 1_000)) == set()
    assert run.problems == ["run a: key group 0 is damaged; its rows are scanned instead"]


def test_problems_are_said_once_and_bounded() -> None:
    disk = new_disk()
    made(disk, source := many(3_000))
    for row in range(0, 3_000, 10):
        disk.flip("runs/a.run", HEADER_BYTES + 64 * row + 33, 1)
    run = opened(disk, "a")
    assert run.readable(10, 30)[2] == 2
    assert run.readable(10, 30)[2] == 2
    assert run.problems == ["run a: 2 index rows are damaged (first: row 10)"]
    run.readable(10, 40)
    assert run.problems[1:] == ["run a: 1 index rows are damaged (first: row 30)"]
    for row in range(3_000):
        run.readable(row, row + 1)
    assert len(run.problems) == PROBLEMS_MAX
    assert len(source.entries) == 3_000


def test_a_large_directory_is_checked_before_it_is_used() -> None:
    disk, n = new_disk(), 60_000
    source = Source([HOUR_MS * (i // 3 + 1) for i in range(n)], size=1)
    source.entries["topic"] = np.arange(n)
    source.sum_up()
    made(disk, source)
    assert len(opened(disk, "a").directory) == n
    disk.flip("runs/a.run", disk.open("runs/a.run").size() - FOOTER_BYTES - 500, 1)
    run = opened(disk, "a")
    assert code_of(lambda: run.directory) is ErrorCode.DAMAGED


# --- crashes ----------------------------------------------------------------------------------------


def effects_of(disk: FaultyDisk, call: Any, stop_at: int | None) -> int:
    """Run until effect number `stop_at`; how many there were."""
    count = 0

    def effect(_: str) -> None:
        nonlocal count
        if count == stop_at:
            raise Killed
        count += 1

    disk.on_effect = effect
    try:
        call()
    except Killed:
        pass
    finally:
        disk.on_effect = None
    return count


def test_a_crash_leaves_a_whole_run_or_one_that_is_refused() -> None:
    source, old = many(3_000, size=30), many(40)
    truth, old_truth = sorted_rows(source), sorted_rows(old)
    effects = effects_of(disk := new_disk(), lambda: source.flush(disk, "a"), None)
    assert effects > 10
    outcomes = set()
    for stop_at in range(effects + 1):
        for seed in range(12):
            disk = new_disk(seed)
            if seed % 3 == 0:
                old.flush(disk, "a")
                disk.sync_dir("runs")
            effects_of(disk, lambda: source.flush(disk, "a"), stop_at)  # noqa: B023 - called at once
            disk.crash(power_cut=seed % 4 != 0)
            try:
                found = content(opened(disk, "a"))
            except HorologError as error:
                assert error.code is ErrorCode.DAMAGED
                assert stop_at <= effects
                outcomes.add("refused")
            else:
                assert found == truth or (seed % 3 == 0 and found == old_truth)
                outcomes.add("whole" if found == truth else "old")
    assert outcomes == {"whole", "old", "refused"}


def test_a_full_disk_leaves_nothing_behind() -> None:
    source = many(500)
    source.flush(disk := new_disk(), "a")
    needed = disk.used_bytes()
    for capacity in [*range(0, needed, 997), needed - 1]:
        disk = new_disk(capacity_bytes=capacity)
        assert code_of(lambda: source.flush(disk, "a")) is ErrorCode.DISK_FULL  # noqa: B023
        assert disk.names() == ()
    source.flush(disk := new_disk(capacity_bytes=needed), "a")
    assert opened(disk, "a").rows == 500


def test_a_failed_sync_or_removal_is_an_error() -> None:
    source, disk = many(50), new_disk()
    for after in range(2):
        disk.fail_next("sync", after)
        assert code_of(lambda: source.flush(disk, "a")) is ErrorCode.DISK_FAILED
        assert disk.names() == ()
    disk.fail_next("write")
    disk.fail_next("remove")
    assert code_of(lambda: source.flush(disk, "a")) is ErrorCode.DISK_FAILED
    assert code_of(lambda: opened(disk, "a")) is ErrorCode.DAMAGED
