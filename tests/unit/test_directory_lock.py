"""A data directory has one broker, and that broker one data directory, whatever is moved or removed meanwhile."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.limits import KIB
from horolog.protocol.commands import CreateTopic, MessageType, SendMessages, TopicType
from horolog.protocol.rocketmq.message import encode
from horolog.server.loop import Engine
from horolog.server.open_broker import open_engine
from horolog.storage.disk import Disk
from horolog.storage.lock import DirectoryLock


def test_a_directory_whose_lock_file_was_removed_is_still_in_use(tmp_path: Path) -> None:
    """Two brokers served it, both acknowledged, and each wrote over what the other one had."""
    lock = DirectoryLock(tmp_path)
    (tmp_path / "lock").unlink()
    with pytest.raises(HorologError, match=f"^--data-dir: {tmp_path} is in use by another") as held:
        DirectoryLock(tmp_path)
    assert held.value.code is ErrorCode.DIRECTORY_IN_USE
    assert not (tmp_path / "lock").exists(), "who is refused changes nothing"
    lock.release()
    DirectoryLock(tmp_path).release()


def test_a_directory_of_a_broker_that_locks_only_the_file_is_in_use(tmp_path: Path) -> None:
    with open(tmp_path / "lock", "w+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(HorologError, match="is in use by another process"):
            DirectoryLock(tmp_path)
    DirectoryLock(tmp_path).release()


def as_on_nfs(monkeypatch: pytest.MonkeyPatch, code: int = errno.EBADF) -> None:
    """No directory can be locked."""
    flock = fcntl.flock

    def only_files(fd: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(code, os.strerror(code))
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", only_files)


@pytest.mark.parametrize("code", [errno.EBADF, errno.ENOTSUP, errno.ENOLCK])
def test_where_a_directory_cannot_be_locked_the_file_is(tmp_path, monkeypatch, code) -> None:
    as_on_nfs(monkeypatch, code)
    lock = DirectoryLock(tmp_path)
    with pytest.raises(HorologError, match=f"is in use by process {os.getpid()}$"):
        DirectoryLock(tmp_path)
    lock.check()
    lock.release()
    DirectoryLock(tmp_path).release()


def test_who_is_refused_holds_no_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    before = os.listdir("/dev/fd")
    with pytest.raises(HorologError, match="Is a directory"):
        DirectoryLock(tmp_path)
    assert os.listdir("/dev/fd") == before
    (tmp_path / "lock").rmdir()
    DirectoryLock(tmp_path).release()


def moved(home: Path) -> None:
    home.rename(home.with_name("elsewhere"))


def replaced(home: Path) -> None:
    moved(home)
    shutil.copytree(home.with_name("elsewhere"), home)


def unlocked(home: Path) -> None:
    (home / "lock").unlink()


def locked_again(home: Path) -> None:
    (home / "lock").rename(home / "lock.old")  # so that the new one cannot have its inode
    (home / "lock").touch()


GONE = "{home}(/lock)? is gone: was it, or the data directory, moved while the broker ran"
ANOTHER = "{home}(/lock)? is another one now: was it, or the data directory, replaced while"
CHANGES = [(moved, GONE), (replaced, ANOTHER), (unlocked, GONE), (locked_again, ANOTHER)]


@pytest.mark.parametrize("change", [unlocked, locked_again])
def test_the_file_may_be_removed_where_the_directory_is_locked(tmp_path: Path, change) -> None:
    """Nobody else can have the directory, so there is no reason to end."""
    lock = DirectoryLock(tmp_path / "home")
    change(tmp_path / "home")
    Disk(tmp_path / "home", check=lock.check).open("new", create=True).close()
    with pytest.raises(HorologError, match="is in use by"):
        DirectoryLock(tmp_path / "home")
    lock.release()


@pytest.mark.parametrize(("change", "says"), CHANGES)
def test_nothing_is_opened_in_what_stands_in_the_place_of_the_locked_directory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    says: str,
) -> None:
    if change in (unlocked, locked_again):
        as_on_nfs(monkeypatch)
    home = tmp_path / "home"
    lock = DirectoryLock(home)
    disk = Disk(home, check=lock.check)
    disk.make_dir("below")
    disk.open("below/here", create=True).close()
    change(home)
    left = sorted(tmp_path.rglob("*"))
    for ask in (
        lambda: disk.open("below/here"),
        lambda: disk.open("new", create=True),
        lambda: disk.make_dir("new"),
        lambda: disk.rename("below/here", "new"),
        lambda: disk.remove("below/here"),
        lambda: disk.remove_dir("below"),
        lambda: disk.sync_dir("below"),
    ):
        with pytest.raises(HorologError, match=says.format(home=home)) as e:
            ask()
        assert e.value.code is ErrorCode.DISK_FAILED
        assert e.value.fatal
    assert sorted(tmp_path.rglob("*")) == left
    lock.release()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Directories in the order in which they are synced."""
    found: list[Path] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        fsync(fd)
        found.append(Path(f"/proc/self/fd/{fd}").resolve())

    monkeypatch.setattr(os, "fsync", note)
    return found


def test_the_name_of_a_new_directory_outlives_a_power_cut(
    tmp_path: Path, synced: list[Path]
) -> None:
    """All that was in it was synced, and the directory itself could be gone with what had been acknowledged."""
    home = tmp_path / "a" / "b" / "home"
    DirectoryLock(home).release()
    assert synced == [tmp_path.parent, tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    del synced[:]
    DirectoryLock(home).release()
    assert synced == [home.parent], "whoever made it may have been killed before it was synced"
    (home / "meta").touch()
    del synced[:]
    DirectoryLock(home).release()
    assert synced == []


class Killed(BaseException):
    """Ends a start as `kill -9` does: nothing that it has not done is done."""


@pytest.mark.parametrize("syncs", range(4))
def test_a_start_that_is_killed_leaves_no_name_that_the_next_one_does_not_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, syncs: int
) -> None:
    home = tmp_path / "a" / "b" / "home"
    durable: set[Path] = set()
    left = syncs
    fsync = os.fsync

    def sync(fd: int) -> None:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        fsync(fd)
        durable.update(Path(f"/proc/self/fd/{fd}").resolve().iterdir())

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(Killed):
        DirectoryLock(home)
    assert home not in durable
    left = 9
    DirectoryLock(home).release()
    assert {tmp_path / "a", tmp_path / "a" / "b", home} <= durable


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EROFS])
def test_a_new_directory_is_made_where_none_can_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(_fd: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    DirectoryLock(tmp_path / "home").release()


def refusing_directories(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Files can be synced, and directories cannot."""
    fsync = os.fsync

    def only_files(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(code, os.strerror(code))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", only_files)


def test_a_broker_goes_on_where_no_directory_can_be_synced_and_says_so_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on some file systems of a network: it ended with its first checkpoint, or did not start."""
    refusing_directories(monkeypatch, errno.EINVAL)

    async def run() -> None:
        engine = await open_engine(tmp_path, clock="simulated", segment_bytes=32 * KIB)
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
        for i in range(20):
            await send(engine, f"m-{i}")
        await engine.checkpoint()
        assert not engine.failed.done()
        await engine.stop()

    for _ in range(2):
        caplog.clear()
        asyncio.run(run())
        lines = [each for each in caplog.records if "can sync no directory" in each.getMessage()]
        assert [(each.levelname, str(tmp_path) in each.getMessage()) for each in lines] == [
            ("WARNING", True)
        ]


def test_a_directory_whose_sync_fails_is_no_disk_without_such_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing_directories(monkeypatch, errno.EIO)
    disk = Disk(tmp_path)
    with pytest.raises(HorologError, match=r"^sync directory .*Input/output") as caught:
        disk.sync_dir("")
    assert caught.value.code is ErrorCode.DISK_FAILED
    assert disk.syncs_directories


def test_a_disk_that_cannot_sync_the_name_of_a_new_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(HorologError, match=f"^--data-dir: {tmp_path}/home: Input") as caught:
        DirectoryLock(tmp_path / "home")
    assert caught.value.code is ErrorCode.DISK_FAILED


async def send(engine: Engine, message_id: str) -> None:
    body = encode(topic="t", body=bytes(4 * KIB), message_id=message_id, type=MessageType.NORMAL)
    await engine.submit(SendMessages("t", [body]))


@pytest.mark.parametrize(("change", "says"), CHANGES)
@pytest.mark.parametrize("ends_with", ["a segment", "a checkpoint"])
def test_a_broker_ends_whose_directory_is_another_one_and_has_all_that_it_acknowledged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    says: str,
    ends_with: str,
) -> None:
    """It went on: what it had open was in the one directory, and what it opened then in the other."""
    if change in (unlocked, locked_again):
        as_on_nfs(monkeypatch)
    home = tmp_path / "home"
    sent = 0

    async def run() -> None:
        nonlocal sent
        engine = await open_engine(home, segment_bytes=64 * KIB)
        try:
            await engine.submit(CreateTopic("t", TopicType.NORMAL, 1))
            await send(engine, f"m{sent}")
            sent += 1
            change(home)
            while not engine.failed.done() and sent < 100:
                with suppress(HorologError):  # which is told that the broker has failed
                    await send(engine, f"m{sent}")
                    sent += 1
                if ends_with == "a checkpoint":
                    engine.broker.checkpoints.request()
            with pytest.raises(HorologError, match=says.format(home=home)):
                await engine.failed
        finally:
            await engine.stop()

    async def count(directory: Path) -> int:
        engine = await open_engine(directory)
        found = engine.broker.shard.topics.by_name["t"].queues[0].length
        await engine.stop()
        return found

    asyncio.run(run())
    assert 0 < sent < 60
    held = home.with_name("elsewhere") if change in (moved, replaced) else home
    assert asyncio.run(count(held)) >= sent


def test_a_new_directory_is_its_users_alone(tmp_path: Path) -> None:
    """Whatever the umask lets others read; one that is there keeps its mode, and so do parents."""
    there = tmp_path / "there"
    there.mkdir(mode=0o755)
    umask = os.umask(0o022)
    try:
        DirectoryLock(tmp_path / "parent" / "new").release()
        DirectoryLock(there).release()
    finally:
        os.umask(umask)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("parent/new", "parent")]
    assert modes == [0o700, 0o755]
    assert stat.S_IMODE(there.stat().st_mode) == 0o755
