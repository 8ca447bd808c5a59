"""Reading files of a disk that cannot read some of its sectors: these are zeros, and whoever reads hears of them.

Only where the medium has lost them (`storage.api.Unreadable`): what could not be read for any other reason, such as want
of memory, is there still, and must not be taken for lost.
Zeros verify nowhere, so what reads this way takes them for damage: a hole in the log, a file that is made again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from horolog.errors import ErrorCode, HorologError
from horolog.storage.api import File, Storage, Unreadable, read_file

SECTOR_BYTES = 4_096  # the least that a disk reads, or cannot read
Lose: TypeAlias = Callable[[int, int, Unreadable], None]  # bytes [from, to), and why


def _none(first: int, stop: int, why: Unreadable) -> None:
    """Whoever reads finds out: what it reads has a check sum."""


def read_around(file: File, offset: int, length: int, lose: Lose = _none) -> bytes:
    """Do what `file.read` does; a sector that cannot be read, also when it is tried again, is zeros.

    lose  is told the bytes [from, to) of each, and why; it raises where that is too much
    """
    with suppress(Unreadable):
        return file.read(offset, length)
    stop = min(offset + length, file.size())
    pieces = []
    while offset < stop:
        after = min(stop, offset - offset % SECTOR_BYTES + SECTOR_BYTES)
        try:
            pieces.append(file.read(offset, after - offset))
        except Unreadable as error:
            lose(offset, after, error)
            pieces.append(bytes(after - offset))
        offset = after
    return b"".join(pieces)


class ReadsAround:
    """A file of a disk that cannot read some sectors: they are read as zeros, and kept in `gaps` as [from, to).

    DISK_FAILED when there are more than `most` of them: then the disk is broken, and not a file.
    """

    def __init__(self, file: File, most: int) -> None:
        self._file = file
        self._left = most
        self.gaps: list[tuple[int, int]] = []
        self.why = ""  # in the system's words, of the last gap

    def read(self, offset: int, length: int) -> bytes:
        """Read the file; sector by sector once a read has failed."""
        return read_around(self._file, offset, length, self._lose)

    def _lose(self, first: int, stop: int, why: Unreadable) -> None:
        if self._left <= 0:
            raise why
        self._left -= 1
        self.why = why.why
        if self.gaps and self.gaps[-1][1] == first:
            first = self.gaps.pop()[0]
        self.gaps.append((first, stop))


def reads_elsewhere(file: File, bad: int) -> bool:
    """Whether any of some other sectors can be read, where the one with byte `bad` cannot.

    They lie before it, or if need be right after it: what lies far behind may never have been written, and then it
    is not asked of the disk.
    """
    sector = bad // SECTOR_BYTES
    for place in {0, sector // 4, sector // 2, sector * 3 // 4, sector + 1, sector + 2} - {sector}:
        try:
            if file.read(place * SECTOR_BYTES, SECTOR_BYTES):
                return True
        except Unreadable:
            continue
    return False


def read_if_any(storage: Storage, path: str) -> bytes:
    """The whole content of a file; nothing if it is missing, the medium has lost it, or a directory is in its place."""
    try:
        return read_file(storage, path)
    except (FileNotFoundError, Unreadable):
        return b""
    except HorologError as error:
        if error.code is not ErrorCode.DISK_FAILED or storage.is_file(path):
            raise
        return b""
