"""Finding files with secrets that other users of the machine can read."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

_log = logging.getLogger("horolog.access")


def tighter_mode(path: Path) -> str:
    """Return the mode that keeps other users from reading the file; "" if they cannot read it.

    The mode is 600 for the owner of the file.  A file of another user, such as root under systemd,
    is read through its group: there the mode is 640.
    """
    try:
        found = path.stat()
    except OSError:
        return ""
    if found.st_uid == os.geteuid():
        return "600" if found.st_mode & (stat.S_IRGRP | stat.S_IROTH) else ""
    return "640" if found.st_mode & stat.S_IROTH else ""


def warn_if_exposed(path: Path) -> None:
    """Log a warning, with what to do, if other users can read the file."""
    if mode := tighter_mode(path):
        _log.warning("%s can be read by other users of this machine: chmod %s", path, mode)
