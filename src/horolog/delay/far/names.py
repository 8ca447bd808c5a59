"""Names of the far store's files, and its rows in the registry of a checkpoint."""

from __future__ import annotations

from typing import Any

from horolog.delay.damage import Damaged
from horolog.delay.far.adopted import AdoptedRun
from horolog.delay.far.buffer import buffer_name
from horolog.delay.far.jobs import FarJob, run_name
from horolog.delay.far.run import FarRun
from horolog.delay.tier import state_files
from horolog.limits import HOUR_MS


def state_file(name: str, version: int) -> str:
    """Return the name of a version of a run's state file."""
    return f"{name}.state.{version:010d}"


def registry_row(run: FarRun) -> dict[str, Any]:
    """Build a run's row in the registry of a checkpoint."""
    adopted = run.provenance._asdict() if isinstance(run, AdoptedRun) else {}
    return {
        **adopted,
        "name": run.info.name,
        "level": run.level,
        "rows": run.info.rows,
        "cursor": run.states.cursor,
        "limit": run.states.limit,
        "limit_ms": run.counts.limit_ms,
        "waiting": run.waiting,
        "version": run.version,
        "frozen": run.frozen,
        "first_ms": run.info.first_ms,
        "last_ms": run.info.last_ms,
    }


def damaged_buffer(row: dict[str, Any], settled: int, why: str) -> Damaged:
    """Describe a far buffer that cannot be opened as a checkpoint states."""
    name = buffer_name(row["number"])
    hours = row["first_ms"] // HOUR_MS, row["last_ms"] // HOUR_MS
    return Damaged("runs", name, (name,), why, row["count"] - settled, *hours)


def damaged_run(row: dict[str, Any], why: str) -> Damaged:
    """Describe a run that cannot be opened as a checkpoint states."""
    names = [f"{row['name']}.run"]
    if row["version"]:
        names.append(state_file(row["name"], row["version"]))
    hours = row["first_ms"] // HOUR_MS, row["last_ms"] // HOUR_MS
    return Damaged("runs", row["name"], tuple(names), why, row["waiting"], *hours, are_files=True)


def named_files(registry: dict[str, Any]) -> set[str]:
    """Return the names under `runs` that a checkpoint's registry needs."""
    names = {buffer_name(row["number"]) for row in registry.get("buffers", [])}
    names |= state_files(registry)
    for row in registry.get("runs", []):
        names.add(f"{row['name']}.run")
        if row["version"]:
            names.add(state_file(row["name"], row["version"]))
    return names


def files_of_job(job: FarJob | None) -> set[str]:
    """Return the names under `runs` that a job under way writes."""
    return set() if job is None else {f"{run_name(file_id)}.run" for file_id in job.file_ids}
