"""Entry files: the pair of append files that hold the messages of an hour or of a far buffer.

`delay.log` holds the records as they stand in the commit log, in log order; `delay.idx` holds one
entry for each record (format: `delay.entry`).  The key runs of the entries lie beside these files.
Memory holds one byte an entry, its state.

Nothing is synced until a checkpoint syncs both files and names their lengths.  A start takes over
these lengths (`_restore_lengths`), cuts the files to them (`cut`), and files later messages again
from the commit log.
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
from horolog.limits import REPAIR_ROWS_MAX
from horolog.log.record import HEAD, HEAD_BYTES, Kind
from horolog.storage.api import File, Storage
from horolog.storage.mapped import Mapped

_FEW = 8  # origins for which plain Python is faster than numpy
_FIRST_ROWS = 256
_READ_ROWS = 65_536
_LONGS = ENTRY_BYTES // 8

RepairRows = Callable[[Any, Rows], None]  # (source, rows whose entries are damaged)


class Filing(NamedTuple):
    """Messages for one pair of files, in log order: columns of equal length, and joined records."""

    due_ms: npt.NDArray[np.int64]
    origin: npt.NDArray[np.uint64]
    size: npt.NDArray[np.int64]
    key: npt.NDArray[np.uint64]
    topic: npt.NDArray[np.uint32]
    tags: npt.NDArray[np.int32]
    crc: npt.NDArray[np.uint32]
    records: bytes | memoryview

    def chosen(self, rows: slice | npt.NDArray[np.int64], records: bytes | memoryview) -> Filing:
        """Return the messages at `rows`, with their records."""
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
    """Write the fields that come from the messages themselves into ENTRY rows."""
    entries["size"] = filing.size
    entries["due_ms"] = filing.due_ms
    entries["origin"] = filing.origin
    entries["key"] = filing.key
    entries["topic"] = filing.topic
    entries["crc"] = filing.crc


def _record_end(entries: npt.NDArray[Any], row: int) -> int:
    return int(entries["position"][row]) + int(entries["size"][row])


class EntryFiles:
    """Entries in log order, their records and their states.

    source_id   id of these files as a source
    count       entries
    log_bytes   bytes of their records
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
        self.repair: RepairRows | None = None  # rebuilds damaged entries
        self.records_at = self.index_at = 0  # where records and entries begin in their files
        storage.make_dir(directory)
        self._log: File = storage.open(self.records_path, create=True)
        self._index: File = storage.open(self.index_path, create=True)
        self._log_view = Mapped(self._log)
        self._index_view = Mapped(self._index)
        self.keys = KeyRuns(storage, directory, read_keys=self._keys_of)

    @property
    def records_path(self) -> str:
        """Path of the file of records."""
        return f"{self.directory}/{LOG_NAME}"

    @property
    def index_path(self) -> str:
        """Path of the file of entries."""
        return f"{self.directory}/{INDEX_NAME}"

    def sync_paths(self) -> list[str]:
        """Return the files to sync before a checkpoint names their lengths."""
        return [self.records_path, self.index_path]

    # --- opening and closing ----------------------------------------------------------------------

    def _restore_lengths(self, count: int, log_bytes: int) -> bool:
        """Take over the lengths that a checkpoint names; return False if the files are others.

        They are too short, or the last entry says that the records end elsewhere.
        """
        if self._index.size() < count * ENTRY_BYTES or self._log.size() < log_bytes:
            return False
        last = self._read(max(0, count - 1), count)
        if bool(is_readable(last).all()) and count and _record_end(last, 0) != log_bytes:
            return False
        self.count, self.log_bytes = count, log_bytes
        self._grow_states()
        self.unsynced = False
        return True

    def _open_keys(self) -> None:
        self.keys.open(self.count, self._keys_of)

    def _keys_of(self, first: int, stop: int) -> npt.NDArray[np.uint64]:
        """Return the keys of entries [first, stop); those of damaged entries from their records.

        A look-up finds no message under a wrong key.  It repairs the damaged entries that it finds
        and compares their keys, so the records need not be verified here.
        """
        entries = self._read(first, stop)
        keys: npt.NDArray[np.uint64] = entries["key"].copy()
        before = self._read(first - 1, first) if first else np.zeros(1, ENTRY)
        end, read = _record_end(before, 0), -1  # where the record of row `read` ends
        for row in np.flatnonzero(~is_readable(entries))[:REPAIR_ROWS_MAX].tolist():
            at = end if row == read + 1 else _record_end(entries, row - 1)
            raw = self._log.read(at, HEAD_BYTES) if at < self.log_bytes else b""
            head = np.frombuffer(raw.ljust(HEAD_BYTES, b"\0"), HEAD)[0]
            if head["kind"] == Kind.SCHEDULED:
                keys[row] = head["key"]
            end, read = at + int(head["size"]), row
        return keys

    def _read(self, first: int, stop: int) -> npt.NDArray[Any]:
        raw = self._index.read(first * ENTRY_BYTES, (stop - first) * ENTRY_BYTES)
        return np.frombuffer(raw, ENTRY)

    def cut(self) -> None:
        """Cut the files, at start, to the restored lengths; messages after them are filed again."""
        self.drop_views()
        self._index.truncate(self.count * ENTRY_BYTES)
        self._log.truncate(self.log_bytes)

    def drop_views(self) -> None:
        """Drop the views of repaired files, which may be copies; the next use maps the files."""
        self._log_view.drop()
        self._index_view.drop()

    def close(self) -> None:
        """Close views and files."""
        self.drop_views()
        self.keys.close()
        self._log.close()
        self._index.close()

    # --- filing -----------------------------------------------------------------------------------

    def _append(self, entries: npt.NDArray[Any], records: bytes | bytearray | memoryview) -> Rows:
        """Append complete entries and their records; return the rows of the new entries.

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
        """Map all entries."""
        return np.frombuffer(self._index_view.view(self.count * ENTRY_BYTES), ENTRY, self.count)

    def _words(self, code: Literal["i", "Q"]) -> memoryview:
        # A write that met a full disk may have left a part of an entry after the last one.
        view = self._index_view.view(self.count * ENTRY_BYTES)
        return view[: self.count * ENTRY_BYTES].cast(code)

    def entries(self, rows: Rows) -> npt.NDArray[Any]:
        """Return the ENTRY rows (a contiguous copy), not verified."""
        return self._column().take(rows)

    def records(self, entries: npt.NDArray[Any]) -> list[memoryview]:
        """Return the records of these entries, not verified."""
        try:
            return records_of(self._log_view.mapped(self.log_bytes), entries)
        except HorologError as error:
            if error.code is not ErrorCode.TOO_MANY_FILES:
                raise
        spans = zip(entries["position"].tolist(), entries["size"].tolist(), strict=True)
        return [memoryview(self._log.read(at, self._within(at, size))) for at, size in spans]

    def _within(self, at: int, size: int) -> int:
        """Limit the size of a record to the file: a damaged entry may state any size."""
        return max(0, min(size, self.log_bytes - at))

    def scan(self) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield all entries in order, for repair and inspection: (first row, ENTRY rows)."""
        for first in range(0, self.count, _READ_ROWS):
            stop = min(self.count, first + _READ_ROWS)
            yield first, self.entries(np.arange(first, stop))

    def _dues(self, first: int, stop: int) -> npt.NDArray[np.int64]:
        """Return the due times of rows [first, stop)."""
        dues: npt.NDArray[np.int64] = self._column()["due_ms"][first:stop]
        return dues

    def rows_between(self, from_ms: int, to_ms: int, first: int, limit: int) -> tuple[Rows, int]:
        """Look at up to `limit` rows from `first` on; return waiting ones due in [from_ms, to_ms).

        Also return the row to continue with, −1 at the end.
        """
        end = min(self.count, first + limit)
        dues = self._dues(first, end)
        found = (dues >= from_ms) & (dues < to_ms)
        found &= self.states[first:end] == EntryState.WAITING
        return np.flatnonzero(found) + first, end if end < self.count else -1

    def damaged_between(self, first: int, stop: int) -> Rows:
        """Return the damaged rows in [first, stop): their topic and due time may be wrong."""
        stop = min(stop, self.count)
        return np.flatnonzero(~is_readable(self.entries(np.arange(first, stop)))) + first

    def find_origins(self, origins: npt.NDArray[np.uint64]) -> Rows:
        """Find the row of each origin, −1 where no entry has it.

        A binary search, since origins ascend with the rows.  A search that a damaged entry misleads
        ends beside that entry; then all entries are searched.
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
        """Find the row of each origin, −1 where no entry has it, in rows of any order."""
        column = self._column()["origin"].copy()
        order = np.argsort(column, kind="stable")
        at = np.minimum(np.searchsorted(column, origins, sorter=order), self.count - 1)
        return np.where(column[order[at]] == origins, order[at], -1)

    def _lower_bounds(self, origins: npt.NDArray[np.uint64]) -> Rows:
        """Return, for each origin, the first row with that origin or a later one."""
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
        """Return the first row with that origin or a later one.

        Without numpy: a replay of small frames asks one at a time.
        """
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
        """How many messages are quarantined; counted at each use, one byte a message."""
        return int(np.count_nonzero(self.settled_states() == EntryState.QUARANTINED))

    def settled_states(self) -> npt.NDArray[np.uint8]:
        """Return the `EntryState` of every entry without in-flight bits (a copy)."""
        return self.states[: self.count] & np.uint8(EntryState.SETTLED_BITS)

    def states_at(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """Return the `EntryState` of each row, with its in-flight bits."""
        return self.states[rows]

    def mark_inflight(self, rows: Rows, bits: EntryState) -> None:
        """Mark rows for which a change is appended but not yet committed."""
        check_event(self.states[rows], bits)
        self.states[rows] |= np.uint8(bits)
