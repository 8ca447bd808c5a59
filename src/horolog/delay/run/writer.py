"""Writing a run: rows in order, in one pass, with constant memory (`delay.run.format`).

The count of rows is given first, so the place of the index is known, and index and records grow
side by side.  `finish` reads the index back in groups of 65 536 rows for the parts after the
records.  The footer comes last: a file that a crash left unfinished has none, and is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.delay.entry import ENTRY, ENTRY_BYTES, entry_sums
from horolog.delay.run.format import (
    FENCE_BYTES,
    FENCE_ROWS,
    GROUP_ROWS,
    HEADER_BYTES,
    KEY_GROUP,
    KEY_ROW_BYTES,
    TOPIC_HOUR,
    Footer,
    Layout,
    RunInfo,
    damaged,
    encode_footer,
    encode_header,
    layout_of,
    run_path,
)
from horolog.errors import HorologError
from horolog.limits import HOUR_MS, MIB
from horolog.log.key_merge import sorted_columns
from horolog.log.whole_rows import copied
from horolog.storage.api import Storage

WRITE_BYTES = 2 * MIB  # of records joined at once: joining holds the interpreter, about 1 ms
# Synced on the way, else a sync of the log may wait for the whole file (240 ms, now 25).
SYNC_BYTES = 8 * MIB
_DUE_MAX_MS = (1 << 32) * HOUR_MS  # the directory's hours are u32
_Key = tuple[int, int, int]


def is_sorted(entries: npt.NDArray[Any]) -> bool:
    """Return whether ENTRY rows ascend by (due ms, origin, row)."""
    due, origin, row = entries["due_ms"], entries["origin"], entries["row"]
    rises = due[1:] > due[:-1]
    same = np.flatnonzero(~rises)
    if not len(same):
        return True
    after = same + 1
    rises = origin[after] > origin[same]
    ties = (origin[after] == origin[same]) & (row[after] >= row[same])
    return bool(((due[after] == due[same]) & (rises | ties)).all())


def sort_key(entry: Any) -> _Key:
    """Return (due ms, origin, row) of one ENTRY row."""
    return int(entry["due_ms"]), int(entry["origin"]), int(entry["row"])


class RunWriter:
    """Writes `<name>.run`: `add` all rows in order, then `finish`, or `abandon` after any failure.

    A file of that name is replaced; it must not be open anywhere.

    adopted  the run is made for adoption: origins are 0, their rows 0, 1, 2 … (`delay.run.format`)
    """

    def __init__(
        self,
        storage: Storage,
        directory: str,
        name: str,
        *,
        log_id: int,
        rows: int,
        adopted: bool = False,
    ) -> None:
        assert rows > 0
        self.name = name
        self._storage = storage
        self._log_id = log_id
        self._rows = rows
        self._adopted = adopted
        self._path = run_path(directory, name)
        self._added = 0
        self._record_bytes = 0
        self._records_at = HEADER_BYTES + ENTRY_BYTES * rows
        self._unsynced = 0
        self._last: _Key = (0, 0, 0)
        storage.remove(self._path)  # never cut a file that may be mapped
        self._file = storage.open(self._path, create=True)
        try:
            self._write(0, encode_header(log_id, rows, adopted=adopted))
        except HorologError:
            self.abandon()
            raise

    def _write(self, offset: int, content: bytes | memoryview) -> None:
        self._file.write(offset, content)
        self._unsynced += len(content)
        if self._unsynced >= SYNC_BYTES:
            self._sync_on_the_way()
            self._unsynced = 0

    def _sync_on_the_way(self) -> None:
        """Sync what is written so far; nothing depends on it, since `finish` syncs the file."""
        self._file.sync()

    def add(self, entries: npt.NDArray[Any], records: Sequence[bytes | memoryview]) -> None:
        """Append rows that follow the last ones in order, and their records.

        entries  ENTRY rows whose sums have been verified: position, previous and sum are rebuilt,
                 the rest is kept.  `local` must hold the tags code.
        """
        n = len(entries)
        if not n:
            return
        assert len(records) == n
        ends = self._add_entries(entries)
        first = 0
        while first < n:
            stop = int(np.searchsorted(ends, self._record_bytes + WRITE_BYTES, side="right"))
            stop = max(first + 1, stop)
            content = b"".join(records[first:stop])
            if len(content) != int(ends[stop - 1]) - self._record_bytes:
                raise damaged(self.name, f"records for rows from {self._added + first} are missing")
            self._write(self._records_at + self._record_bytes, content)
            self._record_bytes += len(content)
            first = stop
        self._added += n

    def add_joined(self, entries: npt.NDArray[Any], content: memoryview) -> None:
        """Append rows as `add` does, with records that lie one after another already."""
        n = len(entries)
        if not n:
            return
        ends = self._add_entries(entries)
        assert len(content) == int(ends[-1]) - self._record_bytes
        self._write(self._records_at + self._record_bytes, content)
        self._record_bytes += len(content)
        self._added += n

    def _add_entries(self, entries: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Write entries after the last ones; return where their records end.

        Ends are counted from the first record of the run.
        """
        n = len(entries)
        assert self._added + n <= self._rows
        assert is_sorted(entries)
        if self._adopted:
            assert not entries["origin"].any()
            assert bool((entries["row"] == self._added + np.arange(n)).all())
        assert self._last <= sort_key(entries[0])
        assert int(entries["due_ms"][-1]) < _DUE_MAX_MS
        self._last = sort_key(entries[-1])
        placed = copied(entries)
        ends = self._record_bytes + np.cumsum(placed["size"], dtype=np.int64)
        placed["position"] = self._records_at + ends - placed["size"]
        placed["previous"] = 0
        placed["sum"] = entry_sums(placed)
        self._write(HEADER_BYTES + ENTRY_BYTES * self._added, placed.tobytes())
        return ends

    def finish(self) -> RunInfo:
        """Write the parts after the records, and sync the file; the caller syncs the directory."""
        assert self._added == self._rows
        at = layout_of(self._rows, self._record_bytes, 0)
        self._write(at.records_end, bytes(at.key_groups_at - at.records_end))
        footer = self._write_tail(at)
        whole = layout_of(self._rows, self._record_bytes, footer.directory_rows)
        self._file.sync()  # a footer that outlives a power cut has everything before it
        self._write(whole.footer_at, encode_footer(self._log_id, self._rows, footer))
        self._file.sync()
        self._close()
        return RunInfo(self.name, self._rows, whole.size, footer.first_ms, footer.last_ms)

    def _write_tail(self, at: Layout) -> Footer:
        """Write key groups, fences and both directories, in one pass over the index."""
        first_ms = last_ms = 0
        fences_crc = directory_crc = directory_rows = 0
        key_directory = np.zeros(-(-self._rows // GROUP_ROWS), KEY_GROUP)
        open_hour = np.empty(0, TOPIC_HOUR)  # rows of the last hour, to which more may come
        for group, first in enumerate(range(0, self._rows, GROUP_ROWS)):
            count = min(GROUP_ROWS, self._rows - first)
            raw = self._file.read(HEADER_BYTES + ENTRY_BYTES * first, ENTRY_BYTES * count)
            entries = np.frombuffer(raw, ENTRY)
            first_ms = first_ms if first else int(entries["due_ms"][0])
            last_ms = int(entries["due_ms"][-1])
            offset = at.key_groups_at + KEY_ROW_BYTES * first
            keys = key_columns(entries["key"])
            self._write(offset, keys)
            key_directory[group] = (offset, count, crc32(keys))
            fences = entries["due_ms"][::FENCE_ROWS].tobytes()
            self._write(at.fences_at + FENCE_BYTES * (first // FENCE_ROWS), fences)
            fences_crc = crc32(fences, fences_crc)
            counted = count_topics(entries, open_hour)
            is_open = counted["hour"] == counted["hour"][-1]
            closed, open_hour = counted[~is_open].tobytes(), counted[is_open]
            self._write(at.directory_at + TOPIC_HOUR.itemsize * directory_rows, closed)
            directory_crc = crc32(closed, directory_crc)
            directory_rows += len(counted) - len(open_hour)
        end = at.key_groups_at + KEY_ROW_BYTES * self._rows
        self._write(end, bytes(at.fences_at - end))
        self._write(at.key_directory_at, key_directory.tobytes())
        self._write(at.directory_at + TOPIC_HOUR.itemsize * directory_rows, open_hour.tobytes())
        return Footer(
            first_ms,
            last_ms,
            self._record_bytes,
            directory_rows + len(open_hour),
            fences_crc,
            crc32(key_directory.tobytes()),
            crc32(open_hour.tobytes(), directory_crc),
        )

    def abandon(self) -> None:
        """Close and remove the file, if the disk allows; without a footer it is refused anyway."""
        with contextlib.suppress(HorologError):
            self._close()
        with contextlib.suppress(HorologError):  # else a sweep of unnamed runs removes it
            self._storage.remove(self._path)

    def _close(self) -> None:
        self._file.close()


def key_columns(keys: npt.NDArray[np.uint64]) -> bytes:
    """Encode one key group: keys ascending, then their rows within the group."""
    columns = sorted_columns(np.ascontiguousarray(keys))
    return columns.keys.tobytes() + columns.rows.astype("<u2").tobytes()


def count_topics(entries: npt.NDArray[Any], before: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Count entries as TOPIC_HOUR rows by (hour, topic), added to the rows counted before."""
    hour = (entries["due_ms"] // HOUR_MS).astype(np.uint64)
    key = (hour << np.uint64(32)) | entries["topic"]
    is_first = np.ones(len(key), bool)
    np.not_equal(key[1:], key[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)  # stretches of one topic; few when there are few topics
    before_key = (before["hour"].astype(np.uint64) << np.uint64(32)) | before["topic"]
    keys = np.concatenate([before_key, key[starts]])
    amount = np.append(before["count"], np.diff(np.append(starts, len(key))).astype(np.uint64))
    size = np.append(before["bytes"], np.add.reduceat(entries["size"].astype(np.uint64), starts))
    order = np.argsort(keys, kind="stable")
    keys, amount, size = keys[order], amount[order], size[order]
    is_first = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)
    found = np.zeros(len(starts), TOPIC_HOUR)
    found["hour"] = keys[starts] >> np.uint64(32)
    found["topic"] = keys[starts] & np.uint64(0xFFFFFFFF)
    found["count"] = np.add.reduceat(amount, starts)
    found["bytes"] = np.add.reduceat(size, starts)
    return found
