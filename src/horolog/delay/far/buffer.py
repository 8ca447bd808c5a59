"""The far buffer: messages due beyond the near window, in log order until they become a run.

Its entry files lie in `runs/buffer.<file id>`, with the format of an hour's.  Here an entry's
`local` is the tags code, since the entry belongs to no second's chain.  Memory holds 9 bytes a
message (due time and state) and the counts by (hour, topic); both are bounded by FAR_BUFFER_BYTES,
whatever is pending.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import ENTRY, HANDED_BYTES, entry_sums, is_readable, tags_of
from horolog.delay.entry_files import EntryFiles, Filing, put_columns
from horolog.delay.far.load import RowLoad
from horolog.delay.source import Rows, Wanted
from horolog.delay.state import SECONDS, EntryState, check_event
from horolog.limits import HOUR_MS
from horolog.storage.api import Storage

_FIRST_ROWS = 1_024
_READ_ROWS = 65_536
_TOPIC_BITS = 32


def buffer_name(file_id: int) -> str:
    """Return the name of a far buffer's directory under `runs`."""
    return f"buffer.{file_id:010d}"


def is_buffer(name: str) -> bool:
    """Return whether a name under `runs` is that of a far buffer's directory."""
    return name.startswith("buffer.")


class FarBuffer(EntryFiles):
    """Far messages in log order; `file_id` names the files, `source_id` the source."""

    def __init__(self, storage: Storage, directory: str, file_id: int, source_id: int) -> None:
        super().__init__(storage, f"{directory}/{buffer_name(file_id)}", source_id)
        self.file_id = file_id
        self.first_ms = self.last_ms = 0  # the range of due times, once there are any
        self.settled = 0  # rows that do not wait any more
        self._marked = 0  # rows in flight
        self.sealed = False
        self.frozen = False  # taken by an offload: a run made of the buffer is frozen too
        self.journal: list[tuple[Rows, EntryState]] | None = None  # settled while a job reads
        self._due_ms = np.empty(_FIRST_ROWS, np.int64)
        self._counts: dict[int, int] = {}  # hour << 32 | topic → rows that wait
        self._lowest: int | None = None  # first due time that waits
        self._lowest_known = True

    @property
    def waiting(self) -> int:
        """Rows that wait."""
        return self.count - self.settled

    @property
    def in_flight(self) -> bool:
        """Whether a change to any of the rows is appended and not yet committed."""
        return self._marked > 0

    @property
    def label(self) -> str:
        """The name of the buffer in problems."""
        return f"far buffer {self.file_id}"

    @property
    def until_ms(self) -> int:
        """The last due time."""
        return self.last_ms

    # --- filing and opening -----------------------------------------------------------------------

    def file(self, filing: Filing) -> Rows:
        """Append messages; return their rows.  DISK_FULL changes nothing."""
        entries = np.zeros(len(filing.due_ms), ENTRY)
        put_columns(entries, filing)
        entries["position"] = self.log_bytes + filing.size.cumsum() - filing.size
        entries["local"] = filing.tags.view(np.uint32)
        entries["sum"] = entry_sums(entries)
        rows = self._append(entries, filing.records)
        self._keep_due_times(int(rows[0]), filing.due_ms, filing.topic)
        return rows

    def _keep_due_times(
        self, first: int, due_ms: npt.NDArray[Any], topic: npt.NDArray[Any]
    ) -> None:
        stop = first + len(due_ms)
        if stop > len(self._due_ms):
            room = np.empty(max(stop, 2 * len(self._due_ms)), np.int64)
            self._due_ms = np.concatenate([self._due_ms[:first], room])
        self._due_ms[first:stop] = due_ms
        lowest, highest = int(due_ms.min()), int(due_ms.max())
        self.first_ms = min(self.first_ms, lowest) if first else lowest
        self.last_ms = max(self.last_ms, highest)
        self._count(due_ms, topic, 1)
        if self._lowest_known and (self._lowest is None or lowest < self._lowest):
            self._lowest = lowest

    def _count(self, due_ms: npt.NDArray[Any], topic: npt.NDArray[Any], sign: int) -> None:
        both = (due_ms // HOUR_MS << _TOPIC_BITS) | topic.astype(np.int64)
        keys, amounts = np.unique(both, return_counts=True)
        counts = self._counts
        for key, n in zip(keys.tolist(), amounts.tolist(), strict=True):
            left = counts.get(key, 0) + sign * n
            if left:
                counts[key] = left
            else:
                counts.pop(key, None)

    def restore(
        self, count: int, log_bytes: int, settled: npt.NDArray[Any], *, tolerant: bool
    ) -> str:
        """Take over what a checkpoint names; return why not ("": done).  Call `cut` before filing.

        settled   rows {index, state}
        tolerant  damaged entries are rebuilt, and quarantined where that is impossible
        """
        if not self._restore_lengths(count, log_bytes):
            return f"the files of {self.directory} are not those that the checkpoint names"
        for first in range(0, count, _READ_ROWS):
            stop = min(count, first + _READ_ROWS)
            entries = self._read(first, stop)
            good = is_readable(entries)
            if not tolerant and not bool(good.all()):
                return f"{self.directory}: {int((~good).sum())} index entries are damaged"
            if not bool(good.all()) and self.repair is not None:
                self.repair(self, np.flatnonzero(~good) + first)
                # The due times come from the entries.
                entries = self._read(first, stop)
                good = is_readable(entries)
            self._keep_due_times(first, entries["due_ms"], entries["topic"])
            self.states[np.flatnonzero(~good) + first] = EntryState.QUARANTINED
        self._open_keys()
        for state in np.unique(settled["state"]).tolist():
            rows = settled["index"][settled["state"] == state].astype(np.int64)
            self.states[rows] = state
        self._recount()
        return ""

    def _recount(self) -> None:
        """Rebuild the counts from waiting rows, after damage to the topics of entries."""
        self._counts.clear()
        self.settled = int(np.count_nonzero(self.settled_states()))
        for first, entries in self.scan():
            states = self.states[first : first + len(entries)] & np.uint8(EntryState.SETTLED_BITS)
            waits = states == EntryState.WAITING
            dues = self._dues(first, first + len(entries))
            self._count(dues[waits], entries["topic"][waits], 1)
        self._lowest_known = False

    # --- as a source ------------------------------------------------------------------------------

    def _dues(self, first: int, stop: int) -> npt.NDArray[np.int64]:
        """Return the due times of rows [first, stop), from memory: entries may be damaged."""
        return self._due_ms[first:stop]

    def mark_inflight(self, rows: Rows, bits: EntryState) -> None:
        """Mark rows for which a change is appended but not yet committed."""
        super().mark_inflight(rows, bits)
        self._marked += len(rows)

    def settle(self, rows: Rows, state: EntryState) -> None:
        """Settle rows for good; a row that was quarantined before did not wait any more."""
        check_event(self.states[rows], state)
        waited = rows[self.states[rows] != EntryState.QUARANTINED]
        marked = self.states[rows] > EntryState.SETTLED_BITS
        self._marked -= int(np.count_nonzero(marked))
        self.states[rows] = np.uint8(state)
        if state is EntryState.QUARANTINED:
            self._recount()
        else:
            self.settled += len(waited)
            self._count(self._due_ms[waited], self.entries(waited)["topic"], -1)
        self._lowest_known = False
        if self.journal is not None:
            self.journal.append((rows.copy(), state))

    def quarantine_damaged(self, rows: Rows) -> int:
        """Quarantine those of these damaged rows that wait; return how many."""
        rows = rows[self.states[rows] == EntryState.WAITING]
        if len(rows):
            self.settle(rows, EntryState.QUARANTINED)
        return len(rows)

    def settled_rows(self) -> tuple[Rows, npt.NDArray[np.uint8]]:
        """Return rows that do not wait, and their states without in-flight bits, to be stored."""
        states = self.settled_states()
        rows = np.flatnonzero(states)
        return rows, states[rows]

    def check_invariants(self) -> None:
        """Assert what must hold between two steps; costs as much as there are hours and topics."""
        assert 0 <= self.settled <= self.count <= len(self._due_ms)
        assert 0 <= self._marked <= self.waiting
        assert sum(self._counts.values()) == self.waiting
        assert all(n > 0 for n in self._counts.values())
        assert not self.count or self.first_ms <= self.last_ms

    # --- the wheel --------------------------------------------------------------------------------

    def first_waiting_ms(self, from_ms: int) -> int | None:
        """Return the due time of the first row that waits and is due at or after `from_ms`."""
        if not self._lowest_known:
            self._lowest = self._first_from(0)
            self._lowest_known = True
        if self._lowest is None or self._lowest >= from_ms:
            return self._lowest
        return self._first_from(from_ms)

    def _first_from(self, from_ms: int) -> int | None:
        dues = self._dues(0, self.count)
        found = dues[(self.states[: self.count] == EntryState.WAITING) & (dues >= from_ms)]
        return int(found.min()) if len(found) else None

    def span_stop_ms(self, from_ms: int, to_ms: int, rows: int) -> int:
        """Return up to which moment (≤ `to_ms`) about `rows` rows are due from `from_ms` on."""
        dues = self._dues(0, self.count)
        dues = dues[(dues >= from_ms) & (dues < to_ms)]
        return to_ms if len(dues) <= rows else int(np.partition(dues, rows)[rows])

    def open_span(self, second: int, stop: int, wanted: Wanted | None) -> RowLoad:
        """Begin to load the seconds from `second` to before `stop`."""
        dues = self._dues(0, self.count)
        rows = np.flatnonzero((dues >= second * 1000) & (dues < stop * 1000))
        return RowLoad(self, rows, second, stop, wanted)

    # --- looking up -------------------------------------------------------------------------------

    def find_key(self, key: int, due_ms: int | None) -> Rows:
        """Return the rows with that key hash (and due time, if given), ascending."""
        rows = np.array(self.keys.find(key), np.int64)
        return rows if due_ms is None else rows[self._due_ms[rows] == due_ms]

    def find(
        self,
        due_ms: npt.NDArray[np.int64],
        origin: npt.NDArray[np.uint64],
        origin_rows: npt.NDArray[Any] | None = None,
    ) -> Rows:
        """Return the row of each (due time, origin), −1 where there is none.

        Origins ascend with the rows.
        """
        del due_ms, origin_rows  # an origin is enough
        return self.find_origins(origin)

    def entries_around(self, due_ms: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield pieces of entries that may be due at `due_ms`, with the row of the first."""
        if self.count and self.first_ms <= due_ms <= self.last_ms:
            yield 0, self._column()

    def tags_of(self, entries: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Return the tags code of each entry."""
        return tags_of(entries)

    # --- counts -----------------------------------------------------------------------------------

    def waiting_by_hour(self, topic: int | None) -> tuple[Rows, Rows]:
        """Return (hours, counts) of waiting messages, ascending."""
        both = np.array(sorted(self._counts.items()), np.int64).reshape(-1, 2)
        if topic is not None:
            both = both[both[:, 0] & 0xFFFFFFFF == topic]
        return both[:, 0] >> _TOPIC_BITS, both[:, 1]

    def waiting_by_topic(self) -> dict[int, int]:
        """Count the waiting messages by topic id."""
        found: dict[int, int] = {}
        for both, n in self._counts.items():
            topic = both & 0xFFFFFFFF
            found[topic] = found.get(topic, 0) + n
        return found

    def waiting_by_second(self, hour: int, topic: int | None) -> npt.NDArray[np.int64]:
        """Return the 3 600 counts of waiting messages, one a second, of one hour."""
        dues = self._dues(0, self.count)
        waits = self.settled_states() == EntryState.WAITING
        rows = np.flatnonzero((dues // HOUR_MS == hour) & waits)
        if topic is not None:
            rows = rows[self.entries(rows)["topic"] == topic]
        seconds = dues[rows] // 1000 - hour * SECONDS
        return np.bincount(seconds, minlength=SECONDS).astype(np.int64)

    def bytes_due_before(self, to_ms: int) -> int:
        """Return the bytes that handing over what is due before `to_ms` takes, by the average size."""
        if not self.count or (lowest := self.first_waiting_ms(0)) is None or lowest >= to_ms:
            return 0
        waits = self.states[: self.count] == EntryState.WAITING
        n = int(np.count_nonzero(waits & (self._dues(0, self.count) < to_ms)))
        return n * self.log_bytes // self.count + n * HANDED_BYTES
