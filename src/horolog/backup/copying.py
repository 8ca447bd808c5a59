"""Copying the files of a checkpoint into a backup directory.

A file of the former backup is reused, without copying, when its path and length are the same, its
first and last 4 KiB are the same bytes, and both backups belong to one history: files of a shard
only grow, or never change, so files of the same length are the same.  One history means that the
frame at which the former backup ended is still in this log; a directory that was restored from an
older copy, and has continued differently, has another frame there.  No file is reused then, nor
when that frame has been dropped.

Damage does not end a backup: files are copied as they are, and the manifest states the damage.  The
log's frames are verified while they are copied; other files are reported when they are missing or
too short.  Sectors that the disk cannot read become zeros, and are reported as damage; a disk with
very many of them is refused, and a read that fails for any other reason than the medium fails the
backup.  The former backup's copy of a damaged file is kept, for it may be intact.  A copy with
damage is reused as long as the source reads the same at the damaged places.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from zlib_ng.zlib_ng import crc32

from horolog.backup.manifest import (
    MISSING,
    SHORT,
    UNREADABLE,
    Damaged,
    Manifest,
    StoredFile,
    is_number_name,
    number_name,
    write_manifest,
)
from horolog.backup.pieces import Reads, read_pieces, write_pieces
from horolog.broker.life.named_files import NamedFile
from horolog.errors import HorologError
from horolog.limits import BACKUP_DAMAGE_MAX
from horolog.log.file_names import number_of
from horolog.log.frame import HEADER_BYTES, FrameHeader, parse
from horolog.log.frame_watch import FrameWatch
from horolog.log.segment import SegmentReader
from horolog.storage.api import File, Storage, size_of
from horolog.storage.sectors import ReadsAround

_EDGE_BYTES = 4_096


@dataclass
class Progress:
    """Progress of a backup or a restore; written by its thread, read by others."""

    files: int = 0
    files_done: int = 0
    bytes: int = 0
    bytes_done: int = 0
    copied_bytes: int = 0  # the rest was in the backup already
    copied_files: int = 0


class Cancelled(Exception):
    """Raised out of a copy when `stopped` returns True."""


def same_history(log: SegmentReader, manifest: Manifest) -> bool:
    """Return whether the frame at which the backup of a manifest ended is in this log."""
    if not manifest.complete:
        return False
    header = frame_at(log, manifest.last_frame)
    return header is not None and header_crc(log, header) == manifest.frame_crc


def frame_at(log: SegmentReader, position: int) -> FrameHeader | None:
    """Return the header at a log position; None if there is none, or its segment is dropped."""
    try:
        header = parse(log.bytes_at(position, HEADER_BYTES))
    except FileNotFoundError:
        return None
    return header if header is not None and header.base == position else None


def header_crc(log: SegmentReader, header: FrameHeader) -> int:
    """Return the CRC of a header as it stands in the log."""
    return int.from_bytes(log.bytes_at(header.base + HEADER_BYTES - 4, 4), "little")


def directories_above(path: str) -> list[str]:
    """Return all directories that a path lies in, the nearest first; without the root."""
    found = []
    while path := path.rpartition("/")[0]:
        found.append(path)
    return found


def sync_tree(target: Storage, paths: Sequence[str]) -> None:
    """Make the names of these files durable, and those of all directories above them."""
    directories = {directory for path in paths for directory in directories_above(path)}
    for directory in [*sorted(directories, reverse=True), ""]:
        target.sync_dir(directory)


class Copy:
    """One backup: `run` it in a thread.

    source         the data directory of a running broker; no named file may be removed meanwhile
    target         the backup directory
    former         the manifest of the former backup
    segment_bytes  of the log
    reuse          whether files of the former backup may be reused
    stopped        asked between chunks
    """

    def __init__(
        self,
        source: Storage,
        target: Storage,
        former: Manifest,
        *,
        segment_bytes: int,
        reuse: bool,
        progress: Progress,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._source = source
        self._target = target
        self._log_id = former.log_id
        self._segment_bytes = segment_bytes
        self._former = {file.path: file for file in former.files} if reuse else {}
        # Damage that the former backup found.
        self._reported_before = former.damaged if reuse else []
        self._was_full = len(self._reported_before) >= BACKUP_DAMAGE_MAX
        self._damaged: list[Damaged] = []
        self._number = former.number + 1
        self._progress = progress
        self._stopped = stopped

    def run(self, named: Sequence[NamedFile], manifest: Manifest) -> Manifest:
        """Copy the named files; return the manifest with the files, already durable.

        `manifest` has everything but number and files, and the damage that is known already.
        DISK_FULL and other failures of either disk are raised; then the former backup is as it was.
        """
        self._damaged = list(manifest.damaged)
        self._target.remove_dir(number_name(self._number))  # of an interrupted backup
        self._measure(named)
        files = [file for each in named if (file := self._store_file(each)) is not None]
        copied = [file.place for file in files if file.number == self._number]
        sync_tree(self._target, copied)
        made = manifest._replace(number=self._number, files=files, damaged=self._damaged)
        write_manifest(self._target, made)
        self._sweep(made)
        return made

    def _measure(self, named: Sequence[NamedFile]) -> None:
        self._progress.files = len(named)
        for path, size, rebuilt in named:
            del rebuilt
            self._progress.bytes += size_of(self._source, path) if size is None else size

    def _store_file(self, named: NamedFile) -> StoredFile | None:
        """Copy or reuse one file as far as it exists; return None if it does not."""
        try:
            file = self._source.open(named.path)
        except FileNotFoundError:
            # `_measure` has counted the file.
            self._progress.files -= 1
            self._progress.bytes -= named.bytes or 0
            return None if named.rebuilt else self._report_missing(named)
        try:
            there = file.size()
            size = there if named.bytes is None else min(there, named.bytes)
            if named.bytes is not None and size < named.bytes:
                self._record_damage(
                    named.path,
                    SHORT,
                    size,
                    f"the file ends here; its checkpoint names {named.bytes} bytes",
                )
                self._progress.bytes -= named.bytes - size
            taken = self._reuse_file(file, named.path, size)
            if taken is not None:
                self._damaged += self._unreadable_before(named.path)
            else:
                taken = self._copy_file(file, named.path, size)
        finally:
            file.close()
        self._progress.files_done += 1
        return taken

    def _report_missing(self, named: NamedFile) -> StoredFile | None:
        """Report a missing file; use the former backup's copy of it if that has its full length."""
        former = self._former.get(named.path)
        if former is not None and (
            named.bytes not in (None, former.bytes) or self._is_lost(former)
        ):
            former = None
        # A later backup may reuse the copy, so its own damage stays reported.
        unreadable = [] if former is None else self._unreadable_before(named.path)
        if former is None:
            rest = "it is left out"
        elif unreadable:
            rest = "the copy of the backup before, which is damaged, is used"
        else:
            rest = "the copy of the backup before is whole, and is used"
        self._record_damage(
            named.path, MISSING, 0, f"the file is missing, and its checkpoint names it; {rest}"
        )
        self._damaged += unreadable
        return former

    def _is_lost(self, stored: StoredFile) -> bool:
        """Return whether the former backup no longer has its copy of a file."""
        place, target = stored.place, self._target
        return not target.exists(place) or size_of(target, place) != stored.bytes

    def _unreadable_before(self, path: str) -> list[Damaged]:
        """Return the damage that the former backup's copy of a file holds."""
        return [
            each for each in self._reported_before if each.path == path and each.kind == UNREADABLE
        ]

    def _record_damage(self, path: str, kind: str, position: int, what: str) -> None:
        """Record damage of a file, and the former backup's copy of the file to be kept."""
        if len(self._damaged) >= BACKUP_DAMAGE_MAX:
            return
        former = self._former.get(path)
        kept = next(
            (each.before for each in self._reported_before if each.path == path and each.before), 0
        )
        before = kept or (former.number if former is not None else 0)
        self._damaged.append(Damaged(path, kind, position, what, before))

    def _reuse_file(self, file: File, path: str, size: int) -> StoredFile | None:
        former = self._former.get(path)
        # The few files beside a shard are replaced, not grown.
        if former is None or former.bytes != size or "/" not in path:
            return None
        if self._was_full and former.number == self._number - 1:
            return None  # it may have damage for which the list had no room
        try:
            stored = self._target.open(former.place)
        except FileNotFoundError:
            return None
        source = ReadsAround(file, BACKUP_DAMAGE_MAX)
        try:
            if stored.size() != size:
                return None
            if _differ(stored, source, {0, max(0, size - _EDGE_BYTES)}, size) or source.gaps:
                return None  # with gaps: the file is copied, and they are reported
            damaged = {
                each.position - (segment_base(path) or 0) for each in self._unreadable_before(path)
            }
            around = ReadsAround(file, 2 * BACKUP_DAMAGE_MAX)  # a place may lie in two sectors
            if _differ(stored, around, damaged, size):
                return None  # the damage has been put right
        finally:
            stored.close()
        self._progress.bytes_done += size
        return former

    def _copy_file(self, file: File, path: str, size: int) -> StoredFile:
        stored = StoredFile(path, size, 0, self._number)
        self._target.make_dir(stored.place.rpartition("/")[0])
        copy = self._target.open(stored.place, create=True)
        crc = 0
        watch = self._watch(path)
        source = ReadsAround(file, BACKUP_DAMAGE_MAX)
        try:
            for piece in write_pieces(copy, read_pieces(source, size, path)):
                crc = crc32(piece, crc)
                if watch is not None:
                    watch.feed(piece)
                self._progress.bytes_done += len(piece)
                self._progress.copied_bytes += len(piece)
                if self._stopped():
                    raise Cancelled
        finally:
            copy.close()
        base = segment_base(path) or 0
        for first, stop in source.gaps:
            what = f"{stop - first} bytes cannot be read ({source.why}) and are zeros in the copy"
            self._record_damage(path, UNREADABLE, base + first, what)
        if watch is not None:
            watch.finish(is_whole=size == self._segment_bytes)
            for first, stop, what in watch.damage:
                self._record_damage(
                    path, UNREADABLE, first, f"{stop - first} bytes cannot be read: {what}"
                )
        self._progress.copied_files += 1
        return stored._replace(crc32=crc)

    def _watch(self, path: str) -> FrameWatch | None:
        """Return a watch over the frames of a log segment; None for any other file."""
        base = segment_base(path)
        return None if base is None else FrameWatch(base, self._log_id)

    def _sweep(self, made: Manifest) -> None:
        """Remove files that the manifest does not name, of former and interrupted backups."""
        kept = {file.place for file in made.files}
        kept |= {f"{number_name(each.before)}/{each.path}" for each in made.damaged if each.before}
        above = {directory for place in kept for directory in directories_above(place)}
        for name in self._target.list(""):
            if is_number_name(name):
                self._sweep_at(name, kept, above)

    def _sweep_at(self, path: str, kept: set[str], above: set[str]) -> None:
        if path in kept:
            return
        if path in above:
            for name in self._target.list(path):
                self._sweep_at(f"{path}/{name}", kept, above)
            return
        with suppress(HorologError):  # the path may be a directory
            self._target.remove(path)
        if self._target.exists(path):
            self._target.remove_dir(path)


def _differ(stored: Reads, source: Reads, places: Collection[int], size: int) -> bool:
    """Return whether a copy of `size` bytes differs from its source in 4 KiB at one of the places."""
    lengths = {at: min(_EDGE_BYTES, size - at) for at in places}
    return any(stored.read(at, n) != source.read(at, n) for at, n in lengths.items())


def segment_base(path: str) -> int | None:
    """Return the log position at which a segment begins; None for any other file."""
    place, _, name = path.rpartition("/")
    return number_of(name, "log") if place.endswith("/log") else None
