"""The directory of a backup: whether it may be used, and belongs to this log."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from horolog.backup.manifest import MANIFEST_NAME, Manifest, read_manifest, write_manifest
from horolog.errors import ErrorCode, HorologError
from horolog.storage.disk import Disk
from horolog.storage.lock import DirectoryLock
from horolog.storage.meta import META

FIELD = "directory"  # its name in the admin API


class BackupDirectory(NamedTuple):
    """A backup directory that is locked; call `lock.release` when done."""

    directory: Path
    disk: Disk
    lock: DirectoryLock
    former: Manifest


def refused(why: str) -> HorologError:
    """Build a FORBIDDEN error that names the directory."""
    return HorologError(ErrorCode.FORBIDDEN, f"{FIELD}: {why}", field=FIELD)


def open_backup_directory(text: str, data_dir: Path, log_id: int) -> BackupDirectory:
    """Lock a backup directory, making it if it is missing.

    BAD_REQUEST if the path is not absolute.  FORBIDDEN if the directory is, lies in, or holds the
    broker's data directory, is another data directory, holds other files, is the backup of another
    log, or cannot be used.
    """
    if not text.startswith("/"):
        raise HorologError(
            ErrorCode.BAD_REQUEST,
            f"{FIELD}: {text!r} is not an absolute path on the broker's machine",
            field=FIELD,
        )
    try:
        directory = Path(text).resolve()
        _check_apart(directory, data_dir.resolve())
        lock = _lock(directory)
    except (OSError, ValueError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise refused(f"{text!r} cannot be used ({why})") from error
    try:
        return BackupDirectory(
            directory, Disk(directory), lock, _former(Disk(directory), directory, log_id)
        )
    except BaseException:
        lock.release()
        raise


def _check_apart(directory: Path, data_dir: Path) -> None:
    if directory == data_dir:
        raise refused(f"{directory} is this broker's data directory")
    if directory.is_relative_to(data_dir):
        raise refused(f"{directory} lies in this broker's data directory {data_dir}")
    if data_dir.is_relative_to(directory):
        raise refused(f"{directory} holds this broker's data directory {data_dir}")
    if (directory / META).exists():
        raise refused(f"{directory} is a data directory (it has a file `meta`)")
    if directory.exists() and not directory.is_dir():
        raise refused(f"{directory} is not a directory")


def _lock(directory: Path) -> DirectoryLock:
    # Before the lock makes a file there: a directory that is not ours must stay as it is.
    strange = _strange_names(directory)
    if strange and not (directory / MANIFEST_NAME).exists():
        raise refused(f"{directory} is not empty and no backup (found {strange[0]!r})")
    try:
        return DirectoryLock(directory)
    except HorologError as error:
        why = error.message.removeprefix("--data-dir: ")
        if error.code is ErrorCode.DIRECTORY_IN_USE:
            why += "; a backup or a restore is under way there"
        raise refused(why) from error


def _strange_names(directory: Path) -> list[str]:
    if not directory.exists():
        return []
    return sorted(
        path.name
        for path in directory.iterdir()
        if path.name not in ("lock", "lost+found", f"{MANIFEST_NAME}.tmp")
    )


def _former(disk: Disk, directory: Path, log_id: int) -> Manifest:
    """Return the manifest of a directory, or one that claims an empty directory for this log."""
    try:
        found = read_manifest(disk, FIELD)
    except HorologError as error:
        raise refused(f"{directory}: {error.message.removeprefix(f'{FIELD}: ')}") from error
    if found is None:
        found = Manifest(0, log_id, "", 0, 0, 0, 0, [])
        write_manifest(disk, found)
    if found.log_id != log_id:
        raise refused(
            f"{directory} holds a backup of log {found.log_id:016x}, this broker's is {log_id:016x}"
        )
    return found
