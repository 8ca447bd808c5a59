"""The real disk: files of one directory tree."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from horolog.errors import ErrorCode, HorologError
from horolog.storage.api import Unreadable
from horolog.storage.descriptors import with_reserve

CODES = {  # any other error is DISK_FAILED
    errno.ENOSPC: ErrorCode.DISK_FULL,
    errno.EDQUOT: ErrorCode.DISK_FULL,
    errno.EROFS: ErrorCode.DIRECTORY_READ_ONLY,
    errno.EACCES: ErrorCode.DIRECTORY_READ_ONLY,
    errno.EPERM: ErrorCode.DIRECTORY_READ_ONLY,
    errno.EMFILE: ErrorCode.TOO_MANY_FILES,
    errno.ENFILE: ErrorCode.TOO_MANY_FILES,
}
# Linux's errors of a read whose bytes the medium has lost, or returns with a wrong check sum.
_OF_THE_MEDIUM = frozenset(
    getattr(errno, name, errno.EIO)
    for name in ("EIO", "EILSEQ", "ENODATA", "EBADMSG", "EUCLEAN", "EREMOTEIO")
)
_NOT_SUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})  # by this file system
_ZEROS = 1 << 20  # bytes written at once where space cannot be reserved otherwise
_WRITE = 2  # SYNC_FILE_RANGE_WRITE, of Linux's fcntl.h: begin, and wait for nothing
_sync_file_range = getattr(ctypes.CDLL(None), "sync_file_range", None)
if _sync_file_range is not None:
    _sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


@contextmanager
def _translated(operation: str, path: Path) -> Iterator[None]:
    """Turn an OSError into the HorologError of its kind; a missing file stays FileNotFoundError.

    A link to a missing file is no missing file: the directory lists it.
    """
    try:
        yield
    except FileNotFoundError as error:
        if path.is_symlink():
            raise failure(operation, path, error) from error
        raise
    except OSError as error:
        raise failure(operation, path, error) from error


def sync_names(fd: int) -> bool:
    """Return when the names in an open directory are durable.

    Returns False where the file system cannot sync directories.
    """
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
        return False
    return True


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable, where its file system can sync one."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_names(fd)
    finally:
        os.close(fd)


def sync_new_file(path: Path) -> None:
    """Sync a file that was just written, and the directory that names it."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    sync_directory(path.parent)


def make_directory(directory: Path, mode: int = 0o777) -> None:
    """Make a directory, and missing ones above it, durably: a power cut does not remove a new name.

    Each name is synced before the next lower directory is made, so a killed process leaves at most
    one name that is not synced: that of the lowest directory that exists.  It is synced here too.
    """
    if not directory.is_dir():
        make_directory(directory.parent)
        directory.mkdir(mode, exist_ok=True)
    try:
        sync_directory(directory.parent)
    except PermissionError:
        pass  # another user's directory, which may be writable or not
    except OSError as error:
        if error.errno != errno.EROFS:
            raise


def _check_takes_files(directory: Path) -> None:
    """Raise PermissionError if we may make no files in a directory: else a turn would fail later."""
    try:
        os.close(os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC))
    except PermissionError:
        raise
    except OSError:
        pass  # no space, or no such files in this file system: whoever makes one will see


def failure(operation: str, path: Path, error: OSError) -> HorologError:
    """Convert the system's error of an operation on a file into the HorologError of its kind."""
    if operation == "read" and error.errno in _OF_THE_MEDIUM:
        return Unreadable(str(path), str(error.strerror))
    code = CODES.get(error.errno or 0, ErrorCode.DISK_FAILED)
    if operation.startswith("sync") and code is not ErrorCode.TOO_MANY_FILES:
        # Also for want of space: what was written may be lost already.
        code = ErrorCode.DISK_FAILED
    if operation == "map" and error.errno == errno.ENOMEM:
        code = ErrorCode.TOO_MANY_FILES  # or too many mappings
    why = f"{error.strerror}{owner_hint(path) if isinstance(error, PermissionError) else ''}"
    if isinstance(error, FileExistsError):
        why = "it is a file, not a directory"
    if isinstance(error, FileNotFoundError):
        why += f"; it is a link to {os.readlink(path)}"
    return HorologError(code, f"{operation} {path}: {why}", field=str(path))


def owner_hint(path: Path) -> str:
    """Explain that another user owns a file that we may not use; "" if that is not the reason."""
    try:
        owner = path.stat().st_uid
    except OSError:
        return ""
    if owner == os.geteuid():
        return ""
    return f"; it belongs to user {owner}, and this is user {os.geteuid()}: give it back with chown"


class DiskFile:
    """A file of the real disk (`storage.api.File`), also closed by garbage collection."""

    _fd = -1

    def __init__(self, path: Path, *, create: bool, read_only: bool) -> None:
        self._path = path
        self._view = memoryview(b"")
        with _translated("open", path):
            # Without O_NONBLOCK, a FIFO in the place of a file would wait for a writer.
            flags = os.O_CLOEXEC | os.O_NONBLOCK | (os.O_RDONLY if read_only else os.O_RDWR)
            flags |= os.O_CREAT if create else 0
            self._fd = with_reserve(lambda: os.open(path, flags, 0o644))

    def size(self) -> int:
        """Return the current length."""
        with _translated("stat", self._path):
            return os.fstat(self._fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        """Read up to `length` bytes from `offset`; fewer only at the end of the file."""
        with _translated("read", self._path):
            content = os.pread(self._fd, length, offset)
            while len(content) < length:
                more = os.pread(self._fd, length - len(content), offset + len(content))
                if not more:
                    break
                content += more
            return content

    def view(self) -> memoryview:
        """Return a read-only mapped view; the same view while the size is unchanged."""
        size = self.size()
        if size != len(self._view):
            with _translated("map", self._path):
                self._view = (
                    memoryview(with_reserve(lambda: mmap.mmap(self._fd, size, prot=mmap.PROT_READ)))
                    if size
                    else memoryview(b"")
                )
        return self._view

    def write(self, offset: int, content: bytes | bytearray | memoryview) -> None:
        """Put all of `content` at `offset`."""
        try:  # without `_translated`, which costs as much as a small write
            written = os.pwrite(self._fd, content, offset)
            while written < len(content):
                offset += written
                content = memoryview(content)[written:]
                written = os.pwrite(self._fd, content, offset)
        except OSError as error:
            raise failure("write", self._path, error) from error

    def allocate(self, size: int) -> None:
        """Make the file at least `size` bytes long with its space reserved."""
        with _translated("allocate", self._path):
            end = os.fstat(self._fd).st_size
            if size <= end:
                return
            try:
                os.posix_fallocate(self._fd, 0, size)
            except OSError as error:
                if error.errno not in _NOT_SUPPORTED:
                    raise
                for at in range(end, size, _ZEROS):  # written zeros reserve their space as well
                    self.write(at, bytes(min(_ZEROS, size - at)))

    def truncate(self, size: int) -> None:
        """Cut (or zero-extend) to `size` bytes."""
        with _translated("truncate", self._path):
            os.ftruncate(self._fd, size)

    def begin_write_back(self, offset: int, length: int) -> None:
        """Have the system begin to write these bytes; do nothing outside Linux, where it cannot."""
        if _sync_file_range is not None:
            _sync_file_range(self._fd, offset, length, _WRITE)  # `sync` reports failures

    def sync(self) -> None:
        """Return when content and length are durable (fdatasync covers a changed length)."""
        with _translated("sync", self._path):
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Close; a mapped view stays valid until it is dropped."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._view = memoryview(b"")
            with _translated("close", self._path):
                os.close(fd)

    def __del__(self) -> None:
        # Objects dropped in the middle of their work, as brokers in tests are, must not use up the
        # process's descriptors.
        if self._fd >= 0:
            os.close(self._fd)


class Disk:
    """A directory of the real disk (`storage.api.Storage`).

    read_only          files are opened for reading only: another's directory, or a medium that
                       cannot be written to
    check              called before anything is opened or changed by its path; raises if the path
                       now leads to another directory than that of the open files (`storage.lock`)
    syncs_directories  False once the file system has refused to sync a directory: names may then be
                       lost in a power cut
    """

    def __init__(
        self,
        root: Path,
        *,
        read_only: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.syncs_directories = True
        self._root = root
        self._read_only = read_only
        self._check = check

    def _at(self, path: str) -> Path:
        return self._root / path

    def _checked(self, path: str) -> Path:
        """Return the full path of what is opened or changed, after `check`."""
        self._check()
        return self._at(path)

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open for reading and writing."""
        return DiskFile(self._checked(path), create=create, read_only=self._read_only)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of that name exists."""
        with _translated("stat", self._at(path)):
            return self._at(path).exists()

    def is_file(self, path: str) -> bool:
        """Return whether the path is a file, or a link to one."""
        with _translated("stat", self._at(path)):
            return self._at(path).is_file()

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a directory; empty if it is missing or a file."""
        with _translated("list", self._at(path)):
            try:
                return sorted(with_reserve(lambda: os.listdir(self._at(path))))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def make_dir(self, path: str) -> None:
        """Make a directory and its parents; refuse one that is there and takes no files of ours."""
        with _translated("make directory", self._at(path)):
            place = self._checked(path)
            if place.is_dir():
                _check_takes_files(place)
            else:
                place.mkdir(parents=True, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Rename `source` to `target` atomically."""
        with _translated("rename", self._at(source)):
            os.replace(self._checked(source), self._at(target))

    def remove(self, path: str) -> None:
        """Remove a file, or a directory in its place; missing is fine."""
        with _translated("remove", self._at(path)):
            try:
                self._checked(path).unlink(missing_ok=True)
            except IsADirectoryError:
                self.remove_dir(path)

    def remove_dir(self, path: str) -> None:
        """Remove a directory with all its content, or a file in its place; missing is fine."""
        with _translated("remove", self._at(path)):
            if self._checked(path).is_dir():
                with_reserve(lambda: shutil.rmtree(self._at(path)))
            else:
                self._at(path).unlink(missing_ok=True)

    def sync_dir(self, path: str) -> None:
        """Return when the names in that directory are durable; at once if it cannot be synced."""
        with _translated("sync directory", self._at(path)):
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            fd = with_reserve(lambda: os.open(self._checked(path), flags))
            try:
                if not sync_names(fd):
                    self.syncs_directories = False
            finally:
                os.close(fd)

    def free_bytes(self) -> int:
        """Return the space left for a process that is not root."""
        with _translated("statvfs", self._root):
            found = os.statvfs(self._root)
            return found.f_bavail * found.f_frsize

    def idle_ms(self, path: str) -> int:
        """Return how long ago a file or the names in a directory were changed; 0 if missing."""
        with _translated("stat", self._at(path)):
            try:
                changed_ns = os.lstat(self._at(path)).st_mtime_ns
            except FileNotFoundError:
                return 0
            return (time.time_ns() - changed_ns) // 1_000_000
