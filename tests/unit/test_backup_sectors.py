"""A backup of a disk that cannot read some of its sectors: they are named, and the rest is copied."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from horolog.backup.copying import Copy, Progress
from horolog.backup.manifest import MISSING, UNREADABLE, Manifest
from horolog.broker.life.named_files import NamedFile
from horolog.errors import ErrorCode, HorologError
from horolog.limits import BACKUP_DAMAGE_MAX
from horolog.storage.api import Storage
from horolog.storage.disk import Disk
from horolog.testing.disk import FaultyDisk

PATH = "shard-00/hours/0000502800/delay.log"
SIZE = (3 << 20) + 1_234
CONTENT = bytes(i % 251 + 1 for i in range(SIZE))
NOTHING = Manifest(0, 7, "", 0, 0, 0, 0, [])


def disk_with(path: str = PATH) -> FaultyDisk:
    disk = FaultyDisk()
    disk.make_dir(path.rpartition("/")[0])
    file = disk.open(path, create=True)
    file.write(0, CONTENT)
    file.close()
    return disk


def copied(source: Storage, target: FaultyDisk, former: Manifest = NOTHING) -> Manifest:
    copy = Copy(source, target, former, segment_bytes=1 << 28, reuse=True, progress=Progress())
    return copy.run([NamedFile(PATH, SIZE, False)], NOTHING)


def test_in_a_segment_of_the_log_the_log_position_is_named() -> None:
    path = f"shard-00/log/{1 << 28:020d}.log"
    source, target = disk_with(path), FaultyDisk()
    source.unreadable[path] = [(4_096, 4_097)]
    copy = Copy(source, target, NOTHING, segment_bytes=1 << 28, reuse=True, progress=Progress())
    made = copy.run([NamedFile(path, SIZE, False)], NOTHING)
    assert made.damaged[0].position == (1 << 28) + 4_096


def content_of(target: FaultyDisk, made: Manifest) -> bytes:
    (stored,) = made.files
    return target.open(stored.place).read(0, stored.bytes)


def test_unreadable_sectors_are_zeros_and_named() -> None:
    source, target = disk_with(), FaultyDisk()
    source.unreadable[PATH] = [(5_000, 9_000), (SIZE - 10, SIZE)]
    made = copied(source, target)
    tail = SIZE - (SIZE - (3 << 20)) % 4_096
    expected = CONTENT[:4_096] + bytes(8_192) + CONTENT[12_288:tail] + bytes(SIZE - tail)
    assert content_of(target, made) == expected
    assert [(each.path, each.kind, each.position) for each in made.damaged] == [
        (PATH, UNREADABLE, 4_096),
        (PATH, UNREADABLE, tail),
    ]
    assert made.damaged[0].what.startswith("8192 bytes cannot be read (Input/output error)")


def test_a_copy_that_was_whole_is_kept_beside_it() -> None:
    source, target = disk_with(), FaultyDisk()
    first = copied(source, target)
    assert first.damaged == []
    source.unreadable[PATH] = [(0, 1)]
    second = copied(source, target, first)
    assert second.damaged[0].before == first.number
    assert content_of(target, first) == CONTENT
    assert content_of(target, second)[4_096:] == CONTENT[4_096:]
    source.unreadable.clear()
    third = copied(source, target, second)
    assert (third.damaged, content_of(target, third)) == ([], CONTENT)


def test_damage_that_has_been_put_right_is_not_in_the_next_backup() -> None:
    """The copy with zeros was used for ever, as its length and its edges were right."""
    source, target = disk_with(), FaultyDisk()
    source.unreadable[PATH] = [(5_000, 5_001), (1 << 20, (1 << 20) + 1)]
    first = copied(source, target)
    second = copied(source, target, first)
    assert second.damaged == first.damaged
    assert second.files == first.files, "it is still damaged, and not copied again"
    del source.unreadable[PATH][0]
    third = copied(source, target, second)
    assert [each.position for each in third.damaged] == [1 << 20]
    source.unreadable.clear()
    fourth = copied(source, target, third)
    assert (fourth.damaged, content_of(target, fourth)) == ([], CONTENT)


def test_damage_for_which_the_list_had_no_room_is_put_right_too() -> None:
    """The copy of the second file was used for ever, with its zeros and without a word."""
    other = PATH.replace("502800", "502801")
    damaged, target = disk_with(), FaultyDisk()
    damaged.make_dir(other.rpartition("/")[0])
    damaged.open(other, create=True).write(0, CONTENT)
    damaged.unreadable[PATH] = [(8_192 * i, 8_192 * i + 1) for i in range(1, BACKUP_DAMAGE_MAX + 1)]
    damaged.unreadable[other] = [(1 << 20, (1 << 20) + 1)]
    made = NOTHING
    for is_damaged in (True, False):
        if not is_damaged:
            damaged.unreadable.clear()
        copy = Copy(damaged, target, made, segment_bytes=1 << 28, reuse=True, progress=Progress())
        made = copy.run([NamedFile(PATH, SIZE), NamedFile(other, SIZE)], NOTHING)
        assert len(made.damaged) == (BACKUP_DAMAGE_MAX if is_damaged else 0)
    contents = [target.open(file.place).read(0, file.bytes) for file in made.files]
    assert contents == [CONTENT, CONTENT]


def test_damage_stays_named_while_the_file_is_missing() -> None:
    """The copy with zeros was called whole, and used without a word once the file was back."""
    source, target = disk_with(), FaultyDisk()
    source.unreadable[PATH] = [(5_000, 5_001)]
    first = copied(source, target)
    source.remove(PATH)
    second = copied(source, target, first)
    assert second.files == first.files
    missing, unreadable = second.damaged
    assert (missing.kind, unreadable) == (MISSING, first.damaged[0])
    assert "whole" not in missing.what
    third = copied(disk_with(), target, second)
    assert (third.damaged, content_of(target, third)) == ([], CONTENT)


def test_a_missing_file_is_left_out_if_the_copy_is_missing_too() -> None:
    """The manifest named a file that was not in the backup, and called it whole."""
    source, target = disk_with(), FaultyDisk()
    first = copied(source, target)
    source.remove(PATH)
    target.remove(first.files[0].place)
    second = copied(source, target, first)
    assert second.files == []
    assert second.damaged[0].what.endswith("it is left out")


def test_a_disk_that_reads_nothing_fails_the_backup_and_is_named() -> None:
    source, target = disk_with(), FaultyDisk()
    source.unreadable[PATH] = [(0, SIZE)]
    with pytest.raises(HorologError, match=f"read {PATH}: Input/output error") as refused:
        copied(source, target)
    assert refused.value.code is ErrorCode.DISK_FAILED


@pytest.mark.parametrize("reason", [errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT])
def test_what_is_not_the_mediums_fault_fails_the_backup_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    """For want of memory a file was zeros in the copy, with "Input/output error", and the backup was made."""
    target = FaultyDisk()
    first = copied(disk_with(), target)
    fail_reads(tmp_path, monkeypatch, reason)
    for into, former in ((FaultyDisk(), NOTHING), (target, first)):
        with pytest.raises(HorologError, match=f"^read .*: {os.strerror(reason)}$") as failed:
            copied(Disk(tmp_path), into, former)
        assert failed.value.code is ErrorCode.DISK_FAILED
    assert content_of(target, first) == CONTENT


@pytest.mark.parametrize("reason", [errno.EIO, errno.EILSEQ, errno.ENODATA, errno.EBADMSG])
def test_what_the_medium_has_lost_is_named_in_the_systems_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    fail_reads(tmp_path, monkeypatch, reason)
    (damaged,) = copied(Disk(tmp_path), FaultyDisk()).damaged
    assert damaged.position == 0
    assert damaged.what.startswith(f"4096 bytes cannot be read ({os.strerror(reason)})")


def fail_reads(root: Path, monkeypatch: pytest.MonkeyPatch, reason: int) -> None:
    """A file of which no read that touches the first sector works."""
    path = root / PATH
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    real = os.pread

    def pread(fd: int, length: int, offset: int) -> bytes:
        if offset < 4_096:
            raise OSError(reason, os.strerror(reason))
        return real(fd, length, offset)

    monkeypatch.setattr(os, "pread", pread)
