"""Segment files: fixed size, named by the log position of their first byte, the next one preallocated.

`SegmentWriter` belongs to whoever performs the `Write` and `Sync` effects (a thread of the server, or the
simulator); `SegmentReader` to the core.  They share nothing but the files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from horolog.errors import ErrorCode, HorologError
from horolog.storage.api import File, Storage

_OPEN_MAX = 32  # segments open for reading at a time


class Write(NamedTuple):
    """Bytes for the commit log; never straddles segments."""

    position: int
    content: bytes | bytearray


def segment_name(base: int) -> str:
    """File name of the segment that begins at `base`."""
    return f"{base:020d}.log"


def segment_bases(storage: Storage, directory: str, segment_bytes: int) -> list[int]:
    """Bases of the segments, ascending; a name that is no multiple of the size, or a hole: DAMAGED."""
    bases = sorted(
        int(name[:-4])
        for name in storage.list(directory)
        if name.endswith(".log") and name[:-4].isdigit()
    )
    for i, base in enumerate(bases):
        if base % segment_bytes or base != bases[0] + i * segment_bytes:
            raise HorologError(
                ErrorCode.DAMAGED,
                f"{directory}: expected segment {segment_name(bases[0] + i * segment_bytes)}, "
                f"found {segment_name(base)}; a segment is missing or misnamed",
                field=directory,
            )
    return bases


class SegmentWriter:
    """Writes and syncs segments; keeps the one after the current allocated."""

    def __init__(self, storage: Storage, directory: str, segment_bytes: int) -> None:
        self._storage = storage
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._files: dict[int, File] = {}
        self._newest = -1
        self._dirty: set[int] = set()

    def prepare(self, base: int) -> None:
        """Make sure that the segment at `base` exists with all its space; its name is durable after this."""
        if base in self._files:
            return
        path = f"{self._directory}/{segment_name(base)}"
        file = self._storage.open(path, create=True)
        self._files[base] = file
        try:
            if file.size() < self._segment_bytes:
                file.allocate(self._segment_bytes)
        except HorologError:
            self._files.pop(base).close()
            raise
        # Also when it was there: a process that was killed may have made it and not synced its name.
        file.sync()
        self._storage.sync_dir(self._directory)

    @property
    def wants_next(self) -> bool:
        """Whether the segment after the current one is not allocated yet: `prepare_next` soon."""
        return self._newest >= 0 and self._newest + self._segment_bytes not in self._files

    def prepare_next(self) -> bool:
        """Allocate the segment after the current one; False if the disk is full (try again later)."""
        try:
            self.prepare(self._newest + self._segment_bytes)
        except HorologError as error:
            if error.code is not ErrorCode.DISK_FULL:
                raise
            return False
        return True

    def write(self, writes: Sequence[Write]) -> None:
        """Put the bytes in place; several pieces that follow each other are written as one."""
        run: list[bytes | bytearray] = []
        start = end = -1
        for position, content in writes:
            if position != end or position % self._segment_bytes == 0:
                self._put(start, run)
                run, start, end = [], position, position
            run.append(content)
            end += len(content)
        self._put(start, run)

    def _put(self, position: int, run: list[bytes | bytearray]) -> None:
        if not run:
            return
        base = position - position % self._segment_bytes
        self.prepare(base)
        for old in [other for other in self._files if other < base]:
            if old in self._dirty:
                self._files[old].sync()
                self._dirty.discard(old)
            self._files.pop(old).close()
        self._newest = base
        content = run[0] if len(run) == 1 else b"".join(run)
        self._files[base].write(position - base, content)
        self._dirty.add(base)

    def sync(self) -> None:
        """Return when all that was written is durable."""
        for base in sorted(self._dirty):
            self._files[base].sync()
        self._dirty.clear()

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()


class SegmentReader:
    """Reads segments; the least recently used files are closed."""

    def __init__(self, storage: Storage, directory: str, segment_bytes: int) -> None:
        self._storage = storage
        self._directory = directory
        self._files: OrderedDict[int, File] = OrderedDict()
        self.segment_bytes = segment_bytes

    def bytes_at(self, position: int, length: int) -> bytes:
        """Raw bytes of one segment; fewer at its end.  Missing segment: FileNotFoundError."""
        at = position % self.segment_bytes
        base = position - at
        file = self._files.get(base)
        if file is None:
            file = self._files[base] = self._storage.open(f"{self._directory}/{segment_name(base)}")
            if len(self._files) > _OPEN_MAX:
                self._files.popitem(last=False)[1].close()
        else:
            self._files.move_to_end(base)
        return file.read(at, min(length, self.segment_bytes - at))

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
