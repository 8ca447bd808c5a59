"""A backup or a restore that is interrupted at any effect: the former backup, or no data directory."""

from __future__ import annotations

import pytest
from worlds import killed_at

from horolog.backup.copying import Copy, Progress
from horolog.backup.manifest import Manifest, read_manifest
from horolog.backup.restoring import Restore
from horolog.broker.life.named_files import NamedFile
from horolog.storage.api import read_file, replace_file
from horolog.testing.disk import FaultyDisk


def files_of(generation: int) -> dict[str, bytes]:
    """Small files: one that never changes, one that grows, one that is replaced, one that goes."""
    grown = b"".join(b"%08d" % i for i in range(40 * generation))
    return {
        "meta": b'{"log_id": "0000000000000007"}',
        "shard-00/log/0": b"sealed" * 100,
        "shard-00/log/1": grown,
        f"shard-00/checkpoint/{generation}": b"checkpoint %d" % generation,
        f"shard-00/hours/{generation}/delay.log": b"hour" * generation,
    }


def fill(disk: FaultyDisk, files: dict[str, bytes]) -> list[NamedFile]:
    for path, content in files.items():
        above = path.rpartition("/")[0]
        if above:
            disk.make_dir(above)
        replace_file(disk, above, path.rpartition("/")[2], content)
    return [NamedFile(path, None) for path in files]


def copy_generation(target: FaultyDisk, generation: int) -> None:
    source = FaultyDisk(generation)
    named = fill(source, files_of(generation))
    former = read_manifest(target, "x") or Manifest(0, 7, "", 0, 0, 0, 0, [])
    made = Manifest(0, 7, "", generation, generation, 0, 0, [])
    Copy(source, target, former, segment_bytes=1 << 16, reuse=True, progress=Progress()).run(
        named, made
    )


def restored(backup: FaultyDisk) -> dict[str, bytes]:
    target = FaultyDisk(9)
    manifest = read_manifest(backup, "x")
    assert manifest is not None
    Restore(backup, target, manifest, Progress()).run()
    return {path: read_file(target, path) for path in target.names()}


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_backup_that_is_interrupted_anywhere_leaves_the_former_one(power_cut: bool) -> None:
    """Killed, or the power cut, before each effect: the old files or the new ones, whole."""
    seen = set()
    for stop_at in range(1_000):
        target = FaultyDisk(stop_at)
        copy_generation(target, 1)
        copy_generation(target, 2)
        with killed_at(target, stop_at) as life:
            copy_generation(target, 3)
        target.crash(power_cut=power_cut)
        manifest = read_manifest(target, "x")
        assert manifest is not None
        seen.add(manifest.number)
        assert restored(target) == files_of(manifest.number)
        copy_generation(target, 4)
        assert restored(target) == files_of(4), "and the next one works"
        made = read_manifest(target, "x")
        assert made is not None
        assert set(target.names()) == {file.place for file in made.files} | {"manifest.json"}
        if not life.killed:
            break
    assert seen == {2, 3}


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_restore_that_is_interrupted_is_no_data_directory(power_cut: bool) -> None:
    """Without `meta` a start refuses it; with `meta` it is complete."""
    backup = FaultyDisk(1)
    copy_generation(backup, 1)
    manifest = read_manifest(backup, "x")
    assert manifest is not None
    for stop_at in range(1_000):
        target = FaultyDisk(stop_at)
        with killed_at(target, stop_at) as life:
            Restore(backup, target, manifest, Progress()).run()
        target.crash(power_cut=power_cut)
        if target.exists("meta"):
            assert {p: read_file(target, p) for p in target.names()} == files_of(1)
        if not life.killed:
            assert target.exists("meta")
            break


def test_a_directory_that_no_backup_made_stays() -> None:
    """Only those with names of six digits are swept; `2026` and `²` are somebody else's."""
    target = FaultyDisk(1)
    for place in ("2026", "²", "000009"):
        target.make_dir(place)
        replace_file(target, place, "notes", b"mine")
    copy_generation(target, 1)
    assert target.is_file("2026/notes")
    assert target.is_file("²/notes")
    assert not target.exists("000009")
