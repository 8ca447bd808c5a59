"""Building a manifest from the files of a backup, unchecked, when its own manifest is lost.

A backup writes into the directory of its own number, its checkpoint last, and then removes what the
newest manifest does not name.  So the newest directory with a checkpoint is that of the last
complete backup, and the newest copy of each file up to there belongs to it.  An older file that was
still to be removed is included: a start ignores it.
"""

from __future__ import annotations

import os
from pathlib import Path

import orjson

from horolog.backup.manifest import UNCHECKED, Manifest, StoredFile, is_number_name, number_name
from horolog.storage.meta import META

_CHECKPOINT = ".ckpt"


def rebuild_manifest(directory: Path) -> Manifest | None:
    """Build a manifest of the files in a backup directory; None if no backup is complete there."""
    files: dict[str, StoredFile] = {}
    newest: Path | None = None
    numbers = [int(path.name) for path in directory.iterdir() if _is_numbered(path)]
    for number in sorted(numbers, reverse=True):
        held = _files_of(directory, number)
        checkpoints = [file.place for file in held if file.path.endswith(_CHECKPOINT)]
        if newest is None and checkpoints:
            newest = directory / max(checkpoints)
        if newest is not None:
            files = {file.path: file for file in held} | files
    if newest is None or META not in files:
        return None
    return Manifest(
        number=max(file.number for file in files.values()),
        log_id=_log_id(directory / files[META].place),
        horolog="",
        made_ms=newest.stat().st_mtime_ns // 1_000_000,
        position=int(newest.stem) if newest.stem.isdecimal() else 0,
        last_frame=0,
        frame_crc=0,
        files=sorted(files.values()),
    )


def _is_numbered(path: Path) -> bool:
    return is_number_name(path.name) and path.is_dir()


def _files_of(directory: Path, number: int) -> list[StoredFile]:
    top = directory / number_name(number)
    paths = [Path(above, name) for above, _, names in os.walk(top) for name in names]
    return [
        StoredFile(str(path.relative_to(top)), path.stat().st_size, UNCHECKED, number)
        for path in paths
        if path.is_file() and not path.is_symlink()
    ]


def _log_id(meta: Path) -> int:
    """Read the log id from `meta`; return 0 if that file is damaged too."""
    try:
        return int(orjson.loads(meta.read_bytes())["log_id"], 16)
    except (OSError, ValueError, KeyError, TypeError):
        return 0
