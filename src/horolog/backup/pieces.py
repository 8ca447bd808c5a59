"""Files of a backup, read and written piece by piece, also where the disk cannot read all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from horolog.errors import ErrorCode, HorologError
from horolog.limits import BACKUP_DAMAGE_MAX
from horolog.storage.api import File
from horolog.storage.sectors import read_around

CHUNK_BYTES = 1 << 20
SYNC_BYTES = 16 << 20  # so that the log's own syncs never wait for much of a backup's


class Reads(Protocol):
    """What is read piece by piece."""

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end."""
        ...


class ReadsAround:
    """A file of a disk that cannot read some sectors: they are read as zeros, and kept in `gaps` as [from, to).

    DISK_FAILED when there are more than `most` of them: then the disk is broken, and not a file.
    """

    def __init__(self, file: File, most: int = BACKUP_DAMAGE_MAX) -> None:
        self._file = file
        self._left = most
        self.gaps: list[tuple[int, int]] = []

    def read(self, offset: int, length: int) -> bytes:
        """Read the file; sector by sector once a read has failed."""
        return read_around(self._file, offset, length, self._lose)

    def _lose(self, first: int, stop: int, why: HorologError) -> None:
        if self._left <= 0:
            raise why
        self._left -= 1
        if self.gaps and self.gaps[-1][1] == first:
            first = self.gaps.pop()[0]
        self.gaps.append((first, stop))


def read_pieces(file: Reads, size: int, path: str) -> Iterator[bytes]:
    """The first `size` bytes in chunks; DAMAGED if they end before that."""
    for at in range(0, size, CHUNK_BYTES):
        piece = file.read(at, min(CHUNK_BYTES, size - at))
        if len(piece) != min(CHUNK_BYTES, size - at):
            raise HorologError(ErrorCode.DAMAGED, f"{path} ends at {at + len(piece)}", field=path)
        yield piece


def write_pieces(file: File, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Write a new file, synced now and then and at its end; gives each piece back when it is written."""
    at = synced = 0
    for piece in pieces:
        file.write(at, piece)
        at += len(piece)
        if at - synced >= SYNC_BYTES:
            file.sync()
            synced = at
        yield piece
    file.sync()
