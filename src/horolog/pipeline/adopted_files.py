"""Adopted runs that the log's ADOPT records name: their messages have no SCHEDULED record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import ENTRY
from horolog.delay.far.adopted import Adoption, rows_within
from horolog.delay.run.format import HEADER_BYTES as RUN_HEADER_BYTES
from horolog.delay.run.format import decode_header, run_path
from horolog.errors import HorologError
from horolog.log.controls import content_of
from horolog.log.record import Kind
from horolog.pipeline.data_files import (
    AdoptedFile,
    DataFiles,
    LogPlan,
    files_of,
    mapped_file,
)
from horolog.pipeline.log_walk import Rows, controls_of, walk_log
from horolog.storage.meta import SHARD


def with_adopted(plan: LogPlan) -> LogPlan:
    """Return the plan with the adopted files that are still there.

    Reads the log after the checkpoint.
    """
    files = files_of(plan.root)
    found: dict[str, AdoptedFile] = {}
    for row in plan.registry.get("far", {}).get("runs", []):
        if "position" in row:
            found[row["name"]] = AdoptedFile(
                row["position"], row["first_row"], row["rows"], row["name"]
            )
    if any(name.startswith("adopted.") for name in files.list(f"{SHARD}/runs")):
        for stretch in walk_log(plan, start=max(plan.start, plan.checkpoint), check=False):
            for _, control in controls_of(stretch, Kind.ADOPT):
                named = files_named(control.position, control.payload)
                found.update((file.name, file) for file in named)
    there = [file for file in found.values() if _is_there(files, file)]
    return replace(plan, adopted=tuple(sorted(there)))


def files_named(position: int, payload: bytes) -> list[AdoptedFile]:
    """Return the files of an ADOPT record."""
    adoption = Adoption.of(position, content_of(Kind.ADOPT, payload))
    return [AdoptedFile(position, file.first_row, file.rows, file.name) for file in adoption.files]


def _is_there(files: DataFiles, file: AdoptedFile) -> bool:
    return files.exists(run_path(f"{SHARD}/runs", file.name))


def rows_of_run(root: str, name: str) -> npt.NDArray[Any]:
    """Map the ENTRY rows of a run file; return no rows if it does not exist or is not a run."""
    raw = mapped_file(files_of(root).path(run_path(f"{SHARD}/runs", name)))
    if raw is None:
        return np.empty(0, ENTRY)
    try:
        _, rows = decode_header(name, raw[:RUN_HEADER_BYTES].tobytes(), None)
        return np.frombuffer(raw.data, ENTRY, rows, RUN_HEADER_BYTES)
    except (ValueError, HorologError):
        return np.empty(0, ENTRY)


def adopted_rows(
    plan: LogPlan, positions: npt.NDArray[Any], rows: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Return the ENTRY rows of origins (position, row), all zero where no adopted file has one."""
    found = np.zeros(len(positions), ENTRY)
    for file in plan.adopted:
        within = rows_within(rows, file.first_row, file.rows)
        mine = (positions == file.position) & (within >= 0)
        entries = rows_of_run(plan.root, file.name)
        chosen = np.flatnonzero(mine & (within < len(entries)))
        found[chosen] = entries[within[chosen]]
    return found


def are_in_files(files: Sequence[AdoptedFile], origins: Rows, rows: Rows) -> npt.NDArray[np.bool_]:
    """Return which messages, by origin and row, are in one of the files.

    The files are searched, not tried one by one: an adoption may have thousands.
    """
    if not files:
        return np.zeros(len(origins), np.bool_)
    table = np.array(sorted((file.position, file.first_row, file.rows) for file in files), np.int64)
    positions, ranks = np.unique(table[:, 0], return_inverse=True)
    firsts = (ranks << 32) + table[:, 1]  # a row number has 32 bits
    rank = np.minimum(positions.searchsorted(origins), len(positions) - 1)
    keys = (rank << 32) + rows
    file = firsts.searchsorted(keys, "right") - 1
    is_inside = (file >= 0) & (keys < firsts[file] + table[file, 2])
    found: npt.NDArray[np.bool_] = (positions[rank] == origins) & is_inside
    return found
