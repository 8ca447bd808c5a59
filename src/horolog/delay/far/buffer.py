"""The far buffer: messages due beyond the near window, gathered in log order until they become a run.

Two append files, `runs/buffer.<number>/delay.log` and `delay.idx`, of the same form as an hour's (formats:
`delay.entry`), and key runs; not synced until a checkpoint names their lengths.  An entry's `local` is the tags
code here, since it belongs to no second's chain.  In memory are 9 bytes a message (due time and state) and the
counts by (hour, topic); both are bounded by FAR_BUFFER_BYTES, whatever is pending.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.damage import quarantine_problem
from horolog.delay.entry import ENTRY, ENTRY_BYTES, entry_sums
from horolog.delay.mapped import Mapped
from horolog.delay.near.hour import INDEX_NAME, LOG_NAME, Filing, MendRows
from horolog.delay.source import Loaded, Rows, loaded
from horolog.delay.state import SECONDS, EntryState, check_event
from horolog.errors import Problem
from horolog.limits import HOUR_MS
from horolog.log.keys import KeyRuns
from horolog.storage.api import File, Storage

_FIRST_ROWS = 1_024
_READ_ROWS = 65_536
_TOPIC_BITS = 32


def buffer_name(number: int) -> str:
    """Name of its directory under `runs`."""
    return f"buffer.{number:010d}"


def is_buffer(name: str) -> bool:
    """Whether a name under `runs` is that of a far buffer's directory."""
    return name.startswith("buffer.")


class FarBuffer:
    """Far messages in log order; `file_number` names the files, `number` the source."""

    def __init__(self, storage: Storage, directory: str, file_number: int, number: int) -> None:
        self.number = number
        self.file_number = file_number
        self.directory = f"{directory}/{buffer_name(file_number)}"
        self.count = 0
        self.log_bytes = 0
        self.first_ms = self.last_ms = 0  # due times lie within these, once there are any
        self.settled = 0  # rows that do not wait any more
        self._marked = 0  # rows in flight
        self.unsynced = True
        self.sealed = False
        self.frozen = False  # for an offload: what becomes of it is frozen too
        self.journal: list[tuple[Rows, EntryState]] | None = None  # what settles while a job reads
        self._dues = np.empty(_FIRST_ROWS, np.int64)
        self._states = np.zeros(_FIRST_ROWS, np.uint8)
        self._counts: dict[int, int] = {}  # hour << 32 | topic → rows that wait
        self._lowest: int | None = None  # first due time that waits
        self._lowest_known = True
        storage.make_dir(self.directory)
        self._log: File = storage.open(f"{self.directory}/{LOG_NAME}", create=True)
        self._index: File = storage.open(f"{self.directory}/{INDEX_NAME}", create=True)
        self.mend: MendRows | None = None  # makes damaged entries anew
        self.records_at = self.index_at = 0  # where they begin in their files
        self._log_view = Mapped(self._log)
        self._index_view = Mapped(self._index)
        self._keys = KeyRuns(storage, self.directory)

    @property
    def waiting(self) -> int:
        """Rows that wait."""
        return self.count - self.settled

    @property
    def in_flight(self) -> bool:
        """Whether something appended about these rows is not committed yet."""
        return self._marked > 0

    @property
    def label(self) -> str:
        """What problems call it."""
        return f"far buffer {self.file_number}"

    @property
    def records_path(self) -> str:
        """The file of its records."""
        return f"{self.directory}/{LOG_NAME}"

    @property
    def index_path(self) -> str:
        """The file of its entries."""
        return f"{self.directory}/{INDEX_NAME}"

    @property
    def quarantined(self) -> int:
        """Messages that are quarantined; counted anew, a byte each."""
        states = self._states[: self.count] & np.uint8(EntryState.SETTLED_BITS)
        return int(np.count_nonzero(states == EntryState.QUARANTINED))

    @property
    def until_ms(self) -> int:
        """The last due time."""
        return self.last_ms

    def reread(self) -> None:
        """The files were mended."""
        self._log_view.drop()
        self._index_view.drop()

    # --- filing and opening -----------------------------------------------------------------------

    def file(self, filing: Filing) -> Rows:
        """Append messages; gives their rows.  DISK_FULL changes nothing."""
        n = len(filing.due_ms)
        entries = np.zeros(n, ENTRY)
        entries["position"] = self.log_bytes + np.cumsum(filing.size) - filing.size
        entries["size"] = filing.size
        entries["local"] = filing.tags.view(np.uint32)
        entries["due_ms"] = filing.due_ms
        entries["origin"] = filing.origin
        entries["key"] = filing.key
        entries["topic"] = filing.topic
        entries["crc"] = filing.crc
        entries["sum"] = entry_sums(entries)
        self._log.write(self.log_bytes, filing.records)
        self._index.write(self.count * ENTRY_BYTES, entries.tobytes())
        self._keys.add(filing.key)
        self.log_bytes += len(filing.records)
        rows = np.arange(self.count, self.count + n)
        self._take_in(filing.due_ms, filing.topic)
        self.unsynced = True
        return rows

    def _take_in(self, due_ms: npt.NDArray[Any], topic: npt.NDArray[Any]) -> None:
        stop = self.count + len(due_ms)
        if stop > len(self._dues):
            size = max(stop, 2 * len(self._dues))
            self._dues = np.concatenate([self._dues[: self.count], np.empty(size, np.int64)])
            self._states = np.concatenate([self._states[: self.count], np.zeros(size, np.uint8)])
        self._dues[self.count : stop] = due_ms
        lowest, highest = int(due_ms.min()), int(due_ms.max())
        self.first_ms = min(self.first_ms, lowest) if self.count else lowest
        self.last_ms = max(self.last_ms, highest)
        self.count = stop
        self._count(due_ms, topic, 1)
        if self._lowest_known and (self._lowest is None or lowest < self._lowest):
            self._lowest = lowest

    def _count(self, due_ms: npt.NDArray[Any], topic: npt.NDArray[Any], sign: int) -> None:
        both = (due_ms // HOUR_MS << _TOPIC_BITS) | topic.astype(np.int64)
        numbers, amounts = np.unique(both, return_counts=True)
        counts = self._counts
        for number, n in zip(numbers.tolist(), amounts.tolist(), strict=True):
            left = counts.get(number, 0) + sign * n
            if left:
                counts[number] = left
            else:
                counts.pop(number, None)

    def restore(
        self, count: int, log_bytes: int, settled: npt.NDArray[Any], *, tolerant: bool
    ) -> str:
        """Take over what a checkpoint names; gives why not ("" if it did).  `cut` before filing.

        settled   rows {index, state}
        tolerant  damaged entries are quarantined, since there is nothing to make them anew from
        """
        if self._index.size() < count * ENTRY_BYTES or self._log.size() < log_bytes:
            return f"the files of {self.directory} are shorter than the checkpoint says"
        self.log_bytes = log_bytes
        for first in range(0, count, _READ_ROWS):
            stop = min(count, first + _READ_ROWS)
            raw = self._index.read(first * ENTRY_BYTES, (stop - first) * ENTRY_BYTES)
            entries = np.frombuffer(raw, ENTRY)
            good = entry_sums(entries) == entries["sum"]
            if not tolerant and not bool(good.all()):
                return f"{self.directory}: {int((~good).sum())} index entries are damaged"
            self._take_in(entries["due_ms"], entries["topic"])
            self._states[np.flatnonzero(~good) + first] = EntryState.QUARANTINED
        self._keys.open(count, self._read_keys)
        for state in np.unique(settled["state"]).tolist():
            rows = settled["index"][settled["state"] == state].astype(np.int64)
            self._states[rows] = state
        self._recount()
        self.unsynced = False
        return ""

    def _recount(self) -> None:
        """Counts anew from what waits: after damage, when an entry's topic can't be trusted."""
        self._counts.clear()
        self.settled = int(np.count_nonzero(self._states[: self.count] & 0x0F))
        for first in range(0, self.count, _READ_ROWS):
            rows = np.arange(first, min(self.count, first + _READ_ROWS))
            rows = rows[self._states[rows] & 0x0F == EntryState.WAITING]
            self._count(self._dues[rows], self.entries(rows)["topic"], 1)
        self._lowest_known = False

    def cut(self) -> None:
        """At start: cut the files to what was restored."""
        self._log_view.drop()
        self._index_view.drop()
        self._index.truncate(self.count * ENTRY_BYTES)
        self._log.truncate(self.log_bytes)

    def _read_keys(self, first: int, stop: int) -> npt.NDArray[np.uint64]:
        raw = self._index.read(first * ENTRY_BYTES, (stop - first) * ENTRY_BYTES)
        return np.frombuffer(raw, ENTRY)["key"].copy()

    # --- as a source ------------------------------------------------------------------------------

    def _column(self) -> npt.NDArray[Any]:
        return np.frombuffer(self._index_view.view(self.count * ENTRY_BYTES), ENTRY, self.count)

    def entries(self, rows: Rows) -> npt.NDArray[Any]:
        """ENTRY rows (a contiguous copy), not verified."""
        return self._column()[rows]

    def records(self, entries: npt.NDArray[Any]) -> list[memoryview]:
        """The bytes of these entries' records, not verified."""
        view = self._log_view.view(self.log_bytes)
        starts = entries["position"].tolist()
        ends = (entries["position"] + entries["size"]).tolist()
        return [view[a:b] for a, b in zip(starts, ends, strict=True)]

    def states_at(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """`EntryState` of each row, with its in-flight bits."""
        return self._states[rows]

    def mark_inflight(self, rows: Rows, bits: EntryState) -> None:
        """Note what has been appended for these rows but is not committed yet."""
        check_event(self._states[rows], bits)
        self._states[rows] |= np.uint8(bits)
        self._marked += len(rows)

    def settle(self, rows: Rows, state: EntryState) -> None:
        """These rows are now settled for good; quarantined ones waited no more."""
        check_event(self._states[rows], state)
        waited = rows[self._states[rows] != EntryState.QUARANTINED]
        marked = self._states[rows] > EntryState.SETTLED_BITS
        self._marked -= int(np.count_nonzero(marked))
        self._states[rows] = np.uint8(state)
        if state is EntryState.QUARANTINED:
            self._recount()
        else:
            self.settled += len(waited)
            self._count(self._dues[waited], self.entries(waited)["topic"], -1)
        self._lowest_known = False
        if self.journal is not None:
            self.journal.append((rows.copy(), state))

    def settled_rows(self) -> tuple[Rows, npt.NDArray[np.uint8]]:
        """Rows that do not wait, and their states without in-flight bits: for a checkpoint."""
        states = self._states[: self.count] & np.uint8(EntryState.SETTLED_BITS)
        rows = np.flatnonzero(states)
        return rows, states[rows]

    def check_invariants(self) -> None:
        """Assert what must hold between two steps; costs as much as there are hours and topics in it."""
        assert 0 <= self.settled <= self.count <= len(self._dues)
        assert 0 <= self._marked <= self.waiting
        assert sum(self._counts.values()) == self.waiting
        assert all(n > 0 for n in self._counts.values())
        assert not self.count or self.first_ms <= self.last_ms

    # --- the wheel --------------------------------------------------------------------------------

    def first_waiting_ms(self, from_ms: int) -> int | None:
        """Due time of the first row that waits and is due at or after `from_ms`."""
        if not self._lowest_known:
            self._lowest = self._first_from(0)
            self._lowest_known = True
        if self._lowest is None or self._lowest >= from_ms:
            return self._lowest
        return self._first_from(from_ms)

    def _first_from(self, from_ms: int) -> int | None:
        dues = self._dues[: self.count]
        found = dues[(self._states[: self.count] == EntryState.WAITING) & (dues >= from_ms)]
        return int(found.min()) if len(found) else None

    def span_stop_ms(self, from_ms: int, to_ms: int, rows: int) -> int:
        """A moment before which about `rows` rows are due from `from_ms` on, at most `to_ms`."""
        dues = self._dues[: self.count]
        dues = dues[(dues >= from_ms) & (dues < to_ms)]
        return to_ms if len(dues) <= rows else int(np.partition(dues, rows)[rows])

    def open_span(self, second: int, stop: int) -> BufferLoad:
        """Begin to load the seconds from `second` to before `stop`."""
        dues = self._dues[: self.count]
        rows = np.flatnonzero((dues >= second * 1000) & (dues < stop * 1000))
        return BufferLoad(self, rows)

    # --- looking up -------------------------------------------------------------------------------

    def find_key(self, key: int, due_ms: int | None) -> Rows:
        """Rows with that key hash (and due time, if given), ascending."""
        rows = np.array(self._keys.find(key), np.int64)
        return rows if due_ms is None else rows[self._dues[rows] == due_ms]

    def find(
        self,
        due_ms: npt.NDArray[np.int64],
        origin: npt.NDArray[np.uint64],
        origin_rows: npt.NDArray[Any] | None = None,
    ) -> Rows:
        """Row of each (due time, origin), −1 where there is none; origins ascend with the rows."""
        del due_ms, origin_rows  # an origin is enough
        if not self.count:
            return np.full(len(origin), -1, np.int64)
        column = self._column()["origin"]
        low = np.zeros(len(origin), np.int64)
        high = np.full(len(origin), self.count, np.int64)
        while bool((low < high).any()):
            middle = np.minimum((low + high) // 2, self.count - 1)
            below = (column[middle] < origin) & (low < high)
            low = np.where(below, middle + 1, low)
            high = np.where(below, high, middle)
        at = np.minimum(low, self.count - 1)
        return np.where((low < self.count) & (column[at] == origin), at, -1)

    def near(self, due_ms: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Pieces of the entries, with the row of their first, that may be those of messages due then."""
        if self.count and self.first_ms <= due_ms <= self.last_ms:
            yield 0, self._column()

    def rows_between(self, from_ms: int, to_ms: int, first: int, limit: int) -> tuple[Rows, int]:
        """Of up to `limit` rows from `first` on those that wait and are due in [from_ms, to_ms).

        And the row to go on with, −1 at the end.
        """
        end = min(self.count, first + limit)
        dues = self._dues[first:end]
        found = (dues >= from_ms) & (dues < to_ms)
        found &= self._states[first:end] == EntryState.WAITING
        return np.flatnonzero(found) + first, end if end < self.count else -1

    def tags_of(self, entries: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Tags code of each entry."""
        return entries["local"].astype(np.uint32).view(np.int32)

    # --- counts -----------------------------------------------------------------------------------

    def waiting_by_hour(self, topic: int | None) -> tuple[Rows, Rows]:
        """(hours, counts) of what waits, ascending."""
        both = np.array(sorted(self._counts.items()), np.int64).reshape(-1, 2)
        if topic is not None:
            both = both[both[:, 0] & 0xFFFFFFFF == topic]
        return both[:, 0] >> _TOPIC_BITS, both[:, 1]

    def waiting_by_topic(self) -> dict[int, int]:
        """Topic number → what waits."""
        found: dict[int, int] = {}
        for both, n in self._counts.items():
            topic = both & 0xFFFFFFFF
            found[topic] = found.get(topic, 0) + n
        return found

    def waiting_by_second(self, hour: int, topic: int | None) -> npt.NDArray[np.int64]:
        """3 600 counts of one hour."""
        dues = self._dues[: self.count]
        rows = np.flatnonzero(
            (dues // HOUR_MS == hour) & (self._states[: self.count] & 0x0F == EntryState.WAITING)
        )
        if topic is not None:
            rows = rows[self.entries(rows)["topic"] == topic]
        seconds = dues[rows] // 1000 - hour * SECONDS
        return np.bincount(seconds, minlength=SECONDS).astype(np.int64)

    def bytes_due_before(self, to_ms: int) -> int:
        """Bytes of records that wait and are due before `to_ms`, by the average size."""
        if not self.count or (lowest := self.first_waiting_ms(0)) is None or lowest >= to_ms:
            return 0
        waits = self._states[: self.count] == EntryState.WAITING
        n = int(np.count_nonzero(waits & (self._dues[: self.count] < to_ms)))
        return n * self.log_bytes // self.count

    def sync_paths(self) -> list[str]:
        """The files to sync before a checkpoint names their lengths."""
        return [f"{self.directory}/{LOG_NAME}", f"{self.directory}/{INDEX_NAME}"]

    def close(self) -> None:
        """Give views and files back."""
        self._log_view.drop()
        self._index_view.drop()
        self._keys.close()
        self._log.close()
        self._index.close()


class BufferLoad:
    """The rows of one second as they were when the load began; later ones are told to the wheel directly."""

    def __init__(self, buffer: FarBuffer, rows: Rows) -> None:
        self.problem: Problem | None = None
        self._buffer = buffer
        self._rows = rows
        self._at = 0
        self._pieces: list[Loaded] = []

    def walk(self, limit: int) -> tuple[int, bool]:
        """Take up to `limit` rows: (rows taken, whether done)."""
        rows = self._rows[self._at : self._at + limit]
        self._at += len(rows)
        if len(rows):
            entries = self._buffer.entries(rows)
            good = entry_sums(entries) == entries["sum"]
            if self._buffer.mend is not None and not bool(good.all()):
                self._buffer.mend(self._buffer, rows[~good])
                entries = self._buffer.entries(rows)
                good = entry_sums(entries) == entries["sum"]
            bad = rows[~good & (self._buffer.states_at(rows) == EntryState.WAITING)]
            if len(bad):
                self._buffer.settle(bad, EntryState.QUARANTINED)
                self.problem = quarantine_problem(self._buffer)
            waits = good & (self._buffer.states_at(rows) == EntryState.WAITING)
            self._pieces.append(loaded(self._buffer.number, entries[waits], rows[waits]))
        return len(rows), self._at == len(self._rows)

    def pieces(self) -> list[Loaded]:
        """What waits."""
        return self._pieces
