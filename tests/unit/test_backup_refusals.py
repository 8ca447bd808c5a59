"""Backups and restores that are refused, fail or are stopped: a clear word, and nothing is harmed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import orjson
import pytest
from backing_up import back_up, restore

from horolog.backup import copying
from horolog.backup.manifest import Manifest, encode_manifest, read_manifest, write_manifest
from horolog.backup.restoring import lock_target, open_backup
from horolog.backup.status import BackupState
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    CreateTopic,
    DescribeTopic,
    MessageType,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.server.loop import Engine
from horolog.server.open_broker import open_engine
from horolog.storage.disk import Disk

DEADLINE_S = 60.0
Story = Callable[[Engine], Awaitable[None]]


def run(data_dir: Path, story: Story) -> None:
    """A story on an engine of its own, with the simulated clock."""

    async def begin_and_end() -> None:
        engine = await open_engine(data_dir, clock="simulated", segment_bytes=1 << 16)
        try:
            await story(engine)
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(begin_and_end(), DEADLINE_S))


async def ready(engine: Engine) -> None:
    """A topic with some scheduled messages."""
    await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
    due_ms = engine.clock.wall_ms() + 60_000
    kind = MessageType.DELAY
    messages = [
        encode(topic="t", body=b"x", message_id=f"m{i}", type=kind, due_ms=due_ms + 1_000 * i)
        for i in range(30)
    ]
    await engine.submit(SendMessages("t", messages))


# --- refusals -------------------------------------------------------------------------------------


def test_directories_that_are_refused(tmp_path: Path) -> None:
    """Each names the field, and nothing is written into them."""
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    other = tmp_path / "other"
    run(other, ready)
    (tmp_path / "file").write_text("")

    async def foreign(engine: Engine) -> None:
        await back_up(engine, tmp_path / "foreign")

    run(other, foreign)

    async def story(engine: Engine) -> None:
        data = tmp_path / "data"
        for directory, why in {
            "relative/path": "not an absolute path",
            str(data): "is this broker's data directory",
            str(data / "shard-00" / "backup"): "lies in this broker's data directory",
            str(tmp_path): "holds this broker's data directory",
            str(other): "is a data directory",
            str(full): "is not empty and no backup (found 'notes.txt')",
            str(tmp_path / "foreign"): "holds a backup of log",
            str(tmp_path / "file"): "is not a directory",
            "/proc/nowhere/backup": "No such file or directory",
            "/a\0b": "cannot be used",
        }.items():
            assert engine.backups is not None
            with pytest.raises(HorologError, match=r"^directory: ") as refused:
                await engine.backups.begin(directory)
            assert why in refused.value.message
            assert refused.value.field == "directory"
            assert not refused.value.fatal
        assert engine.backups.view().state is BackupState.NONE
        assert [path.name for path in full.iterdir()] == ["notes.txt"]

    run(tmp_path / "data", story)


def test_one_backup_at_a_time(tmp_path: Path) -> None:
    """The second is told so, whether it goes into the same directory or not."""

    async def story(engine: Engine) -> None:
        await ready(engine)
        assert engine.backups is not None
        await engine.backups.begin(str(tmp_path / "a"))
        with pytest.raises(HorologError, match="under way") as refused:
            await engine.backups.begin(str(tmp_path / "b"))
        assert refused.value.code is ErrorCode.TOO_MANY_REQUESTS
        with pytest.raises(HorologError, match="in use by process"):
            open_backup(tmp_path / "a")

    run(tmp_path / "data", story)


def test_a_damaged_or_newer_manifest_is_refused(tmp_path: Path) -> None:
    """By backup and by restore; so is a restore of nothing."""

    async def story(engine: Engine) -> None:
        await ready(engine)
        await back_up(engine, tmp_path / "backup")
        manifest = tmp_path / "backup" / "manifest.json"
        whole = manifest.read_bytes()
        for content, why in {
            whole.replace(b'"position": ', b'"position": 1'): "check sum",
            whole.replace(b'"format": 1', b'"format": 2'): "this horolog reads format 1",
            b"{}": "not an intact manifest",
            b"[1": "not an intact manifest",
        }.items():
            manifest.write_bytes(content)
            assert engine.backups is not None
            with pytest.raises(HorologError, match=why):
                await engine.backups.begin(str(tmp_path / "backup"))
            with pytest.raises(HorologError, match=f"^BACKUP: .*{why}"):
                open_backup(tmp_path / "backup")
        (tmp_path / "empty").mkdir()
        with pytest.raises(HorologError, match="there is no backup in"):
            open_backup(tmp_path / "empty")
        write_manifest(Disk(tmp_path / "empty"), Manifest(0, 1, "", 0, 0, 0, 0, []))
        with pytest.raises(HorologError, match=r"no backup into .* has been completed"):
            open_backup(tmp_path / "empty")

    run(tmp_path / "data", story)


def test_a_manifest_cannot_lead_out_of_the_directory(tmp_path: Path) -> None:
    made = Manifest(1, 7, "0.1.0", 0, 0, 0, 0, [])
    content = orjson.loads(encode_manifest(made))
    for path in ("../meta", "/etc/meta", "a//b", "."):
        content["files"] = [{"path": path, "bytes": 1, "crc32": 0, "number": 1}]
        fields = {name: content[name] for name in content if name != "crc32"}
        from horolog.backup.manifest import crc_of

        (tmp_path / "manifest.json").write_bytes(orjson.dumps({**fields, "crc32": crc_of(fields)}))
        with pytest.raises(HorologError, match="leads out of the directory"):
            read_manifest(Disk(tmp_path), "BACKUP")


def test_a_backup_whose_disk_fails_does_not_end_the_broker(tmp_path: Path, monkeypatch) -> None:
    """The view says what happened, and the next one works."""

    def broken(*_: object) -> object:
        raise HorologError(ErrorCode.DISK_FULL, "write: no space")

    async def story(engine: Engine) -> None:
        await ready(engine)
        with monkeypatch.context() as patch:
            patch.setattr(copying, "write_pieces", broken)
            view = await back_up(engine, tmp_path / "backup")
        assert view.state is BackupState.FAILED
        assert view.error is not None
        assert view.error.code is ErrorCode.DISK_FULL
        assert (await engine.submit(DescribeTopic("t"))).name == "t"
        assert (await back_up(engine, tmp_path / "backup")).state is BackupState.DONE

    run(tmp_path / "data", story)


def test_a_broker_that_has_failed_says_so(tmp_path: Path) -> None:
    """A backup then fails at its checkpoint, and moving the clock does not wait for ever."""

    async def story(engine: Engine) -> None:
        await ready(engine)

        def broken() -> None:
            raise HorologError(ErrorCode.DISK_FAILED, "sync: Input/output error")

        engine.log._writer.sync = broken  # type: ignore[method-assign]
        with pytest.raises(HorologError, match="the broker has failed"):
            await engine.submit(CreateTopic("u", TopicType.MIXED, 1))
        view = await back_up(engine, tmp_path / "backup")
        assert view.state is BackupState.FAILED
        with pytest.raises(HorologError, match="the broker has failed"):
            await engine.advance(1_000)

    run(tmp_path / "data", story)


def test_stopping_the_broker_ends_a_backup(tmp_path: Path, monkeypatch) -> None:
    """And leaves the former one."""
    read_pieces = copying.read_pieces
    engines: list[Engine] = []

    def endless(file, size, path):
        while True:
            yield from read_pieces(file, min(size, 1), path)

    async def story(engine: Engine) -> None:
        engines.append(engine)
        await ready(engine)
        await back_up(engine, tmp_path / "backup")
        monkeypatch.setattr(copying, "read_pieces", endless)
        assert engine.backups is not None
        await engine.backups.begin(str(tmp_path / "backup"), full=True)

    run(tmp_path / "data", story)
    assert engines[0].backups is not None
    view = engines[0].backups.view()
    assert view.state is BackupState.FAILED
    assert "the broker was stopped" in str(view.error)
    monkeypatch.undo()
    assert restore(tmp_path / "backup", tmp_path / "copy").number == 1


# --- restore --------------------------------------------------------------------------------------


def test_restore_finds_every_flipped_bit(tmp_path: Path) -> None:
    """In any file; and then nothing is left in the new directory."""

    async def story(engine: Engine) -> None:
        await ready(engine)
        await engine.advance(70_000)
        await back_up(engine, tmp_path / "backup")

    run(tmp_path / "data", story)
    random = Random(4)
    for path in sorted(p for p in (tmp_path / "backup" / "000001").rglob("*") if p.is_file()):
        whole = path.read_bytes()
        for at in {0, len(whole) - 1, random.randrange(len(whole))}:
            broken = bytearray(whole)
            broken[at] ^= 1 << random.randrange(8)
            path.write_bytes(broken)
            with pytest.raises(HorologError, match=path.name) as refused:
                restore(tmp_path / "backup", tmp_path / "copy")
            assert refused.value.code is ErrorCode.DAMAGED
            assert [p.name for p in (tmp_path / "copy").iterdir()] == ["lock"]
        path.write_bytes(whole[:-1])
        with pytest.raises(HorologError, match="bytes, not"):
            restore(tmp_path / "backup", tmp_path / "copy")
        path.write_bytes(whole)
    restore(tmp_path / "backup", tmp_path / "copy")


def test_restore_wants_an_empty_directory(tmp_path: Path) -> None:
    """Names it, also after an interrupted restore."""
    target = tmp_path / "copy"
    target.mkdir()
    (target / "restoring").write_text("")
    with pytest.raises(HorologError, match="an interrupted restore"):
        lock_target(target)
    (target / "restoring").unlink()
    (target / "x").write_text("")
    with pytest.raises(HorologError, match="found 'x'"):
        lock_target(target)


def test_a_start_says_that_a_restore_was_interrupted(tmp_path: Path) -> None:
    """It named a file of the restored broker that lay there without `meta`, and not what to do."""
    run(tmp_path / "data", ready)

    async def backed_up(engine: Engine) -> None:
        await back_up(engine, tmp_path / "backup")

    run(tmp_path / "data", backed_up)
    target = tmp_path / "copy"
    restore(tmp_path / "backup", target)
    (target / "meta").unlink()
    (target / "restoring").write_text("")
    before = sorted(target.rglob("*"))
    with pytest.raises(
        HorologError, match="a restore into it was interrupted; empty it"
    ) as refused:
        run(target, ready)
    assert (refused.value.code, refused.value.field) == (
        ErrorCode.DIRECTORY_FOREIGN,
        "--data-dir",
    )
    assert sorted(target.rglob("*")) == before
    (target / "restoring").unlink()
    with pytest.raises(HorologError, match=r"not empty and without meta \(found "):
        run(target, ready)
