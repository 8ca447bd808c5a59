"""Reading files of a disk that cannot read some sectors: they read as zeros, and are reported.

This applies only where the medium has lost the sectors (`storage.api.Unreadable`): bytes that could
not be read for any other reason, such as want of memory, still exist, and must not be taken for
lost.  Zeros verify nowhere, so readers treat them as damage: a hole in the log, a file that is
rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from horolog.errors import ErrorCode, HorologError
from horolog.storage.api import File, Storage, Unreadable, read_file

SECTOR_BYTES = 4_096  # the least that a disk reads, or cannot read
OnLost: TypeAlias = Callable[[int, int, Unreadable], None]  # bytes [from, to), and why


def _ignore_lost(first: int, stop: int, why: Unreadable) -> None:
    """Ignore a lost sector: its content has a check sum, so the reader notices."""


def read_around(file: File, offset: int, length: int, on_lost: OnLost = _ignore_lost) -> bytes:
    """Read like `file.read`, but with zeros for each sector that cannot be read, even when retried.

    on_lost  called with the bytes [from, to) of each lost sector, and why; may raise to give up
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
            on_lost(offset, after, error)
            pieces.append(bytes(after - offset))
        offset = after
    return b"".join(pieces)


class ReadsAround:
    """Reads unreadable sectors of a file as zeros, and keeps them in `gaps` as [from, to).

    DISK_FAILED if there are more than `most` of them: then the disk is broken, not the file.
    """

    def __init__(self, file: File, most: int) -> None:
        self._file = file
        self._left = most
        self.gaps: list[tuple[int, int]] = []
        self.why = ""  # reason of the last gap, in the system's words

    def read(self, offset: int, length: int) -> bytes:
        """Read the file; sector by sector once a read has failed."""
        return read_around(self._file, offset, length, self._add_gap)

    def _add_gap(self, first: int, stop: int, why: Unreadable) -> None:
        if self._left <= 0:
            raise why
        self._left -= 1
        self.why = why.why
        if self.gaps and self.gaps[-1][1] == first:
            first = self.gaps.pop()[0]
        self.gaps.append((first, stop))


def reads_elsewhere(file: File, bad: int) -> bool:
    """Return whether some other sector can be read, where the one with byte `bad` cannot.

    The other sectors lie before that byte, or if need be right after it: sectors far after it may
    never have been written, and then the read does not reach the disk.
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
    """Read the whole content of a file.

    Returns b"" if the file is missing, lost by the medium, or a directory.
    """
    try:
        return read_file(storage, path)
    except (FileNotFoundError, Unreadable):
        return b""
    except HorologError as error:
        if error.code is not ErrorCode.DISK_FAILED or storage.is_file(path):
            raise
        return b""
