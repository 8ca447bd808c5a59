"""A backup that is damaged: refused, or restored all the same, and then what the log has is there (P2)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from backing_up import back_up, restore
from tests.unit.test_backup import pending, ready, run, schedule, take_all

from horolog.backup.manifest import decode_manifest
from horolog.errors import ErrorCode, HorologError
from horolog.limits import DAY_MS, HOUR_MS
from horolog.protocol.commands import DescribeBroker
from horolog.server.loop import Engine

PARTS = [
    "*.ckpt",
    "hours/*/delay.log",
    "hours/*/delay.idx",
    "hours/*/state.*",
    "queues/*/*.cq",
    "runs/*/delay.*",
]


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Visible, near and far messages; and the ids of all."""
    place = tmp_path_factory.mktemp("backup")

    async def story(engine: Engine) -> None:
        await ready(engine)
        assert not await take_all(engine)  # the group begins here
        await schedule(engine, "seen", 20, in_ms=1_000)
        await engine.advance(30_000)
        await schedule(engine, "near", 30)
        await schedule(engine, "far", 30, in_ms=3 * DAY_MS)
        await back_up(engine, place / "backup")

    run(place / "data", story)
    return place / "backup", [
        f"{name}-{i}" for name, n in (("seen", 20), ("near", 30), ("far", 30)) for i in range(n)
    ]


def harm(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 3] ^= 4
        path.write_bytes(content)


@pytest.mark.parametrize("how", ["missing", "cut", "flipped"])
def test_a_start_with_a_damaged_meta_asks_for_salvage(backup, tmp_path, how) -> None:
    copy = tmp_path / "backup"
    shutil.copytree(backup[0], copy)
    (meta,) = copy.rglob("meta")
    if how == "flipped":
        meta.write_bytes(
            b"?" + meta.read_bytes()[1:]
        )  # in its log id the bit would make it another log's
    else:
        harm(meta, how)
    damage: list[str] = []
    restore(copy, tmp_path / "data", damage)
    assert "/meta" in damage[0]
    with pytest.raises(HorologError, match=r"meta .*salvage"):
        run(tmp_path / "data", ready)


@pytest.mark.parametrize("how", ["missing", "cut", "flipped"])
@pytest.mark.parametrize("part", PARTS)
def test_a_damaged_backup_is_refused_or_restored_with_what_the_log_has(
    backup, tmp_path, part, how
) -> None:
    source, ids = backup
    copy = tmp_path / "backup"
    shutil.copytree(source, copy)
    harmed = [path for path in copy.rglob("*") if path.match(part)]
    assert harmed
    for path in harmed:
        harm(path, how)
    with pytest.raises(HorologError) as refused:
        restore(copy, tmp_path / "data")
    assert refused.value.code is ErrorCode.DAMAGED
    assert harmed[0].name.partition(".")[0] in refused.value.message
    assert [path.name for path in (tmp_path / "data").iterdir()] in ([], ["lock"])
    damage: list[str] = []
    restore(copy, tmp_path / "data", damage)
    assert len(damage) >= len(harmed)

    async def again(engine: Engine) -> None:
        waits = {each[1] for each in await pending(engine)}
        assert waits == {name for name in ids if not name.startswith("seen")}
        await engine.advance(HOUR_MS)
        got = await take_all(engine)  # before retention drops them
        await engine.advance(3 * DAY_MS)
        assert sorted([*got, *await take_all(engine)]) == sorted(ids)

    run(tmp_path / "data", again)


@pytest.mark.parametrize("how", ["missing", "cut", "flipped"])
def test_files_of_a_backup_without_its_manifest_are_restored_as_they_lie_there(
    tmp_path, how
) -> None:
    """Of two backups, and a third one that did not come to its end."""

    async def story(engine: Engine) -> None:
        await ready(engine)
        await schedule(engine, "near", 30)
        await back_up(engine, tmp_path / "backup")
        await schedule(engine, "far", 30, in_ms=3 * DAY_MS)
        await back_up(engine, tmp_path / "backup")

    run(tmp_path / "data", story)
    manifest = tmp_path / "backup" / "manifest.json"
    numbers = {file.number for file in decode_manifest(manifest.read_bytes(), "").files}
    assert numbers == {1, 2}
    segment = max((tmp_path / "backup" / "000002" / "shard-00" / "log").iterdir())
    begun = tmp_path / "backup" / "000003" / segment.relative_to(tmp_path / "backup" / "000002")
    begun.parent.mkdir(parents=True)
    begun.write_bytes(segment.read_bytes()[:100])
    (tmp_path / "backup" / "notes").mkdir()
    harm(manifest, how)
    with pytest.raises(HorologError, match=r"--accept-damage|no backup"):
        restore(tmp_path / "backup", tmp_path / "copy")
    damage: list[str] = []
    made = restore(tmp_path / "backup", tmp_path / "copy", damage)
    assert made.number == 2
    assert damage == ["manifest.json is damaged or missing: all files are as they lie there"]

    async def again(engine: Engine) -> None:
        waits = sorted(each[1] for each in await pending(engine))
        assert waits == sorted(f"{name}-{i}" for name in ("near", "far") for i in range(30))
        assert not (await engine.submit(DescribeBroker())).problems

    run(tmp_path / "copy", again)


def test_without_a_completed_backup_nothing_is_found(tmp_path) -> None:
    (tmp_path / "backup" / "000001").mkdir(parents=True)
    (tmp_path / "backup" / "000001" / "meta").write_bytes(b"{}")
    with pytest.raises(HorologError) as refused:
        restore(tmp_path / "backup", tmp_path / "copy", [])
    assert refused.value.code is ErrorCode.NOT_FOUND
