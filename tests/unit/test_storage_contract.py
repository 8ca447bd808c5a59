"""The contract of `storage.api`, kept by the real disk and by the faulty one alike."""

from __future__ import annotations

import errno
import gc
import mmap
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import ErrorCode, HorologError
from horolog.storage.api import read_file, replace_file
from horolog.storage.disk import Disk
from horolog.storage.lock import DirectoryLock
from horolog.storage.mapped import is_cut
from horolog.testing.disk import FaultyDisk, Killed
from horolog.testing.inode import SECTOR


@pytest.fixture(params=["real", "faulty"])
def storage(request, tmp_path):
    return Disk(tmp_path) if request.param == "real" else FaultyDisk(3)


def test_write_read_and_holes(storage) -> None:
    file = storage.open("a", create=True)
    file.write(10, b"xyz")
    assert file.size() == 13
    assert file.read(0, 100) == bytes(10) + b"xyz"
    assert file.read(12, 1) == b"z"
    assert file.read(13, 5) == b""
    assert bytes(file.view()) == bytes(10) + b"xyz"
    file.write(0, memoryview(b"abc"))
    file.write(13, bytearray(b"!"))
    assert bytes(file.view()) == b"abc" + bytes(7) + b"xyz!"
    file.begin_write_back(0, 13)
    file.begin_write_back(4_096, 4_096)  # beyond the end
    assert bytes(file.view()) == b"abc" + bytes(7) + b"xyz!"
    file.sync()
    file.close()
    file.close()


def test_allocate_and_truncate(storage) -> None:
    file = storage.open("a", create=True)
    assert bytes(file.view()) == b""
    file.write(0, b"abc")
    file.allocate(1_000)
    assert file.size() == 1_000
    assert file.read(0, 5) == b"abc\0\0"
    file.allocate(10)
    assert file.size() == 1_000
    file.truncate(2)
    file.truncate(4)
    assert file.read(0, 10) == b"ab\0\0"


def test_names(storage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.open("missing")
    with pytest.raises(FileNotFoundError):
        storage.open("no/such/dir", create=True)
    storage.make_dir("d/e")
    storage.make_dir("d/e")
    storage.open("d/e/two", create=True).write(0, b"2")
    storage.open("d/e/one", create=True)
    assert storage.list("d/e") == ["one", "two"]
    assert storage.list("d") == ["e"]
    assert storage.list("nowhere") == []
    assert storage.exists("d/e/one")
    assert not storage.exists("d/e/three")
    storage.rename("d/e/two", "d/e/one")
    assert storage.list("d/e") == ["one"]
    assert read_file(storage, "d/e/one") == b"2"
    storage.rename("d/e", "d/f")
    assert storage.list("d") == ["f"]
    assert read_file(storage, "d/f/one") == b"2"
    with pytest.raises(FileNotFoundError):
        storage.open("d/e/one", create=True)
    storage.rename("d/f", "d/e")
    storage.remove("d/e/one")
    storage.remove("d/e/one")
    storage.sync_dir("d/e")
    storage.remove_dir("d")
    storage.remove_dir("d")
    assert not storage.exists("d/e")
    assert storage.free_bytes() > 0


def test_a_file_in_the_place_of_a_directory_and_the_reverse(storage) -> None:
    storage.open("file", create=True).write(0, b"1")
    storage.make_dir("directory/inner")
    storage.open("directory/inner/one", create=True)
    assert storage.list("file") == []
    for create in (False, True):
        with pytest.raises(HorologError, match="Is a directory") as error:
            storage.open("directory", create=create)
        assert error.value.code is ErrorCode.DISK_FAILED
    storage.remove_dir("file")
    storage.remove("directory")
    assert storage.list("") == []


def test_replace_file_is_whole(storage) -> None:
    storage.make_dir("c")
    replace_file(storage, "c", "x", b"first")
    replace_file(storage, "c", "x", b"second, longer")
    assert storage.list("c") == ["x"]
    assert read_file(storage, "c/x") == b"second, longer"


@given(st.lists(st.tuples(st.integers(0, 3_000), st.binary(max_size=900)), max_size=12))
def test_any_writes_read_the_same_from_both(tmp_path_factory, writes) -> None:
    model = bytearray()
    real = Disk(tmp_path_factory.mktemp("d")).open("f", create=True)
    fake = FaultyDisk().open("f", create=True)
    for offset, content in writes:
        if content:
            model.extend(bytes(max(0, offset + len(content) - len(model))))
            model[offset : offset + len(content)] = content
        real.write(offset, content)
        fake.write(offset, content)
    assert bytes(real.view()) == bytes(model)
    assert bytes(fake.view()) == bytes(model)
    real.close()


def faulty(seed: int = 0) -> FaultyDisk:
    disk = FaultyDisk(seed)
    disk.make_dir("d")
    return disk


def test_a_kill_loses_nothing_and_ends_old_files() -> None:
    disk = faulty()
    file = disk.open("d/a", create=True)
    file.write(0, b"unsynced")
    disk.crash(power_cut=False)
    assert read_file(disk, "d/a") == b"unsynced"
    with pytest.raises(AssertionError, match="before a crash"):
        file.read(0, 1)


def test_a_power_cut_keeps_what_was_synced() -> None:
    for seed in range(50):
        disk = faulty(seed)
        file = disk.open("d/a", create=True)
        file.write(0, b"synced")
        file.sync()
        disk.sync_dir("d")
        file.write(6, b" and not")
        disk.crash(power_cut=True)
        assert read_file(disk, "d/a").startswith(b"synced")


def test_a_power_cut_keeps_drops_or_tears_in_sectors() -> None:
    fates = set()
    for seed in range(80):
        disk = faulty(seed)
        file = disk.open("d/a", create=True)
        file.sync()
        disk.sync_dir("d")
        file.write(0, b"x" * (3 * SECTOR))
        disk.crash(power_cut=True)
        content = read_file(disk, "d/a").ljust(3 * SECTOR, b"\0")
        sectors = [content[i : i + SECTOR] for i in range(0, 3 * SECTOR, SECTOR)]
        assert all(s in (b"x" * SECTOR, bytes(SECTOR)) for s in sectors)
        fates.add(tuple(s[:1] == b"x" for s in sectors))
    assert len(fates) == 8, "every combination of sectors happens"


def test_a_power_cut_may_undo_names_that_were_not_synced() -> None:
    there = set()
    for seed in range(30):
        disk = faulty(seed)
        disk.open("d/a", create=True).sync()
        disk.crash(power_cut=True)
        there.add(disk.exists("d/a"))
    assert there == {True, False}


def test_faults_that_are_asked_for() -> None:
    disk = faulty()
    file = disk.open("d/a", create=True)
    disk.fail_next("write", after=1)
    file.write(0, b"first")
    with pytest.raises(HorologError) as caught:
        file.write(5, b"second")
    assert caught.value.code is ErrorCode.DISK_FAILED
    disk.flip("d/a", 0, 0)
    assert file.read(0, 5) == b"girst"
    disk.fail_next("sync")
    with pytest.raises(HorologError):
        file.sync()
    disk.crash(power_cut=True)

    def kill(what: str) -> None:
        raise Killed(what)

    disk.on_effect = kill
    with pytest.raises(Killed):
        disk.open("d/b", create=True)
    assert not disk.exists("d/b")


def test_running_full_writes_a_part_and_says_so() -> None:
    disk = FaultyDisk(capacity_bytes=1_000)
    file = disk.open("a", create=True)
    file.write(0, bytes(900))
    with pytest.raises(HorologError) as caught:
        file.write(900, b"x" * 200)
    assert caught.value.code is ErrorCode.DISK_FULL
    assert file.size() == 1_000
    assert disk.free_bytes() == 0
    with pytest.raises(HorologError):
        file.allocate(5_000)
    disk.capacity_bytes = 10_000
    file.write(1_000, b"y")


def test_a_hole_takes_space_too() -> None:
    disk = FaultyDisk(capacity_bytes=1_000)
    file = disk.open("a", create=True)
    for offset, size in ((500, 1_000), (2_000, 1_000)):
        with pytest.raises(HorologError) as caught:
            file.write(offset, b"x" * 600)
        assert caught.value.code is ErrorCode.DISK_FULL
        assert file.size() == size


def test_a_power_cut_leaves_a_renamed_file_one_of_its_names() -> None:
    left = set()
    for seed in range(40):
        disk = faulty(seed)
        for path in ("d/a", "d/b"):
            replace_file(disk, "d", path[2:], path.encode())
        disk.rename("d/a", "d/b")
        disk.crash(power_cut=True)
        left.add(tuple((name, read_file(disk, name)) for name in disk.names()))
    assert left == {(("d/b", b"d/a"),), (("d/a", b"d/a"), ("d/b", b"d/b"))}


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, ErrorCode.DISK_FULL),
        (errno.EDQUOT, ErrorCode.DISK_FULL),
        (errno.EROFS, ErrorCode.DIRECTORY_READ_ONLY),
        (errno.EACCES, ErrorCode.DIRECTORY_READ_ONLY),
        (errno.EIO, ErrorCode.DISK_FAILED),
    ],
)
def test_errors_of_the_real_disk_are_distinguished(tmp_path, monkeypatch, number, code) -> None:
    file = Disk(tmp_path).open("a", create=True)

    def refuse(*_arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", refuse)
        with pytest.raises(HorologError) as caught:
            file.write(0, b"x")
    assert caught.value.code is code
    assert caught.value.message.startswith(f"write {tmp_path / 'a'}: ")
    file.close()


def test_a_file_that_nobody_has_is_closed(tmp_path) -> None:
    gc.collect()  # what tests before this one have left is not closed in the middle of it
    before = os.listdir("/proc/self/fd")
    file = Disk(tmp_path).open("a", create=True)
    file.write(0, b"abc")
    view = file.view()
    del file
    assert bytes(view) == b"abc"
    del view
    gc.collect()
    assert os.listdir("/proc/self/fd") == before


def test_space_is_reserved_with_zeros_where_it_cannot_be_otherwise(tmp_path, monkeypatch) -> None:
    file = Disk(tmp_path).open("a", create=True)
    file.write(0, b"abc")

    def refuse(*_arguments: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file.allocate((1 << 20) + 10)
    assert file.size() == (1 << 20) + 10
    assert file.read(0, 5) == b"abc\0\0"
    file.close()


def test_lock_names_the_process_that_holds_it(tmp_path) -> None:
    lock = DirectoryLock(tmp_path / "new" / "dir")
    with pytest.raises(HorologError) as caught:
        DirectoryLock(tmp_path / "new" / "dir")
    assert caught.value.code is ErrorCode.DIRECTORY_IN_USE
    assert str(os.getpid()) in caught.value.message
    lock.release()
    DirectoryLock(tmp_path / "new" / "dir").release()
    (tmp_path / "file").write_text("x")
    with pytest.raises(HorologError) as caught:
        DirectoryLock(tmp_path / "file")
    assert caught.value.code is ErrorCode.DIRECTORY_FOREIGN
    with pytest.raises(HorologError) as caught:
        DirectoryLock(tmp_path / "file" / "below")
    assert caught.value.code is ErrorCode.DIRECTORY_FOREIGN


def test_a_lock_that_is_no_file_is_named(tmp_path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(HorologError, match=f"^--data-dir: {tmp_path}/lock: Is a directory$"):
        DirectoryLock(tmp_path)


def test_a_file_of_somebody_else_is_reported_with_its_owner(tmp_path, monkeypatch) -> None:
    """The kernel's refusal is acted: whoever runs the tests may be root, whom it refuses nothing."""
    path = tmp_path / "log"
    path.write_bytes(b"x")
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(HorologError) as refused:
        Disk(tmp_path).open("log")
    assert refused.value.message == (
        f"open {path}: Permission denied; it belongs to user {owner}, and this is user {owner + 1}: "
        "give it back with chown"
    )


@pytest.mark.parametrize("in_the_way", ["a", "a.tmp"])
def test_replace_file_makes_way(storage, in_the_way) -> None:
    """A directory in the place of a file would make every later write of it fail."""
    storage.make_dir(f"d/{in_the_way}")
    storage.open(f"d/{in_the_way}/stray", create=True).write(0, b"x")
    replace_file(storage, "d", "a", b"whole")
    assert storage.list("d") == ["a"]
    assert read_file(storage, "d/a") == b"whole"


@pytest.mark.parametrize("what", ["a FIFO", "a link to nothing"])
def test_replace_file_makes_way_on_the_real_disk(tmp_path, what) -> None:
    for name in ("a", "a.tmp"):
        if what == "a FIFO":
            os.mkfifo(tmp_path / name)
        else:
            (tmp_path / name).symlink_to(tmp_path / "missing")
    replace_file(Disk(tmp_path), "", "a", b"whole")
    assert (tmp_path / "a").read_bytes() == b"whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_fifo_in_the_place_of_a_file_is_no_file_and_nobody_waits(tmp_path, read_only) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(HorologError, match=r"a: Illegal seek"):
        Disk(tmp_path, read_only=read_only).open("a").read(0, 1)


def test_a_file_is_idle_since_it_was_written_and_a_directory_since_a_name_changed(tmp_path) -> None:
    disk = Disk(tmp_path)
    disk.make_dir("d")
    disk.open("d/file", create=True).close()
    for path in ("d", "d/file"):
        os.utime(tmp_path / path, (1_000, 1_000))
        assert disk.idle_ms(path) > 10**11
    disk.open("d/file").write(0, b"x")
    assert disk.idle_ms("d/file") < 60_000
    assert disk.idle_ms("d") > 10**11
    disk.rename("d/file", "file")
    assert disk.idle_ms("d") < 60_000
    assert disk.idle_ms("d/file") == 0


def test_a_mapped_file_whose_length_cannot_be_read_must_be_opened_again() -> None:
    """The system's error names no file, and ended the broker without a word about which one."""

    class Sick(mmap.mmap):
        def size(self) -> int:
            raise OSError(errno.EIO, "Input/output error")

    assert is_cut(memoryview(Sick(-1, 4096)))
