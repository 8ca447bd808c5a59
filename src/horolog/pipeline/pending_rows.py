"""Pending messages from the files that the newest checkpoint names: hours, far buffers and runs.

Nothing is changed or cut: of every file, only the rows that the checkpoint counts are read.
Records after the checkpoint are in the log, and are added by the caller (`forecast`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import ENTRY, ENTRY_BYTES, INDEX_NAME
from horolog.delay.far.buffer import buffer_name
from horolog.delay.far.names import state_file
from horolog.delay.far.run_state import RunState, decode_run_state
from horolog.delay.state import EntryState, decode_state, state_name
from horolog.errors import ErrorCode, HorologError, refused
from horolog.log.checkpoint import Checkpoint
from horolog.pipeline.adopted_files import rows_of_run
from horolog.pipeline.data_files import DataFiles
from horolog.storage.api import read_file
from horolog.storage.meta import SHARD

CHUNK_ROWS = 65_536
PART_ROWS = 1_000_000


class PendingPart(NamedTuple):
    """Rows [first, stop) of one file, as a checkpoint names it."""

    kind: str  # "hour", "buffer" or "run"
    row: dict[str, Any]  # of the registry
    first: int
    stop: int


class Pending(NamedTuple):
    """Some rows of a file: their entries, true origins and states."""

    entries: npt.NDArray[Any]  # ENTRY
    origin: npt.NDArray[np.int64]
    origin_row: npt.NDArray[np.int64]
    state: npt.NDArray[np.uint8]  # EntryState


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


def read_pending(files: DataFiles, part: PendingPart) -> Iterator[Pending]:
    """Yield the rows of a part; FileNotFoundError if a newer checkpoint has replaced the file."""
    match part.kind:
        case "hour":
            yield from _hour(files, part)
        case "buffer":
            yield from _buffer(files, part)
        case _:
            yield from _run(files, part)


def _index(files: DataFiles, directory: str, part: PendingPart) -> Iterator[npt.NDArray[Any]]:
    file = files.open(f"{directory}/{INDEX_NAME}")
    try:
        for first in range(part.first, part.stop, CHUNK_ROWS):
            stop = min(part.stop, first + CHUNK_ROWS)
            raw = file.read(first * ENTRY_BYTES, (stop - first) * ENTRY_BYTES)
            if len(raw) != (stop - first) * ENTRY_BYTES:
                raise damaged(f"{directory}/{INDEX_NAME}", "is shorter than its checkpoint says")
            yield np.frombuffer(raw, ENTRY)
    finally:
        file.close()


def _plain(entries: npt.NDArray[Any], state: npt.NDArray[np.uint8]) -> Pending:
    origin = entries["origin"].astype(np.int64)
    return Pending(entries, origin, entries["row"].astype(np.int64), state)


def _hour(files: DataFiles, part: PendingPart) -> Iterator[Pending]:
    directory = f"{SHARD}/hours/{part.row['hour']:010d}"
    name = f"{directory}/{state_name(part.row['version'])}"
    state = decode_state(read_file(files, name))
    if state is None or state.count != part.row["count"]:
        raise damaged(name, "is not intact")
    at = part.first
    for entries in _index(files, directory, part):
        yield _plain(
            entries, state.states[at : at + len(entries)] & np.uint8(EntryState.SETTLED_BITS)
        )
        at += len(entries)


def _buffer(files: DataFiles, part: PendingPart) -> Iterator[Pending]:
    directory = f"{SHARD}/runs/{buffer_name(part.row['number'])}"
    states = np.zeros(part.row["count"], np.uint8)
    rows, settled = part.row["settled"]
    states[np.array(rows, np.int64)] = np.array(settled, np.uint8)
    at = part.first
    for entries in _index(files, directory, part):
        yield _plain(entries, states[at : at + len(entries)] & np.uint8(EntryState.SETTLED_BITS))
        at += len(entries)


def _run(files: DataFiles, part: PendingPart) -> Iterator[Pending]:
    row = part.row
    every = rows_of_run(str(files.root), row["name"])
    if len(every) < row["rows"]:
        path = f"{SHARD}/runs/{row['name']}.run"
        if not files.exists(path):
            raise FileNotFoundError(
                f"{path}: is not there, and the newest checkpoint names it; `horolog verify` tells more"
            )
        raise damaged(path, "cannot be read as a run")
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
