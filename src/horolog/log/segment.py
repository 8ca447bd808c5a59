"""Segment files: fixed size, named by the log position of their first byte, the next one preallocated.

`SegmentWriter` belongs to whoever performs the `Write` and `Sync` effects (a thread of the server, or the
simulator); `SegmentReader` to the core.  They share nothing but the files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from horolog.errors import NO_ROOM, ErrorCode, HorologError, refused
from horolog.limits import SECTORS_LOST_MAX
from horolog.log.file_names import name_of, numbers_of
from horolog.storage.api import File, Storage
from horolog.storage.open_files import OpenFiles
from horolog.storage.sectors import SECTOR_BYTES, read_around, reads_elsewhere

_OPEN_MAX = 32  # segments open for reading at a time


class Write(NamedTuple):
    """Bytes for the commit log; never straddles segments."""

    position: int
    content: bytes | bytearray


def segment_name(base: int) -> str:
    """File name of the segment that begins at `base`."""
    return name_of(base, "log")


def bases_on_disk(storage: Storage, directory: str) -> list[int]:
    """Bases of all segment files, ascending, whatever they hold; a directory is none, nor a link to what is not there."""
    bases = numbers_of(storage.list(directory), "log")
    return [base for base in bases if storage.is_file(f"{directory}/{segment_name(base)}")]


def segment_bases(
    storage: Storage, directory: str, segment_bytes: int, start: int | None = None
) -> list[int]:
    """Bases of the segments, ascending; a name that is no multiple of the size, or a hole: DAMAGED.

    start  where the log begins, if that is known: older segments are left over from a deletion that was
           interrupted, and not looked at; if the first one is not there, that is a hole
    """
    bases = bases_on_disk(storage, directory)
    if start is not None and bases:
        bases = [base for base in bases if base >= start]
        if not bases or bases[0] != start:
            raise refused(
                directory,
                f"the log begins with segment {segment_name(start)}, which is missing",
                code=ErrorCode.DAMAGED,
            )
    for i, base in enumerate(bases):
        if base % segment_bytes or base != bases[0] + i * segment_bytes:
            raise refused(
                directory,
                f"expected segment {segment_name(bases[0] + i * segment_bytes)}, "
                f"found {segment_name(base)}; a segment is missing or misnamed",
                code=ErrorCode.DAMAGED,
            )
    return bases


class SegmentWriter:
    """Writes and syncs segments; keeps the one after the current allocated.

    When the disk has no space for a whole segment the next one is begun all the same, and grows as it is
    written: hand-over, acks and recalls then use the space that is kept free for them.
    """

    def __init__(self, storage: Storage, directory: str, segment_bytes: int) -> None:
        self._storage = storage
        self._directory = directory
        self._segment_bytes = segment_bytes
        self.keep_free = 0  # bytes that no allocation may take: other files need them
        self.is_confined = False  # the last allocation was refused, and bytes seemed to be free
        self._files: dict[int, File] = {}
        self._newest = -1
        self._dirty: set[int] = set()

    def prepare(self, base: int, *, whole: bool = True) -> None:
        """Make sure that the segment at `base` exists; its name is durable after this.

        whole  it must have all its space, else DISK_FULL; without, it gets that space if it is there
        """
        if base in self._files:
            return
        path = f"{self._directory}/{segment_name(base)}"
        new = not self._storage.exists(path)
        if new and whole:
            self._check_space(path, self._segment_bytes)
        file = self._storage.open(path, create=True)
        self._files[base] = file
        try:
            self._allocate(path, file)
        except HorologError as error:
            if whole or error.code not in NO_ROOM:
                self._files.pop(base).close()
                raise
        # Also when it was there: a process that was killed may have made it and not synced its name.
        try:
            file.sync()
            self._storage.sync_dir(self._directory)
        except HorologError:
            self._files.pop(base).close()  # whoever tries again must sync as well
            raise

    def _check_space(self, path: str, wanted: int) -> None:
        if self._storage.free_bytes() < wanted + self.keep_free:
            raise HorologError(ErrorCode.DISK_FULL, f"allocate {path}: no space", field=path)

    def _allocate(self, path: str, file: File) -> None:
        """Reserve its space, unless that would use up what is kept free: some file systems take what there is."""
        size = file.size()
        self.is_confined = False
        if size >= self._segment_bytes:
            return
        self._check_space(path, self._segment_bytes - size)
        try:
            file.allocate(self._segment_bytes)
        except HorologError as error:
            self.is_confined = error.code in NO_ROOM
            file.truncate(size)  # gives back what was reserved before the space ended
            raise

    @property
    def wants_next(self) -> bool:
        """Whether the segment after the current one is not allocated yet: `prepare_next` soon."""
        return self._newest >= 0 and self._newest + self._segment_bytes not in self._files

    def prepare_next(self) -> bool:
        """Allocate the segment after the current one; False if the disk is full (try again later)."""
        try:
            self.prepare(self._newest + self._segment_bytes)
        except HorologError as error:
            if error.code not in NO_ROOM:
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
        self.prepare(base, whole=False)
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
    """Reads segments; the least recently used files are closed.

    on_lost  told log positions [from, to) of a sector that the disk cannot read, and why
    """

    def __init__(self, storage: Storage, directory: str, segment_bytes: int) -> None:
        self._storage = storage
        self._directory = directory
        self._files: OpenFiles[int, File] = OpenFiles(_OPEN_MAX)
        self._lost: set[int] = set()  # sectors of the log that the disk could not read
        self.segment_bytes = segment_bytes
        self.on_lost: Callable[[int, int, HorologError], None] = lambda first, stop, why: None

    def bytes_at(self, position: int, length: int) -> bytes:
        """Raw bytes of one segment; fewer at its end.  DISK_FAILED if it has gone, or the disk cannot read it."""
        at = position % self.segment_bytes
        return self._file(position - at).read(at, min(length, self.segment_bytes - at))

    def bytes_around(self, position: int, length: int) -> bytes:
        """The same with zeros for sectors that the disk cannot read, each told once to `on_lost`.

        DISK_FAILED when there are more of them than a disk has that works, or nothing else can be read either:
        then the disk has failed, and may work again, and nothing may count as lost for that.
        """
        at = position % self.segment_bytes
        base = position - at
        file = self._file(base)

        def lose(first: int, stop: int, why: HorologError) -> None:
            sector = (base + first) // SECTOR_BYTES
            if sector in self._lost:
                return
            if len(self._lost) >= SECTORS_LOST_MAX or not reads_elsewhere(file, first):
                raise why
            self._lost.add(sector)
            self.on_lost(base + first, base + stop, why)

        return read_around(file, at, min(length, self.segment_bytes - at), lose)

    def put_right(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Write bytes again that have flipped: (log position, what was there)."""
        for position, content in pieces:
            at = position % self.segment_bytes
            self._file(position - at).write(at, content)

    def _file(self, base: int) -> File:
        file = self._files.get(base)
        return self._files.open(base, self._opened) if file is None else file

    def path(self, position: int) -> str:
        """The file that holds a log position."""
        return f"{self._directory}/{segment_name(position - position % self.segment_bytes)}"

    def _opened(self, base: int) -> File:
        path = self.path(base)
        try:
            return self._storage.open(path)
        except FileNotFoundError as error:
            # No hole: what is not where it was may be whole, and nothing may count as consumed for that.
            raise refused(
                path,
                "the segment has gone; was the data directory moved?",
                code=ErrorCode.DISK_FAILED,
            ) from error

    def drop_below(self, position: int) -> None:
        """Close segments that lie below, so that their space comes back when they are removed."""
        for base in [base for base in self._files if base + self.segment_bytes <= position]:
            self._files.drop(base)

    def close(self) -> None:
        """Close all files."""
        self._files.close()
