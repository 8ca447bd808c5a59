"""Restoring a backup into an empty directory.

Every byte is checked against the manifest while it is copied.  `meta` is written last, and `horolog
serve` refuses a directory without it: an interrupted restore is never taken for a data directory.
A restore that fails removes what it has written.

Where no other backup is left, damage can be accepted: files are copied as they are, and a start
treats them as it treats a disk that rots.  If the manifest itself is damaged, the files are taken
as they lie there (`rebuilt_manifest`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import orjson
from zlib_ng.zlib_ng import crc32

from horolog.backup.copying import (
    Progress,
    directories_above,
    sync_tree,
)
from horolog.backup.manifest import (
    MANIFEST_NAME,
    UNCHECKED,
    Manifest,
    StoredFile,
    read_manifest,
)
from horolog.backup.pieces import read_pieces, write_pieces
from horolog.backup.rebuilt_manifest import rebuild_manifest
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import BACKUP_DAMAGE_MAX
from horolog.storage.api import File, Storage, read_file, replace_file
from horolog.storage.disk import Disk
from horolog.storage.lock import DirectoryLock
from horolog.storage.meta import META, RESTORING
from horolog.storage.sectors import ReadsAround

BACKUP = "BACKUP"
DATA_DIR = "--data-dir"


def open_backup(
    directory: Path, *, accepts_damage: bool = False
) -> tuple[Manifest, DirectoryLock | None]:
    """Read the manifest of a complete backup, and lock the backup against being replaced.

    NOT_FOUND if there is none; DAMAGED, VERSION_UNSUPPORTED as `read_manifest`; DIRECTORY_IN_USE
    while a backup is made.  A directory that cannot be written to, on a read-only medium, gets no
    lock.

    accepts_damage  make a manifest of the files that lie there if the manifest is damaged or
                    missing
    """
    found = None
    if accepts_damage and directory.is_dir():
        found = rebuild_manifest(directory)
    if found is None and not (directory / MANIFEST_NAME).is_file():
        raise refused(BACKUP, f"there is no backup in {directory}", code=ErrorCode.NOT_FOUND)
    lock = None
    try:
        lock = DirectoryLock(directory)
    except HorologError as error:
        if error.code is not ErrorCode.DIRECTORY_READ_ONLY:
            why = error.message.removeprefix(f"{DATA_DIR}: ")
            raise refused(BACKUP, why, code=error.code) from error
    try:
        manifest = _manifest_of(directory, found)
        if manifest is None or not manifest.complete:
            raise refused(
                BACKUP, f"no backup into {directory} has been completed", code=ErrorCode.NOT_FOUND
            )
    except BaseException:
        if lock is not None:
            lock.release()
        raise
    return manifest, lock


def _manifest_of(directory: Path, found: Manifest | None) -> Manifest | None:
    """Read the manifest of a backup directory; return `found` if it is damaged or missing."""
    try:
        return read_manifest(Disk(directory, read_only=True), BACKUP) or found
    except HorologError as error:
        if error.code is not ErrorCode.DAMAGED:
            raise
        if found is None:
            why = (
                f"{error.message.removeprefix(f'{BACKUP}: ')}; --accept-damage takes the files as "
                "they lie there"
            )
            raise refused(BACKUP, why, code=error.code) from error
        return found


def lock_target(directory: Path) -> DirectoryLock:
    """Lock an empty directory, making it if it is missing; DIRECTORY_FOREIGN if it is not empty."""
    if directory.is_dir():
        strange = sorted(
            path.name for path in directory.iterdir() if path.name not in ("lock", "lost+found")
        )
        if strange:
            why = "an interrupted restore" if RESTORING in strange else f"found {strange[0]!r}"
            raise refused(
                DATA_DIR,
                f"{directory} is not empty ({why}); name an empty or new one",
                code=ErrorCode.DIRECTORY_FOREIGN,
            )
    return DirectoryLock(directory)


class Restore:
    """One restore from `source`, a backup directory, into `target`, an empty data directory."""

    def __init__(
        self,
        source: Storage,
        target: Storage,
        manifest: Manifest,
        progress: Progress,
        report: Callable[[], None] = lambda: None,
        *,
        accepts_damage: bool = False,
    ) -> None:
        self.damage: list[str] = []  # differences from the manifest, if damage is accepted
        self._accepts_damage = accepts_damage
        self._source = source
        self._target = target
        self._manifest = manifest
        self._progress = progress
        self._report = report  # called when `progress` has changed

    def run(self) -> None:
        """Copy and check everything.

        DAMAGED names a file that differs from the manifest, unless damage is accepted.
        """
        files = self._manifest.files
        self._progress.files = len(files)
        self._progress.bytes = self._manifest.bytes
        meta = next((file for file in files if file.path == META), None)
        if meta is None:
            raise refused(BACKUP, f"the manifest names no {META}", code=ErrorCode.DAMAGED)
        if self._manifest.is_rebuilt:
            self._record_or_refuse(
                f"{MANIFEST_NAME} is damaged or missing: all files are as they lie there"
            )
        others = [file for file in files if file is not meta]
        try:
            replace_file(self._target, "", RESTORING, b"")
            for file in others:
                self._copy_file(file)
            sync_tree(self._target, [file.path for file in others])
            content = self._read_meta(meta)
            self._target.remove(RESTORING)
            self._target.sync_dir("")
            replace_file(self._target, "", META, content)
        except BaseException:
            with suppress(HorologError):
                self._remove_written(others)
            raise

    def _copy_file(self, file: StoredFile) -> None:
        if above := directories_above(file.path):
            self._target.make_dir(above[0])
        source = self._open_source(file)
        if source is None:
            return
        target = self._target.open(file.path, create=True)
        crc = 0
        try:
            for piece in write_pieces(target, self._pieces(source, file)):
                crc = crc32(piece, crc)
                self._progress.bytes_done += len(piece)
                self._report()
        finally:
            source.close()
            target.close()
        self._check_crc(file, crc)
        self._progress.files_done += 1
        self._report()

    def _pieces(self, source: File, file: StoredFile) -> Iterator[bytes]:
        if not self._accepts_damage:
            return read_pieces(source, file.bytes, file.place)
        return read_pieces(
            ReadsAround(source, BACKUP_DAMAGE_MAX), min(file.bytes, source.size()), file.place
        )

    def _open_source(self, file: StoredFile) -> File | None:
        """Open a file of the backup; return None if it is missing, and damage is accepted."""
        try:
            source = self._source.open(file.place)
        except FileNotFoundError:
            self._record_or_refuse(f"{file.place} is missing")
            return None
        if source.size() != file.bytes:
            try:
                self._record_or_refuse(f"{file.place} has {source.size()} bytes, not {file.bytes}")
            except HorologError:
                source.close()
                raise
        return source

    def _check_crc(self, file: StoredFile, crc: int) -> None:
        if crc != file.crc32 != UNCHECKED:
            self._record_or_refuse(
                f"{file.place} is damaged: its CRC is {crc:08x}, the manifest says {file.crc32:08x}"
            )

    def _record_or_refuse(self, what: str) -> None:
        if not self._accepts_damage:
            text = f"{what}; --accept-damage restores it all the same"
            raise refused(BACKUP, text, code=ErrorCode.DAMAGED)
        self.damage.append(what)

    def _read_meta(self, file: StoredFile) -> bytes:
        known = len(self.damage)
        source = self._open_source(file)
        if source is None:
            return b""  # `horolog salvage` writes `meta` again
        source.close()
        content = read_file(self._source, file.place)
        self._check_crc(file, crc32(content))
        is_whole = len(self.damage) == known and file.crc32 != UNCHECKED
        if is_whole and int(orjson.loads(content)["log_id"], 16) != self._manifest.log_id:
            raise refused(BACKUP, f"{file.place} belongs to another log", code=ErrorCode.DAMAGED)
        self._progress.files_done += 1
        self._progress.bytes_done += len(content)
        self._report()
        return content

    def _remove_written(self, files: list[StoredFile]) -> None:
        for path in (META, RESTORING, f"{META}.tmp", f"{RESTORING}.tmp"):
            self._target.remove(path)
        for file in files:
            above = directories_above(file.path)
            if above:
                self._target.remove_dir(above[-1])
            else:
                self._target.remove(file.path)
