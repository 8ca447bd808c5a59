"""A run in use: its file, how far it has been handed over, and what was recalled of it.

Hand-over goes in the order of the rows, so what was handed over is the rows below the *cursor*; nothing else has to
be remembered for it.  (The exceptions are kept: rows left *behind* the cursor, because the disk was full and they
could not be filed when their turn came.)  Rows that were recalled, moved or quarantined are bits.  *limit* is the first
row that is not this run's any more: a merge has taken it and all that follow into other runs.  In memory are a
few numbers, and one bit a row once something of the run was recalled; the file is mapped while it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.damage import quarantine_problem
from horolog.delay.entry import ENTRY_BYTES, is_readable
from horolog.delay.entry_files import MendRows
from horolog.delay.far.load import RowLoad
from horolog.delay.far.row_states import RowStates, bits_of
from horolog.delay.far.run_state import RunState
from horolog.delay.run.format import HEADER_BYTES, TOPIC_HOUR
from horolog.delay.run.mend import BlankRun
from horolog.delay.run.reader import Run, RunInfo
from horolog.delay.source import Rows
from horolog.delay.state import SECONDS, EntryState
from horolog.errors import ErrorCode, HorologError, Problem
from horolog.limits import HOUR_MS

_STEP_ROWS = 8_192
_FIRST_STEP_ROWS = 64  # most often one of the next rows waits
_NO_ROWS: Rows = np.empty(0, np.int64)


class FarRun(RowStates):
    """Rows [0, limit) of one run file."""

    def __init__(
        self, info: RunInfo, number: int, level: int, open_run: Callable[[str], Run]
    ) -> None:
        super().__init__(info.rows)
        self.info = info
        self.number = number  # as a source
        self.level = level  # 0: from a far buffer; 1: from a merge
        self.limit_ms = info.last_ms + 1
        self.waiting = info.rows
        self.version = 0  # of the state file; 0: none
        self.changed = False
        self.frozen = False  # for an offload: no merge takes it
        self.journal: list[tuple[Rows, EntryState]] | None = None  # what settles while a job reads
        self.gone_by: dict[tuple[int, int], int] = {}
        self._floor = 0  # all rows from `decided` to this one are gone, or in flight to be
        self.path = ""  # of the file, for problems
        self.unreadable = ""  # why the file cannot be read any more
        self.tell: Callable[[Problem], None] | None = None
        self.remake: Callable[[], bool] | None = None  # makes a damaged file whole
        self.mend: MendRows | None = None  # makes damaged entries anew
        self.index_at = HEADER_BYTES
        self.records_at = HEADER_BYTES + ENTRY_BYTES * info.rows
        self._open_run = open_run
        self._first: int | None = info.first_ms  # first due time that waits
        self._first_known = True

    @property
    def label(self) -> str:
        """What problems call it."""
        return f"run {self.info.name}"

    @property
    def records_path(self) -> str:
        """The file of its records."""
        return self.path

    @property
    def index_path(self) -> str:
        """The file of its entries."""
        return self.path

    @property
    def count(self) -> int:
        """Rows of the file."""
        return self.info.rows

    @property
    def quarantined(self) -> int:
        """Messages that are quarantined."""
        bits = self.maps.get(EntryState.QUARANTINED)
        return 0 if bits is None else int(np.bitwise_count(bits).sum())

    @property
    def until_ms(self) -> int:
        """The last due time."""
        return self.limit_ms

    @property
    def file(self) -> Run:
        """The open file; a blank in its place once it cannot be read any more."""
        if self.unreadable:
            return BlankRun(self.info, self.path)
        try:
            return self._open_run(self.info.name)
        except (HorologError, FileNotFoundError) as error:
            if isinstance(error, HorologError) and error.code is not ErrorCode.DAMAGED:
                raise
            return self._lose(str(error))

    def _lose(self, why: str) -> Run:
        """Nothing of it can be read: what waits in it is not served until a start has set it aside."""
        self.unreadable = why
        if self.tell is not None:
            text = (
                f"{self.label}: {self.waiting} messages that wait in it are quarantined until the next start, "
                f"which makes anew what the log has of them ({why})"
            )
            self.tell(Problem(text, self.path, unreadable_key(self)))
        return BlankRun(self.info, self.path)

    @property
    def directory(self) -> npt.NDArray[Any]:
        """The file's directory; empty if it cannot be read."""
        try:
            return self.file.directory
        except HorologError as error:
            if self.remake is not None and self.remake():
                return self.file.directory
            return self._lose(error.message).directory

    def states_at(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """`EntryState` of each row, with its in-flight bits; of a run that cannot be read nothing waits."""
        states = super().states_at(rows)
        if self.unreadable:
            states[states == EntryState.WAITING] = EntryState.HANDED_OVER
        return states

    def check_invariants(self) -> None:
        """Assert what must hold between two steps; costs as much as there are rows behind."""
        self.check_states()
        assert 0 <= self.waiting <= self.info.rows, (self.label, self.waiting)
        assert self.limit == self.info.rows or self.limit_ms <= self.info.last_ms

    # --- states -------------------------------------------------------------------------------------

    def mark_inflight(self, rows: Rows, bits: EntryState) -> None:
        """Note what has been appended for these rows but is not committed yet."""
        if len(rows):
            self.mark(rows, bits)
            self._first_known = False

    def settle(self, rows: Rows, state: EntryState) -> None:
        """These rows are now settled for good; quarantined ones waited no more."""
        if not len(rows):
            return
        waited = rows[self.states_at(rows) != EntryState.QUARANTINED]
        if state is EntryState.QUARANTINED:
            entries = self.file.entries(rows)
            readable = is_readable(entries)
            if not bool(readable.all()):
                self.quarantine_damaged(rows[~readable])
                self.settle(rows[readable], state)
                return
        self.waiting -= len(waited)
        self.changed = True
        self._first_known = False
        self._note_gone(self.file.entries(waited))
        self.put(rows, state)
        if self.journal is not None:
            self.journal.append((rows.copy(), state))

    def _note_gone(self, entries: npt.NDArray[Any]) -> None:
        both = (entries["due_ms"] // HOUR_MS << 32) | entries["topic"].astype(np.int64)
        numbers, amounts = np.unique(both, return_counts=True)
        for number, n in zip(numbers.tolist(), amounts.tolist(), strict=True):
            key = (number >> 32, number & 0xFFFFFFFF)
            self.gone_by[key] = self.gone_by.get(key, 0) + n

    def quarantine_damaged(self, rows: Rows) -> int:
        """Quarantine those of these rows, whose index entry can't be read, that wait; gives how many.

        They are not counted any more either, as far as can be told: the hour follows from the place of the row; if it
        has several topics one of them is a guess.
        """
        rows = rows[self.states_at(rows) == EntryState.WAITING]  # none, once the file is unreadable
        if len(rows):
            self.waiting -= len(rows)
            for row in rows.tolist():
                place = self._directory_row(row)
                key = (int(place["hour"]), int(place["topic"]))
                self.gone_by[key] = self.gone_by.get(key, 0) + 1
            self.set_bits(rows, EntryState.QUARANTINED)
            self.behind.difference_update(rows.tolist() if self.behind else ())
            self.changed = True
            self._first_known = False
            if self.tell is not None:
                self.tell(quarantine_problem(self))
        return len(rows)

    def capture(self) -> RunState:
        """A copy of the state for a new state file."""
        self.version += 1
        self.changed = False
        first = self._cursor_hour()
        self.gone_by = {key: n for key, n in self.gone_by.items() if key[0] >= first}
        maps = {kind: bits.copy() for kind, bits in self.maps.items()}
        behind = self._behind_cursor()
        if len(behind):
            maps[EntryState.WAITING] = bits_of(behind, self.info.rows)
        return RunState(self.info.rows, dict(self.gone_by), maps)

    def restore(self, cursor: int, limit: int, limit_ms: int, waiting: int) -> None:
        """Go on where a checkpoint left it; the rest comes from the state file (`take_state`)."""
        self.cursor = self.decided = cursor
        self.limit, self.limit_ms, self.waiting = limit, limit_ms, waiting
        self._first_known = False

    def take_state(self, state: RunState) -> None:
        """What a state file says."""
        self.gone_by, self.maps = state.gone_by, dict(state.maps)
        behind = self.maps.pop(EntryState.WAITING, None)
        if behind is not None:
            self.behind = set(np.flatnonzero(np.unpackbits(behind, bitorder="little")).tolist())

    def cut(self, limit: int, limit_ms: int) -> None:
        """A merge has taken the rows from `limit` on, due at or after `limit_ms`."""
        stop = self.limit
        self.waiting -= (stop - limit) - int(self.gone_between(limit, stop).sum())
        self.limit, self.limit_ms = limit, limit_ms
        self._first_known = False

    # --- as a source --------------------------------------------------------------------------------

    def entries(self, rows: Rows) -> npt.NDArray[Any]:
        """ENTRY rows (a contiguous copy), not verified."""
        return self.file.entries(rows)

    def records(self, entries: npt.NDArray[Any]) -> list[memoryview]:
        """The bytes of these entries' records, not verified."""
        return self.file.records(entries)

    def crc_origins(self, entries: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Origins and their rows from which the CRCs of these entries' records are started."""
        return entries["origin"], entries["row"]

    def first_waiting_ms(self, from_ms: int) -> int | None:
        """Due time of the first row that waits and is due at or after `from_ms`."""
        if self.info.last_ms < from_ms or self.waiting <= 0:
            return None
        if not self._first_known:
            self._first = self._first_behind(0, self._first_from(self.decided))
            self._first_known = True
        if self._first is None or self._first >= from_ms:
            return self._first
        found = self._first_from(max(self.decided, self.file.row_at(from_ms)))
        return self._first_behind(from_ms, found)

    def _first_behind(self, from_ms: int, ahead: int | None) -> int | None:
        if not self.behind:
            return ahead
        dues = self.entries(np.array(sorted(self.behind), np.int64))["due_ms"]
        found = dues[dues >= from_ms]
        if not len(found):
            return ahead
        return int(found.min()) if ahead is None else min(ahead, int(found.min()))

    def _first_from(self, row: int) -> int | None:
        from_start = row <= max(self.decided, self._floor)
        if from_start:
            row = max(row, self._floor)
        found = self._row_from(row)
        if from_start:
            self._floor = self.limit if found is None else found
        return None if found is None else int(self.entries(np.array([found]))["due_ms"][0])

    def _row_from(self, row: int) -> int | None:
        step = _FIRST_STEP_ROWS
        while row < self.limit and not self.unreadable:
            stop = min(self.limit, row + step)
            waits = self._left_between(row, stop)
            for at in np.flatnonzero(waits)[:, np.newaxis] + row:
                if self._is_readable(at) or self._is_mended(at):
                    return int(at[0])
                self.quarantine_damaged(at)
            row, step = stop, min(2 * step, _STEP_ROWS)
        return None

    def _is_readable(self, row: Rows) -> bool:
        return bool(is_readable(self.file.entries(row)).all())

    def _is_mended(self, row: Rows) -> bool:
        if self.mend is not None:
            self.mend(self, row)
        return self._is_readable(row)

    def span_stop_ms(self, from_ms: int, to_ms: int, rows: int) -> int:
        """A moment before which about `rows` rows are due from `from_ms` on, at most `to_ms`."""
        fence = self.file.fence_ms(max(self.decided, self.file.row_at(from_ms)) + rows)
        return to_ms if fence is None else min(to_ms, fence)

    def open_span(self, second: int, stop: int) -> RowLoad:
        """Begin to load the seconds from `second` to before `stop`."""
        low = self.file.row_at(second * 1000)
        end = min(self.limit, self.file.row_at(stop * 1000))
        first = min([row for row in self.behind if row >= low], default=self.decided)
        rows = range(max(low, min(first, self.decided)), end)
        return RowLoad(self, rows, second, stop)

    # --- looking up ---------------------------------------------------------------------------------

    def find_key(self, key: int, due_ms: int | None) -> Rows:
        """Rows that may have that key hash (and due time, if given), ascending; not verified."""
        if due_ms is not None and not self.info.first_ms <= due_ms < self.limit_ms:
            return _NO_ROWS
        found = self.file.rows_of_key(key, due_ms)
        return np.array([row for row in found if row < self.limit], np.int64) if found else _NO_ROWS

    def find(
        self,
        due_ms: npt.NDArray[np.int64],
        origin: npt.NDArray[np.uint64],
        origin_rows: npt.NDArray[Any] | None = None,
    ) -> Rows:
        """Row of each (due time, origin), −1 where there is none; `origin_rows` are 0 but for adopted runs."""
        del origin_rows
        found = np.full(len(due_ms), -1, np.int64)
        inside = np.flatnonzero((due_ms >= self.info.first_ms) & (due_ms < self.limit_ms))
        if len(inside):
            rows = self.file.find(due_ms[inside], origin[inside])
            found[inside] = np.where(rows < self.limit, rows, -1)
        return found

    def near(self, due_ms: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Pieces of the entries, with the row of their first, that may be those of messages due then."""
        if self.info.first_ms <= due_ms < self.limit_ms:
            first, stop = self.file.row_at(due_ms), self.file.row_at(due_ms + 1)
            first = max(0, first - _FIRST_STEP_ROWS)
            yield first, self.file.slice(first, min(self.limit, stop + _FIRST_STEP_ROWS))

    def rows_between(self, from_ms: int, to_ms: int, first: int, limit: int) -> tuple[Rows, int]:
        """Of up to `limit` rows from `first` on those that wait and are due in [from_ms, to_ms).

        And the row to go on with, −1 at the end.
        """
        if to_ms <= self.info.first_ms or self.limit_ms <= from_ms:
            return np.empty(0, np.int64), -1
        run = self.file
        first = max(first, 0 if self.behind else self.decided, run.row_at(from_ms))
        stop = min(self.limit, run.row_at(to_ms))
        if first >= stop:
            return np.empty(0, np.int64), -1
        end = min(stop, first + limit)
        rows = np.flatnonzero(self._left_between(first, end)) + first
        if first < self.decided:
            rows = rows[self.states_at(rows) == EntryState.WAITING]
        return rows, end if end < stop else -1

    def tags_of(self, entries: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Tags code of each entry."""
        return entries["local"].astype(np.uint32).view(np.int32)

    # --- counts -------------------------------------------------------------------------------------

    def _cursor_hour(self) -> int:
        """The hour of the first row that was not handed over; what is due before it does not wait."""
        row = min(self._behind_cursor().tolist(), default=self.cursor)
        if row >= self.limit:
            return self.limit_ms // HOUR_MS + 1
        return int(self._directory_row(row)["hour"])

    def _directory_row(self, row: int) -> Any:
        """A row of the directory with the hour of this row: rows and directory are both in order of time."""
        directory = self.directory
        if not len(directory):
            return np.array([(self.limit_ms // HOUR_MS, 0, 0, 0)], TOPIC_HOUR)[0]
        ends = np.cumsum(directory["count"].astype(np.int64))
        return directory[int(np.searchsorted(ends, row, side="right"))]

    def _directory(self, to_ms: int | None = None) -> tuple[npt.NDArray[Any], Rows]:
        """Rows of the directory that may hold something that waits, and what waits of each.

        to_ms  None, or only rows of hours that begin before that moment
        """
        rows = self.directory
        last = ((self.limit_ms if to_ms is None else min(to_ms, self.limit_ms)) - 1) // HOUR_MS
        hours = rows["hour"]
        rows = rows[hours.searchsorted(self._cursor_hour()) : hours.searchsorted(last, "right")]
        counts = rows["count"].astype(np.int64)
        if self.gone_by:
            hours, topics = rows["hour"].tolist(), rows["topic"].tolist()
            keys = zip(hours, topics, strict=True)
            counts -= np.array([self.gone_by.get(key, 0) for key in keys], np.int64)
        return rows, np.maximum(counts, 0)

    def waiting_by_hour(self, topic: int | None) -> tuple[Rows, Rows]:
        """(hours, counts) of what waits, ascending."""
        rows, counts = self._directory()
        chosen = counts > 0
        if topic is not None:
            chosen &= rows["topic"] == topic
        return rows["hour"][chosen].astype(np.int64), counts[chosen]

    def waiting_by_both(self, from_hour: int) -> npt.NDArray[Any]:
        """Rows {hour, topic, count, …} of the directory from an hour on, with what waits as count."""
        rows, counts = self._directory()
        chosen = (rows["hour"] >= from_hour) & (counts > 0)
        found = rows[chosen].copy()
        found["count"] = counts[chosen]
        return found

    def waiting_by_topic(self) -> dict[int, int]:
        """Topic number → what waits."""
        rows, counts = self._directory()
        topics, at = np.unique(rows["topic"], return_inverse=True)
        sums = np.bincount(at, weights=counts, minlength=len(topics)).astype(np.int64)
        return {t: n for t, n in zip(topics.tolist(), sums.tolist(), strict=True) if n}

    def waiting_by_second(self, hour: int, topic: int | None) -> npt.NDArray[np.int64]:
        """3 600 counts of one hour."""
        run = self.file
        low = run.row_at(hour * HOUR_MS)
        behind = self._behind_cursor()
        first = max(self.cursor, low)
        stop = min(self.limit, run.row_at((hour + 1) * HOUR_MS))
        counts = self._by_second(hour, behind, topic)
        if first >= stop:
            return counts
        if topic is None:
            counts += run.second_counts(hour, first, stop)
            gone = np.flatnonzero(self.gone_between(first, stop)) + first if self.maps else ()
            return counts - self._by_second(hour, np.asarray(gone, np.int64), None)
        for at in range(first, stop, _STEP_ROWS):
            end = min(stop, at + _STEP_ROWS)
            counts += self._by_second(hour, np.flatnonzero(~self.gone_between(at, end)) + at, topic)
        return counts

    def _by_second(self, hour: int, rows: Rows, topic: int | None) -> npt.NDArray[np.int64]:
        if not len(rows):
            return np.zeros(SECONDS, np.int64)
        entries = self.entries(rows)
        if topic is not None:
            entries = entries[entries["topic"] == topic]
        seconds = entries["due_ms"] // 1000 - hour * SECONDS
        seconds = seconds[(seconds >= 0) & (seconds < SECONDS)]
        return np.bincount(seconds, minlength=SECONDS).astype(np.int64)

    def bytes_due_before(self, to_ms: int) -> int:
        """Bytes of records that wait and are due before `to_ms`, by the directory."""
        if self.info.first_ms >= to_ms or self.waiting <= 0:
            return 0
        rows, counts = self._directory(to_ms)
        return int((rows["bytes"] / np.maximum(rows["count"], 1) * counts).sum())


def unreadable_key(run: FarRun) -> str:
    """Of the problem that speaks of a run that cannot be read any more."""
    return f"{run.label}: unreadable"
