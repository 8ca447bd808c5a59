"""Which job the far store wants next, and what changes in it when one has been carried out.

A sealed buffer becomes a run; above the settings' number of runs they become one for each day or month.  The jobs
themselves, which touch no live state, are in `delay.far.jobs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from horolog.delay.entry import is_readable
from horolog.delay.far.adopted import AdoptedRun
from horolog.delay.far.buffer import FarBuffer
from horolog.delay.far.jobs import (
    FlushJob,
    MergeInput,
    MergeJob,
    bounds_of,
    carry_over,
    first_merged_ms,
    partition_of,
)
from horolog.delay.far.run import FarRun
from horolog.delay.state import EntryState
from horolog.errors import Problem
from horolog.limits import HOUR_KEEP_MS

if TYPE_CHECKING:
    from horolog.delay.far.store import FarStore

_SETTLED_MAX = 65_536  # rows of a buffer that need not stay in it any longer


def flush_job(far: FarStore) -> FlushJob | None:
    """The first buffer that is full, or of which little waits; it takes nothing more."""
    for buffer in far.buffers:
        crowded = buffer.settled > _SETTLED_MAX and 2 * buffer.settled > buffer.count
        if buffer.sealed or crowded:
            buffer.sealed = True
            rows = np.arange(buffer.count)
            settled = buffer.states_at(rows) & EntryState.SETTLED_BITS
            buffer.journal = []
            return FlushJob(
                far.directory,
                far.log_id,
                buffer,
                far.take_file_number(),
                buffer.count,
                rows[settled == EntryState.WAITING],
            )
    return None


def merge_job(far: FarStore, now_ms: int) -> MergeJob | None:
    """Too many runs of buffers, or of one day or month; None if the disk has no room for it."""
    first_ms = first_merged_ms(now_ms)
    mine = [
        run
        for run in far.runs.values()
        if not isinstance(run, AdoptedRun) and not run.access.unreadable
    ]
    whole = [run for run in mine if run.states.limit == run.info.rows and not run.frozen]
    chosen = [run for run in whole if run.level == 0 and run.info.last_ms >= first_ms]
    if len(chosen) <= far.settings.runs_max:
        chosen = _crowded_partition(far, whole, first_ms, now_ms)
    inputs = []
    for run in chosen:
        row = max(run.states.decided, run.file.row_at(first_ms))
        inputs.append(
            MergeInput(run, row, run.states.limit, run.states.gone_between(row, run.states.limit))
        )
    if not inputs or sum(run.info.size for run in chosen) > far.merge_room:
        return None
    for run in chosen:
        run.journal = []
    bounds = bounds_of(first_ms, max(run.info.last_ms for run in chosen), now_ms)
    number = far.take_file_number(len(bounds))
    return MergeJob(far.directory, far.log_id, inputs, bounds, number)


def _crowded_partition(
    far: FarStore, whole: list[FarRun], first_ms: int, now_ms: int
) -> list[FarRun]:
    parts: dict[int, list[FarRun]] = {}
    for run in whole:
        if run.level and run.info.first_ms >= first_ms:
            parts.setdefault(partition_of(run.info.first_ms, now_ms), []).append(run)
    for runs in parts.values():
        if len(runs) > far.settings.part_runs_max:
            return runs
    return []


def finish_flush(far: FarStore, job: FlushJob) -> None:
    """The run takes the place of its buffer."""
    buffer = job.buffer
    lowest = buffer.first_waiting_ms(0)
    if _are_mended(far, [(buffer, job.damaged)]):
        buffer.journal = None
        _remove_made(far, job)  # it is made again, with what was mended
        return
    if job.damaged:
        buffer.settle(np.array(job.damaged, np.int64), EntryState.QUARANTINED)
        told = f"{buffer.directory}: {len(job.damaged)} index entries are damaged and quarantined"
        far.problems.append(Problem(told, until_ms=buffer.last_ms + HOUR_KEEP_MS))
    made = [far.add_run(info, 0, buffer.frozen) for info in job.made]
    carry_over(buffer.journal or (), buffer, made)
    far.buffers.remove(buffer)
    buffer.close()
    far.moved(lowest)


def _are_mended(far: FarStore, damaged: Sequence[tuple[FarBuffer | FarRun, list[int]]]) -> bool:
    """Make damaged entries that a job has left out anew, as far as can be; whether any was."""
    any_is = False
    for source, left_out in damaged:
        rows = np.array(left_out, np.int64)
        if far.mend is not None and len(rows):
            far.mend(source, rows)
            entries = source.entries(rows)
            any_is = any_is or bool(is_readable(entries).any())
    return any_is


def _remove_made(far: FarStore, job: FlushJob | MergeJob) -> None:
    for info in job.made:
        far.storage.remove(f"{far.directory}/{info.name}.run")


def finish_merge(far: FarStore, job: MergeJob) -> None:
    """The new runs take over what the old ones have from the first moment of the merge on."""
    first_ms = job.bounds[0]
    late = any(each.run.states.decided > each.first for each in job.inputs)
    if late:  # the clock was faster than the merge, and rows were handed over that it has copied
        far.fail_job()
        far.job = job
        _remove_made(far, job)
        return
    if _are_mended(
        far, [(each.run, job.damaged.get(each.run.info.name, [])) for each in job.inputs]
    ):
        for each in job.inputs:
            each.run.journal = None
        _remove_made(far, job)  # it is made again, with what was mended
        return
    frozen = any(each.run.frozen for each in job.inputs)  # since the job began
    until_ms = max(each.run.info.last_ms for each in job.inputs) + HOUR_KEEP_MS
    far.problems += [Problem(told, until_ms=until_ms) for told in job.problems]
    made = [far.add_run(info, 1, frozen) for info in job.made]
    for each in job.inputs:
        carry_over(each.run.journal or (), each.run, made)
        each.run.journal = None
        each.run.cut(each.first, first_ms)
        if not each.first:
            far.drop(each.run.info.name)  # what was handed over of others is known a while longer
    far.moved(first_ms)
