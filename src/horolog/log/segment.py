"""Segment files: fixed size, named by the position of their first byte, the next one preallocated.

`SegmentWriter` belongs to the code that performs the `Write` and `Sync` effects (a thread of the
server, or the simulator), `SegmentReader` to the core.  Writer and reader share only the files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from horolog.errors import NO_ROOM, ErrorCode, HorologError, done_if_room, refused
from horolog.limits import SECTORS_LOST_MAX
from horolog.log.file_names import name_of, numbers_of
from horolog.storage.api import File, Storage
from horolog.storage.open_files import OpenFiles
from horolog.storage.sectors import SECTOR_BYTES, read_around, reads_elsewhere

_OPEN_MAX = 32  # segments open for reading at the same time


class Write(NamedTuple):
    """Bytes to write at a log position; they never straddle segments."""

    position: int
    content: bytes | bytearray


def segment_name(base: int) -> str:
    """Return the file name of the segment that begins at `base`."""
    return name_of(base, "log")


def bases_on_disk(storage: Storage, directory: str) -> list[int]:
    """Return the bases of all segment files, ascending, without reading the files.

    Directories and dangling links are ignored.
    """
    bases = numbers_of(storage.list(directory), "log")
    return [base for base in bases if storage.is_file(f"{directory}/{segment_name(base)}")]


def segment_bases(
    storage: Storage, directory: str, segment_bytes: int, start: int | None = None
) -> list[int]:
    """Return the bases of the segments, ascending.

    DAMAGED if a segment is missing, or a base is no multiple of the segment size.

    start  where the log begins, if a checkpoint says so: the segment that begins there must exist;
           older segments are left over from an interrupted deletion, and ignored
    """
    bases = bases_on_disk(storage, directory)
    if start is not None and bases:
        bases = [base for base in bases if base >= start]
        if not bases or bases[0] != start:
            why = (
                f"by its newest checkpoint the log begins with segment {segment_name(start)}, "
                "which is missing"
            )
            if bases:
                why += (
                    f"; the first one after it is {segment_name(bases[0])}: if retention has dropped those "
                    "between, that checkpoint is an older copy, and the newer ones are missing"
                )
            raise refused(directory, why, code=ErrorCode.DAMAGED)
    for i, base in enumerate(bases):
        if base % segment_bytes or base != bases[0] + i * segment_bytes:
            raise refused(
                directory,
                f"expected segment {segment_name(bases[0] + i * segment_bytes)}, "
                f"found {segment_name(base)}; a segment is missing or misnamed",
                code=ErrorCode.DAMAGED,
            )
    return bases


def check_access(storage: Storage, directory: str, bases: list[int]) -> None:
    """Raise DIRECTORY_READ_ONLY if a segment may not be opened: it belongs to another user.

    Otherwise a start would succeed, and the process end when a consumer reads there.
    """
    for base in bases:
        try:
            storage.open(f"{directory}/{segment_name(base)}").close()
        except HorologError as error:
            if error.code is ErrorCode.DIRECTORY_READ_ONLY:
                raise


class SegmentWriter:
    """Writes and syncs segments; keeps the next segment preallocated.

    When the disk has no space for a whole segment, the next segment is begun all the same and grows
    as it is written: hand-over, acks and recalls then use the space that is kept free for them.
    """

    def __init__(self, storage: Storage, directory: str, segment_bytes: int) -> None:
        self._storage = storage
        self._directory = directory
        self._segment_bytes = segment_bytes
        self.keep_free = 0  # bytes that an allocation must leave free for other files
        self.is_confined = False  # the last allocation failed although bytes seemed to be free
        self._files: dict[int, File] = {}
        self._newest = -1
        self._dirty: set[int] = set()

    def prepare(self, base: int, *, whole: bool = True) -> None:
        """Make sure that the segment at `base` exists; its name is durable on return.

        whole  the segment must get all its space, else DISK_FULL; if False, it gets the space if
               there is enough
        """
        if base in self._files:
            return
        path = f"{self._directory}/{segment_name(base)}"
        new = not self._storage.exists(path)
        if new and whole:
            self._check_space(path, self._segment_bytes)
        try:
            file = self._storage.open(path, create=True)
        except HorologError as error:
            self.is_confined = error.code in NO_ROOM  # no inode, no descriptor, or a quota
            raise
        self._files[base] = file
        try:
            self._allocate(path, file)
        except HorologError as error:
            if whole or error.code not in NO_ROOM:
                self._files.pop(base).close()
                raise
        # Also for an existing file: a killed process may have made it without syncing its name.
        try:
            file.sync()
            self._storage.sync_dir(self._directory)
        except HorologError as error:
            self.is_confined |= error.code in NO_ROOM  # no descriptor for the directory
            self._files.pop(base).close()  # the next attempt must sync as well
            raise

    def _check_space(self, path: str, wanted: int) -> None:
        if self._storage.free_bytes() < wanted + self.keep_free:
            raise HorologError(ErrorCode.DISK_FULL, f"allocate {path}: no space", field=path)

    def _allocate(self, path: str, file: File) -> None:
        """Reserve the space of a segment, unless that would use up `keep_free`; DISK_FULL.

        Some file systems take all the space there is before they fail.
        """
        size = file.size()
        self.is_confined = False
        if size >= self._segment_bytes:
            return
        self._check_space(path, self._segment_bytes - size)
        try:
            file.allocate(self._segment_bytes)
        except HorologError as error:
            self.is_confined = error.code in NO_ROOM
            file.truncate(size)  # free the space that was reserved before the disk was full
            raise

    @property
    def wants_next(self) -> bool:
        """Whether the next segment is not allocated yet: call `prepare_next` soon."""
        return self._newest >= 0 and self._newest + self._segment_bytes not in self._files

    def prepare_next(self) -> bool:
        """Allocate the next segment; False if the disk is full: try again later."""
        return done_if_room(lambda: self.prepare(self._newest + self._segment_bytes))

    def write(self, writes: Sequence[Write]) -> None:
        """Write bytes at their log positions; adjacent pieces are written as one."""
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
        """Sync all segments written since the last sync."""
        for base in sorted(self._dirty):
            self._files[base].sync()
        self._dirty.clear()

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()


class SegmentReader:
    """Reads segments; closes the least recently used files.

    on_lost  called with log positions [from, to) of a sector that the disk cannot read, and the
             error
    """

    def __init__(self, storage: Storage, directory: str, segment_bytes: int) -> None:
        self._storage = storage
        self._directory = directory
        self._files: OpenFiles[int, File] = OpenFiles(_OPEN_MAX)
        self._lost: set[int] = set()  # sectors of the log that the disk could not read
        self.segment_bytes = segment_bytes
        self.on_lost: Callable[[int, int, HorologError], None] = lambda first, stop, why: None

    def bytes_at(self, position: int, length: int) -> bytes:
        """Read bytes of one segment; fewer at its end.  DISK_FAILED if it is gone or unreadable."""
        at = position % self.segment_bytes
        return self._file(position - at).read(at, min(length, self.segment_bytes - at))

    def bytes_around(self, position: int, length: int) -> bytes:
        """Read bytes of one segment; unreadable sectors are zeros, each reported once to `on_lost`.

        DISK_FAILED if there are more such sectors than a working disk has, or nothing else can be
        read either: then the disk has failed and may work again later, so no bytes may count as
        lost.
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

    def write_back(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Write back bytes that have flipped: (log position, the right bytes)."""
        for position, content in pieces:
            at = position % self.segment_bytes
            self._file(position - at).write(at, content)

    def _file(self, base: int) -> File:
        file = self._files.get(base)
        return self._files.open(base, self._opened) if file is None else file

    def path(self, position: int) -> str:
        """Return the path of the segment file that holds a log position."""
        return f"{self._directory}/{segment_name(position - position % self.segment_bytes)}"

    def _opened(self, base: int) -> File:
        path = self.path(base)
        try:
            return self._storage.open(path)
        except FileNotFoundError as error:
            # Not a hole: the moved file may be whole, so no message may count as consumed for this.
            raise refused(
                path,
                "the segment has gone; was the data directory moved?",
                code=ErrorCode.DISK_FAILED,
            ) from error

    def drop_below(self, position: int) -> None:
        """Close the segments below a log position, so that removing them frees their space."""
        for base in [base for base in self._files if base + self.segment_bytes <= position]:
            self._files.drop(base)

    def close(self) -> None:
        """Close all files."""
        self._files.close()
