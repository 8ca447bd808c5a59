"""Restoring a backup into an empty directory.

Every byte is checked against the manifest while it is copied.  `meta` comes last, and a directory without it is
refused by `horolog serve`: a restore that is interrupted is never taken for a data directory.  One that fails
removes what it has written.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import orjson
from zlib_ng.zlib_ng import crc32

from horolog.backup.copying import (
    Progress,
    directories_above,
    sync_tree,
)
from horolog.backup.manifest import MANIFEST_NAME, Manifest, StoredFile, read_manifest
from horolog.backup.pieces import read_pieces, write_pieces
from horolog.errors import ErrorCode, HorologError, refused
from horolog.storage.api import File, Storage, read_file, replace_file
from horolog.storage.disk import DirectoryLock, Disk

BACKUP = "BACKUP"
DATA_DIR = "--data-dir"
META = "meta"
MARK = "restoring"  # a file that is there until the restore is complete


def open_backup(directory: Path) -> tuple[Manifest, DirectoryLock | None]:
    """The manifest of a complete backup, and the lock that keeps a new one from replacing it.

    NOT_FOUND if there is none; DAMAGED, VERSION_UNSUPPORTED as `read_manifest`; DIRECTORY_IN_USE while a backup
    is made.  A directory that cannot be written to, a read-only medium, has no lock.
    """
    if not (directory / MANIFEST_NAME).is_file():
        raise refused(BACKUP, f"there is no backup in {directory}", code=ErrorCode.NOT_FOUND)
    lock = None
    try:
        lock = DirectoryLock(directory)
    except HorologError as error:
        if error.code is not ErrorCode.DIRECTORY_READ_ONLY:
            why = error.message.removeprefix(f"{DATA_DIR}: ")
            raise refused(BACKUP, why, code=error.code) from error
    try:
        manifest = read_manifest(Disk(directory, read_only=True), BACKUP)
        if manifest is None or not manifest.complete:
            raise refused(
                BACKUP, f"no backup into {directory} has been completed", code=ErrorCode.NOT_FOUND
            )
    except BaseException:
        if lock is not None:
            lock.release()
        raise
    return manifest, lock


def lock_target(directory: Path) -> DirectoryLock:
    """Lock an empty directory, making it if it is missing; DIRECTORY_FOREIGN if it is not empty."""
    if directory.is_dir():
        strange = sorted(
            path.name for path in directory.iterdir() if path.name not in ("lock", "lost+found")
        )
        if strange:
            why = "an interrupted restore" if MARK in strange else f"found {strange[0]!r}"
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
    ) -> None:
        self._source = source
        self._target = target
        self._manifest = manifest
        self._progress = progress
        self._report = report  # called when `progress` has changed

    def run(self) -> None:
        """Copy and check everything; DAMAGED names the file that is not as the manifest says."""
        files = self._manifest.files
        self._progress.files = len(files)
        self._progress.bytes = self._manifest.bytes
        meta = next((file for file in files if file.path == META), None)
        if meta is None:
            raise refused(BACKUP, f"the manifest names no {META}", code=ErrorCode.DAMAGED)
        others = [file for file in files if file is not meta]
        try:
            replace_file(self._target, "", MARK, b"")
            for file in others:
                self._copy(file)
            sync_tree(self._target, [file.path for file in others])
            content = self._checked_meta(meta)
            self._target.remove(MARK)
            self._target.sync_dir("")
            replace_file(self._target, "", META, content)
        except BaseException:
            with suppress(HorologError):
                self._undo(others)
            raise

    def _copy(self, file: StoredFile) -> None:
        if above := directories_above(file.path):
            self._target.make_dir(above[0])
        source = self._opened(file)
        target = self._target.open(file.path, create=True)
        crc = 0
        try:
            for piece in write_pieces(target, read_pieces(source, file.bytes, file.place)):
                crc = crc32(piece, crc)
                self._progress.bytes_done += len(piece)
                self._report()
        finally:
            source.close()
            target.close()
        self._check(file, crc)
        self._progress.files_done += 1
        self._report()

    def _opened(self, file: StoredFile) -> File:
        try:
            source = self._source.open(file.place)
        except FileNotFoundError:
            raise refused(BACKUP, f"{file.place} is missing", code=ErrorCode.DAMAGED) from None
        if source.size() != file.bytes:
            size = source.size()
            source.close()
            raise refused(
                BACKUP, f"{file.place} has {size} bytes, not {file.bytes}", code=ErrorCode.DAMAGED
            )
        return source

    def _check(self, file: StoredFile, crc: int) -> None:
        if crc != file.crc32:
            raise refused(
                BACKUP,
                f"{file.place} is damaged: its CRC is {crc:08x}, the manifest says"
                f" {file.crc32:08x}",
                code=ErrorCode.DAMAGED,
            )

    def _checked_meta(self, file: StoredFile) -> bytes:
        self._opened(file).close()
        content = read_file(self._source, file.place)
        self._check(file, crc32(content))
        if int(orjson.loads(content)["log_id"], 16) != self._manifest.log_id:
            raise refused(BACKUP, f"{file.place} belongs to another log", code=ErrorCode.DAMAGED)
        self._progress.files_done += 1
        self._progress.bytes_done += len(content)
        self._report()
        return content

    def _undo(self, files: list[StoredFile]) -> None:
        for path in (META, MARK, f"{META}.tmp", f"{MARK}.tmp"):
            self._target.remove(path)
        for file in files:
            above = directories_above(file.path)
            if above:
                self._target.remove_dir(above[-1])
            else:
                self._target.remove(file.path)
