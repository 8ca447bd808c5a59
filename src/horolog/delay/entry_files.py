"""Entry files: what an hour and a far buffer are made of, a pair of files that messages are appended to.

`delay.log` holds the records as they stand in the commit log, in its order; `delay.idx` one entry for each (format:
`delay.entry`).  Beside them lie the key runs of the entries; in memory is one byte an entry, its state.

Nothing is synced until a checkpoint syncs both files and names their lengths.  A start takes these over (`_take`),
cuts the files to them (`cut`), and files what lay after again from the commit log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import (
    ENTRY,
    ENTRY_BYTES,
    INDEX_NAME,
    LOG_NAME,
    ORIGIN_LONG,
    is_readable,
    records_of,
)
from horolog.delay.entry_keys import KeyRuns
from horolog.delay.source import Rows
from horolog.delay.state import EntryState, check_event
from horolog.errors import ErrorCode, HorologError
from horolog.storage.api import File, Storage
from horolog.storage.mapped import Mapped

_FEW = 8  # origins for which plain Python is faster than numpy
_FIRST_ROWS = 256
_READ_ROWS = 65_536
_LONGS = ENTRY_BYTES // 8

RepairRows = Callable[[Any, Rows], None]  # (source, rows whose entries are damaged)


class Filing(NamedTuple):
    """Messages for one pair of files, in log order: columns of equal length, and the records one after the other."""

    due_ms: npt.NDArray[np.int64]
    origin: npt.NDArray[np.uint64]
    size: npt.NDArray[np.int64]
    key: npt.NDArray[np.uint64]
    topic: npt.NDArray[np.uint32]
    tags: npt.NDArray[np.int32]
    crc: npt.NDArray[np.uint32]
    records: bytes | memoryview

    def chosen(self, rows: slice | npt.NDArray[np.int64], records: bytes | memoryview) -> Filing:
        """Some of them, with their records."""
        return Filing(
            self.due_ms[rows],
            self.origin[rows],
            self.size[rows],
            self.key[rows],
            self.topic[rows],
            self.tags[rows],
            self.crc[rows],
            records,
        )


def put_columns(entries: npt.NDArray[Any], filing: Filing) -> None:
    """Write into ENTRY rows what is of the messages themselves."""
    entries["size"] = filing.size
    entries["due_ms"] = filing.due_ms
    entries["origin"] = filing.origin
    entries["key"] = filing.key
    entries["topic"] = filing.topic
    entries["crc"] = filing.crc


class EntryFiles:
    """Entries in log order, their records and their states.

    source_id   as a source
    count       entries
    log_bytes   of their records
    states      `EntryState` of each entry, with its in-flight bits; there is room after `count`
    unsynced    whether a checkpoint has to sync the files
    """

    def __init__(self, storage: Storage, directory: str, source_id: int) -> None:
        self.source_id = source_id
        self.directory = directory
        self.count = 0
        self.log_bytes = 0
        self.states = np.zeros(_FIRST_ROWS, np.uint8)
        self.unsynced = True
        self.repair: RepairRows | None = None  # makes damaged entries again
        self.records_at = self.index_at = 0  # where they begin in their files
        storage.make_dir(directory)
        self._log: File = storage.open(self.records_path, create=True)
        self._index: File = storage.open(self.index_path, create=True)
        self._log_view = Mapped(self._log)
        self._index_view = Mapped(self._index)
        self.keys = KeyRuns(storage, directory, read_keys=self._keys_of)

    @property
    def records_path(self) -> str:
        """The file of the records."""
        return f"{self.directory}/{LOG_NAME}"

    @property
    def index_path(self) -> str:
        """The file of the entries."""
        return f"{self.directory}/{INDEX_NAME}"

    def sync_paths(self) -> list[str]:
        """The files to sync before a checkpoint names their lengths."""
        return [self.records_path, self.index_path]

    # --- opening and closing ----------------------------------------------------------------------

    def _take(self, count: int, log_bytes: int) -> bool:
        """Take over what a checkpoint says; False if the files are shorter than that."""
        if self._index.size() < count * ENTRY_BYTES or self._log.size() < log_bytes:
            return False
        self.count, self.log_bytes = count, log_bytes
        self._grow_states()
        self.unsynced = False
        return True

    def _open_keys(self) -> None:
        self.keys.open(self.count, self._keys_of)

    def _keys_of(self, first: int, stop: int) -> npt.NDArray[np.uint64]:
        return self._read(first, stop)["key"].copy()

    def _read(self, first: int, stop: int) -> npt.NDArray[Any]:
        raw = self._index.read(first * ENTRY_BYTES, (stop - first) * ENTRY_BYTES)
        return np.frombuffer(raw, ENTRY)

    def cut(self) -> None:
        """At start: cut the files to what was restored; what a former process filed after it is filed again."""
        self.reread()
        self._index.truncate(self.count * ENTRY_BYTES)
        self._log.truncate(self.log_bytes)

    def reread(self) -> None:
        """The files were repaired: views of them may be copies, and are taken again."""
        self._log_view.drop()
        self._index_view.drop()

    def close(self) -> None:
        """Give views and files back."""
        self.reread()
        self.keys.close()
        self._log.close()
        self._index.close()

    # --- filing -----------------------------------------------------------------------------------

    def _append(self, entries: npt.NDArray[Any], records: bytes | bytearray | memoryview) -> Rows:
        """Write entries, which are complete, and their records after the last ones; gives their rows.

        DISK_FULL changes nothing.
        """
        self._log.write(self.log_bytes, records)
        self._index.write(self.count * ENTRY_BYTES, entries.tobytes())
        self.keys.add(entries["key"])
        self.log_bytes += len(records)
        first, self.count = self.count, self.count + len(entries)
        self._grow_states()
        self.unsynced = True
        return np.arange(first, self.count)

    def _grow_states(self) -> None:
        if self.count > len(self.states):
            grown = np.zeros(max(self.count, len(self.states) + len(self.states) // 2), np.uint8)
            grown[: len(self.states)] = self.states
            self.states = grown

    # --- reading ----------------------------------------------------------------------------------

    def _column(self) -> npt.NDArray[Any]:
        """All entries, mapped."""
        return np.frombuffer(self._index_view.view(self.count * ENTRY_BYTES), ENTRY, self.count)

    def _words(self, code: Literal["i", "Q"]) -> memoryview:
        # A write that met a full disk may have left a part of an entry after the last one.
        view = self._index_view.view(self.count * ENTRY_BYTES)
        return view[: self.count * ENTRY_BYTES].cast(code)

    def entries(self, rows: Rows) -> npt.NDArray[Any]:
        """ENTRY rows (a contiguous copy), not verified."""
        return self._column().take(rows)

    def records(self, entries: npt.NDArray[Any]) -> list[memoryview]:
        """The bytes of these entries' records, not verified."""
        try:
            return records_of(self._log_view.mapped(self.log_bytes), entries)
        except HorologError as error:
            if error.code is not ErrorCode.TOO_MANY_FILES:
                raise
        spans = zip(entries["position"].tolist(), entries["size"].tolist(), strict=True)
        return [memoryview(self._log.read(at, self._within(at, size))) for at, size in spans]

    def _within(self, at: int, size: int) -> int:
        """How much of a record there is at most: entries that are damaged say anything."""
        return max(0, min(size, self.log_bytes - at))

    def scan(self, chunk: int = _READ_ROWS) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """All entries in order, for repair and inspection: (first row, ENTRY rows)."""
        for first in range(0, self.count, chunk):
            stop = min(self.count, first + chunk)
            yield first, self.entries(np.arange(first, stop))

    def _dues(self, first: int, stop: int) -> npt.NDArray[np.int64]:
        """Due times of rows [first, stop)."""
        dues: npt.NDArray[np.int64] = self._column()["due_ms"][first:stop]
        return dues

    def rows_between(self, from_ms: int, to_ms: int, first: int, limit: int) -> tuple[Rows, int]:
        """Look at up to `limit` rows from `first` on; gives those that wait and are due in [from_ms, to_ms).

        And the row to go on with, −1 at the end.
        """
        end = min(self.count, first + limit)
        dues = self._dues(first, end)
        found = (dues >= from_ms) & (dues < to_ms)
        found &= self.states[first:end] == EntryState.WAITING
        return np.flatnonzero(found) + first, end if end < self.count else -1

    def damaged_between(self, first: int, stop: int) -> Rows:
        """Rows of [first, stop) whose entries do not verify: what they say of topic and due time may be untrue."""
        stop = min(stop, self.count)
        return np.flatnonzero(~is_readable(self.entries(np.arange(first, stop)))) + first

    def find_origins(self, origins: npt.NDArray[np.uint64]) -> Rows:
        """Row of each origin, −1 where no entry has it; a binary search, since origins ascend with the rows.

        One that a damaged entry misleads ends beside that entry; then all of them are looked at.
        """
        if not self.count:
            return np.full(len(origins), -1, np.int64)
        if len(origins) <= _FEW:
            low = np.array([self._lower_bound(origin) for origin in origins.tolist()], np.int64)
        else:
            low = self._lower_bounds(origins)
        at = np.minimum(low, self.count - 1)
        rows = np.where(self._column()["origin"][at] == origins, at, -1)
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            before = np.maximum(low[missing] - 1, 0)
            beside = self.entries(np.concatenate((before, at[missing])))
            sound = is_readable(beside).reshape(2, -1).all(axis=0)
            doubtful = missing[~sound]
            if len(doubtful):
                rows[doubtful] = self._find_unordered(origins[doubtful])
        return rows

    def _find_unordered(self, origins: npt.NDArray[np.uint64]) -> Rows:
        """The same in any order of the rows."""
        column = self._column()["origin"].copy()
        order = np.argsort(column, kind="stable")
        at = np.minimum(np.searchsorted(column, origins, sorter=order), self.count - 1)
        return np.where(column[order[at]] == origins, order[at], -1)

    def _lower_bounds(self, origins: npt.NDArray[np.uint64]) -> Rows:
        """The first row of that origin or a later one, for each."""
        low = np.zeros(len(origins), np.int64)
        high = np.full(len(origins), self.count, np.int64)
        column = self._column()["origin"]
        while bool((low < high).any()):
            middle = np.minimum((low + high) // 2, self.count - 1)
            below = (column[middle] < origins) & (low < high)
            low = np.where(below, middle + 1, low)
            high = np.where(below, high, middle)
        return low

    def _lower_bound(self, origin: int) -> int:
        """The same for one, without numpy: a replay of small frames asks for one at a time."""
        words = self._words("Q")
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if words[middle * _LONGS + ORIGIN_LONG] < origin:
                low = middle + 1
            else:
                high = middle
        return low

    # --- states -----------------------------------------------------------------------------------

    @property
    def quarantined(self) -> int:
        """Messages that are quarantined; counted again, a byte each."""
        return int(np.count_nonzero(self.settled_states() == EntryState.QUARANTINED))

    def settled_states(self) -> npt.NDArray[np.uint8]:
        """`EntryState` of every entry without in-flight bits (a copy)."""
        return self.states[: self.count] & np.uint8(EntryState.SETTLED_BITS)

    def states_at(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """`EntryState` of each row, with its in-flight bits."""
        return self.states[rows]

    def mark_inflight(self, rows: Rows, bits: EntryState) -> None:
        """Note what has been appended for these rows but is not committed yet."""
        check_event(self.states[rows], bits)
        self.states[rows] |= np.uint8(bits)
