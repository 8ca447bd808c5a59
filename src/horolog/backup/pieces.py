"""Reading and writing a backup's files in pieces, also where a disk cannot read all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from horolog.errors import ErrorCode, HorologError
from horolog.storage.api import File

CHUNK_BYTES = 1 << 20
SYNC_BYTES = 16 << 20  # so that the log's own syncs never wait for much of a backup's


class Reads(Protocol):
    """A file, or another reader, that is read piece by piece."""

    def read(self, offset: int, length: int) -> bytes:
        """Read up to `length` bytes from `offset`; fewer only at the end."""
        ...


def read_pieces(file: Reads, size: int, path: str) -> Iterator[bytes]:
    """Yield the first `size` bytes in chunks; DAMAGED if the file ends before that."""
    for at in range(0, size, CHUNK_BYTES):
        piece = file.read(at, min(CHUNK_BYTES, size - at))
        if len(piece) != min(CHUNK_BYTES, size - at):
            raise HorologError(ErrorCode.DAMAGED, f"{path} ends at {at + len(piece)}", field=path)
        yield piece


def write_pieces(file: File, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Write a new file, synced now and then and at its end; yield each piece once written."""
    at = synced = 0
    for piece in pieces:
        file.write(at, piece)
        at += len(piece)
        if at - synced >= SYNC_BYTES:
            file.sync()
            synced = at
        yield piece
    file.sync()
