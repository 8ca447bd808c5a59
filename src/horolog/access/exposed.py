"""Files with secrets in them that other users of the machine can read."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

_log = logging.getLogger("horolog.access")


def tighter_mode(path: Path) -> str:
    """The mode that keeps other users from reading the file; "" if they cannot.

    Who owns it is told 600.  A file of another user, as of root under systemd, is read by its group: 640 is right for it.
    """
    try:
        found = path.stat()
    except OSError:
        return ""
    if found.st_uid == os.geteuid():
        return "600" if found.st_mode & (stat.S_IRGRP | stat.S_IROTH) else ""
    return "640" if found.st_mode & stat.S_IROTH else ""


def warn_if_exposed(path: Path) -> None:
    """Log it if others can read the file, with what to do."""
    if mode := tighter_mode(path):
        _log.warning("%s can be read by other users of this machine: chmod %s", path, mode)
