"""Adopted runs in a rebuild: files that are copied, and states rebuilt from the log.

A task copies a file and lets the broker's own `AdoptedRun` settle its rows as the log says: first
recalled and moved rows, then, for each offload, the cut, then handed-over rows.  Waiting messages
that do not verify are copied as they are, and counted: the broker keeps them back.  A file that does
not exist or cannot be opened is passed over if the log settles each of its rows: it was removed
when it was finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from horolog.delay.entry import is_readable, record_crcs
from horolog.delay.far.adopted import AdoptedRun, Adoption, Provenance
from horolog.delay.far.names import registry_row, state_file
from horolog.delay.far.run_state import RunState, encode_run_state
from horolog.delay.run.format import run_path
from horolog.delay.run.reader import Run, RunInfo
from horolog.delay.state import EntryState
from horolog.errors import HorologError
from horolog.lake.core.steps import rows_of
from horolog.lake.jobs.rebuild import Cut
from horolog.pipeline.data_files import LogPlan, files_of, plan_of
from horolog.pipeline.pending_rows import run_states
from horolog.pipeline.rebuild_tasks import (
    RESULT,
    Batches,
    Target,
    Task,
    columns_of,
    copy_file,
    groups_of,
    result_rows,
    write_file,
)
from horolog.storage.meta import SHARD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RUNS = f"{SHARD}/runs"
_SETTLED = "file int, row long, state int, position long"
_SETTLE_ROWS = 65_536
_RECALLED = (EntryState.RECALLED, EntryState.MOVED, EntryState.EXPIRED)


class File(NamedTuple):
    """A file of an adoption."""

    info: RunInfo
    provenance: Provenance


class Missing(NamedTuple):
    """A file of an adoption that cannot be opened."""

    file: File
    why: str


def find_adopted_files(
    plan: LogPlan, adoptions: Sequence[Adoption]
) -> tuple[list[File], list[Missing]]:
    """Return the files of all adoptions: those that can be opened, and the missing ones."""
    storage = files_of(plan.root)
    there, missing = [], []
    for adoption in adoptions:
        for info, provenance in adoption.runs(()):
            try:
                Run.open(storage, _RUNS, info.name, plan.log_id).close()
                there.append(File(info, provenance))
            except HorologError as error:
                missing.append(Missing(File(info, provenance), error.message))
    return there, missing


def settled_rows(every: DataFrame, files: Sequence[File], others: Sequence[int]) -> DataFrame:
    """Return the rows of these files that the log settles.

    Columns: index in `files`, row in the file, `EntryState`, log position.
    others  positions of recalls of messages that were in the lake by then
    """
    state = (
        f"case kind when 'HANDED' then {EntryState.HANDED_OVER:d} when 'RECALL' then "
        f"{EntryState.RECALLED:d} when 'EXPIRED' then {EntryState.EXPIRED:d} else "
        f"{EntryState.MOVED:d} end as state"
    )
    rows = every.where("kind in ('HANDED', 'RECALL', 'MOVED', 'EXPIRED')")
    rows = rows.selectExpr("origin", "origin_row", "position", state)
    return rows.mapInArrow(_of_files(files, others), _SETTLED)


def _of_files(files: Sequence[File], others: Sequence[int]) -> Task:
    starts: dict[int, list[tuple[int, int, int]]] = {}
    for number, (info, provenance) in enumerate(files):
        starts.setdefault(provenance.position, []).append((provenance.first_row, info.rows, number))
    tables = {position: np.array(rows, np.int64) for position, rows in starts.items()}
    adopted, others_at = np.array(list(tables), np.int64), np.array(others, np.int64)

    def choose(batches: Batches) -> Batches:
        for batch in batches:
            origin, origin_row, position, state = columns_of(
                batch, "origin", "origin_row", "position", "state"
            )
            mine = np.flatnonzero(np.isin(origin, adopted) & ~np.isin(position, others_at))
            file, row = np.full(len(mine), -1, np.int64), np.zeros(len(mine), np.int64)
            for at in np.unique(origin[mine]).tolist():
                for first, count, number in tables[at].tolist():
                    within = origin_row[mine] - first
                    its = (origin[mine] == at) & (within >= 0) & (within < count)
                    file[its], row[its] = number, within[its]
            known = file >= 0
            columns = [file, row, state[mine], position[mine]]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(column[known]).cast(type)
                    for column, type in zip(
                        columns, (pa.int32(), pa.int64(), pa.int32(), pa.int64()), strict=True
                    )
                ],
                ["file", "row", "state", "position"],
            )

    return choose


def first_lost(
    every: DataFrame, missing: Sequence[Missing], others: Sequence[int], taken: dict[str, int]
) -> str:
    """Return why a rebuild would lose messages of a missing file; "" if it would lose none.

    A message is not lost if it is settled or in the lake.
    taken  rows of each file that offloads have taken
    """
    rows = settled_rows(every, [each.file for each in missing], others)
    settled = {row["file"]: row["count"] for row in rows.groupBy("file").count().collect()}
    for number, (file, why) in enumerate(missing):
        left = file.info.rows - settled.get(number, 0) - taken.get(file.info.name, 0)
        if left > 0:
            return f"{why}, and {left} of its messages wait, which are nowhere else"
    return ""


def write_adopted(
    spark: SparkSession,
    every: DataFrame,
    files: Sequence[File],
    target: Target,
    cuts: Sequence[Cut],
    others: Sequence[int],
) -> tuple[list[dict[str, Any]], int]:
    """Copy the files and write their states.

    Return rows of a checkpoint's registry, in the order of the files, and how many waiting messages
    do not verify.
    """
    if not files:
        return [], 0
    each = spark.createDataFrame([(number, -1, 0, 0) for number in range(len(files))], _SETTLED)
    rows = each.union(settled_rows(every, files, others)).repartition("file")
    made = rows.sortWithinPartitions("file", "row").mapInArrow(_writer(files, target, cuts), RESULT)
    written = sorted(
        (orjson.loads(row["result"]) for row in made.collect()), key=lambda row: row["file"]
    )
    rotten = sum(row["rotten"] for row in written)
    names = ("file", "rotten")
    return [{name: row[name] for name in row if name not in names} for row in written], rotten


def _writer(files: Sequence[File], target: Target, cuts: Sequence[Cut]) -> Task:
    def write(batches: Batches) -> Batches:
        parts: dict[int, list[Any]] = {}
        written = []

        def finish() -> None:
            number, pieces = parts.popitem()
            columns = [np.concatenate(column) for column in zip(*pieces, strict=True)]
            run = rebuild_run_state(target, files[number], cuts, *columns)
            written.append({"file": number, **run})

        for (number,), columns in groups_of(batches, ["file"], ["row", "state", "position"]):
            if parts and number not in parts:
                finish()
            parts.setdefault(number, []).append(columns)
        if parts:
            finish()
        yield result_rows(written)

    return write


def rebuild_run_state(
    target: Target,
    file: File,
    cuts: Sequence[Cut],
    row: npt.NDArray[np.int64],
    state: npt.NDArray[np.int64],
    position: npt.NDArray[np.int64],
) -> dict[str, Any]:
    """Copy one file, settle its rows, and write its state; `row` −1 stands for no row."""
    plan, info = plan_of(target.plan), file.info
    path = run_path(_RUNS, info.name)
    copy_file(files_of(plan.root).path(path), target, path, info.size)
    opened = Run.open(target.storage, _RUNS, info.name, plan.log_id)
    run = AdoptedRun(info, 0, lambda _: opened, file.provenance)
    left = np.isin(state, _RECALLED)
    for cut in cuts:
        if cut.begun > file.provenance.position:
            before = left & (position < cut.committed)
            _settle_recalled(run, row[before], state[before])
            left &= ~before
            _cut(run, cut.from_ms)
    _settle_recalled(run, row[left], state[left])
    _settle(run, row[state == EntryState.HANDED_OVER], EntryState.HANDED_OVER)
    if run.changed:
        content = encode_run_state(run.capture())
        write_file(target.storage, f"{_RUNS}/{state_file(info.name, run.version)}", content)
    rotten = _count_rotten(opened, run)
    opened.close()
    return {**registry_row(run), "rotten": rotten}


def _count_rotten(file: Run, run: AdoptedRun) -> int:
    """Count the waiting messages whose index row or record does not verify."""
    states, rotten = RunState(run.info.rows, {}, run.states.capture()), 0
    for first in range(0, run.states.limit, _SETTLE_ROWS):
        stop = min(run.states.limit, first + _SETTLE_ROWS)
        entries = file.slice(first, stop)
        entries = entries[run_states(states, run.states.cursor, first, stop) == EntryState.WAITING]
        good = entries[is_readable(entries)]
        crcs = record_crcs(file.records(good), good["origin"], good["row"])
        rotten += len(entries) - int((crcs == good["crc"]).sum())
    return rotten


def _settle_recalled(run: AdoptedRun, row: npt.NDArray[np.int64], state: npt.NDArray[Any]) -> None:
    for kind in _RECALLED:
        _settle(run, row[state == kind], kind)


def _settle(run: AdoptedRun, row: npt.NDArray[np.int64], state: EntryState) -> None:
    for first in range(0, len(row), _SETTLE_ROWS):
        run.settle(row[first : first + _SETTLE_ROWS], state)


def _cut(run: AdoptedRun, from_ms: int) -> None:
    """Cut a run as the commit of an offload does (`lake.core.steps`)."""
    first, stop = rows_of(run, from_ms)
    if first < stop:
        run.cut(first, from_ms if first else 0)
