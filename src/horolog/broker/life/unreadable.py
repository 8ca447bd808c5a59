"""Replace mapped files that have bad sectors by copies without those, before a start.

A read error of a mapped file is a SIGBUS, which ends the process, at every start again.  So the
start after such an end reads the files of hours, buffers and runs through once.  A file that has
bad sectors is replaced by a copy with zeros in their place; damaged rows are then repaired like any
other rot, from the log where that has them.
"""

from __future__ import annotations

from collections.abc import Iterator

from horolog.broker.life.quarantine import PARTS
from horolog.limits import MIB, SECTORS_LOST_MAX
from horolog.storage.api import Storage
from horolog.storage.sectors import SECTOR_BYTES, ReadsAround
from horolog.units import counted

_PIECE_BYTES = 4 * MIB
_COPY = ".copy"


def replace_unreadable(storage: Storage, directory: str) -> list[str]:
    """Replace the files of a shard that cannot be read completely; return a sentence for each.

    Raise DISK_FAILED if a file has more than SECTORS_LOST_MAX bad sectors, or its copy cannot be
    written; the file is then unchanged.
    """
    report = []
    for part in PARTS:
        for path in list(_files(storage, f"{directory}/{part}")):
            if path.endswith(_COPY):
                storage.remove(path)  # left by a start that was killed
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
    """Replace a file that has bad sectors by a copy; return where these begin."""
    file = storage.open(path)
    try:
        source = ReadsAround(file, SECTORS_LOST_MAX)
        if not any(source.gaps for _ in _pieces(source, file.size())):
            return []
        source = ReadsAround(file, SECTORS_LOST_MAX)
        copy = storage.open(f"{path}{_COPY}", create=True)
        try:
            for at, piece in _pieces(source, file.size()):
                copy.write(at, piece)
            copy.sync()
        finally:
            copy.close()
    finally:
        file.close()
    storage.rename(f"{path}{_COPY}", path)
    storage.sync_dir(path.rpartition("/")[0])
    return [at for first, stop in source.gaps for at in range(first, stop, SECTOR_BYTES)]


def _pieces(source: ReadsAround, size: int) -> Iterator[tuple[int, bytes]]:
    for at in range(0, size, _PIECE_BYTES):
        yield at, source.read(at, _PIECE_BYTES)
