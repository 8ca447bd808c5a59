"""Key runs: look-ups against a scan, restarts, damage, full disks (`delay.entry_keys`, `delay.key_run`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from horolog.delay.entry_keys import KeyRuns
from horolog.delay.key_run import (
    HEADER_BYTES,
    encode_key_run,
    key_run_name,
    load_key_run,
    parse_key_run_name,
)
from horolog.errors import ErrorCode, HorologError
from horolog.limits import CONTROL_RESERVE_BYTES
from horolog.log.key_merge import Columns, merge_slices, sorted_columns
from horolog.storage.api import Storage, read_file
from horolog.storage.disk import Disk
from horolog.testing.disk import FaultyDisk

ROWS = 8  # of the buffer: runs have 8, 64 and 512 rows
DIR = "hour"


@pytest.fixture(params=["faulty", "real"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    made: Storage = FaultyDisk() if request.param == "faulty" else Disk(tmp_path)
    made.make_dir(DIR)
    return made


def some_keys(count: int, seed: int = 1) -> np.ndarray:
    """Keys with the whole range, and a few that repeat often."""
    random = np.random.default_rng(seed)
    keys = random.integers(0, 1 << 64, count, dtype=np.uint64)
    return np.where(random.random(count) < 0.2, keys % np.uint64(5), keys)


def filled(storage: Storage, keys: np.ndarray, batch: int = 7) -> KeyRuns:
    runs = KeyRuns(storage, DIR, buffer_rows=ROWS)
    for at in range(0, len(keys), batch):
        runs.add(keys[at : at + batch])
    return runs


def reader(keys: np.ndarray, asked: list[tuple[int, int]]) -> Callable[[int, int], np.ndarray]:
    def read(first: int, stop: int) -> np.ndarray:
        asked.append((first, stop))
        return keys[first:stop]

    return read


def reopened(
    storage: Storage, keys: np.ndarray, asked: list[tuple[int, int]] | None = None
) -> KeyRuns:
    runs = KeyRuns(storage, DIR, buffer_rows=ROWS)
    runs.open(len(keys), reader(keys, [] if asked is None else asked))
    return runs


def check(runs: KeyRuns, keys: np.ndarray) -> None:
    """Everything is found, nothing else."""
    assert runs.count == len(keys)
    wanted = np.unique(np.concatenate([keys, np.array([0, 9, 1 << 63], np.uint64)]))
    for key in wanted[:: max(1, len(wanted) // 200)].tolist():
        assert runs.find(key) == np.flatnonzero(keys == np.uint64(key)).tolist()


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 64, 65, 511, 1_300])
@pytest.mark.parametrize("batch", [1, 7, 2_000])
def test_finds_what_a_scan_finds(storage: Storage, count: int, batch: int) -> None:
    keys = some_keys(count)
    runs = filled(storage, keys, batch)
    check(runs, keys)
    runs.close()


def test_runs_stay_few(storage: Storage) -> None:
    keys = some_keys(5_000)
    runs = filled(storage, keys)
    # 9 of 512 rows and what is not merged yet: 7 of each smaller size, and the inputs of merges under way
    assert len(storage.list(DIR)) <= 9 + 7 + 7 + 8 + 8
    runs.close()


def test_added_keys_are_copied(storage: Storage) -> None:
    runs = KeyRuns(storage, DIR, buffer_rows=ROWS)
    keys = np.array([1, 2, 3], np.uint64)
    runs.add(keys)
    keys[:] = 9
    assert runs.find(2) == [1]
    assert runs.find(9) == []


@pytest.mark.parametrize("count", [0, 5, 8, 100, 700, 1_300])
def test_reopened_at_any_length(storage: Storage, count: int) -> None:
    keys = some_keys(1_300)
    filled(storage, keys).close()
    runs = reopened(storage, keys[:count])
    check(runs, keys[:count])
    other = some_keys(900, seed=2)  # replay files other messages after the cut
    runs.add(other)
    check(runs, np.concatenate([keys[:count], other]))
    runs.close()


def test_a_start_reads_only_what_no_run_has(storage: Storage) -> None:
    keys = some_keys(64 * 3 + 5)
    filled(storage, keys, batch=1).close()
    asked: list[tuple[int, int]] = []
    runs = reopened(storage, keys, asked)
    assert asked == [(64 * 3, len(keys))]
    runs.close()


def flip(storage: Storage, name: str, offset: int) -> None:
    file = storage.open(f"{DIR}/{name}")
    file.write(offset, bytes([file.read(offset, 1)[0] ^ 0x10]))
    file.close()


@pytest.mark.parametrize("offset", [*range(HEADER_BYTES), HEADER_BYTES + 3, HEADER_BYTES + 8 * 64])
def test_a_flipped_bit_is_noticed(storage: Storage, offset: int) -> None:
    keys = some_keys(64 * 3)
    filled(storage, keys, batch=1).close()
    flip(storage, key_run_name(64, 64), offset)
    asked: list[tuple[int, int]] = []
    runs = reopened(storage, keys, asked)
    check(runs, keys)
    assert (asked[0][0], asked[-1][1]) == (64, 128), "only the damaged run is read again"
    runs.close()
    again = reopened(storage, keys, asked := [])
    check(again, keys)
    assert not asked, "it was written again"
    again.close()


def test_damage_does_not_get_into_a_merged_run(storage: Storage) -> None:
    keys = some_keys(64 * 8)
    filled(storage, keys[: 64 * 7], batch=1).close()
    flip(storage, key_run_name(64, 64), HEADER_BYTES + 5)
    runs = reopened(storage, keys[: 64 * 7])
    runs.add(keys[64 * 7 :])
    runs.add(some_keys(200, seed=3))
    runs.close()
    assert key_run_name(0, 512) in storage.list(DIR)
    check(reopened(storage, keys), keys)


@pytest.mark.parametrize("length", [0, 1, 31, 32, 500])
def test_a_cut_file_is_dropped(storage: Storage, length: int) -> None:
    keys = some_keys(64 * 2)
    filled(storage, keys, batch=1).close()
    file = storage.open(f"{DIR}/{key_run_name(0, 64)}")
    file.truncate(length)
    file.close()
    runs = reopened(storage, keys)
    check(runs, keys)
    runs.close()


def test_files_that_do_not_belong_are_removed(storage: Storage) -> None:
    keys = some_keys(64 * 3)
    filled(storage, keys, batch=1).close()
    keys = keys[:128]
    columns = sorted_columns(keys[32:96])
    zeros = np.zeros(0, np.uint64)
    planted = {
        key_run_name(32, 64): encode_key_run(32, columns.keys, columns.rows),  # overlaps two others
        key_run_name(64, 128): encode_key_run(64, np.zeros(128), np.zeros(128)),  # beyond the end
        key_run_name(128, 0): encode_key_run(128, zeros, zeros),
        "keys.tmp": b"",
        "keys.64.64": b"HLKR",
        "keys.00000000٣2.0000000008": b"",
        "keys.0000000000.0000000064.tmp": b"x",
    }
    for name, content in planted.items():
        file = storage.open(f"{DIR}/{name}", create=True)
        file.write(0, content)
        file.close()
    storage.open(f"{DIR}/delay.idx", create=True).close()
    runs = reopened(storage, keys)
    check(runs, keys)
    assert storage.list(DIR) == ["delay.idx", key_run_name(0, 64), key_run_name(64, 64)]
    runs.close()


def test_an_unfinished_merge_is_dropped(storage: Storage) -> None:
    keys = some_keys(64)
    runs = KeyRuns(storage, DIR, buffer_rows=ROWS)
    for key in keys:
        runs.add(np.array([key]))  # small steps, so that the merge has begun and is not done
    assert key_run_name(0, 64) in storage.list(DIR)
    assert key_run_name(0, 8) in storage.list(DIR)
    check(runs, keys)
    runs.close()
    runs = reopened(storage, keys, asked := [])
    assert key_run_name(0, 64) not in storage.list(DIR)
    assert asked == []
    check(runs, keys)
    runs.close()


class Full:
    """Lets writes and new files fail as on a full disk while `full`."""

    def __init__(self, disk: FaultyDisk, code: ErrorCode = ErrorCode.DISK_FULL) -> None:
        self.full = True
        self.code = code
        disk.on_effect = self

    def __call__(self, effect: str) -> None:
        if self.full and effect.split(maxsplit=1)[0] in {"write", "create"}:
            raise HorologError(self.code, effect)


def test_a_full_disk_is_survived_and_made_up_for() -> None:
    disk = FaultyDisk()
    disk.make_dir(DIR)
    keys = some_keys(900)
    runs = filled(disk, keys[:200])
    full = Full(disk)
    runs.add(keys[200:500])
    check(runs, keys[:500])
    full.full = False
    runs.add(keys[500:])
    check(runs, keys)
    runs.close()
    runs = reopened(disk, keys, asked := [])
    assert asked == [(896, 900)], "all full buffers were written"
    check(runs, keys)


def test_a_disk_that_fills_up_in_a_merge() -> None:
    disk = FaultyDisk()
    disk.make_dir(DIR)
    keys = some_keys(900)
    runs = filled(disk, keys[:64], batch=1)
    full = Full(disk)
    runs.add(keys[64:66])  # a step of the merge
    assert key_run_name(0, 64) not in disk.list(DIR)
    full.full = False
    for at in range(66, 900):
        runs.add(keys[at : at + 1])
    assert key_run_name(0, 512) in disk.list(DIR), "tried again later"
    check(runs, keys)


def test_no_merge_takes_the_control_reserve() -> None:
    disk = FaultyDisk(capacity_bytes=CONTROL_RESERVE_BYTES)
    disk.make_dir(DIR)
    runs = filled(disk, some_keys(200))
    assert disk.list(DIR) == [key_run_name(at, 8) for at in range(0, 200, 8)]
    check(runs, some_keys(200))


def test_any_other_failure_is_raised() -> None:
    disk = FaultyDisk()
    disk.make_dir(DIR)
    runs = KeyRuns(disk, DIR, buffer_rows=ROWS)
    Full(disk, ErrorCode.DISK_FAILED)
    with pytest.raises(HorologError) as caught:
        runs.add(some_keys(8))
    assert caught.value.code is ErrorCode.DISK_FAILED


def test_the_file_is_as_documented(storage: Storage) -> None:
    runs = KeyRuns(storage, DIR, buffer_rows=4)
    runs.add(np.array([0x3, 0x102030405060708, 0x3, 0x1], np.uint64))
    runs.close()
    assert read_file(storage, f"{DIR}/keys.0000000000.0000000004").hex(" ", 8) == (
        "484c4b5201000000 0000000000000000 04000000118764cb 0000000021dc1b83 "
        "0100000000000000 0300000000000000 0300000000000000 0807060504030201 "
        "0300000000000000 0200000001000000"
    )
    loaded = load_key_run(storage, DIR, "keys.0000000000.0000000004")
    assert loaded is not None
    assert not loaded.is_damaged()


def test_names_of_runs() -> None:
    assert parse_key_run_name(key_run_name(3, 4)) == (3, 4)
    assert parse_key_run_name(key_run_name(4_294_967_295, 12_345_678_901)) == (
        4_294_967_295,
        12_345_678_901,
    )
    for name in ("keys", "keys.3.4", "keys.0000000003.000000000x", "kyes.0000000003.0000000004"):
        assert parse_key_run_name(name) == (0, 0)


def test_slices_are_bounded_and_in_order() -> None:
    inputs = []
    for n, size in enumerate([0, 1, 100, 1_000]):
        keys = np.sort(some_keys(size, seed=n) % np.uint64(400))
        inputs.append(Columns(keys, np.arange(size, dtype=np.uint32), offset=1_000 * n))
    slices = list(merge_slices(inputs, 64))
    keys = np.concatenate([each.keys for each in slices])
    rows = np.concatenate([each.rows for each in slices])
    expected = sorted(
        (int(key), int(row) + each.offset)
        for each in inputs
        for key, row in zip(each.keys, each.rows, strict=True)
    )
    assert list(zip(keys.tolist(), rows.tolist(), strict=True)) == expected
    most = max(np.unique(keys, return_counts=True)[1])
    assert all(0 < len(each.keys) <= 64 + 4 + most for each in slices)


def test_one_key_for_everything(storage: Storage) -> None:
    keys = np.full(1_200, 7, np.uint64)
    runs = filled(storage, keys)
    assert runs.find(7) == list(range(1_200))
    runs.close()


def test_merging_nothing() -> None:
    assert list(merge_slices([], 64)) == []
    assert list(merge_slices([sorted_columns(np.empty(0, np.uint64))], 64)) == []


@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_is_cut_while_it_is_mapped_is_made_again(tmp_path: Path, restarted) -> None:
    """Reading what is not there any more would end the process."""
    storage = Disk(tmp_path)
    storage.make_dir(DIR)
    rows = 4_096  # of more than a page
    keys = some_keys(rows * 3)
    read = reader(keys, [])
    runs = KeyRuns(storage, DIR, buffer_rows=rows, read_keys=read)
    if restarted:
        runs.add(keys)
        runs.close()
        runs.open(len(keys), read)
    else:
        runs.add(keys)
    for name in storage.list(DIR)[::2]:
        storage.open(f"{DIR}/{name}").truncate(HEADER_BYTES)
    check(runs, keys)
    assert {(tmp_path / DIR / name).stat().st_size for name in storage.list(DIR)} == {
        HEADER_BYTES + 12 * rows
    }
    runs.close()
