"""Run `horolog` on a disk whose free bytes are in the file SMALL_DISK; without it, they are real.

python small_disk.py serve …
"""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import Any

_FREE = Path(os.environ["SMALL_DISK"])
_ask = os.statvfs


def _statvfs(path: Any) -> os.statvfs_result:
    found = _ask(path)
    if not _FREE.exists():
        return found
    fields: list[Any] = list(found)
    fields[4] = int(_FREE.read_text()) // found.f_frsize  # f_bavail
    return os.statvfs_result(fields)


os.statvfs = _statvfs
runpy.run_module("horolog", run_name="__main__")
