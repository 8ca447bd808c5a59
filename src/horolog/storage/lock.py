"""The lock that makes a data directory one broker's own, and the check that it is still in place.

If a directory is moved, or replaced by a copy, its open files move with it; a file opened by path
then lies in the other directory.  So `DirectoryLock.check` precedes each opening of a file
(`storage.disk`), at the latest that of the next segment or checkpoint, and the broker ends: what it
has acknowledged is in the directory it holds.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from horolog.errors import ErrorCode, HorologError, refused
from horolog.storage.disk import CODES, failure, make_directory, owner_hint
from horolog.storage.meta import META


def gone(path: str) -> HorologError:
    """Build the error of a path that is gone while the broker runs."""
    return HorologError(
        ErrorCode.DISK_FAILED,
        f"{path} is gone: was it, or the data directory, moved while the broker ran?",
        field=path,
    )


def _unusable(directory: Path, error: OSError) -> HorologError:
    code = CODES.get(error.errno or 0, ErrorCode.DISK_FAILED)
    path = Path(error.filename or directory)  # the directory, one above it, or its lock
    why = f"{error.strerror}{owner_hint(path) if isinstance(error, PermissionError) else ''}"
    return refused("--data-dir", f"{path}: {why}", code=code)


class DirectoryLock:
    """The lock of a data directory, held as long as the process lives or until `release`.

    Makes the directory if it is missing, its name durable.  DIRECTORY_IN_USE names the process that
    holds the lock.

    The directory itself is locked, and the file `lock` in it.  The first lock stays when the file
    is removed; the second is for file systems that cannot lock a directory (NFS), and names the
    process that holds it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._file = str(directory / "lock")
        self._directory_fd = self._fd = -1
        self._is_locked_itself = False  # whether the directory is locked, not only its file
        try:
            self._acquire(directory)
        except BaseException:
            self.release()
            raise

    def _acquire(self, directory: Path) -> None:
        try:
            # The directory holds messages: a new one is closed to other users of the machine.
            if not (directory / META).exists():  # which is written once its name is durable
                make_directory(directory, mode=0o700)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            self._directory_fd = os.open(directory, flags)
            # Before the file is made: nothing may change in a directory that is in use.
            self._lock_directory()
            self._fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except (FileExistsError, NotADirectoryError) as error:
            raise refused(
                "--data-dir", f"{directory} is not a directory", code=ErrorCode.DIRECTORY_FOREIGN
            ) from error
        except OSError as error:
            raise _unusable(directory, error) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise _unusable(directory, error) from error
            raise self._in_use() from error
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            pass  # a full disk: the lock holds, but the file does not name its holder

    def _lock_directory(self) -> None:
        try:
            fcntl.flock(self._directory_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._is_locked_itself = True
        except BlockingIOError as error:
            raise self._in_use() from error
        except OSError:
            pass  # not on this file system: the lock of the file has to do

    def _in_use(self) -> HorologError:
        try:
            holder = Path(self._file).read_bytes()[:32].decode("ascii", "replace").strip()
        except OSError:
            holder = ""  # the file was removed
        who = f"process {holder}" if holder else "another process"
        return refused(
            "--data-dir",
            f"{self._directory} is in use by {who}",
            code=ErrorCode.DIRECTORY_IN_USE,
        )

    def check(self) -> None:
        """Raise DISK_FAILED unless the locked directory is in place; the broker must end then.

        Where the directory cannot be locked itself, its lock file is checked as well, which is not
        needed otherwise.  Costs some microseconds: not for every turn.  Does nothing after
        `release`.
        """
        if self._fd < 0:
            return
        held = [(self._directory, self._directory_fd)]
        if not self._is_locked_itself:
            held.append((self._file, self._fd))
        for path, fd in held:
            try:
                same = os.path.samestat(os.stat(path), os.fstat(fd))
            except (FileNotFoundError, NotADirectoryError) as error:
                raise gone(path) from error
            except OSError as error:
                raise failure("stat", Path(path), error) from error
            if not same:
                raise HorologError(
                    ErrorCode.DISK_FAILED,
                    f"{path} is another one now: was it, or the data directory, replaced while the "
                    "broker ran?",
                    field=path,
                )

    def release(self) -> None:
        """Release the lock for the next process."""
        fds, self._fd, self._directory_fd = (self._fd, self._directory_fd), -1, -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)
