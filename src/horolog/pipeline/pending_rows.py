"""Pending messages from the files that the newest checkpoint names: hours, far buffers and runs.

Nothing is changed or cut: of every file, only the rows that the checkpoint counts are read.
Records after the checkpoint are in the log, and are added by the caller (`forecast`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import ENTRY, ENTRY_BYTES, INDEX_NAME, is_readable
from horolog.delay.far.buffer import buffer_name
from horolog.delay.far.names import state_file
from horolog.delay.far.run_state import RunState, decode_run_state
from horolog.delay.run.format import run_path
from horolog.delay.state import EntryState, decode_state, state_name
from horolog.errors import ErrorCode, HorologError, refused
from horolog.log.checkpoint import Checkpoint
from horolog.pipeline.adopted_files import rows_of_run
from horolog.pipeline.data_files import DataFiles
from horolog.storage.api import read_file
from horolog.storage.meta import SHARD
from horolog.units import counted

_log = logging.getLogger("horolog.spark")
CHUNK_ROWS = 65_536
PART_ROWS = 1_000_000


class PendingPart(NamedTuple):
    """Rows [first, stop) of one file, as a checkpoint names it."""

    kind: str  # "hour", "buffer" or "run"
    row: dict[str, Any]  # of the registry
    first: int
    stop: int

    @property
    def path(self) -> str:
        """The file or directory."""
        match self.kind:
            case "hour":
                return f"{SHARD}/hours/{self.row['hour']:010d}"
            case "buffer":
                return f"{SHARD}/runs/{buffer_name(self.row['number'])}"
            case _:
                return run_path(f"{SHARD}/runs", self.row["name"])


class Pending(NamedTuple):
    """Some rows of a file: their entries, true origins and states."""

    entries: npt.NDArray[Any]  # ENTRY
    origin: npt.NDArray[np.int64]
    origin_row: npt.NDArray[np.int64]
    state: npt.NDArray[np.uint8]  # EntryState

    def chosen(self, mask: npt.NDArray[np.bool_]) -> Pending:
        """Return some of the rows."""
        return Pending(
            self.entries[mask], self.origin[mask], self.origin_row[mask], self.state[mask]
        )


def pending_parts(checkpoint: Checkpoint | None) -> list[PendingPart]:
    """Return all parts of a checkpoint, without parts that surely hold no pending message."""
    if checkpoint is None:
        return []
    registry = checkpoint.registry
    parts = []
    for row in registry["hours"]:
        parts += _cut("hour", row, row["count"])
    far = registry.get("far", {})
    for row in far.get("buffers", []):
        mine = checkpoint.columns["far_settled"]
        mine = mine[mine["buffer"] == row["number"]]
        settled = {"settled": [mine["index"].tolist(), mine["state"].tolist()]}
        parts += _cut("buffer", {**row, **settled}, row["count"])
    for row in far.get("runs", []):
        parts += _cut("run", row, row["limit"])
    return parts


def _cut(kind: str, row: dict[str, Any], count: int) -> list[PendingPart]:
    return [
        PendingPart(kind, row, first, min(count, first + PART_ROWS))
        for first in range(0, count, PART_ROWS)
    ]


def read_pending(files: DataFiles, part: PendingPart, *, lossy: bool = False) -> Iterator[Pending]:
    """Yield the rows of a part.

    lossy  log what cannot be read and leave it out, instead of raising
    Errors: DAMAGED names the file; FileNotFoundError if it is missing, also because a newer
    checkpoint has replaced it.
    """
    read = {"hour": _hour, "buffer": _buffer}.get(part.kind, _run)
    try:
        for rows in read(files, part):
            good = is_readable(rows.entries)
            if not good.all():
                what = f"{counted(int((~good).sum()), 'row')} of its index cannot be read"
                if not lossy:
                    raise damaged(part.path, what)
                _log.warning("%s: %s, and left out", part.path, what)
                rows = rows.chosen(good)
            yield rows
    except FileNotFoundError as error:
        missing = f"{part.path}: is not there, and the newest checkpoint names it"
        if not lossy:
            raise FileNotFoundError(f"{missing}; `horolog verify` tells more") from error
        _log.warning("%s; its messages are left out", missing)
    except HorologError as error:
        if not lossy or error.code is not ErrorCode.DAMAGED:
            raise
        _log.warning("%s; its messages are left out", error.message)


def _index(files: DataFiles, part: PendingPart) -> Iterator[npt.NDArray[Any]]:
    name = f"{part.path}/{INDEX_NAME}"
    file = files.open(name)
    try:
        for first in range(part.first, part.stop, CHUNK_ROWS):
            stop = min(part.stop, first + CHUNK_ROWS)
            raw = file.read(first * ENTRY_BYTES, (stop - first) * ENTRY_BYTES)
            if len(raw) != (stop - first) * ENTRY_BYTES:
                raise damaged(name, "is shorter than its checkpoint says")
            yield np.frombuffer(raw, ENTRY)
    finally:
        file.close()


def _plain(entries: npt.NDArray[Any], state: npt.NDArray[np.uint8]) -> Pending:
    origin = entries["origin"].astype(np.int64)
    return Pending(entries, origin, entries["row"].astype(np.int64), state)


def _hour(files: DataFiles, part: PendingPart) -> Iterator[Pending]:
    name = f"{part.path}/{state_name(part.row['version'])}"
    state = decode_state(read_file(files, name))
    if state is None or state.count != part.row["count"]:
        raise damaged(name, "is not intact")
    at = part.first
    for entries in _index(files, part):
        yield _plain(
            entries, state.states[at : at + len(entries)] & np.uint8(EntryState.SETTLED_BITS)
        )
        at += len(entries)


def _buffer(files: DataFiles, part: PendingPart) -> Iterator[Pending]:
    states = np.zeros(part.row["count"], np.uint8)
    rows, settled = part.row["settled"]
    states[np.array(rows, np.int64)] = np.array(settled, np.uint8)
    at = part.first
    for entries in _index(files, part):
        yield _plain(entries, states[at : at + len(entries)] & np.uint8(EntryState.SETTLED_BITS))
        at += len(entries)


def _run(files: DataFiles, part: PendingPart) -> Iterator[Pending]:
    row = part.row
    every = rows_of_run(str(files.root), row["name"])
    if len(every) < row["rows"]:
        if not files.exists(part.path):
            raise FileNotFoundError(part.path)
        raise damaged(part.path, "cannot be read as a run")
    state = RunState(row["rows"], {}, {})
    if row["version"]:
        name = f"{SHARD}/runs/{state_file(row['name'], row['version'])}"
        found = decode_run_state(read_file(files, name))
        if found is None or found.rows != row["rows"]:
            raise damaged(name, "is not intact")
        state = found
    for first in range(part.first, part.stop, CHUNK_ROWS):
        stop = min(part.stop, first + CHUNK_ROWS)
        entries = every[first:stop]
        origin, origin_row = entries["origin"].astype(np.int64), entries["row"].astype(np.int64)
        if "position" in row:
            origin = np.full(len(entries), row["position"], np.int64)
            origin_row = origin_row + row["first_row"]
        yield Pending(entries, origin, origin_row, run_states(state, row["cursor"], first, stop))


def run_states(state: RunState, cursor: int, first: int, stop: int) -> npt.NDArray[np.uint8]:
    """Return the `EntryState` of rows [first, stop) of a run.

    Rows below the cursor are handed over, except the rows that the run's maps name.
    """
    rows = np.arange(first, stop)
    states = np.where(rows < cursor, EntryState.HANDED_OVER, EntryState.WAITING).astype(np.uint8)
    for kind in sorted(state.maps):  # WAITING rows that the cursor passed over come first
        bits = state.maps[kind]
        states[(bits[rows >> 3] >> (rows & 7).astype(np.uint8)) & 1 == 1] = kind
    return states


def damaged(name: str, what: str) -> HorologError:
    """Build a DAMAGED error that names a file."""
    return refused(name, f"{what}; `horolog verify` tells more", code=ErrorCode.DAMAGED)
