"""Files of which the disk cannot read some sectors, and that are used mapped: copied without those, before a start.

A read of a mapped file has no answer but SIGBUS, and that ends the process, at every start again.  So the start after
such an end reads the files of hours, buffers and runs through once.  Of one that has bad sectors a copy takes its place,
with zeros instead of them; what they cost is then repaired like any other rot, from the log where that has it.
"""

from __future__ import annotations

from collections.abc import Iterator

from horolog.errors import HorologError
from horolog.limits import MIB, SECTORS_LOST_MAX
from horolog.storage.api import File, Storage
from horolog.storage.sectors import Lose, read_around
from horolog.units import counted

_PARTS = ("hours", "runs")
_PIECE_BYTES = 4 * MIB
_COPY = ".copy"


def replace_unreadable(storage: Storage, directory: str) -> list[str]:
    """Replace the files of a shard that cannot be read as a whole; a sentence for each.

    DISK_FAILED if one has more than SECTORS_LOST_MAX bad sectors, or a copy cannot be written; that file is as it was.
    """
    report = []
    for part in _PARTS:
        for path in list(_files(storage, f"{directory}/{part}")):
            if path.endswith(_COPY):
                storage.remove(path)  # of a start that was killed
                continue
            lost = _replaced(storage, path)
            if lost:
                what = counted(len(lost), "sector")
                report.append(
                    f"{path}: {what} cannot be read (first: byte {lost[0]}); copied without"
                )
    return report


def _files(storage: Storage, path: str) -> Iterator[str]:
    for name in sorted(storage.list(path)):
        if storage.is_file(f"{path}/{name}"):
            yield f"{path}/{name}"
        else:
            yield from _files(storage, f"{path}/{name}")


def _replaced(storage: Storage, path: str) -> list[int]:
    """Where the bad sectors of a file begin; if there are any, a copy is in its place."""
    lost: list[int] = []

    def lose(first: int, stop: int, why: HorologError) -> None:
        del stop
        lost.append(first)
        if len(lost) > SECTORS_LOST_MAX:
            raise why

    file = storage.open(path)
    try:
        for _ in _pieces(file, lose):
            if lost:
                break
        if not lost:
            return []
        lost.clear()
        copy = storage.open(f"{path}{_COPY}", create=True)
        try:
            for at, piece in _pieces(file, lose):
                copy.write(at, piece)
            copy.sync()
        finally:
            copy.close()
    finally:
        file.close()
    storage.rename(f"{path}{_COPY}", path)
    storage.sync_dir(path.rpartition("/")[0])
    return lost


def _pieces(file: File, lose: Lose) -> Iterator[tuple[int, bytes]]:
    for at in range(0, file.size(), _PIECE_BYTES):
        yield at, read_around(file, at, _PIECE_BYTES, lose)
