"""Files of pending messages that are missing, cut short or not intact: what an audit says of them.

The log says that their messages wait, and until they are due nothing else shows that no file has
them.  The parts that a start relies on are checked; `horolog verify` reads every byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from horolog.delay.entry import ENTRY_BYTES, INDEX_NAME, LOG_NAME
from horolog.delay.far.buffer import buffer_name
from horolog.delay.far.names import state_file
from horolog.delay.far.run_state import decode_run_state
from horolog.delay.run.format import run_path
from horolog.delay.run.reader import Run
from horolog.delay.state import decode_state, state_name
from horolog.errors import HorologError
from horolog.log.checkpoint import Checkpoint, newest_checkpoint
from horolog.pipeline.data_files import AdoptedFile, DataFiles
from horolog.storage.api import read_file
from horolog.storage.meta import SHARD

_HOURS, _RUNS = f"{SHARD}/hours", f"{SHARD}/runs"
_LOOKS = 5  # at the newest checkpoint, if a running broker replaces it meanwhile


class DamagedFile(NamedTuple):
    """A file, and how many messages wait in it by the checkpoint."""

    path: str
    why: str
    waiting: int


def damaged_files(files: DataFiles, log_id: int, gone: Sequence[AdoptedFile]) -> list[DamagedFile]:
    """Return the damaged files in which messages wait; none without a checkpoint.

    gone  adopted files that the log names, and that are not there
    """
    for _ in range(_LOOKS):
        checkpoint = newest_checkpoint(files, f"{SHARD}/checkpoint", log_id)
        if checkpoint is None:  # a start rebuilds them
            return []
        found = _damaged_of(files, checkpoint, log_id)
        found += [
            DamagedFile(run_path(_RUNS, file.name), "is missing", file.rows)
            for file in gone
            if file.position >= checkpoint.position
        ]
        newest = newest_checkpoint(files, f"{SHARD}/checkpoint", log_id)
        if not found or newest is None or newest.position == checkpoint.position:
            break
    return found


def _damaged_of(files: DataFiles, checkpoint: Checkpoint, log_id: int) -> list[DamagedFile]:
    found = []

    def check(path: str, waiting: int, look: Callable[[], str]) -> None:
        try:
            why = look()
        except FileNotFoundError as error:
            why = f"{Path(error.filename or path).name} is missing"
        except HorologError as error:
            why = error.message
        if why:
            found.append(DamagedFile(path, why, waiting))

    for row in checkpoint.registry["hours"]:
        if row["waiting"]:
            place = f"{_HOURS}/{row['hour']:010d}"
            check(place, row["waiting"], partial(_hour, files, place, row))
    far = checkpoint.registry.get("far", {})
    settled = checkpoint.columns["far_settled"]["buffer"].tolist()
    for row in far.get("buffers", []):
        waiting = row["count"] - settled.count(row["number"])
        place = f"{_RUNS}/{buffer_name(row['number'])}"
        if waiting:
            check(place, waiting, partial(_entries, files, place, row))
    for row in far.get("runs", []):
        if row["waiting"]:
            path = run_path(_RUNS, row["name"])
            check(path, row["waiting"], partial(_run, files, row, log_id))
    return found


def _entries(files: DataFiles, place: str, row: dict[str, Any]) -> str:
    for name, size in ((INDEX_NAME, row["count"] * ENTRY_BYTES), (LOG_NAME, row["log_bytes"])):
        if files.path(f"{place}/{name}").stat().st_size < size:
            return f"{name} is shorter than its checkpoint says"
    return ""


def _hour(files: DataFiles, place: str, row: dict[str, Any]) -> str:
    name = state_name(row["version"])
    state = decode_state(read_file(files, f"{place}/{name}"))
    if state is None or state.count != row["count"]:
        return f"{name} is not intact"
    return _entries(files, place, row)


def _run(files: DataFiles, row: dict[str, Any], log_id: int) -> str:
    Run.open(files, _RUNS, row["name"], log_id).close()
    if row["version"]:
        name = state_file(row["name"], row["version"])
        state = decode_run_state(read_file(files, f"{_RUNS}/{name}"))
        if state is None or state.rows != row["rows"]:
            return f"{name} is not intact"
    return ""
