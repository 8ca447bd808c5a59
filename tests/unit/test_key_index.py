"""The log key index: look-ups against a list, restarts, power cuts, damage, full disks, retention (`log.key_index`)."""

from __future__ import annotations

import numpy as np
import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.log.key_index import KeyIndex, chunk_rows_for
from horolog.log.key_rows import (
    HEADER_BYTES,
    NOTHING_BEFORE,
    ROW_BYTES,
    ChunkHeader,
    chunk_name,
    decode_header,
    encode_header,
    sealed_bytes,
)
from horolog.storage.disk import Disk
from horolog.testing.disk import FaultyDisk

LOG_ID = 0xABCD
ROWS = 64  # a chunk


def opened(disk, chunk_rows: int = ROWS) -> KeyIndex:
    disk.make_dir("keys")
    return KeyIndex(disk, "keys", log_id=LOG_ID, chunk_rows=chunk_rows)


def some_keys(count: int, seed: int = 1, distinct: int = 1 << 40) -> np.ndarray:
    """Hashes, some of which repeat and many of which share a slot."""
    picks = np.random.default_rng(seed).integers(0, distinct, count, np.uint64)
    return picks * np.uint64(0x9E3779B97F4A7C15) ^ picks >> np.uint64(7)


def filled(index: KeyIndex, keys: np.ndarray, *, step: int = 7, first: int = 0) -> np.ndarray:
    positions = (np.arange(first, first + len(keys)) * 100 + 64).astype(np.uint64)
    for at in range(0, len(keys), step):
        index.add(keys[at : at + step], positions[at : at + step])
    return positions


def checkpointed(index: KeyIndex, disk) -> dict[str, int]:
    """What a checkpoint does: everything durable, and what it says."""
    for path in index.sync_paths():
        disk.open(path).sync()
    disk.sync_dir("keys")
    captured = index.captured()
    index.synced()
    return captured


def same_as_list(index: KeyIndex, keys: np.ndarray, positions: np.ndarray, least: int = 0) -> None:
    pairs = list(zip(keys.tolist(), positions.tolist(), strict=True))
    wanted = np.unique(np.concatenate([keys, some_keys(20, seed=99)]))
    for key in wanted.tolist():
        expected = [p for k, p in pairs if k == key]
        assert index.find(key) == expected
    at, found = index.find_many(wanted, least)
    places = {key: i for i, key in enumerate(wanted.tolist())}
    expected_pairs = sorted((places[k], p) for k, p in pairs if p >= least)
    assert list(zip(at.tolist(), found.tolist(), strict=True)) == expected_pairs


@pytest.fixture(params=["faulty", "real"])
def disk(request, tmp_path):
    return FaultyDisk(1) if request.param == "faulty" else Disk(tmp_path)


@pytest.mark.parametrize("count", [0, 1, 5, 63, 64, 65, 128, 129, 700])
@pytest.mark.parametrize("distinct", [1 << 40, 9])
def test_finds_what_a_list_finds(disk, count: int, distinct: int) -> None:
    index = opened(disk)
    keys = some_keys(count, distinct=distinct)
    positions = filled(index, keys)
    assert index.count == count
    same_as_list(index, keys, positions)
    assert index.flush()
    same_as_list(index, keys, positions)
    same_as_list(index, keys, positions, least=int(positions[count // 2]) if count else 0)
    found = [key for part in index.keys_from(3_000) for key in part.tolist()]
    assert found == keys[positions >= 3_000].tolist()
    index.close()


def test_a_large_batch_goes_over_several_chunks(disk) -> None:
    index = opened(disk)
    keys = some_keys(9_000)
    positions = filled(index, keys, step=9_000)
    assert index.flush()
    at, found = index.find_many(keys)
    assert at.tolist() == list(range(9_000))
    assert found.tolist() == positions.tolist()
    assert index.find(int(keys[8_999])) == [int(positions[-1])]
    names = disk.list("keys")
    assert len(names) == -(-9_000 // ROWS)
    header = decode_header(disk.open(f"keys/{names[1]}").read(0, HEADER_BYTES))
    assert header == ChunkHeader(LOG_ID, ROWS, int(positions[ROWS - 1]), ROWS)
    index.close()


def test_a_chunk_is_sealed_whole_before_the_next_one_fills(disk) -> None:
    """A full disk lets the part in memory grow, so one write may fill chunks that seal in steps."""
    rows = 32 * 1_024  # two steps
    index = opened(disk, rows)
    keys = some_keys(3 * rows + 1)
    positions = filled(index, keys, step=len(keys))
    captured = checkpointed(index, disk)
    assert captured == {"rows": len(keys), "sealed": 2 * rows}  # the third has a step to go
    index.close()
    index = opened(disk, rows)
    assert index.restore(captured, 0) == ""
    for row in (0, rows, 2 * rows, 3 * rows):
        assert index.find(int(keys[row])) == [int(positions[row])]
    assert index.problems == []
    index.close()


@pytest.mark.parametrize("count", [0, 1, 60, 64, 100, 128, 300])
def test_a_start_goes_on_at_the_checkpoint(disk, count: int) -> None:
    """Rows after the checkpoint are not there, also if they were written; replay brings them again."""
    index = opened(disk)
    keys = some_keys(count + 200)
    positions = filled(index, keys[:count])
    captured = checkpointed(index, disk)
    filled(index, keys[count : count + 150], first=count)
    index.flush()
    index.close()
    index = opened(disk)
    assert index.restore(captured, 0) == ""
    assert index.count == count
    same_as_list(index, keys[:count], positions)
    later = filled(index, keys[count:], first=count)
    same_as_list(index, keys, np.concatenate([positions, later]))
    again = checkpointed(index, disk)
    index.close()
    index = opened(disk)
    assert index.restore(again, 0) == ""
    same_as_list(index, keys, np.concatenate([positions, later]))
    assert index.problems == []
    index.close()


@pytest.mark.parametrize("seed", range(40))
def test_what_a_checkpoint_names_survives_power_cuts(seed: int) -> None:
    disk = FaultyDisk(seed)
    random = np.random.default_rng(seed)
    index = opened(disk)
    keys = some_keys(1_000, seed)
    kept, captured = 0, {"rows": 0, "sealed": 0}
    for _ in range(8):
        more = int(random.integers(0, 90))
        filled(index, keys[index.count : index.count + more], first=index.count)
        if random.random() < 0.5:
            index.flush()
        if random.random() < 0.6:
            captured = checkpointed(index, disk)
            kept = captured["rows"]
        if random.random() < 0.5:
            disk.crash(power_cut=random.random() < 0.7)
            index = opened(disk)
            assert index.restore(captured, 0) == ""
            assert index.count == kept
        positions = (np.arange(index.count) * 100 + 64).astype(np.uint64)
        same_as_list(index, keys[: index.count], positions)
    assert index.problems == []


def test_retention_drops_rows_at_once_and_files_when_nobody_syncs_them() -> None:
    disk = FaultyDisk(1)
    index = opened(disk)
    keys = some_keys(300)
    positions = filled(index, keys)
    paths = index.sync_paths()
    captured = index.captured()
    index.drop_below(int(positions[130]))
    assert all(disk.exists(path) for path in paths), "a sync under way opens them"
    same_as_list(index, keys[130:], positions[130:])
    assert index.find(int(keys[129])) == []
    for path in paths:
        disk.open(path).sync()
    disk.sync_dir("keys")
    index.synced()
    assert disk.list("keys")[0] == chunk_name(128)
    disk.crash(power_cut=False)
    index = opened(disk)
    assert index.restore(captured, int(positions[130])) == ""
    same_as_list(index, keys[130:], positions[130:])
    index.drop_below(1 << 60)
    assert len(disk.list("keys")) == 1, "the newest chunk stays, so that rows can be counted on"
    assert index.find(int(keys[299])) == []
    filled(index, keys[:10], first=1 << 55)
    assert index.count == 310


def test_files_that_retention_did_not_drop_are_missed() -> None:
    disk = FaultyDisk(1)
    index = opened(disk)
    keys = some_keys(300)
    positions = filled(index, keys)
    captured = checkpointed(index, disk)
    disk.remove(f"keys/{chunk_name(64)}")
    disk.crash(power_cut=False)
    assert "lacks files up to log position" in opened(disk).restore(captured, 0)
    index = opened(disk)
    assert index.restore(captured, int(positions[128])) == "", "the log begins after them"
    same_as_list(index, keys[128:], positions[128:])
    assert chunk_name(0) not in disk.list("keys")


@pytest.mark.parametrize("harm", ["short", "row", "header", "foreign", "gone", "last row"])
def test_a_file_that_is_bad_at_start_is_reported(harm: str) -> None:
    disk = FaultyDisk(1)
    index = opened(disk)
    filled(index, some_keys(100))
    captured = checkpointed(index, disk)
    path = f"keys/{chunk_name(64)}"
    match harm:
        case "short":
            disk.open(path).truncate(HEADER_BYTES + 35 * ROW_BYTES)
        case "row":
            disk.flip(path, HEADER_BYTES + 3 * ROW_BYTES + 9, 2)
        case "header":
            disk.flip(path, 9, 1)
        case "foreign":
            disk.open(path).write(0, encode_header(ChunkHeader(7, 64, 64, ROWS)))
        case "gone":
            disk.remove(path)
        case "last row":
            disk.flip(f"keys/{chunk_name(0)}", HEADER_BYTES + 63 * ROW_BYTES + 8, 0)
    disk.crash(power_cut=False)
    index = opened(disk)
    assert index.restore(captured, 0) != ""
    index.clear()
    assert disk.list("keys") == []
    keys = some_keys(100)
    positions = filled(index, keys)
    same_as_list(index, keys, positions)


@pytest.mark.parametrize("part", ["key", "position", "previous", "sum", "head", "crcs", "trailer"])
def test_damage_in_a_sealed_chunk_is_reported_and_never_believed(part: str) -> None:
    """Every byte of each field, one flip each: what is found is right, only the damaged row may be missing."""
    keys = some_keys(100)
    for byte in range(4):
        disk = FaultyDisk(1)
        index = opened(disk)
        positions = filled(index, keys)
        captured = checkpointed(index, disk)
        disk.crash(power_cut=False)
        heads = HEADER_BYTES + ROWS * ROW_BYTES
        slot = int(keys[20] >> np.uint64(58))
        at = {
            "key": HEADER_BYTES + 20 * ROW_BYTES,
            "position": HEADER_BYTES + 20 * ROW_BYTES + 8,
            "previous": HEADER_BYTES + 20 * ROW_BYTES + 16,
            "sum": HEADER_BYTES + 20 * ROW_BYTES + 20,
            "head": heads + 4 * slot,
            "crcs": heads + 4 * ROWS,
            "trailer": sealed_bytes(ROWS) - 4,
        }[part]
        disk.flip(f"keys/{chunk_name(0)}", at + byte, byte)
        index = opened(disk)
        assert index.restore(captured, 0) == ""
        lost = part in ("key", "position", "previous", "sum")
        for i, key in enumerate(keys.tolist()):
            expected = [] if lost and i == 20 else [int(positions[i])]
            assert index.find(key) == expected
        at_key, found = index.find_many(keys)
        assert found.tolist() == [int(p) for i, p in enumerate(positions) if not (lost and i == 20)]
        assert len(at_key) == len(found)
        assert len(index.problems) == 1
        assert "damaged" in index.problems[0].text


def test_a_cleared_index_forgets_reported_damage_and_where_it_began() -> None:
    keys = some_keys(100)
    disk = FaultyDisk(1)
    index = opened(disk)
    filled(index, keys)
    captured = checkpointed(index, disk)
    disk.crash(power_cut=False)
    disk.flip(f"keys/{chunk_name(0)}", HEADER_BYTES + 20 * ROW_BYTES, 0)
    index = opened(disk)
    assert index.restore(captured, 0) == ""
    index.begin_at(5_000)
    index.find_many(keys)
    assert len(index.problems) == 1
    index.clear()
    index.check_invariants()
    positions = filled(index, keys)
    same_as_list(index, keys, positions)
    index.check_invariants()


def test_a_full_disk_makes_the_part_in_memory_grow_until_space_returns() -> None:
    disk = FaultyDisk(1)
    index = opened(disk)
    keys = some_keys(12_000)
    positions = filled(index, keys[:50])
    index.flush()
    disk.capacity_bytes = disk.used_bytes() + 500
    later = filled(index, keys[50:], first=50)
    positions = np.concatenate([positions, later])
    assert not index.flush()
    with pytest.raises(HorologError) as caught:
        index.sync_paths()
    assert caught.value.code is ErrorCode.DISK_FULL
    same_as_list(index, keys[:300], positions[:300])
    disk.capacity_bytes = None
    captured = checkpointed(index, disk)
    assert captured["rows"] == 12_000
    disk.crash(power_cut=True)
    index = opened(disk)
    assert index.restore(captured, 0) == ""
    at, found = index.find_many(keys)
    assert at.tolist() == list(range(12_000))
    assert found.tolist() == positions.tolist()


def test_a_failing_disk_is_raised() -> None:
    disk = FaultyDisk(1)
    index = opened(disk)
    filled(index, some_keys(10))
    disk.fail_next("write")
    with pytest.raises(HorologError) as caught:
        index.flush()
    assert caught.value.code is ErrorCode.DISK_FAILED


def test_chunks_fit_the_segments() -> None:
    assert chunk_rows_for(256 << 20) == 1 << 20
    assert chunk_rows_for(1 << 40) == 1 << 20
    assert chunk_rows_for(65_536) == 256
    assert chunk_rows_for(1) == 64
    assert decode_header(b"") is None
    header = ChunkHeader(1, 2, NOTHING_BEFORE, 64)
    assert decode_header(encode_header(header)) == header
    assert decode_header(encode_header(header._replace(capacity=65))) is None


@pytest.mark.parametrize("rows", [1_024, 4_096], ids=["sealed", "open"])
def test_a_file_that_is_cut_while_it_is_mapped_is_reported(tmp_path, rows: int) -> None:
    """Reading what is not there any more would end the process; the rest of the rows is found."""
    disk = Disk(tmp_path)
    index = opened(disk, rows)
    keys = some_keys(2_500)
    positions = filled(index, keys, step=500)
    assert index.flush()
    same_as_list(index, keys[::50], positions[::50])
    name = disk.list("keys")[0]
    disk.open(f"keys/{name}").truncate(HEADER_BYTES + 100 * ROW_BYTES)
    kept = [0, 50, 2_450] if rows < 2_500 else [0, 50]
    for i in kept:
        assert index.find(int(keys[i])) == [int(positions[i])]
    assert index.find(int(keys[500])) == []
    at, found = index.find_many(keys[kept])
    assert (at.tolist(), found.tolist()) == (list(range(len(kept))), positions[kept].tolist())
    assert any("cut while the broker ran" in each.text for each in index.problems)
    index.close()


@pytest.mark.parametrize("place", [20, 80], ids=["sealed", "open"])
@pytest.mark.parametrize("part", ["key", "position", "previous", "sum", "head"])
def test_damage_in_rows_of_this_process_misleads_nobody(part: str, place: int) -> None:
    """A chain must not lead out of the file, or round and round; only the damaged row may be missing."""
    if part == "head" and place == 80:
        return  # those of an open chunk are in memory
    keys = some_keys(100)
    for byte in range(4):
        disk = FaultyDisk(1)
        index = opened(disk)
        positions = filled(index, keys)
        assert index.flush()
        while index.captured()["sealed"] < ROWS:
            assert index.flush()
        row = HEADER_BYTES + place % ROWS * ROW_BYTES
        slot = int(keys[place] >> np.uint64(58))
        at = {
            "key": row,
            "position": row + 8,
            "previous": row + 16,
            "sum": row + 20,
            "head": HEADER_BYTES + ROWS * ROW_BYTES + 4 * slot,
        }[part]
        for bit in (0, 7):
            disk.flip(f"keys/{chunk_name(place // ROWS * ROWS)}", at + byte, bit)
        lost = part != "head"
        for i, key in enumerate(keys.tolist()):
            assert index.find(key) == ([] if lost and i == place else [int(positions[i])])
        found = index.find_many(keys)[1].tolist()
        assert found == [int(p) for i, p in enumerate(positions) if not (lost and i == place)]
        assert len(index.problems) == 1
        assert "damaged" in index.problems[0].text
