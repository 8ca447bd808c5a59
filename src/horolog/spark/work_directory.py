"""The working directory of a job or a task, for its files on the way; removed when it ends.

A job that is killed cannot remove its directory, which may hold gigabytes.  So a job that begins
later in the same place, on the same machine, removes directories without an owner: a job holds a
lock on a file of its directory, and the kernel releases the lock when the job dies.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK = ".lock"
_UNLOCKED_S = 86_400  # a younger directory without a lock is perhaps about to have one


@contextmanager
def work_directory(job: str, out: Path | None) -> Iterator[Path]:
    """Yield a directory below `out`, else below the temporary directory.

    First remove the directories of dead jobs of this name.
    """
    prefix = f"horolog-{job}-"
    _sweep(Path(out or tempfile.gettempdir()), prefix)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=out, ignore_cleanup_errors=True) as work:
        descriptor = os.open(Path(work, _LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            # On a disk without locks no job removes the directory of another, and left-overs stay.
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.write(descriptor, _host())
            yield Path(work)
        finally:
            os.close(descriptor)


def _sweep(place: Path, prefix: str) -> None:
    for folder in place.glob(f"{prefix}*"):
        with suppress(OSError):  # a directory of another user
            if folder.is_dir() and folder.stat().st_uid == os.geteuid() and _has_no_owner(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _has_no_owner(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return time.time() - folder.stat().st_mtime > _UNLOCKED_S
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # On a shared disk the locks of other machines may be invisible here.
        return os.read(descriptor, 256) == _host()
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def _host() -> bytes:
    return os.uname().nodename.encode()
