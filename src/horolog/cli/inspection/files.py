"""Choice of the reader of a file: by its first bytes, else by its name."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from horolog.backup import manifest
from horolog.broker.life import quarantine
from horolog.cli.inspection import (
    given_up,
    hour_files,
    key_files,
    lake_file,
    log_file,
    run_file,
    shard_files,
)
from horolog.cli.inspection.report import Report
from horolog.delay import key_run, state
from horolog.delay.entry import INDEX_NAME, LOG_NAME
from horolog.delay.far import run_state
from horolog.delay.run import format as run_format
from horolog.errors import ErrorCode, HorologError, refused
from horolog.lake.core import state_file as lake
from horolog.log import checkpoint, frame, key_rows, salvage
from horolog.storage import crash_note
from horolog.storage.meta import META

UNREADABLE = (struct.error, ValueError, KeyError, TypeError, IndexError, OverflowError)

_PLAIN = ("lock", "clock", crash_note.NAME, crash_note.LAST_NAME)  # text of the data directory


@contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    """Map a file read-only; an empty file cannot be mapped, and gives an empty view.

    Views of the file may outlive the block.
    """
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            yield memoryview(b"")
        else:
            yield memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _beside(path: Path, name: str) -> memoryview | None:
    neighbour = path.with_name(name)
    if not neighbour.is_file():
        return None
    with _mapped(neighbour) as content:
        return content


def inspect_file(path: Path, *, limit: int, show_records: bool) -> Report:
    """Read one file.

    Errors: NOT_FOUND if it is missing, DISK_FAILED if unreadable, BAD_REQUEST if it is not a file
    of horolog.
    """
    try:
        with _mapped(path) as content:
            return _read(path, content, limit, show_records)
    except UNREADABLE as error:
        # its checksums are right or it has none, but its content makes no sense
        why = f"cannot be understood: {type(error).__name__}: {error}"
        return Report(str(path), "unknown", problems=[why])
    except FileNotFoundError:
        raise refused("FILE", f"there is no {path}", code=ErrorCode.NOT_FOUND) from None
    except OSError as error:
        raise refused(
            "FILE", f"cannot read {path}: {error.strerror}", code=ErrorCode.DISK_FAILED
        ) from None


def _read(path: Path, content: memoryview, limit: int, show_records: bool) -> Report:
    magic = bytes(content[:4])
    name = path.name
    if path.parent.name == salvage.SALVAGED_DIR and name.endswith(".bytes"):
        return given_up.read_given_up(path, content, limit=limit)
    if (name.endswith(".log") and name != LOG_NAME) or magic == frame.MAGIC:
        return log_file.read_segment(path, content, limit=limit, show_records=show_records)
    if name.endswith(".ckpt") or magic == checkpoint.MAGIC:
        return shard_files.read_checkpoint(path, content, limit=limit)
    if name.startswith("state.") or magic == state.MAGIC:
        return hour_files.read_state(path, content, limit=limit)
    if name.startswith("keys.") or magic == key_run.MAGIC:
        return hour_files.read_key_run(path, content, limit=limit)
    if name.endswith(".run") or magic == run_format.MAGIC:
        return run_file.read_run(path, content, limit=limit)
    if name.startswith("lake.state.") or magic == lake.MAGIC:
        return lake_file.read_lake_state(path, content, limit=limit)
    if ".state." in name or magic == run_state.MAGIC:
        return run_file.read_run_state(path, content, limit=limit)
    if name.endswith(".keys") or magic == key_rows.MAGIC:
        return key_files.read_key_chunk(path, content, limit=limit)
    if name == INDEX_NAME:
        return hour_files.read_delay_index(path, content, _beside(path, LOG_NAME), limit=limit)
    if name == LOG_NAME:
        return hour_files.read_delay_log(path, content, _beside(path, INDEX_NAME), limit=limit)
    if name.endswith(".cq"):
        return shard_files.read_consume_queue(path, content, limit=limit)
    if name == META:
        return shard_files.read_meta(path, content)
    if name == quarantine.NOTE:
        return shard_files.read_quarantine_note(path, content)
    if name == manifest.MANIFEST_NAME:
        return shard_files.read_backup_manifest(path, content, limit=limit)
    raise refused("FILE", f"{path} is not a file of a data directory")


def inspect_tree(directory: Path) -> Iterator[Report]:
    """Yield a report without rows for every file below a directory, in order of their names."""
    for path in sorted(directory.rglob("*")):
        if not path.is_file() or path.name in _PLAIN or path.suffix == ".tmp":
            continue
        if path.parent.parent.name == "staging":
            continue  # another program may be writing it
        try:
            yield inspect_file(path, limit=0, show_records=False)
        except HorologError as error:
            unread = error.code is ErrorCode.DISK_FAILED  # it is unknown whether the file is intact
            why = [error.message]
            yield Report(str(path), "unknown", notes=[] if unread else why, problems=why * unread)
