"""A flipped byte or a lost page of the log costs what lies there, and no tool more than that.

`verify` and `backup` here; the audit and the Spark source in tests/spark/test_damaged_log.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from backing_up import back_up, restore
from damaged_log import (
    KINDS,
    SEGMENT,
    DamagedFrames,
    damage_log,
    frames_of,
    open_directory,
)

from horolog.backup.manifest import Manifest, decode_manifest, encode_manifest, read_manifest
from horolog.backup.status import BackupState, BackupView
from horolog.log.frame import HEADER_BYTES
from horolog.log.frame_watch import FrameWatch
from horolog.storage.disk import Disk
from horolog.verify.directory import Verdict, verify_directory

DEADLINE_S = 60.0


def verify(data_dir: Path) -> Verdict:
    return verify_directory(Disk(data_dir, read_only=True))


def backed_up(data_dir: Path, backup: Path) -> BackupView:
    async def begin_and_end() -> BackupView:
        engine = await open_directory(data_dir)
        try:
            return await back_up(engine, backup)
        finally:
            await engine.stop()

    return asyncio.run(asyncio.wait_for(begin_and_end(), DEADLINE_S))


def manifest_of(backup: Path) -> Manifest:
    manifest = read_manifest(Disk(backup), "x")
    assert manifest is not None
    return manifest


@pytest.mark.parametrize("part", [0.0, 0.2, 0.8])
@pytest.mark.parametrize("how", KINDS)
def test_verify_names_a_hole_once_and_counts_what_lies_in_it(
    data_dir: Path, how: str, part: float
) -> None:
    before = verify(data_dir)
    assert before.clean
    damage = damage_log(data_dir, how, part)
    found = verify(data_dir)
    assert (found.holes, found.hole_bytes) == (1, damage.bytes)
    assert found.frames == before.frames - len(damage.frames)
    # Nobody points a finger at queues, keys or hours that have lost nothing themselves.
    assert {finding.file.rpartition("/")[0] for finding in found.findings.kept} == {"shard-00/log"}
    assert found.findings.kept[0].position == damage.first
    assert all("cannot be read" in finding.what for finding in found.findings.kept)
    scheduled = before.scheduled - found.scheduled
    assert found.lost + scheduled == damage.messages
    notes = [note for note in found.findings.notes if "lie in holes of the log" in note]
    assert sum(int(note.split(": ")[1].split()[0]) for note in notes) == found.lost
    assert verify(data_dir).as_json()["holes"] == 1


def test_a_page_at_the_end_of_the_log_is_a_hole_as_well(data_dir: Path) -> None:
    damage_log(data_dir, "page", 0.9999)
    found = verify(data_dir)
    assert found.holes == 1
    assert {finding.file.rpartition("/")[0] for finding in found.findings.kept} == {"shard-00/log"}
    assert found.lost > 200  # most hand-overs stood in one frame


@pytest.mark.parametrize("how", KINDS)
def test_a_backup_copies_what_is_there_and_says_what_is_damaged(
    data_dir: Path, tmp_path: Path, how: str
) -> None:
    damage = damage_log(data_dir, how, 0.2)
    view = backed_up(data_dir, tmp_path / "backup")
    assert (view.state, view.error) == (BackupState.DONE, None)
    assert view.damaged[0].startswith("shard-00/log/00000000000000000000.log at ")
    manifest = manifest_of(tmp_path / "backup")
    assert manifest.damaged[0].position == damage.first
    size = sum(int(each.what.split()[0]) for each in manifest.damaged)
    assert size == damage.bytes
    restore(tmp_path / "backup", tmp_path / "restored")
    assert verify(tmp_path / "restored").hole_bytes == damage.bytes


def test_damage_is_reported_again_while_the_copy_is_used_again(
    data_dir: Path, tmp_path: Path
) -> None:
    damage_log(data_dir, "body", 0.2)
    first, second = (backed_up(data_dir, tmp_path / "backup") for _ in range(2))
    assert second.number == first.number + 1
    assert second.damaged == first.damaged
    assert second.copied_bytes < first.copied_bytes


def test_a_segment_that_is_lost_is_taken_from_the_backup_before(
    data_dir: Path, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    view = backed_up(data_dir, backup)
    assert view.damaged == ()
    segment = f"{0:020d}.log"
    former = backup / "000001/shard-00/log" / segment
    whole = former.read_bytes()

    async def lose_it() -> list[BackupView]:
        engine = await open_directory(data_dir)
        try:
            (data_dir / "shard-00/log" / segment).rename(tmp_path / "away")
            views = [await back_up(engine, backup), await back_up(engine, backup)]
            (tmp_path / "away").rename(data_dir / "shard-00/log" / segment)
            return [*views, await back_up(engine, backup)]
        finally:
            await engine.stop()

    lost, again, repaired = asyncio.run(asyncio.wait_for(lose_it(), DEADLINE_S))
    for each in (lost, again):
        assert each.state is BackupState.DONE
        assert f"shard-00/log/{segment} at 0: the file is missing" in each.damaged[0]
        assert "the copy of the backup before is whole" in each.damaged[0]
    assert repaired.damaged == ()
    assert former.read_bytes() == whole
    restore(backup, tmp_path / "restored")
    assert verify(tmp_path / "restored").clean


def test_a_segment_that_is_lost_before_the_first_backup_is_left_out(
    data_dir: Path, tmp_path: Path
) -> None:
    async def lose_it() -> BackupView:
        engine = await open_directory(data_dir)
        try:
            (data_dir / "shard-00/log" / f"{0:020d}.log").unlink()
            return await back_up(engine, tmp_path / "backup")
        finally:
            await engine.stop()

    view = asyncio.run(asyncio.wait_for(lose_it(), DEADLINE_S))
    assert view.state is BackupState.DONE
    assert "at 0: the file is missing" in view.damaged[0]
    assert "it is left out" in view.damaged[0]
    restore(tmp_path / "backup", tmp_path / "restored")
    assert not verify(tmp_path / "restored").clean


def test_the_former_copy_of_a_damaged_file_stays_until_it_is_whole_again(
    data_dir: Path, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    backed_up(data_dir, backup)
    former = backup / "000001/shard-00/log" / f"{SEGMENT:020d}.log"
    kept = former.read_bytes()
    # The segment that is written last grows with every backup, so it is copied again.
    path, header = [
        each for each in frames_of(data_dir) if each[1].base >= SEGMENT and each[1].count == 1
    ][3]

    async def rot() -> list[BackupView]:
        engine = await open_directory(data_dir)
        try:
            content = bytearray(path.read_bytes())
            content[header.base % SEGMENT + HEADER_BYTES + 50] ^= 3
            path.write_bytes(content)
            return [await back_up(engine, backup) for _ in range(2)]
        finally:
            await engine.stop()

    for view in asyncio.run(asyncio.wait_for(rot(), DEADLINE_S)):
        assert len(view.damaged) == 1
        assert former.read_bytes() == kept
    assert manifest_of(backup).damaged[0].before == 1


def test_a_manifest_without_damage_is_as_it_always_was() -> None:
    plain = Manifest(1, 7, "0.1", 5, 10, 9, 8, [])
    assert b"damaged" not in encode_manifest(plain)
    assert decode_manifest(encode_manifest(plain), "x") == plain


@pytest.mark.parametrize("how", [*KINDS, "none"])
@pytest.mark.parametrize("step", [1, 63, 64, 1_000, 1 << 20])
def test_frames_are_followed_in_pieces_of_any_size(data_dir: Path, how: str, step: int) -> None:
    damage = DamagedFrames([]) if how == "none" else damage_log(data_dir, how, 0.05)
    path, header = frames_of(data_dir)[0]
    content = path.read_bytes()[: 1 << 16 if step < 1_000 else SEGMENT]
    watch = FrameWatch(0, header.log_id)
    for at in range(0, len(content), step):
        watch.feed(content[at : at + step])
    watch.finish(is_whole=len(content) == SEGMENT)
    inside = [each for each in watch.damage if "early" not in each.what]
    assert sum(each.stop - each.first for each in inside) == (damage.bytes if damage.frames else 0)
