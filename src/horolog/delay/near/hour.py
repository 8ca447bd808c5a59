"""One near hour: delay log, delay index, heads and states (DESIGN §4; formats in `entry` and `state`).

The delay log holds the records as they stand in the commit log, in its order; the index one entry for each.
Both are only appended to, without sync, until a checkpoint syncs them and names their length; a start cuts them
to that length and files the rest anew from the commit log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import ENTRY, ENTRY_BYTES, ENTRY_WORDS, PREVIOUS_AT, entry_sums
from horolog.delay.mapped import Mapped
from horolog.delay.state import (
    RECALLED_STATES,
    SECONDS,
    EntryState,
    HourState,
    check_event,
    empty_heads,
    state_name,
)
from horolog.log.keys import KeyRuns
from horolog.log.record import TAGS_AT
from horolog.log.unaligned import get
from horolog.storage.api import File, Storage

LOG_NAME = "delay.log"
INDEX_NAME = "delay.idx"
_FEW = 8  # origins for which plain Python is faster than numpy
_LONGS = ENTRY_BYTES // 8
_ORIGIN_AT = 32 // 8  # as 8-byte words of an entry


MendRows = Callable[[Any, npt.NDArray[np.int64]], None]  # (source, rows whose entries are damaged)


class Filing(NamedTuple):
    """Messages of one hour in log order: columns of equal length, and their records one after the other."""

    due_ms: npt.NDArray[np.int64]
    origin: npt.NDArray[np.uint64]
    size: npt.NDArray[np.int64]
    key: npt.NDArray[np.uint64]
    topic: npt.NDArray[np.uint32]
    tags: npt.NDArray[np.int32]
    crc: npt.NDArray[np.uint32]
    records: bytes


class Hour:
    """The messages due in one hour, `hour` = due ms // 3 600 000."""

    def __init__(self, storage: Storage, directory: str, hour: int, number: int = 0) -> None:
        self.hour = hour
        self.number = number  # as a source
        self.directory = directory
        self.count = 0
        self.log_bytes = 0
        self.heads = empty_heads()
        self.states = np.zeros(256, np.uint8)
        self.by_topic: dict[int, int] = {}
        self.handed_over = 0
        self.recalled = 0
        self.version = 0
        self.changed = True
        self.unsynced = True
        self._storage = storage
        storage.make_dir(directory)
        self._log: File = storage.open(f"{directory}/{LOG_NAME}", create=True)
        self._index: File = storage.open(f"{directory}/{INDEX_NAME}", create=True)
        self.mend: MendRows | None = None  # makes damaged entries anew
        self.records_at = self.index_at = 0  # where they begin in their files
        self._log_view = Mapped(self._log)
        self._index_view = Mapped(self._index)
        self.keys = KeyRuns(storage, directory)

    @property
    def waiting(self) -> int:
        """Messages that are neither handed over nor recalled nor quarantined, by what is committed."""
        return sum(self.by_topic.values())

    @property
    def label(self) -> str:
        """What problems call it."""
        return f"hour {self.hour}"

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
        states = self.states[: self.count] & np.uint8(EntryState.SETTLED_BITS)
        return int(np.count_nonzero(states == EntryState.QUARANTINED))

    @property
    def until_ms(self) -> int:
        """Its end."""
        return (self.hour + 1) * SECONDS * 1000

    def reread(self) -> None:
        """The files were mended."""
        self._log_view.drop()
        self._index_view.drop()

    def restore(self, state: HourState, version: int) -> bool:
        """Take over a state file; False if the files are shorter than it says.  `cut` them before filing."""
        if self._index.size() < state.count * ENTRY_BYTES or self._log.size() < state.log_bytes:
            return False
        self.count, self.log_bytes = state.count, state.log_bytes
        self.heads, self.by_topic = state.heads, state.by_topic
        self.handed_over, self.recalled = state.handed_over, state.recalled
        self.states = state.states if len(state.states) else np.zeros(256, np.uint8)
        self.version, self.changed, self.unsynced = version, False, False
        self.keys.open(self.count, self._read_keys)
        return True

    def cut(self) -> None:
        """At start: cut the files to what was restored; what a former process filed behind it is filed anew."""
        self._log_view.drop()
        self._index_view.drop()
        self._index.truncate(self.count * ENTRY_BYTES)
        self._log.truncate(self.log_bytes)

    def _read_keys(self, first: int, stop: int) -> npt.NDArray[np.uint64]:
        raw = self._index.read(first * ENTRY_BYTES, (stop - first) * ENTRY_BYTES)
        return np.frombuffer(raw, ENTRY)["key"].copy()

    def file(self, filing: Filing) -> npt.NDArray[np.int64]:
        """Append messages; gives their global indexes.  DISK_FULL changes nothing."""
        n = len(filing.due_ms)
        second = filing.due_ms // 1000 - self.hour * SECONDS
        order = np.argsort(second, kind="stable")
        ordered = second[order]
        is_first = np.empty(n, bool)
        is_first[0] = True
        np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
        starts = np.flatnonzero(is_first)
        lengths = np.diff(np.append(starts, n))
        touched = ordered[starts]
        filed = self.heads["filed"][touched].astype(np.int64)
        index = self.count + order
        previous = np.empty(n, np.int64)
        previous[1:] = index[:-1]
        previous[starts] = self.heads["newest"][touched]
        entries = np.zeros(n, ENTRY)
        entries["position"] = self.log_bytes + np.cumsum(filing.size) - filing.size
        entries["size"] = filing.size
        entries["local"][order] = np.repeat(filed - starts, lengths) + np.arange(n)
        entries["previous"][order] = previous
        entries["due_ms"] = filing.due_ms
        entries["origin"] = filing.origin
        entries["key"] = filing.key
        entries["topic"] = filing.topic
        entries["crc"] = filing.crc
        entries["sum"] = entry_sums(entries)
        self._log.write(self.log_bytes, filing.records)
        self._index.write(self.count * ENTRY_BYTES, entries.tobytes())
        self.heads["newest"][touched] = index[np.append(starts[1:], n) - 1]
        self.heads["filed"][touched] += lengths.astype(np.uint32)
        self.heads["waiting"][touched] += lengths.astype(np.uint32)
        self._count_topics(filing.topic, 1)
        self.keys.add(filing.key)
        self.log_bytes += len(filing.records)
        first, self.count = self.count, self.count + n
        self._grow_states()
        self.changed = self.unsynced = True
        return np.arange(first, self.count)

    def _grow_states(self) -> None:
        if self.count > len(self.states):
            grown = np.zeros(max(self.count, len(self.states) + len(self.states) // 2), np.uint8)
            grown[: len(self.states)] = self.states
            self.states = grown

    def _count_topics(self, topics: npt.NDArray[Any], sign: int) -> None:
        if len(topics) and bool((topics == topics[0]).all()):
            counts = {int(topics[0]): len(topics)}
        else:
            numbers, amounts = np.unique(topics, return_counts=True)
            counts = dict(zip(numbers.tolist(), amounts.tolist(), strict=True))
        for topic, n in counts.items():
            left = self.by_topic.get(topic, 0) + sign * n
            if left:
                self.by_topic[topic] = left
            else:
                self.by_topic.pop(topic, None)

    def entries(self, index: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """ENTRY rows of these global indexes (a contiguous copy)."""
        return np.frombuffer(self._mapped_index(), ENTRY, self.count)[index]

    def _mapped_index(self) -> memoryview:
        return self._index_view.view(self.count * ENTRY_BYTES)

    def records(self, entries: npt.NDArray[Any]) -> list[memoryview]:
        """The bytes of these entries' records, as they are on the disk: not verified."""
        view = self._log_view.view(self.log_bytes)
        starts = entries["position"].tolist()
        ends = (entries["position"] + entries["size"]).tolist()
        return [view[a:b] for a, b in zip(starts, ends, strict=True)]

    def walk(self, index: int, limit: int) -> tuple[list[int], int]:
        """Follow a chain back from `index` for at most `limit` entries: them, and where to go on (−1: end)."""
        # A write that met a full disk may have left a part of an entry behind the last one.
        words = self._mapped_index()[: self.count * ENTRY_BYTES].cast("i")
        found: list[int] = []
        while index >= 0 and limit > 0:
            if index >= self.count:
                return found, -1  # damaged link: the caller counts and finds out
            found.append(index)
            index = words[index * ENTRY_WORDS + PREVIOUS_AT]
            limit -= 1
        return found, index

    def scan(self, chunk: int = 65_536) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """All entries in order, for repair and inspection: (first global index, ENTRY rows)."""
        for first in range(0, self.count, chunk):
            stop = min(self.count, first + chunk)
            yield first, self.entries(np.arange(first, stop))

    def near(self, due_ms: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Pieces of the entries, with the index of their first, that may be those of messages due then."""
        del due_ms  # damage may hide it
        return self.scan()

    def unreadable(self) -> npt.NDArray[np.int64]:
        """Global indexes of all entries that are damaged."""
        found = [np.empty(0, np.int64)]
        for first, entries in self.scan():
            found.append(np.flatnonzero(entry_sums(entries) != entries["sum"]) + first)
        return np.concatenate(found)

    def quarantine_unreadable(self, second: int, rows: npt.NDArray[np.int64]) -> int:
        """Quarantine as many of these damaged entries as are missing in a second (0 to 3 599); gives how many.

        Their own second and topic cannot be trusted: the count of what waits in the second says how many it lacks,
        and one with another topic may be counted for theirs.
        """
        waits = 0
        for first, entries in self.scan():
            mine = entries["due_ms"] // 1000 - self.hour * SECONDS == second
            mine &= entry_sums(entries) == entries["sum"]
            states = self.states[first : first + len(entries)] & np.uint8(EntryState.SETTLED_BITS)
            waits += int(np.count_nonzero(mine & (states == EntryState.WAITING)))
        lost = int(self.heads["waiting"][second]) - waits
        rows = rows[self.states[rows] == EntryState.WAITING]
        seconds = self.entries(rows)["due_ms"] // 1000 - self.hour * SECONDS
        rows = rows[np.argsort(seconds != second, kind="stable")][: max(0, lost)]
        self.heads["waiting"][second] -= np.uint32(len(rows))
        self.states[rows] = EntryState.QUARANTINED
        for topic in self.entries(rows)["topic"].tolist():
            known = topic if topic in self.by_topic else next(iter(self.by_topic))
            self._count_topics(np.array([known]), -1)
        self.changed = self.changed or bool(len(rows))
        return len(rows)

    def _recount(self) -> None:
        """Count anew what waits, when entries cannot be trusted; damaged ones that wait are quarantined."""
        self.heads["waiting"] = 0
        self.by_topic.clear()
        for first, entries in self.scan():
            states = self.states[first : first + len(entries)]
            good = entry_sums(entries) == entries["sum"]
            states[~good & (states == EntryState.WAITING)] = EntryState.QUARANTINED
            mine = entries[good & (states & EntryState.SETTLED_BITS == EntryState.WAITING)]
            seconds = mine["due_ms"] // 1000 - self.hour * SECONDS
            self.heads["waiting"] += np.bincount(seconds, minlength=SECONDS).astype(np.uint32)
            self._count_topics(mine["topic"], 1)

    def check_invariants(self) -> None:
        """Assert what must hold between two steps; a few microseconds, whatever waits."""
        assert self.count <= len(self.states)
        assert all(n > 0 for n in self.by_topic.values()), self.by_topic
        assert int(self.heads["waiting"].sum()) == self.waiting
        assert int(self.heads["filed"].sum()) == self.count
        assert bool((self.heads["waiting"] <= self.heads["filed"]).all())
        assert int(self.heads["newest"].max()) < self.count or not self.count
        assert self.waiting + self.handed_over + self.recalled <= self.count

    def find_origins(self, origins: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Global index of each origin, −1 where no entry has it; a binary search in log order."""
        if len(origins) <= _FEW:
            return np.array([self._find_origin(origin) for origin in origins.tolist()], np.int64)
        low = np.zeros(len(origins), np.int64)
        high = np.full(len(origins), self.count, np.int64)
        column = np.frombuffer(self._mapped_index(), ENTRY, self.count)["origin"]
        while self.count and bool((low < high).any()):
            middle = np.minimum((low + high) // 2, self.count - 1)
            below = (column[middle] < origins) & (low < high)
            low = np.where(below, middle + 1, low)
            high = np.where(below, high, middle)
        if not self.count:
            return np.full(len(origins), -1, np.int64)
        found = np.minimum(low, self.count - 1)
        return np.where((low < self.count) & (column[found] == origins), found, -1)

    def _find_origin(self, origin: int) -> int:
        """The same for one, without numpy: a replay of small frames asks for one at a time."""
        words = self._mapped_index()[: self.count * ENTRY_BYTES].cast("Q")
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if words[middle * _LONGS + _ORIGIN_AT] < origin:
                low = middle + 1
            else:
                high = middle
        found = low < self.count and words[low * _LONGS + _ORIGIN_AT] == origin
        return low if found else -1

    def rows_between(
        self, from_ms: int, to_ms: int, first: int, limit: int
    ) -> tuple[npt.NDArray[np.int64], int]:
        """Of up to `limit` rows from `first` on those that wait and are due in [from_ms, to_ms).

        And the row to go on with, −1 at the end.
        """
        end = min(self.count, first + limit)
        dues = np.frombuffer(self._mapped_index(), ENTRY, self.count)["due_ms"][first:end]
        found = (dues >= from_ms) & (dues < to_ms)
        found &= self.states[first:end] == EntryState.WAITING
        return np.flatnonzero(found) + first, end if end < self.count else -1

    def tags_of(self, entries: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Tags code of each entry, from its record."""
        raw = np.frombuffer(self._log_view.view(self.log_bytes), np.uint8)
        at = entries["position"].astype(np.int64) + TAGS_AT
        return get(raw, at, "<i4")

    def states_at(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """`EntryState` of each row, with its in-flight bits."""
        return self.states[rows]

    def mark_inflight(self, index: npt.NDArray[np.int64], bits: EntryState) -> None:
        """Note what has been appended for these entries but is not committed yet."""
        check_event(self.states[index], bits)
        self.states[index] |= np.uint8(bits)

    def settle(self, index: npt.NDArray[np.int64], state: EntryState) -> None:
        """These entries are now handed over, recalled or quarantined, for good; quarantined ones waited no more."""
        check_event(self.states[index], state)
        waited = index[self.states[index] != EntryState.QUARANTINED]
        self.states[index] = np.uint8(state)
        entries = self.entries(waited)
        seconds = entries["due_ms"] // 1000 - self.hour * SECONDS
        is_sound = bool(((seconds >= 0) & (seconds < SECONDS)).all())
        is_sound = is_sound and bool((entry_sums(entries) == entries["sum"]).all())
        if not is_sound:
            self._recount()
        elif len(waited) and bool((seconds == seconds[0]).all()):
            self.heads["waiting"][seconds[0]] -= np.uint32(len(waited))
        else:
            counts = np.bincount(seconds, minlength=SECONDS)
            self.heads["waiting"] -= counts.astype(np.uint32)
        if is_sound:
            self._count_topics(entries["topic"], -1)
        if state is EntryState.HANDED_OVER:
            self.handed_over += len(index)
        elif state in RECALLED_STATES:
            self.recalled += len(index)
        self.changed = True

    def capture(self) -> tuple[str, HourState]:
        """A copy of the state for a new state file, and the file's name; `encode_state` it elsewhere."""
        self.version += 1
        self.changed = self.unsynced = False
        return f"{self.directory}/{state_name(self.version)}", HourState(
            self.hour,
            self.count,
            self.log_bytes,
            self.handed_over,
            self.recalled,
            self.heads.copy(),
            dict(self.by_topic),
            self.states[: self.count].copy(),
        )

    def sync_paths(self) -> list[str]:
        """The files to sync before a checkpoint names their lengths."""
        return [f"{self.directory}/{LOG_NAME}", f"{self.directory}/{INDEX_NAME}"]

    def close(self) -> None:
        """Give views and files back."""
        self._log_view.drop()
        self._index_view.drop()
        self.keys.close()
        self._log.close()
        self._index.close()
