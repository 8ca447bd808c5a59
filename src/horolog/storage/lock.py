"""The lock that makes a data directory one broker's own, and the look whether it is still the one that is locked.

A directory that is moved, or replaced by a copy of it, takes the files with it that are open; what is opened by its
path then lies in the other one.  So `DirectoryLock.check` comes before each file that is opened (`storage.disk`), at
the latest with the next segment or checkpoint, and the broker ends: what it has acknowledged is in the one it holds.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from horolog.errors import ErrorCode, HorologError, refused
from horolog.storage.disk import CODES, failure, sync_directory, whose


def gone(path: str) -> HorologError:
    """What was there while the broker ran is not found any more."""
    return HorologError(
        ErrorCode.DISK_FAILED,
        f"{path} is gone: was it, or the data directory, moved while the broker ran?",
        field=path,
    )


def _unusable(directory: Path, error: OSError) -> HorologError:
    code = CODES.get(error.errno or 0, ErrorCode.DISK_FAILED)
    path = Path(error.filename or directory)  # the directory, one above it, or its lock
    why = f"{error.strerror}{whose(path) if isinstance(error, PermissionError) else ''}"
    return refused("--data-dir", f"{path}: {why}", code=code)


def _make_durably(directory: Path, mode: int = 0o777) -> None:
    """Make a directory, and those above it, if they are missing: no power cut takes the name of a new one away.

    Also of one that is there and has nothing yet: a process that was killed may have made it.
    """
    if not directory.is_dir():
        _make_durably(directory.parent)
        directory.mkdir(mode, exist_ok=True)
        _sync_names_in(directory.parent)
    elif not (directory / "meta").exists():
        _sync_names_in(directory.parent)


def _sync_names_in(directory: Path) -> None:
    """Return when the names in a directory are durable, where it may be read and can be synced."""
    try:
        sync_directory(directory)
    except PermissionError:
        pass  # it is somebody else's, and may be written to or not
    except OSError as error:
        if error.errno != errno.EROFS:
            raise


class DirectoryLock:
    """The lock of a data directory, held as long as the process lives or until `release`.

    Makes the directory if it is missing, its name durable.  DIRECTORY_IN_USE names the process that holds it.

    The directory itself is locked, and the file `lock` in it.  The first stays when somebody removes the file; the
    second is there for file systems that cannot lock a directory (NFS), and says who holds it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._file = str(directory / "lock")
        self._directory_fd = self._fd = -1
        self._is_locked_itself = False  # the directory, and not only its file
        try:
            self._take(directory)
        except BaseException:
            self.release()
            raise

    def _take(self, directory: Path) -> None:
        try:
            # Messages are in it: other users of the machine are kept out of a new one.
            _make_durably(directory, mode=0o700)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            self._directory_fd = os.open(directory, flags)
            # Before the file is made: in a directory that is in use nothing may change.
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
            pass  # a full disk: the lock holds all the same, only its holder is not named

    def _lock_directory(self) -> None:
        try:
            fcntl.flock(self._directory_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._is_locked_itself = True
        except BlockingIOError as error:
            raise self._in_use() from error
        except OSError:
            pass  # this file system cannot: the lock of the file has to do

    def _in_use(self) -> HorologError:
        try:
            holder = Path(self._file).read_bytes()[:32].decode("ascii", "replace").strip()
        except OSError:
            holder = ""  # somebody has removed it
        who = f"process {holder}" if holder else "another process"
        return refused(
            "--data-dir",
            f"{self._directory} is in use by {who}",
            code=ErrorCode.DIRECTORY_IN_USE,
        )

    def check(self) -> None:
        """DISK_FAILED unless what is locked is still found where it was; the broker must end then.

        That is the directory; where it cannot be locked itself its file as well, which nobody needs otherwise.  Costs
        some microseconds: not for every turn.  Says nothing after `release`.
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
                    f"{path} is another one now: was it, or the data directory, replaced while the broker ran?",
                    field=path,
                )

    def release(self) -> None:
        """Let the next process have it."""
        fds, self._fd, self._directory_fd = (self._fd, self._directory_fd), -1, -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)
