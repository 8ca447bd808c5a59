"""A run in use: its file (`run_access`), row states (`row_states`) and counts (`run_counts`).

A merge that takes rows from a *limit* on into other runs cuts the run there.  Memory holds a few
numbers, and one bit a row once a row was recalled; the file is mapped while it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.damage import quarantine_problem
from horolog.delay.entry import ENTRY_BYTES, is_readable, tags_of
from horolog.delay.entry_files import RepairRows
from horolog.delay.far.load import RowLoad
from horolog.delay.far.row_states import RowStates
from horolog.delay.far.run_access import RunAccess
from horolog.delay.far.run_counts import RunCounts
from horolog.delay.far.run_state import RunState
from horolog.delay.run.format import HEADER_BYTES
from horolog.delay.run.reader import Run, RunInfo
from horolog.delay.source import Rows, Wanted
from horolog.delay.state import EntryState

_STEP_ROWS = 8_192
_FIRST_STEP_ROWS = 64  # most often one of the next rows waits
_NO_ROWS: Rows = np.empty(0, np.int64)


class FarRun:
    """Rows [0, limit) of one run file.

    info       content of the file
    source_id  id of the run as a source
    level      0: from a far buffer; 1: from a merge; −1: adopted
    version    of the state file; 0: none
    changed    whether the next checkpoint needs a new one
    frozen     for an offload: no merge takes the run
    journal    rows that settle while a job reads the run; None: no job does
    """

    index_at = HEADER_BYTES

    def __init__(
        self, info: RunInfo, source_id: int, level: int, open_run: Callable[[str], Run]
    ) -> None:
        self.info = info
        self.states = RowStates(info.rows)
        self.access = RunAccess(info, self.states, open_run)
        self.counts = RunCounts(self.access, self.states)
        self.source_id = source_id
        self.level = level
        self.version = 0
        self.changed = False
        self.frozen = False
        self.journal: list[tuple[Rows, EntryState]] | None = None
        self.repair: RepairRows | None = None  # rebuilds damaged entries
        self._floor = 0  # rows from `decided` to before this one are gone or being recalled
        # The first due time that waits, None if nothing does; () if unknown.
        self._first: tuple[int | None] | tuple[()] = (info.first_ms,)

    @property
    def label(self) -> str:
        """The name of the run in problems."""
        return self.access.label

    @property
    def file(self) -> Run:
        """The open file; a blank in its place once the file cannot be read any more."""
        return self.access.file

    @property
    def records_path(self) -> str:
        """Path of the file of records."""
        return self.access.path

    @property
    def index_path(self) -> str:
        """Path of the file of entries."""
        return self.access.path

    @property
    def records_at(self) -> int:
        """Where the records begin in the file."""
        return HEADER_BYTES + ENTRY_BYTES * self.info.rows

    @property
    def count(self) -> int:
        """Rows of the file."""
        return self.info.rows

    @property
    def waiting(self) -> int:
        """Rows that wait."""
        return self.states.waiting

    @property
    def quarantined(self) -> int:
        """How many messages are quarantined."""
        bits = self.states.maps.get(EntryState.QUARANTINED)
        return 0 if bits is None else int(np.bitwise_count(bits).sum())

    @property
    def until_ms(self) -> int:
        """The last due time."""
        return self.counts.limit_ms

    def check_invariants(self) -> None:
        """Assert what must hold between two steps; costs as much as there are rows passed over."""
        self.states.check_invariants()
        assert self.states.limit == self.info.rows or self.counts.limit_ms <= self.info.last_ms

    # --- states -----------------------------------------------------------------------------------

    def states_at(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """Return each row's `EntryState`, with in-flight bits; none waits in an unreadable run."""
        states = self.states.at(rows)
        if self.access.unreadable:
            states[states == EntryState.WAITING] = EntryState.HANDED_OVER
        return states

    def mark_inflight(self, rows: Rows, bits: EntryState) -> None:
        """Mark rows for which a change is appended but not yet committed."""
        if len(rows):
            self.states.mark(rows, bits)
            self._first = ()

    def settle(self, rows: Rows, state: EntryState) -> None:
        """Settle rows for good; a row that was quarantined before did not wait any more."""
        if not len(rows):
            return
        waited = rows[self.states_at(rows) != EntryState.QUARANTINED]
        if state is EntryState.QUARANTINED:
            readable = is_readable(self.file.entries(rows))
            if not bool(readable.all()):
                self.quarantine_damaged(rows[~readable])
                self.settle(rows[readable], state)
                return
        self.changed = True
        self._first = ()
        self.counts.settle(self.file.entries(waited))
        self.states.settle(rows, state)
        if self.journal is not None:
            self.journal.append((rows.copy(), state))

    def quarantine_damaged(self, rows: Rows) -> int:
        """Quarantine the waiting ones of these rows with unreadable entries; return how many."""
        rows = rows[self.states_at(rows) == EntryState.WAITING]  # none, once the file is unreadable
        if len(rows):
            self.counts.settle_unreadable(rows)
            self.states.settle(rows, EntryState.QUARANTINED)
            self.changed = True
            self._first = ()
            self.access.report_problem(quarantine_problem(self))
        return len(rows)

    def capture(self) -> RunState:
        """Return a copy of the state for a new state file."""
        self.version += 1
        self.changed = False
        return RunState(self.info.rows, self.counts.capture(), self.states.capture())

    def restore(self, cursor: int, limit: int, limit_ms: int, waiting: int) -> None:
        """Continue where a checkpoint left the run; the state file has the rest (`take_state`)."""
        self.states.restore(cursor, limit, waiting)
        self.counts.limit_ms = limit_ms
        self._first = ()

    def take_state(self, state: RunState) -> None:
        """Take over the content of a state file."""
        self.counts.gone_by = state.gone_by
        self.states.restore_maps(state.maps)

    def cut(self, limit: int, limit_ms: int) -> None:
        """Give up the rows from `limit` on, due at or after `limit_ms`: a merge has taken them."""
        self.states.cut(limit)
        self.counts.limit_ms = limit_ms
        self._first = ()

    # --- as a source ------------------------------------------------------------------------------

    def entries(self, rows: Rows) -> npt.NDArray[Any]:
        """Return the ENTRY rows (a contiguous copy), not verified."""
        return self.file.entries(rows)

    def records(self, entries: npt.NDArray[Any]) -> list[memoryview]:
        """Return the records of these entries, not verified."""
        return self.file.records(entries)

    def crc_origins(self, entries: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the origins, and rows of origins, from which the CRCs of records are started."""
        return entries["origin"], entries["row"]

    def first_waiting_ms(self, from_ms: int) -> int | None:
        """Return the due time of the first row that waits and is due at or after `from_ms`."""
        if self.info.last_ms < from_ms or self.waiting <= 0:
            return None
        if not self._first:
            self._first = (self._first_passed(0, self._first_from(self.states.decided)),)
        first = self._first[0]
        if first is None or first >= from_ms:
            return first
        found = self._first_from(max(self.states.decided, self.file.row_at(from_ms)))
        return self._first_passed(from_ms, found)

    def _first_passed(self, from_ms: int, ahead: int | None) -> int | None:
        if not self.states.passed:
            return ahead
        dues = self.entries(np.array(sorted(self.states.passed), np.int64))["due_ms"]
        found = dues[dues >= from_ms]
        if not len(found):
            return ahead
        return int(found.min()) if ahead is None else min(ahead, int(found.min()))

    def _first_from(self, row: int) -> int | None:
        from_start = row <= max(self.states.decided, self._floor)
        if from_start:
            row = max(row, self._floor)
        found = self._row_from(row)
        if from_start:
            self._floor = self.states.limit if found is None else found
        return None if found is None else int(self.entries(np.array([found]))["due_ms"][0])

    def _row_from(self, row: int) -> int | None:
        step = _FIRST_STEP_ROWS
        while row < self.states.limit and not self.access.unreadable:
            stop = min(self.states.limit, row + step)
            waits = self.states.left_between(row, stop)
            for at in np.flatnonzero(waits)[:, np.newaxis] + row:
                if self._is_readable(at) or self._repair_row(at):
                    return int(at[0])
                self.quarantine_damaged(at)
            row, step = stop, min(2 * step, _STEP_ROWS)
        return None

    def _is_readable(self, row: Rows) -> bool:
        return bool(is_readable(self.file.entries(row)).all())

    def _repair_row(self, row: Rows) -> bool:
        if self.repair is not None:
            self.repair(self, row)
        return self._is_readable(row)

    def span_stop_ms(self, from_ms: int, to_ms: int, rows: int) -> int:
        """Return up to which moment (≤ `to_ms`) about `rows` rows are due from `from_ms` on."""
        fence = self.file.fence_ms(max(self.states.decided, self.file.row_at(from_ms)) + rows)
        return to_ms if fence is None else min(to_ms, fence)

    def open_span(self, second: int, stop: int, wanted: Wanted | None) -> RowLoad:
        """Begin to load the seconds from `second` to before `stop`."""
        low = self.file.row_at(second * 1000)
        end = min(self.states.limit, self.file.row_at(stop * 1000))
        first = min([row for row in self.states.passed if row >= low], default=self.states.decided)
        rows = range(max(low, min(first, self.states.decided)), end)
        return RowLoad(self, rows, second, stop, wanted)

    # --- looking up -------------------------------------------------------------------------------

    def find_key(self, key: int, due_ms: int | None) -> Rows:
        """Return rows that may have a key hash (and due time, if given), ascending; unverified."""
        if due_ms is not None and not self.info.first_ms <= due_ms < self.counts.limit_ms:
            return _NO_ROWS
        found = self.file.rows_of_key(key, due_ms)
        return (
            np.array([row for row in found if row < self.states.limit], np.int64)
            if found
            else _NO_ROWS
        )

    def find(
        self,
        due_ms: npt.NDArray[np.int64],
        origin: npt.NDArray[np.uint64],
        origin_rows: npt.NDArray[Any] | None = None,
    ) -> Rows:
        """Return the row of each (due time, origin), −1 where there is none.

        `origin_rows` are 0 except for adopted runs.
        """
        del origin_rows
        found = np.full(len(due_ms), -1, np.int64)
        inside = np.flatnonzero((due_ms >= self.info.first_ms) & (due_ms < self.counts.limit_ms))
        if len(inside):
            rows = self.file.find(due_ms[inside], origin[inside])
            found[inside] = np.where(rows < self.states.limit, rows, -1)
        return found

    def entries_around(self, due_ms: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield pieces of entries that may be due at `due_ms`, with the row of the first."""
        if self.info.first_ms <= due_ms < self.counts.limit_ms:
            first, stop = self.file.row_at(due_ms), self.file.row_at(due_ms + 1)
            first = max(0, first - _FIRST_STEP_ROWS)
            yield first, self.file.slice(first, min(self.states.limit, stop + _FIRST_STEP_ROWS))

    def rows_between(self, from_ms: int, to_ms: int, first: int, limit: int) -> tuple[Rows, int]:
        """Look at up to `limit` rows from `first` on; return waiting ones due in [from_ms, to_ms).

        Also return the row to continue with, −1 at the end.
        """
        if to_ms <= self.info.first_ms or self.counts.limit_ms <= from_ms:
            return np.empty(0, np.int64), -1
        run = self.file
        first = max(first, self.states.first_left, run.row_at(from_ms))
        stop = min(self.states.limit, run.row_at(to_ms))
        if first >= stop:
            return np.empty(0, np.int64), -1
        end = min(stop, first + limit)
        rows = np.flatnonzero(self.states.left_between(first, end)) + first
        if first < self.states.decided:
            rows = rows[self.states_at(rows) == EntryState.WAITING]
        return rows, end if end < stop else -1

    def tags_of(self, entries: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Return the tags code of each entry."""
        return tags_of(entries)

    # --- counts -----------------------------------------------------------------------------------

    def waiting_by_hour(self, topic: int | None) -> tuple[Rows, Rows]:
        """Return (hours, counts) of waiting messages, ascending."""
        return self.counts.by_hour(topic)

    def waiting_by_topic(self) -> dict[int, int]:
        """Count the waiting messages by topic id."""
        return self.counts.by_topic()

    def waiting_by_second(self, hour: int, topic: int | None) -> npt.NDArray[np.int64]:
        """Return the 3 600 counts of waiting messages, one a second, of one hour."""
        return self.counts.by_second(hour, topic)

    def bytes_due_before(self, to_ms: int) -> int:
        """Return the bytes that handing over what is due before `to_ms` takes, by the directory."""
        return self.counts.bytes_due_before(to_ms)
