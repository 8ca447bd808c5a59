"""Compaction of the far store: which job comes next, and the exchange of sources after a job.

A sealed buffer becomes a run; more runs than the settings allow become one for each day or month.
The jobs themselves, which touch no live state, are in `delay.far.jobs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from horolog.delay.entry import is_readable
from horolog.delay.far.adopted import AdoptedRun
from horolog.delay.far.buffer import FarBuffer
from horolog.delay.far.jobs import (
    FarJob,
    FlushJob,
    MergeInput,
    MergeJob,
    bounds_of,
    first_merged_ms,
    partition_of,
    replay_journal,
)
from horolog.delay.far.run import FarRun
from horolog.delay.state import EntryState
from horolog.errors import Problem
from horolog.limits import FAR_BUFFER_BYTES, HOUR_KEEP_MS, PART_RUNS_MAX, RUNS_MAX

if TYPE_CHECKING:
    from horolog.delay.far.store import FarStore

_SETTLED_MAX = 65_536  # settled rows at which a buffer is flushed, if they are most of it


class FarSettings(NamedTuple):
    """Sizes; tests make them small."""

    buffer_bytes: int = FAR_BUFFER_BYTES
    runs_max: int = RUNS_MAX
    part_runs_max: int = PART_RUNS_MAX


class Compaction:
    """Makes runs of sealed buffers, and of many runs one for each day or month; one job at a time.

    settings  sizes at which a job starts
    job       the job under way
    room      bytes that a merge may take
    moved_ms  first due time of messages that changed their source since `take_moved`: the wheel's
              references to messages due then or later may be void
    """

    def __init__(self, far: FarStore, settings: FarSettings) -> None:
        self.job: FarJob | None = None
        self.room = 1 << 62
        self.moved_ms: int | None = None
        self._far = far
        self.settings = settings

    @property
    def wants_flush(self) -> bool:
        """Whether a far buffer is full and no job is under way."""
        return self.job is None and bool(self._far.buffers) and self._far.buffers[0].sealed

    def start(self, now_ms: int) -> FarJob | None:
        """Start a job for the background, if there is work and no job is under way."""
        if self.job is None:
            self.job = self._flush_job() or self._merge_job(now_ms)
            return self.job
        return None

    def start_flush(self) -> FarJob | None:
        """Start a flush, but never a merge: a start must not wait for a merge (P5)."""
        if self.job is None:
            self.job = self._flush_job()
            return self.job
        return None

    def fail(self) -> None:
        """Drop a job that failed, for want of space or because of damage: another is made later."""
        job, self.job = self.job, None
        if job is None:
            return
        _stop_journals(job)
        if isinstance(job, MergeJob):
            for each in job.inputs:
                # Opening the file again notices what has rotted since, and makes it whole.
                self._far.unmap_file(each.run.info.name)

    def finish(self) -> bool:
        """Exchange the sources of a finished job; return False if the exchange has to wait.

        `moved_ms` tells from which due time on the wheel's references may be void.
        """
        job = self.job
        assert job is not None
        if isinstance(job, FlushJob):
            if job.buffer.in_flight:
                return False
            self._finish_flush(job)
        else:
            if any(each.run.states.in_flight for each in job.inputs):
                return False
            self._finish_merge(job)
        self.job = None
        self._far.forget_next_waiting()
        return True

    def take_moved(self) -> int | None:
        """Return `moved_ms`, and reset it."""
        moved, self.moved_ms = self.moved_ms, None
        return moved

    def note_moved(self, from_ms: int | None) -> None:
        """Note that messages due from a moment on have another source now."""
        if from_ms is not None:
            self.moved_ms = from_ms if self.moved_ms is None else min(self.moved_ms, from_ms)

    def check_invariants(self) -> None:
        """Assert that the sources of the job exist."""
        if isinstance(self.job, FlushJob):
            assert self.job.buffer in self._far.buffers
        elif self.job is not None:
            assert all(each.run.info.name in self._far.runs for each in self.job.inputs)

    # --- what to do next ------------------------------------------------------------------------

    def _flush_job(self) -> FlushJob | None:
        """Seal the first buffer that is full or mostly settled, and make a job of it."""
        for buffer in self._far.buffers:
            crowded = buffer.settled > _SETTLED_MAX and 2 * buffer.settled > buffer.count
            if buffer.sealed or crowded:
                buffer.sealed = True
                rows = np.arange(buffer.count)
                settled = buffer.states_at(rows) & EntryState.SETTLED_BITS
                buffer.journal = []
                return FlushJob(
                    self._far.directory,
                    self._far.log_id,
                    buffer,
                    self._far.take_file_id(),
                    buffer.count,
                    rows[settled == EntryState.WAITING],
                )
        return None

    def _merge_job(self, now_ms: int) -> MergeJob | None:
        """Merge runs of buffers, or of a day or month, if too many; None: no room on the disk."""
        first_ms = first_merged_ms(now_ms)
        mine = [
            run
            for run in self._far.runs.values()
            if not isinstance(run, AdoptedRun) and not run.access.unreadable
        ]
        whole = [run for run in mine if run.states.limit == run.info.rows and not run.frozen]
        chosen = [run for run in whole if run.level == 0 and run.info.last_ms >= first_ms]
        if len(chosen) <= self.settings.runs_max:
            chosen = self._crowded_partition(whole, first_ms, now_ms)
        inputs = []
        for run in chosen:
            states = run.states
            row = max(states.decided, run.file.row_at(first_ms))
            gone = states.gone_between(row, states.limit)
            inputs.append(MergeInput(run, row, states.limit, gone))
        if not inputs or sum(run.info.size for run in chosen) > self.room:
            return None
        for run in chosen:
            run.journal = []
        bounds = bounds_of(first_ms, max(run.info.last_ms for run in chosen), now_ms)
        first_id = self._far.take_file_id(len(bounds))
        return MergeJob(self._far.directory, self._far.log_id, inputs, bounds, first_id)

    def _crowded_partition(self, whole: list[FarRun], first_ms: int, now_ms: int) -> list[FarRun]:
        parts: dict[int, list[FarRun]] = {}
        for run in whole:
            if run.level and run.info.first_ms >= first_ms:
                parts.setdefault(partition_of(run.info.first_ms, now_ms), []).append(run)
        for runs in parts.values():
            if len(runs) > self.settings.part_runs_max:
                return runs
        return []

    # --- what was done --------------------------------------------------------------------------

    def _finish_flush(self, job: FlushJob) -> None:
        """Put the run of a finished job in the place of its buffer."""
        buffer = job.buffer
        lowest = buffer.first_waiting_ms(0)
        if self._repair_left_out([(buffer, job.damaged)]):
            self._discard_runs(job)
            return
        if job.damaged:
            buffer.settle(np.array(job.damaged, np.int64), EntryState.QUARANTINED)
            text = (
                f"{buffer.directory}: {len(job.damaged)} index entries are damaged and quarantined"
            )
            self._far.problems.append(Problem(text, until_ms=buffer.last_ms + HOUR_KEEP_MS))
        made = [self._far.add_run(info, 0, buffer.frozen) for info in job.made]
        replay_journal(buffer.journal or (), buffer, made)
        self._far.buffers.remove(buffer)
        buffer.close()
        self.note_moved(lowest)

    def _repair_left_out(self, damaged: Sequence[tuple[FarBuffer | FarRun, list[int]]]) -> bool:
        """Rebuild damaged entries that a job left out, where possible; return whether any was."""
        any_repaired = False
        for source, left_out in damaged:
            rows = np.array(left_out, np.int64)
            if self._far.repair is not None and len(rows):
                self._far.repair(source, rows)
                entries = source.entries(rows)
                any_repaired = any_repaired or bool(is_readable(entries).any())
        return any_repaired

    def _discard_runs(self, job: FarJob) -> None:
        """Discard the runs of a job: a later job includes repairs and hand-overs since."""
        _stop_journals(job)
        for info in job.made:
            self._far.storage.remove(f"{self._far.directory}/{info.name}.run")

    def _finish_merge(self, job: MergeJob) -> None:
        """Let the new runs take over all rows due from the first moment of the merge on."""
        first_ms = job.bounds[0]
        # The clock was faster than the merge, and rows that it copied were handed over.
        late = any(each.run.states.decided > each.first for each in job.inputs)
        damaged = [(each.run, job.damaged.get(each.run.info.name, [])) for each in job.inputs]
        if late or self._repair_left_out(damaged):
            self._discard_runs(job)
            return
        frozen = any(each.run.frozen for each in job.inputs)  # perhaps since the job began
        until_ms = max(each.run.info.last_ms for each in job.inputs) + HOUR_KEEP_MS
        self._far.problems += [Problem(text, until_ms=until_ms) for text in job.problems]
        made = [self._far.add_run(info, 1, frozen) for info in job.made]
        for each in job.inputs:
            replay_journal(each.run.journal or (), each.run, made)
            each.run.journal = None
            each.run.cut(each.first, first_ms)
            if not each.first:
                # Other runs are kept a while longer, so that their handed-over rows stay known.
                self._far.drop(each.run.info.name)
        self.note_moved(first_ms)


def _stop_journals(job: FarJob) -> None:
    for source in [job.buffer] if isinstance(job, FlushJob) else [each.run for each in job.inputs]:
        source.journal = None
