"""The far store: everything that is due beyond the near window, with memory that does not grow with it.

    far buffer(s) → level-0 runs → (above RUNS_MAX of them) runs of days and months

Messages gather in a far buffer; a full one is *sealed* and becomes a run; many runs are merged into one for each
of the next 32 days and for each month after that, so that a run goes when its time has passed.  All of them are
sources (`delay.source`) that the wheel loads its seconds from; nothing is moved when its time comes.

Everything here is derived from the commit log.  What a checkpoint must name: lengths of buffers and what was
settled of them, and of every run the cursor, the limit and the version of its state file.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.adopted import AdoptedRun, Adoption, Missing, Origin
from horolog.delay.damage import Damaged
from horolog.delay.far_buffer import FarBuffer, buffer_name
from horolog.delay.far_jobs import (
    FarJob,
    FlushJob,
    MergeInput,
    MergeJob,
    bounds_of,
    carry_over,
    first_merged_ms,
    partition_of,
)
from horolog.delay.far_names import damaged_buffer, damaged_run, registry_row, state_file
from horolog.delay.far_run import FarRun
from horolog.delay.far_state import decode_run_state, encode_run_state
from horolog.delay.hour import Filing
from horolog.delay.lake import Lake, restore_lake, state_name
from horolog.delay.run import Run, RunInfo
from horolog.delay.source import Rows
from horolog.delay.state import EntryState
from horolog.errors import HorologError
from horolog.limits import (
    FAR_BUFFER_BYTES,
    HOUR_KEEP_MS,
    PART_RUNS_MAX,
    RUNS_MAX,
    RUNS_OPEN_MAX,
)
from horolog.log.checkpoint import FAR_SETTLED
from horolog.storage.api import Storage, read_file

_SETTLED_MAX = 65_536  # rows of a buffer that need not stay in it any longer


class FarSettings(NamedTuple):
    """Sizes; tests make them small."""

    buffer_bytes: int = FAR_BUFFER_BYTES
    runs_max: int = RUNS_MAX
    part_runs_max: int = PART_RUNS_MAX


class FarCaptured(NamedTuple):
    """What a checkpoint needs of the far store."""

    registry: dict[str, Any]
    settled: npt.NDArray[Any]  # log.checkpoint.FAR_SETTLED
    states: list[tuple[str, Callable[[], bytes]]]  # files to write
    sync: list[str]  # files to sync first


class FarStore:
    """Far buffers and runs of a shard."""

    def __init__(
        self,
        storage: Storage,
        directory: str,
        log_id: int,
        take_number: Callable[[], int],
        settings: FarSettings,
    ) -> None:
        self.directory = directory
        self.buffers: list[FarBuffer] = []  # the last one takes new messages, if it is not sealed
        self.runs: dict[str, FarRun] = {}
        self.lake = Lake()
        self.missing: list[Missing] = []  # adopted files that a replay did not find
        self.finished: dict[str, int] = {}  # adopted runs forgotten by this process → position
        self.problems: list[str] = []
        self.job: FarJob | None = None
        self.moved_ms: int | None = (
            None  # first due time of what changed its source since last asked
        )
        self.merge_room = 1 << 62  # bytes that a merge may take
        self._storage = storage
        self._log_id = log_id
        self._take_number = take_number
        self._settings = settings
        self._next = 1  # number of the next file
        self._opened: OrderedDict[str, Run] = OrderedDict()
        self._asked: tuple[int, int | None] | None = None  # (second, next waiting second)

    def sources(self) -> Iterator[FarBuffer | FarRun]:
        """All of them."""
        yield from self.buffers
        yield from self.runs.values()

    @property
    def waiting(self) -> int:
        """Messages that wait."""
        return sum(source.waiting for source in self.sources())

    @property
    def wants_flush(self) -> bool:
        """Whether a far buffer is full and no job is under way."""
        return self.job is None and bool(self.buffers) and self.buffers[0].sealed

    @property
    def unflushed_bytes(self) -> int:
        """Bytes that have still to be written as runs."""
        return sum(buffer.log_bytes for buffer in self.buffers)

    def bytes_due_before(self, to_ms: int) -> int:
        """Bytes of records that wait and are due before `to_ms`; nearly exact."""
        return sum(source.bytes_due_before(to_ms) for source in self.sources())

    def open_run(self, name: str) -> Run:
        """A run's file, mapped; the least recently used ones are closed."""
        run = self._opened.get(name)
        if run is None:
            run = self._opened[name] = Run.open(self._storage, self.directory, name, self._log_id)
            if len(self._opened) > RUNS_OPEN_MAX:
                self._opened.popitem(last=False)[1].close()
        else:
            self._opened.move_to_end(name)
        return run

    # --- filing -----------------------------------------------------------------------------------

    def file(self, filing: Filing) -> tuple[FarBuffer, Rows]:
        """Append messages to the far buffer; DISK_FULL changes nothing."""
        if not self.buffers or self.buffers[-1].sealed:
            number = self._take_file_number()
            self._storage.remove_dir(f"{self.directory}/{buffer_name(number)}")  # of a former life
            self.buffers.append(
                FarBuffer(self._storage, self.directory, number, self._take_number())
            )
        buffer = self.buffers[-1]
        rows = buffer.file(filing)
        if buffer.log_bytes >= self._settings.buffer_bytes:
            buffer.sealed = True
        lowest = int(filing.due_ms.min()) // 1000
        if self._asked is not None and (self._asked[1] is None or lowest < self._asked[1]):
            self._asked = None
        return buffer, rows

    def _take_file_number(self, count: int = 1) -> int:
        first, self._next = self._next, self._next + count
        return first

    # --- the wheel --------------------------------------------------------------------------------

    def next_waiting(self, second: int) -> int | None:
        """The first second at or after `second` in which something waits."""
        if self._asked is not None:
            asked, found = self._asked
            if asked <= second and (found is None or second <= found):
                return found
        dues = [source.first_waiting_ms(second * 1000) for source in self.sources()]
        known = [due for due in dues if due is not None]
        answer = min(known) // 1000 if known else None
        self._asked = (second, answer)
        return answer

    def having(self, second: int, stop: int) -> list[FarBuffer | FarRun]:
        """Sources in which something may wait in the seconds from `second` to before `stop`."""
        from_ms, to_ms = second * 1000, stop * 1000
        found = []
        for source in self.sources():
            due = source.first_waiting_ms(from_ms)
            if due is not None and due < to_ms:
                found.append(source)
        return found

    # --- jobs -------------------------------------------------------------------------------------

    def start_job(self, now_ms: int) -> FarJob | None:
        """A job for the background, if there is something to do and none is under way."""
        if self.job is None:
            self.job = self._flush_job() or self._merge_job(now_ms)
            return self.job
        return None

    def start_flush(self) -> FarJob | None:
        """The same, but never a merge: a start must not wait for one (P5)."""
        if self.job is None:
            self.job = self._flush_job()
            return self.job
        return None

    def _flush_job(self) -> FlushJob | None:
        for buffer in self.buffers:
            crowded = buffer.settled > _SETTLED_MAX and 2 * buffer.settled > buffer.count
            if buffer.sealed or crowded:
                buffer.sealed = True
                rows = np.arange(buffer.count)
                settled = buffer.states_at(rows) & EntryState.SETTLED_BITS
                buffer.journal = []
                return FlushJob(
                    self.directory,
                    self._log_id,
                    buffer,
                    self._take_file_number(),
                    buffer.count,
                    rows[settled == EntryState.WAITING],
                )
        return None

    def _merge_job(self, now_ms: int) -> MergeJob | None:
        first_ms = first_merged_ms(now_ms)
        mine = [run for run in self.runs.values() if not isinstance(run, AdoptedRun)]
        whole = [run for run in mine if run.limit == run.info.rows and not run.frozen]
        chosen = [run for run in whole if run.level == 0 and run.info.last_ms >= first_ms]
        if len(chosen) <= self._settings.runs_max:
            chosen = self._crowded_partition(whole, first_ms, now_ms)
        inputs = []
        for run in chosen:
            row = max(run.decided, run.file.row_at(first_ms))
            inputs.append(MergeInput(run, row, run.limit, run.gone_between(row, run.limit)))
        if not inputs or sum(run.info.size for run in chosen) > self.merge_room:
            return None
        for run in chosen:
            run.journal = []
        bounds = bounds_of(first_ms, max(run.info.last_ms for run in chosen), now_ms)
        number = self._take_file_number(len(bounds))
        return MergeJob(self.directory, self._log_id, inputs, bounds, number)

    def _crowded_partition(self, whole: list[FarRun], first_ms: int, now_ms: int) -> list[FarRun]:
        parts: dict[int, list[FarRun]] = {}
        for run in whole:
            if run.level and run.info.first_ms >= first_ms:
                parts.setdefault(partition_of(run.info.first_ms, now_ms), []).append(run)
        for runs in parts.values():
            if len(runs) > self._settings.part_runs_max:
                return runs
        return []

    def fail_job(self) -> None:
        """The job could not be carried out for want of space: it is made anew later."""
        job, self.job = self.job, None
        if isinstance(job, MergeJob):
            for each in job.inputs:
                each.run.journal = None
        elif job is not None:
            job.buffer.journal = None

    def finish_job(self) -> bool:
        """Exchange the sources of a job that was carried out; False if that has to wait.

        `moved_ms` tells from which due time on the wheel's references may be void.
        """
        job = self.job
        assert job is not None
        if isinstance(job, FlushJob):
            if job.buffer.in_flight:
                return False
            self._finish_flush(job)
        else:
            if any(each.run.in_flight for each in job.inputs):
                return False
            self._finish_merge(job)
        self.job = None
        self._asked = None
        return True

    def _finish_flush(self, job: FlushJob) -> None:
        buffer = job.buffer
        lowest = buffer.first_waiting_ms(0)
        if job.damaged:
            buffer.settle(np.array(job.damaged, np.int64), EntryState.QUARANTINED)
            self.problems.append(
                f"{buffer.directory}: {len(job.damaged)} index entries are damaged and quarantined"
            )
        made = [self._add_run(info, 0, buffer.frozen) for info in job.made]
        carry_over(buffer.journal or (), buffer, made)
        self.buffers.remove(buffer)
        buffer.close()
        self._moved(lowest)

    def _finish_merge(self, job: MergeJob) -> None:
        first_ms = job.bounds[0]
        late = any(each.run.decided > each.first for each in job.inputs)
        if (
            late
        ):  # the clock was faster than the merge, and rows were handed over that it has copied
            self.fail_job()
            self.job = job
            for info in job.made:
                self._storage.remove(f"{self.directory}/{info.name}.run")
            return
        frozen = any(each.run.frozen for each in job.inputs)  # since the job began
        made = [self._add_run(info, 1, frozen) for info in job.made]
        for each in job.inputs:
            carry_over(each.run.journal or (), each.run, made)
            each.run.journal = None
            each.run.cut(each.first, first_ms)
            if not each.first:
                self.drop(
                    each.run.info.name
                )  # what was handed over of others is known a while longer
        self._moved(first_ms)

    def _moved(self, from_ms: int | None) -> None:
        if from_ms is not None:
            self.moved_ms = from_ms if self.moved_ms is None else min(self.moved_ms, from_ms)

    def _add_run(self, info: RunInfo, level: int, frozen: bool) -> FarRun:
        run = FarRun(info, self._take_number(), level, self.open_run)
        run.frozen = frozen
        self.runs[info.name] = run
        return run

    def drop(self, name: str) -> None:
        """Forget a run; its file goes when no kept checkpoint names it."""
        run = self.runs.pop(name)
        if isinstance(run, AdoptedRun):
            self.finished[name] = run.origin.position
        opened = self._opened.pop(name, None)
        if opened is not None:
            opened.close()

    def adopt(self, adoption: Adoption) -> None:
        """Take over the files of a committed adoption, but for `missing` ones."""
        for info, origin in adoption.runs({each.file.name for each in self.missing}):
            self.runs[info.name] = AdoptedRun(info, self._take_number(), self.open_run, origin)
            self._moved(info.first_ms)
        self._asked = None

    def look_for(self, adoption: Adoption) -> None:
        """In a replay: which of its files are `missing`, because they cannot be opened."""
        for file in adoption.files:
            try:
                self.open_run(file.name)
            except HorologError as error:
                self.missing.append(Missing(adoption, file, error.message))

    def drop_finished(self, now_ms: int, position: int) -> list[int]:
        """Forget runs that are over for HOUR_KEEP_MS and in which nothing waits; gives their source numbers.

        position  of the checkpoint that is kept beside the next one: a start from it needs the files of adoptions
                  that lie behind it
        """
        gone = [
            name
            for name, run in self.runs.items()
            if not run.waiting
            and not run.in_flight
            and run.journal is None
            and run.limit_ms + HOUR_KEEP_MS <= now_ms
            and not (isinstance(run, AdoptedRun) and run.origin.position >= position)
        ]
        numbers = [self.runs[name].number for name in gone]
        for name in gone:
            self.drop(name)
        return numbers

    # --- checkpoint -------------------------------------------------------------------------------

    def capture(self) -> FarCaptured:
        """State of all buffers and runs as it is now."""
        sync: list[str] = []
        states: list[tuple[str, Callable[[], bytes]]] = []
        settled = []
        buffers = []
        for buffer in self.buffers:
            if buffer.unsynced:
                sync += buffer.sync_paths()
                buffer.unsynced = False
            index, state = buffer.settled_rows()
            rows = np.zeros(len(index), FAR_SETTLED)
            rows["buffer"], rows["index"], rows["state"] = buffer.file_number, index, state
            settled.append(rows)
            buffers.append(
                {
                    "number": buffer.file_number,
                    "count": buffer.count,
                    "log_bytes": buffer.log_bytes,
                    "sealed": buffer.sealed,
                    "frozen": buffer.frozen,
                    "first_ms": buffer.first_ms,
                    "last_ms": buffer.last_ms,
                }
            )
        for run in self.runs.values():
            if run.changed:
                state_of = run.capture()
                states.append((self.state_path(run), partial(encode_run_state, state_of)))
        runs = [registry_row(run) for run in self.runs.values()]
        if (content := self.lake.capture()) is not None:
            path = f"{self.directory}/{state_name(self.lake.version)}"
            states.append((path, partial(bytes, content)))
        registry = {"next": self._next, "buffers": buffers, "runs": runs}
        registry["lake"] = self.lake.registry()
        every = np.concatenate(settled) if settled else np.empty(0, FAR_SETTLED)
        return FarCaptured(registry, every, states, sync)

    def capture_failed(self) -> None:
        """The checkpoint that `capture` was for is not there: the next one writes and syncs everything."""
        for buffer in self.buffers:
            buffer.unsynced = True
        for run in self.runs.values():
            run.changed = run.changed or run.version > 0
        self.lake.changed = True

    def state_path(self, run: FarRun) -> str:
        """The state file of a run, in its present version."""
        return f"{self.directory}/{state_file(run.info.name, run.version)}"

    def restore(
        self, registry: dict[str, Any], settled: npt.NDArray[Any], *, tolerant: bool = False
    ) -> list[Damaged]:
        """Open what a checkpoint names; gives what cannot be opened.

        tolerant  a buffer with damaged entries is opened without them: there is nothing to make it anew from
        """
        damaged = []
        self._next = registry.get("next", 1)
        for row in registry.get("buffers", []):
            mine = settled[settled["buffer"] == row["number"]]
            buffer = FarBuffer(self._storage, self.directory, row["number"], self._take_number())
            why = buffer.restore(row["count"], row["log_bytes"], mine, tolerant=tolerant)
            if why:
                buffer.close()
                damaged.append(damaged_buffer(row, len(mine), why))
                continue
            buffer.sealed = row["sealed"]
            buffer.frozen = row.get("frozen", False)
            self.buffers.append(buffer)
        for row in registry.get("runs", []):
            why = self._restore_run(row)
            if why:
                damaged.append(damaged_run(row, why))
        lake = registry.get("lake", {})
        return damaged + restore_lake(self.lake, self._storage, self.directory, lake)

    def look_again(self) -> None:
        """What waits has changed otherwise than by settling."""
        self._asked = None

    def seal(self) -> None:
        """What is filed from here on goes into a buffer of its own."""
        for buffer in self.buffers:
            buffer.sealed = True

    def finds(
        self, due_ms: npt.NDArray[np.int64], origins: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.bool_]:
        """Of which of these messages there is a row, whatever its state."""
        found = np.zeros(len(origins), np.bool_)
        for source in self.sources():
            found |= source.find(due_ms, origins) >= 0
        return found

    def _restore_run(self, row: dict[str, Any]) -> str:
        name = row["name"]
        try:
            info = self.open_run(name).info
        except (FileNotFoundError, HorologError) as error:
            return f"run {name} cannot be opened ({error})"
        run = self._run_of(info, row)
        run.restore(row["cursor"], row["limit"], row["limit_ms"], row["waiting"])
        run.version, run.frozen = row["version"], row.get("frozen", False)
        if run.version:
            try:
                state = decode_run_state(read_file(self._storage, self.state_path(run)))
            except FileNotFoundError:
                state = None
            if state is None or state.rows != info.rows:
                return f"state {run.version} of run {name} is missing or damaged"
            run.take_state(state)
        self.runs[name] = run
        return ""

    def _run_of(self, info: RunInfo, row: dict[str, Any]) -> FarRun:
        number, origin = self._take_number(), Origin.of(row)
        if origin is None:
            return FarRun(info, number, row["level"], self.open_run)
        return AdoptedRun(info, number, self.open_run, origin)

    def close(self) -> None:
        """Close all files."""
        for buffer in self.buffers:
            buffer.close()
        for opened in self._opened.values():
            opened.close()
        self._opened.clear()
