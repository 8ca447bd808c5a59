"""Saving the far store in a checkpoint, and restoring it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.damage import Damaged
from horolog.delay.far.adopted import AdoptedRun, Provenance
from horolog.delay.far.buffer import FarBuffer
from horolog.delay.far.names import damaged_buffer, damaged_run, registry_row, state_file
from horolog.delay.far.run import FarRun
from horolog.delay.far.run_state import decode_run_state, encode_run_state
from horolog.delay.run.reader import RunInfo
from horolog.errors import NO_ROOM, ErrorCode, HorologError
from horolog.log.checkpoint import FAR_SETTLED
from horolog.storage.sectors import read_if_any

if TYPE_CHECKING:
    from horolog.delay.far.store import FarStore

# Errors of an open that do not mean damage: no room for it, or the file of another user.
_IS_WHOLE = NO_ROOM | {ErrorCode.DIRECTORY_READ_ONLY}


class FarCaptured(NamedTuple):
    """What a checkpoint needs of the far store."""

    registry: dict[str, Any]
    settled: npt.NDArray[Any]  # log.checkpoint.FAR_SETTLED
    states: list[tuple[str, Callable[[], bytes]]]  # files to write
    sync: list[str]  # files to sync first


def capture(far: FarStore) -> FarCaptured:
    """Capture the present state of all buffers and runs."""
    sync: list[str] = []
    states: list[tuple[str, Callable[[], bytes]]] = []
    settled = []
    buffers = []
    for buffer in far.buffers:
        if buffer.unsynced:
            sync += buffer.sync_paths()
            buffer.unsynced = False
        index, state = buffer.settled_rows()
        rows = np.zeros(len(index), FAR_SETTLED)
        rows["buffer"], rows["index"], rows["state"] = buffer.file_id, index, state
        settled.append(rows)
        buffers.append(
            {
                "number": buffer.file_id,
                "count": buffer.count,
                "log_bytes": buffer.log_bytes,
                "sealed": buffer.sealed,
                "frozen": buffer.frozen,
                "first_ms": buffer.first_ms,
                "last_ms": buffer.last_ms,
            }
        )
    for run in far.runs.values():
        if run.changed:
            state_of = run.capture()
            states.append((_state_path(far, run), partial(encode_run_state, state_of)))
    runs = [registry_row(run) for run in far.runs.values()]
    if (of_tier := far.tier.state_file()) is not None:
        name, content = of_tier
        states.append((f"{far.directory}/{name}", partial(bytes, content)))
    registry = {"next": far.next_file, "buffers": buffers, "runs": runs}
    registry[far.tier.name] = far.tier.registry()
    every = np.concatenate(settled) if settled else np.empty(0, FAR_SETTLED)
    return FarCaptured(registry, every, states, sync)


def capture_failed(far: FarStore) -> None:
    """Have the next checkpoint write and sync everything, since that of `capture` failed."""
    for buffer in far.buffers:
        buffer.unsynced = True
    for run in far.runs.values():
        run.changed = run.changed or run.version > 0
    far.tier.checkpoint_failed()


def restore(
    far: FarStore, registry: dict[str, Any], settled: npt.NDArray[Any], *, tolerant: bool = False
) -> list[Damaged]:
    """Open what a checkpoint names; return what cannot be opened.

    tolerant  open a buffer with damaged entries; those that cannot be rebuilt are quarantined
    """
    damaged = []
    far.next_file = registry.get("next", 1)
    for row in registry.get("buffers", []):
        mine = settled[settled["buffer"] == row["number"]]
        try:
            buffer = FarBuffer(far.storage, far.directory, row["number"], far.take_source_id())
        except HorologError as error:
            if error.code is not ErrorCode.DISK_FAILED:
                raise
            damaged.append(damaged_buffer(row, len(mine), error.message))
            continue
        buffer.repair = far.repair
        why = buffer.restore(row["count"], row["log_bytes"], mine, tolerant=tolerant)
        if why:
            buffer.close()
            damaged.append(damaged_buffer(row, len(mine), why))
            continue
        buffer.sealed = row["sealed"]
        buffer.frozen = row.get("frozen", False)
        far.buffers.append(buffer)
    for row in registry.get("runs", []):
        why = _restore_run(far, row)
        if why:
            damaged.append(damaged_run(row, why))
    part = registry.get(far.tier.name, {})
    return damaged + far.tier.restore_from(far.storage, far.directory, part)


def _restore_run(far: FarStore, row: dict[str, Any]) -> str:
    name = row["name"]
    try:
        info = far.open_run(name).info
    except (FileNotFoundError, HorologError) as error:
        if isinstance(error, HorologError) and error.code in _IS_WHOLE:
            raise
        return f"run {name} cannot be opened ({error})"
    if (info.rows, info.first_ms, info.last_ms) != (row["rows"], row["first_ms"], row["last_ms"]):
        return f"run {name} cannot be opened (it is not the file that the checkpoint names)"
    run = _run_of(far, info, row)
    run.restore(row["cursor"], row["limit"], row["limit_ms"], row["waiting"])
    run.version, run.frozen = row["version"], row.get("frozen", False)
    if run.version:
        state = decode_run_state(read_if_any(far.storage, _state_path(far, run)))
        if state is None or state.rows != info.rows:
            return f"state {run.version} of run {name} is missing or damaged"
        run.take_state(state)
        if run.states.count_waiting() != row["waiting"]:  # versions begin again after a rebuild
            return f"state {run.version} of run {name} is not the one that the checkpoint names"
    far.attach_run(run)
    return ""


def _run_of(far: FarStore, info: RunInfo, row: dict[str, Any]) -> FarRun:
    source_id, provenance = far.take_source_id(), Provenance.of(row)
    if provenance is None:
        return FarRun(info, source_id, row["level"], far.open_run)
    return AdoptedRun(info, source_id, far.open_run, provenance)


def _state_path(far: FarStore, run: FarRun) -> str:
    """Return the path of a run's state file, in its present version."""
    return f"{far.directory}/{state_file(run.info.name, run.version)}"
