"""The files of a data directory, a copy of one or a backup, read while a broker may write them.

Nothing is locked and nothing is changed: a log only grows, a checkpoint and the files that it names
stay for a while, and reading ends at the last complete frame.  `plan_log` fixes that end once, so
that all tasks of a job see one log.
"""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from horolog.backup.manifest import MANIFEST_NAME, decode_manifest
from horolog.broker.life.retention import start_of
from horolog.errors import ErrorCode, refused
from horolog.log.checkpoint import newest_checkpoint
from horolog.log.frame import HEADER_BYTES, FrameHeader, parse
from horolog.log.scan import Identity, LogEnd, LogScan, SalvageScan
from horolog.log.segment import SegmentReader, bases_on_disk
from horolog.storage.api import read_file
from horolog.storage.disk import Disk
from horolog.storage.meta import META, SHARD, check_format, parse_meta

FIELD = "DATA_DIR"
Bytes = npt.NDArray[np.uint8]
_LOOKS = 20  # most looks at the end of a log that grows meanwhile


class DataFiles(Disk):
    """Files of one data directory; in a backup, names are looked up in its manifest."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, read_only=True)
        self.root = root
        self._places: dict[str, str] | None = None
        if not (root / META).is_file() and (root / MANIFEST_NAME).is_file():
            manifest = decode_manifest((root / MANIFEST_NAME).read_bytes(), FIELD)
            self._places = {file.path: file.place for file in manifest.files}
        if not self.path(META).is_file():
            raise refused(
                FIELD,
                f"{root} is neither a data directory (it has no file `meta`) nor a backup",
                code=ErrorCode.NOT_FOUND,
            )

    def path(self, name: str) -> Path:
        """Return the path of a file of the data directory."""
        return self.root / (name if self._places is None else self._places.get(name, name))

    def _at(self, path: str) -> Path:
        return self.path(path)

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a directory; empty if there is no such directory."""
        if self._places is None:
            return super().list(path)
        below = f"{path}/" if path else ""
        names = {name[len(below) :] for name in self._places if name.startswith(below)}
        return sorted({name.partition("/")[0] for name in names})


def files_of(root: str) -> DataFiles:
    """Open the files of a directory that a plan names."""
    return DataFiles(Path(root))


def must_see(root: str) -> dict[str, bytes]:
    """Return the path and content of `meta`, which all readers of a directory must find there.

    It says which log the directory is of.
    """
    path = files_of(root).path(META).absolute()
    return {str(path): path.read_bytes()}


def mapped_file(path: Path) -> Bytes | None:
    """Map a whole file; return None if it does not exist or is empty.

    The mapping is reused as long as the file is the same inode of the same size.
    """
    try:
        found = path.stat()
        if not found.st_size:
            return None
        return _map(path, found.st_ino, found.st_size)
    except FileNotFoundError:
        return None


@lru_cache(maxsize=64)
def _map(path: Path, inode: int, size: int) -> Bytes:
    del inode  # part of the cache's key: another file may have replaced this one
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)


class Segment(NamedTuple):
    """A stretch of the log in one file."""

    base: int  # log position at which the file begins
    start: int
    stop: int


class AdoptedFile(NamedTuple):
    """A run that an ADOPT record names."""

    position: int  # log position of the ADOPT record
    first_row: int
    rows: int
    name: str  # in `runs`, without ".run"


@dataclass(frozen=True)
class LogPlan:
    """What a job reads: fixed once, small, and equal for all tasks."""

    root: str
    log_id: int
    segment_bytes: int
    start: int  # below it the log has been dropped
    end: int
    newest_ms: int  # append time of the last frame
    damaged: bool  # the log ends before the durable position that it had promised
    checkpoint: int  # log position of the newest checkpoint; −1: there is none
    segments: tuple[Segment, ...]
    holes: tuple[tuple[int, int], ...]  # log positions whose segment is missing
    registry: dict[str, Any]  # of the newest checkpoint; empty without one
    adopted: tuple[AdoptedFile, ...] = ()  # `adopted_files.with_adopted` finds them
    forgotten: tuple[AdoptedFile, ...] = ()  # named by the log, but finished and removed

    def has(self, position: int) -> bool:
        """Return whether the log still holds a position."""
        return self.start <= position < self.end


def read_meta(files: DataFiles) -> tuple[int, int]:
    """Return (log id, segment bytes); raise DAMAGED or VERSION_UNSUPPORTED."""
    try:
        meta = parse_meta(read_file(files, META))
    except ValueError as error:
        raise refused(FIELD, f"meta cannot be read ({error})", code=ErrorCode.DAMAGED) from error
    check_format(meta, FIELD)
    return meta.log_id, meta.segment_bytes


def need_checkpoint(plan: LogPlan) -> None:
    """Raise DAMAGED if the beginning of the log is gone, and no checkpoint tells what it left.

    Its pending messages would be missing from every count, as if they had never been there.
    """
    if plan.checkpoint < 0 and plan.start > 0:
        raise refused(
            FIELD,
            f"the commit log of {plan.root} begins at log position {plan.start}, and no checkpoint "
            "that can be read says what was pending before it; restore a backup",
            code=ErrorCode.DAMAGED,
        )


def plan_log(root: Path) -> LogPlan:
    """Find where the log begins and ends; raise NOT_FOUND, DAMAGED or VERSION_UNSUPPORTED."""
    files = files_of(str(root.resolve()))
    log_id, size = read_meta(files)
    checkpoint = newest_checkpoint(files, f"{SHARD}/checkpoint", log_id)
    stated = start_of(checkpoint) if checkpoint is not None else None
    found = [base for base in bases_on_disk(files, f"{SHARD}/log") if base >= (stated or 0)]
    reader = SegmentReader(files, f"{SHARD}/log", size)
    try:
        used = _written(reader, found, log_id)
        start = max(stated or 0, found[0]) if found else stated or 0
        end, newest_ms, damaged = _end_of(
            reader, used, log_id, checkpoint.position if checkpoint is not None else 0
        )
    finally:
        reader.close()
    wanted = range(start - start % size, end, size)
    return LogPlan(
        root=str(root.resolve()),
        log_id=log_id,
        segment_bytes=size,
        start=start,
        end=end,
        newest_ms=newest_ms,
        damaged=damaged,
        checkpoint=checkpoint.position if checkpoint is not None else -1,
        segments=tuple(
            Segment(base, max(base, start), min(base + size, end)) for base in used if base < end
        ),
        holes=tuple((base, min(base + size, end)) for base in wanted if base not in used),
        registry=checkpoint.registry if checkpoint is not None else {},
    )


def _first_frame(reader: SegmentReader, base: int, log_id: int) -> FrameHeader | None:
    header = parse(reader.bytes_at(base, HEADER_BYTES))
    return header if header is not None and (header.base, header.log_id) == (base, log_id) else None


def _written(reader: SegmentReader, bases: list[int], log_id: int) -> list[int]:
    """Return the bases of the segments that have been written.

    A segment after them was only preallocated, or is a ghost of a truncated tail.
    """
    firsts = [_first_frame(reader, base, log_id) for base in bases]
    used: list[int] = []
    epoch = 0
    last = max((i for i, first in enumerate(firsts) if first is not None), default=-1)
    for i, (base, first) in enumerate(zip(bases, firsts, strict=True)):
        if i > last or (first is not None and first.epoch < epoch):
            break
        used.append(base)
        epoch = first.epoch if first is not None else epoch
    return used


def _end_of(
    reader: SegmentReader, used: list[int], log_id: int, promised: int
) -> tuple[int, int, bool]:
    """Return (end, append ms of the last frame, whether the log was promised to go further)."""
    if not used:
        return 0, 0, promised > 0
    start, newest_ms, epoch = used[-1], 0, 0
    identity, limit = Identity(log_id, 0), used[-1] + reader.segment_bytes
    for _ in range(_LOOKS):
        scan = LogScan(reader, identity, start=start, limit=limit, epoch=epoch, durable=promised)
        for header, _ in scan.frames():
            newest_ms = header.append_ms
        at = scan.end
        if scan.outcome is not LogEnd.DAMAGED or at == start:
            break
        start, epoch = at, scan.epoch  # look again: the frame may have been written just now
    if scan.outcome is not LogEnd.DAMAGED:
        return at, newest_ms, False
    end = at
    for header, _ in SalvageScan(reader, identity, start=at, stop=limit).frames():
        end, newest_ms = header.end, header.append_ms
    return end, newest_ms, end == at


def plan_text(plan: LogPlan) -> str:
    """Encode a plan as an option of a data source, without the registry."""
    return json.dumps({**plan.__dict__, "registry": {}})  # orjson takes no named tuples


def plan_of(text: str) -> LogPlan:
    """Decode the text that `plan_text` made."""
    fields = orjson.loads(text)
    return LogPlan(
        **{
            **fields,
            "segments": tuple(Segment(*row) for row in fields["segments"]),
            "holes": tuple((first, stop) for first, stop in fields["holes"]),
            "adopted": tuple(AdoptedFile(*row) for row in fields["adopted"]),
            "forgotten": tuple(AdoptedFile(*row) for row in fields["forgotten"]),
        }
    )
