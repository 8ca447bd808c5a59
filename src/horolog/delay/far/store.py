"""The far store: all messages due beyond the near window, in memory that does not grow with them.

    far buffer(s) → level-0 runs → (above RUNS_MAX of them) runs of days and months

Messages gather in a far buffer; a full one is *sealed* and becomes a run; many runs are merged into
one for each of the next 32 days and for each month after that, so that a run goes when its time has
passed.  All buffers and runs are sources (`delay.source`) from which the wheel loads its seconds;
no message moves when its time comes.

The far store is derived from the commit log.  What a checkpoint must name: lengths of buffers and
the settled rows in them, and of every run the cursor, the limit and the version of its state file.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt

from horolog.delay.entry_files import Filing, RepairRows
from horolog.delay.far.adopted import AdoptedRun, Adoption, Missing
from horolog.delay.far.buffer import FarBuffer, buffer_name
from horolog.delay.far.compaction import Compaction, FarSettings
from horolog.delay.far.run import FarRun
from horolog.delay.run.format import damaged, run_path
from horolog.delay.run.reader import Run, RunInfo
from horolog.delay.run.repair import rebuild_from_index
from horolog.delay.source import Rows
from horolog.delay.tier import Tier
from horolog.errors import NO_ROOM, ErrorCode, HorologError, Problem, Repair
from horolog.limits import HOUR_KEEP_MS
from horolog.storage.api import Storage
from horolog.storage.descriptors import runs_open_max
from horolog.storage.mapped import is_cut
from horolog.storage.open_files import OpenFiles


class FarStore:
    """The far buffers and runs of a shard."""

    def __init__(
        self,
        storage: Storage,
        directory: str,
        log_id: int,
        take_source_id: Callable[[], int],
        settings: FarSettings,
        tier: Tier,
    ) -> None:
        self.directory = directory
        self.buffers: list[FarBuffer] = []  # the last one takes new messages, unless it is sealed
        self.runs: dict[str, FarRun] = {}
        self.tier = tier
        self.missing: list[Missing] = []  # adopted files that a replay did not find
        self.finished: dict[str, int] = {}  # adopted runs forgotten by this process → position
        self.problems: list[Problem] = []
        self.repairs: list[Repair] = []
        self.repair: RepairRows | None = None  # rebuilds damaged entries, of all sources
        self.compaction = Compaction(self, settings)
        self.storage = storage
        self.log_id = log_id
        self.take_source_id = take_source_id
        self.next_file = 1  # id of the next file
        self._opened: OpenFiles[str, Run] = OpenFiles(runs_open_max())
        # (second, the next second at or after it in which something waits)
        self._next_waiting_cache: tuple[int, int | None] | None = None

    def sources(self) -> Iterator[FarBuffer | FarRun]:
        """Yield all buffers and runs that can be read."""
        yield from self.buffers
        yield from (run for run in self.runs.values() if not run.access.unreadable)

    @property
    def waiting(self) -> int:
        """Messages that wait in the far store."""
        return sum(source.waiting for source in self.sources())

    @property
    def unflushed_bytes(self) -> int:
        """Bytes that are still to be written as runs."""
        return sum(buffer.log_bytes for buffer in self.buffers)

    def bytes_due_before(self, to_ms: int) -> int:
        """Return the log bytes that handing over what is due before `to_ms` takes; nearly exact."""
        return sum(source.bytes_due_before(to_ms) for source in self.sources())

    def open_run(self, name: str) -> Run:
        """Return a run's file, mapped; the least recently used files are closed.

        A run in use that is damaged after its records is made whole from its index; DAMAGED if that
        is impossible.  TOO_MANY_FILES if the file cannot be mapped though all others were closed.
        """
        run = self._opened.get(name)
        if run is not None and is_cut(run.view):
            self.unmap_file(name)
            run = None
        if run is None:
            run = self._opened.open(name, self._open)
            run.report_problem = self.problems.append
        return run

    def _open(self, name: str) -> Run:
        try:
            return self._open_unchanged(name)
        except HorologError as error:
            if name not in self.runs or error.code is not ErrorCode.DAMAGED:
                raise
            if not self.rebuild_file(name):
                raise
        return self._open_unchanged(name)

    def _open_unchanged(self, name: str) -> Run:
        """Open a run's file; DAMAGED if a run in use now has another file."""
        opened = Run.open(self.storage, self.directory, name, self.log_id)
        run = self.runs.get(name)
        if run is not None and run.info != opened.info:
            raise _replaced(name)
        return opened

    def rebuild_file(self, name: str) -> bool:
        """Make a run in use whole from its index; return False if that is impossible."""
        run = self.runs[name]
        adopted = isinstance(run, AdoptedRun)
        self.unmap_file(name)
        done = rebuild_from_index(
            self.storage, self.directory, run.info, self.log_id, adopted=adopted
        )
        if done:
            self.repairs.append(Repair(f"{run.label}: made whole from its index", 1))
        return done

    def attach_run(self, run: FarRun) -> None:
        """Add a run to those in use."""
        run.repair, run.access.report_problem = self.repair, self.problems.append
        run.access.rebuild_file = partial(self.rebuild_file, run.info.name)
        run.access.path = run_path(self.directory, run.info.name)
        self.runs[run.info.name] = run

    def check_invariants(self) -> None:
        """Assert what must hold between two steps; costs as much as there are buffers and runs."""
        assert all(buffer.sealed for buffer in self.buffers[:-1]), "only the last one may be open"
        source_ids = [source.source_id for source in self.sources()]
        assert len(set(source_ids)) == len(source_ids)
        assert len(self._opened) <= self._opened.most
        assert not self.finished.keys() & self.runs.keys()
        assert all(buffer.file_id < self.next_file for buffer in self.buffers)
        self.compaction.check_invariants()

    def forget_finished(self, on_disk: Container[str]) -> None:
        """Drop adopted runs from `finished` whose files are gone."""
        for name in [name for name in self.finished if f"{name}.run" not in on_disk]:
            del self.finished[name]

    def unmap_file(self, name: str) -> None:
        """Unmap the file of a run after a repair; readers of the old mapping keep it."""
        self._opened.forget(name)

    # --- filing -----------------------------------------------------------------------------------

    def file(self, filing: Filing) -> tuple[FarBuffer, Rows]:
        """Append messages to the far buffer; DISK_FULL changes nothing."""
        if not self.buffers or self.buffers[-1].sealed:
            file_id = self.take_file_id()
            self.storage.remove_dir(f"{self.directory}/{buffer_name(file_id)}")  # of an earlier use
            buffer = FarBuffer(self.storage, self.directory, file_id, self.take_source_id())
            buffer.repair = self.repair
            self.buffers.append(buffer)
        buffer = self.buffers[-1]
        rows = buffer.file(filing)
        if buffer.log_bytes >= self.compaction.settings.buffer_bytes:
            buffer.sealed = True
        lowest = int(filing.due_ms.min()) // 1000
        cached = self._next_waiting_cache
        if cached is not None and (cached[1] is None or lowest < cached[1]):
            self._next_waiting_cache = None
        return buffer, rows

    def take_file_id(self, count: int = 1) -> int:
        """Reserve `count` ids for new files; return the first."""
        first, self.next_file = self.next_file, self.next_file + count
        return first

    # --- the wheel --------------------------------------------------------------------------------

    def next_waiting(self, second: int) -> int | None:
        """Return the first second at or after `second` in which something waits."""
        if self._next_waiting_cache is not None:
            from_second, found = self._next_waiting_cache
            if from_second <= second and (found is None or second <= found):
                return found
        dues = [source.first_waiting_ms(second * 1000) for source in self.sources()]
        known = [due for due in dues if due is not None]
        answer = min(known) // 1000 if known else None
        self._next_waiting_cache = (second, answer)
        return answer

    def sources_waiting_between(self, second: int, stop: int) -> list[FarBuffer | FarRun]:
        """Return the sources that may have waiting messages from `second` to before `stop`."""
        from_ms, to_ms = second * 1000, stop * 1000
        found = []
        for source in self.sources():
            due = source.first_waiting_ms(from_ms)
            if due is not None and due < to_ms:
                found.append(source)
        return found

    # --- runs -------------------------------------------------------------------------------------

    def add_run(self, info: RunInfo, level: int, frozen: bool) -> FarRun:
        """Add a run that a job has made."""
        run = FarRun(info, self.take_source_id(), level, self.open_run)
        run.frozen = frozen
        self.attach_run(run)
        return run

    def drop(self, name: str) -> None:
        """Forget a run; its file goes when no kept checkpoint names it."""
        run = self.runs.pop(name)
        if isinstance(run, AdoptedRun):
            self.finished[name] = run.provenance.position
        self._opened.drop(name)

    def adopt(self, adoption: Adoption) -> None:
        """Take over the files of a committed adoption, except for `missing` ones."""
        for info, provenance in adoption.runs({each.file.name for each in self.missing}):
            self.attach_run(AdoptedRun(info, self.take_source_id(), self.open_run, provenance))
            self.compaction.note_moved(info.first_ms)
        self._next_waiting_cache = None

    def note_missing(self, adoption: Adoption) -> None:
        """Add an adoption's files that a replay cannot open, or that differ, to `missing`."""
        for file in adoption.files:
            try:
                if self.open_run(file.name).info != file.as_run:
                    raise _replaced(file.name)
            except HorologError as error:
                if error.code in NO_ROOM:
                    raise  # a lack of room does not mean that the file is damaged
                self.unmap_file(file.name)
                self.missing.append(Missing(adoption, file, error.message))

    def drop_finished(self, now_ms: int, position: int) -> list[int]:
        """Forget runs that are over for HOUR_KEEP_MS and hold nothing waiting; return source ids.

        position  of the checkpoint that is kept beside the next one: a start from it needs the
                  files of adoptions that lie after it
        """
        gone = [
            name
            for name, run in self.runs.items()
            if not run.waiting
            and not run.states.in_flight
            and run.journal is None
            and run.counts.limit_ms + HOUR_KEEP_MS <= now_ms
            and not (isinstance(run, AdoptedRun) and run.provenance.position >= position)
        ]
        source_ids = [self.runs[name].source_id for name in gone]
        for name in gone:
            self.drop(name)
        return source_ids

    def forget_next_waiting(self) -> None:
        """Drop the cached next waiting second: what waits has changed other than by settling."""
        self._next_waiting_cache = None

    def seal(self) -> None:
        """Seal all buffers, so that messages filed from now on go into a new one."""
        for buffer in self.buffers:
            buffer.sealed = True

    def finds(
        self, due_ms: npt.NDArray[np.int64], origins: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.bool_]:
        """Return which of these messages have a row, whatever its state."""
        found = np.zeros(len(origins), np.bool_)
        for source in self.sources():
            found |= source.find(due_ms, origins) >= 0
        return found

    def close(self) -> None:
        """Close all files."""
        for buffer in self.buffers:
            buffer.close()
        self.close_runs()

    def close_runs(self) -> None:
        """Close the files of runs; the next use opens them again."""
        self._opened.close()


def _replaced(name: str) -> HorologError:
    return damaged(name, "another file is in its place")
