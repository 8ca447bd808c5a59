"""Correct one flipped bit in a state file, where the log can no longer rebuild it (row 12).

A state file holds the state of every message of an hour, a run or the tier, so one bit would cost
all of them.  A bit is corrected by the file's own check sums (`storage.flipped_bit`), and only if
the counts of the file and of the checkpoint then agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from horolog.delay.far import run_state
from horolog.delay.far.names import state_file
from horolog.delay.far.row_states import RowStates
from horolog.delay.far.run_state import decode_run_state
from horolog.delay.repair import rewrite
from horolog.delay.state import HEADER_BYTES, decode_state, state_name
from horolog.delay.tier import Tier, state_files
from horolog.errors import HorologError, Repair
from horolog.log.checkpoint import Checkpoint
from horolog.storage.api import Storage
from horolog.storage.flipped_bit import changed_bytes, flipped_back, is_intact
from horolog.storage.sectors import read_if_any


class _StateFile(NamedTuple):
    """A state file that a checkpoint names."""

    label: str
    path: str
    header_bytes: int
    agrees: Callable[[bytes], bool]  # whether a content is intact and agrees with the checkpoint


def repair_states(
    storage: Storage, directory: str, checkpoint: Checkpoint, tier: Tier
) -> list[Repair]:
    """Correct the state files that a checkpoint names, where possible; return the repairs.

    A file that the disk refuses to change stays as it is.
    """
    repairs = []
    for file in _named_states(directory, checkpoint.registry, tier):
        content = read_if_any(storage, file.path)
        if _agrees(file, content):
            continue
        whole = flipped_back(content, file.header_bytes)
        if whole is None or not _agrees(file, whole):
            continue
        rewrite(storage, file.path, changed_bytes(content, whole))
        text = f"{file.label}: a flipped bit of its state was put right by its check sum"
        repairs.append(Repair(text, 1))
    return repairs


def _agrees(file: _StateFile, content: bytes) -> bool:
    try:
        return file.agrees(content)
    except HorologError:
        return False  # written by a newer horolog


def _named_states(directory: str, registry: dict[str, Any], tier: Tier) -> Iterator[_StateFile]:
    for row in registry["hours"]:
        path = f"{directory}/hours/{row['hour']:010d}/{state_name(row['version'])}"
        yield _StateFile(f"hour {row['hour']}", path, HEADER_BYTES, partial(_is_of_hour, row))
    far = registry.get("far", {})
    for row in far.get("runs", []):
        if row["version"]:
            path = f"{directory}/runs/{state_file(row['name'], row['version'])}"
            yield _StateFile(
                f"run {row['name']}", path, run_state.HEADER_BYTES, partial(_is_of_run, row)
            )
    for name in state_files(far):
        header = tier.state_header_bytes
        of_tier = partial(is_intact, header_bytes=header)
        yield _StateFile(tier.name, f"{directory}/runs/{name}", header, of_tier)


def _is_of_hour(row: dict[str, int], content: bytes) -> bool:
    state = decode_state(content)
    return state is not None and state.is_named_by(row) and not state.disagreements()


def _is_of_run(row: dict[str, Any], content: bytes) -> bool:
    state = decode_run_state(content)
    if state is None or state.rows != row["rows"]:
        return False
    states = RowStates(state.rows)
    states.restore(row["cursor"], row["limit"], row["waiting"])
    states.restore_maps(state.maps)
    return states.count_waiting() == states.waiting
