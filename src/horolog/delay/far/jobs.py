"""Background jobs: a far buffer becomes a run, many runs become runs of days and months.

A job reads files that no longer change and writes new ones, in a thread of the server; it touches
no live state.  When it is done the core exchanges the sources in a step (`delay.far.store`), and
the next checkpoint names the new set.  The next start sweeps files that a job wrote and no
checkpoint names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import ENTRY, ENTRY_BYTES, INDEX_NAME, LOG_NAME, is_readable, records_of
from horolog.delay.far.buffer import FarBuffer
from horolog.delay.far.run import FarRun
from horolog.delay.run.merge import Part, flush, merge
from horolog.delay.run.reader import Run, RunInfo
from horolog.delay.state import EntryState
from horolog.errors import HorologError
from horolog.limits import DAY_MS, HOUR_MS
from horolog.storage.api import Storage
from horolog.storage.mapped import whole_view

DAYS = 32  # days with runs of their own; later messages are kept by month
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def run_name(file_id: int) -> str:
    """Return the file name of a run, without `.run`."""
    return f"{file_id:010d}"


def partition_of(due_ms: int, now_ms: int) -> int:
    """Return the first ms of the day or month (UTC) whose run holds messages due at `due_ms`."""
    days_end = _days_end(now_ms)
    if due_ms < days_end:
        return due_ms - due_ms % DAY_MS
    at = _EPOCH + timedelta(milliseconds=due_ms)
    # In the month in which the days end, the month's run begins after the last day.
    return max(_month_ms(at.year, at.month), days_end)


def bounds_of(first_ms: int, last_ms: int, now_ms: int) -> list[int]:
    """Return where the runs of a merge begin: `first_ms`, then each day or month to `last_ms`."""
    bounds = [first_ms]
    at = first_ms
    days_end = _days_end(now_ms)
    while True:
        if at < days_end:
            at += DAY_MS - at % DAY_MS
        else:
            day = _EPOCH + timedelta(milliseconds=at)
            year, month = divmod(day.year * 12 + day.month, 12)
            at = _month_ms(year, month + 1)
        if at > last_ms:
            return bounds
        bounds.append(at)


def _days_end(now_ms: int) -> int:
    return now_ms - now_ms % DAY_MS + DAYS * DAY_MS


def _month_ms(year: int, month: int) -> int:
    return (datetime(year, month, 1, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


@dataclass
class FlushJob:
    """Sort a sealed far buffer into a run."""

    directory: str
    log_id: int
    buffer: FarBuffer  # for the core, when the job is done
    file_id: int
    count: int
    rows: npt.NDArray[np.int64]  # rows that wait
    made: list[RunInfo] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)  # rows whose index entry cannot be read

    @property
    def file_ids(self) -> range:
        """Ids of the runs that the job writes."""
        return range(self.file_id, self.file_id + 1)

    def carry_out(self, storage: Storage) -> None:
        """Write and sync the run; DISK_FULL leaves no file."""
        if not len(self.rows):
            return
        index = storage.open(f"{self.buffer.directory}/{INDEX_NAME}")
        log = storage.open(f"{self.buffer.directory}/{LOG_NAME}")
        try:
            # Cut files count as damaged: entries are rebuilt, and records when they are due.
            whole, _ = whole_view(index, ENTRY_BYTES * self.count)
            entries = np.frombuffer(whole, ENTRY, self.count).take(self.rows)
            good = is_readable(entries)
            self.damaged = self.rows[~good].tolist()
            entries = entries.compress(good)
            view, _ = whole_view(log, self.buffer.log_bytes)
            if len(entries):
                name = run_name(self.file_id)
                made = flush(
                    storage,
                    self.directory,
                    name,
                    log_id=self.log_id,
                    entries=entries,
                    read=partial(records_of, view),
                )
                storage.sync_dir(self.directory)
                self.made = [made]
        finally:
            index.close()
            log.close()


class MergeInput(NamedTuple):
    """Rows [first, stop) of a run, without those that are gone."""

    run: FarRun
    first: int
    stop: int
    gone: npt.NDArray[np.bool_]


@dataclass
class MergeJob:
    """Merge messages due at or after `bounds[0]` of several runs into one run a partition."""

    directory: str
    log_id: int
    inputs: Sequence[MergeInput]
    bounds: list[int]
    file_id: int
    made: list[RunInfo] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # problems of the runs that were read
    damaged: dict[str, list[int]] = field(default_factory=dict)  # run → rows left out

    @property
    def file_ids(self) -> range:
        """Ids of the runs that the job writes."""
        return range(self.file_id, self.file_id + len(self.bounds))

    def carry_out(self, storage: Storage) -> None:
        """Write and sync the runs; after a failure the finished ones are removed."""
        names = [run_name(file_id) for file_id in self.file_ids]
        opened: list[Run] = []
        try:
            for each in self.inputs:
                opened.append(Run.open(storage, self.directory, each.run.info.name, self.log_id))
            parts = [
                Part(run, each.first, each.stop, each.gone)
                for run, each in zip(opened, self.inputs, strict=True)
            ]
            self.made = merge(
                storage, self.directory, parts, self.bounds, names, log_id=self.log_id
            )
            storage.sync_dir(self.directory)
        except HorologError:
            for name in names:
                storage.remove(f"{self.directory}/{name}.run")
            raise
        finally:
            for run in opened:
                self.problems += run.problems
                self.damaged[run.info.name] = run.damaged_rows
                run.close()


FarJob = FlushJob | MergeJob


def replay_journal(
    journal: Sequence[tuple[npt.NDArray[np.int64], EntryState]],
    source: FarBuffer | FarRun,
    runs: Sequence[FarRun],
) -> None:
    """Settle in the new runs what was settled in a source while the job was reading it."""
    for rows, state in journal:
        entries = source.entries(rows)
        for run in runs:
            found = run.find(entries["due_ms"], entries["origin"])
            found = np.sort(found[found >= 0])
            if len(found):
                run.settle(found, state)


def first_merged_ms(now_ms: int) -> int:
    """Return the first due time of a merge: earlier messages may be handed over while it runs."""
    return (now_ms // HOUR_MS + 2) * HOUR_MS
