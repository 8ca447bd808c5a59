"""Key look-up of one hour's entries, in sorted runs of (key hash, global index).  Rebuilt.

Memory must not grow with what is pending, and a look-up must not scan.  So the newest keys wait in
memory, at most 32 768 of them; a full buffer is written as a sorted run, and eight runs of one size
are merged into one, up to 2 097 152 rows.  A look-up is a binary search in the mapped key column of
each run; 10⁷ keys have at most some 35 runs.  Longer runs would make look-ups little faster, and
losing one would mean reading more keys again at a start.

A merge does not block: each `add` does its share of the merge, four rows for a key, in steps of
16 384 rows, and until the merge ends its inputs are used.  Every key is sorted once and merged
twice.

Measured on one core of an AMD EPYC, real disk, batches of 1 000.  `add` includes sorting, writing
and merging, and uses at most 1.7 MiB of memory; merging 2 097 152 rows in one piece took 160 to 360
ms and 129 MiB.

====  =============  =============  =========  =========  ================================
keys  add, each      longest `add`  find       open       first find after `open`, all CRCs
====  =============  =============  =========  =========  ================================
10⁶   50 ns          2 to 7 ms      14 µs      0.5 ms     0.9 ms
10⁷   66 ns          3.4 ms         26 µs      1.7 ms     10 ms, files in the page cache
====  =============  =============  =========  =========  ================================

The format of the files: `key_run`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from horolog.delay.key_run import (
    HEADER_BYTES,
    NO_COLUMNS,
    ROW_BYTES,
    KeyRun,
    Merge,
    key_run_name,
    load_key_run,
    parse_key_run_name,
)
from horolog.errors import NO_ROOM, HorologError
from horolog.limits import CONTROL_RESERVE_BYTES
from horolog.log.key_merge import sorted_columns
from horolog.storage.api import Storage

BUFFER_ROWS = 32_768
FANOUT = 8
_LEVELS = 2  # how often a key is merged; so the largest run has 2 097 152 rows
_MERGE_SHARE = 4  # rows merged for each key added: twice what is needed, so that merges end
_FULL_PAUSE = FANOUT  # full buffers to wait before retrying a merge that met a full disk

Keys: TypeAlias = npt.NDArray[np.uint64]
ReadKeys: TypeAlias = Callable[[int, int], Keys]


class KeyRuns:
    """The key hashes of an hour's entries, added in the order of global indexes.

    directory    of the hour; it must exist
    buffer_rows  keys kept in memory; the sizes of runs, merges and steps follow from it
    read_keys    reads the keys of entries [a, b), to rebuild runs that are found damaged when used

    Any disk failure but DISK_FULL is raised.  On a full disk keys stay in memory and are written
    later.
    """

    def __init__(
        self,
        storage: Storage,
        directory: str,
        *,
        buffer_rows: int = BUFFER_ROWS,
        read_keys: ReadKeys | None = None,
    ) -> None:
        self.count = 0
        self._storage = storage
        self._directory = directory
        self._runs: list[KeyRun] = []  # by `first`, without gaps
        self._buffer_rows = buffer_rows
        self._step_rows = max(1, buffer_rows // 2)
        self._buffer = np.empty(buffer_rows, np.uint64)  # keys of the last `_buffered` entries
        self._buffered = 0
        self._merge: Merge | None = None
        self._credit = 0  # rows of merging that are due
        self._merge_from = 0  # no merge starts below this count
        self._read_keys = read_keys

    # --- opening --------------------------------------------------------------------------------

    def open(self, count: int, read_keys: ReadKeys) -> None:
        """Use the run files below `count`, after a restart; read the other keys with `read_keys`.

        Files that are not intact, overlap others or go beyond `count` are removed, without sync:
        `count` must come from a checkpoint that synced the directory, so that no removed file of an
        earlier process is back.  `read_keys` is kept, to rebuild runs that are found damaged when
        used.
        """
        self._read_keys = read_keys
        found = []
        for name in self._storage.list(self._directory):
            if name.startswith("keys."):
                first, rows = parse_key_run_name(name)
                found.append((first, -rows, name))  # of overlapping files the longest sorts first
        for first, minus_rows, name in sorted(found):
            run = None
            if first >= self.count and first - minus_rows <= count:
                run = load_key_run(self._storage, self._directory, name)
            if run is None:
                self._remove(name)
                continue
            self._read_up_to(first, read_keys)
            if self._buffered:
                self._flush()
            self._runs.append(run)
            self.count += run.count
        self._read_up_to(count, read_keys)

    def _read_up_to(self, stop: int, read_keys: ReadKeys) -> None:
        while self.count < stop:
            self.add(read_keys(self.count, min(stop, self.count + self._buffer_rows)))

    # --- adding ---------------------------------------------------------------------------------

    def add(self, keys: Keys) -> None:
        """Add the keys (u64) of the next entries; the keys are copied."""
        at = 0
        while at < len(keys):
            n = min(len(keys) - at, self._buffer_rows - self._buffered)
            self._buffer[self._buffered : self._buffered + n] = keys[at : at + n]
            at += n
            self._buffered += n
            self.count += n
            if self._buffered == self._buffer_rows:
                self._flush()
        self._credit += _MERGE_SHARE * len(keys)
        while self._credit >= self._step_rows:
            self._credit = self._credit - self._step_rows if self._merge_step() else 0

    def _flush(self) -> None:
        columns = sorted_columns(self._buffer[: self._buffered])
        self._runs.append(KeyRun(self.count - self._buffered, self._buffered, columns))
        self._buffered = 0
        for run in self._runs:
            if not run.name and not self._write(run):
                return  # the next flush tries again

    def _write(self, run: KeyRun) -> bool:
        try:
            run.write(self._storage, self._directory)
        except HorologError as error:
            self._remove_unwritten(key_run_name(run.first, run.count), error)
            return False
        return True

    def _remove_unwritten(self, name: str, error: HorologError) -> None:
        """Remove a file that could not be written; raise the error unless the disk is full."""
        if error.code not in NO_ROOM:
            raise error
        self._remove(name)

    def _remove(self, name: str) -> None:
        self._storage.remove(f"{self._directory}/{name}")

    # --- merging --------------------------------------------------------------------------------

    def _merge_step(self) -> bool:
        """Do a step of merging; return False if there is nothing to merge, or no room."""
        merge = self._merge or self._start_merge()
        if merge is None:
            return False
        try:
            if merge.step():
                return True
        except HorologError as error:
            self._end_merge(merge)
            self._merge_from = self.count + _FULL_PAUSE * self._buffer_rows
            self._remove_unwritten(key_run_name(merge.run.first, merge.run.count), error)
            return False
        self._end_merge(merge)
        at = self._runs.index(merge.inputs[0])
        self._runs[at : at + len(merge.inputs)] = [merge.run]
        for run in merge.inputs:
            self._remove(key_run_name(run.first, run.count))
        return True

    def _end_merge(self, merge: Merge) -> None:
        self._merge = None
        merge.file.close()

    def _start_merge(self) -> Merge | None:
        inputs = self._mergeable() if self.count >= self._merge_from else []
        if not inputs:
            return None
        run = KeyRun(inputs[0].first, sum(each.count for each in inputs), NO_COLUMNS)
        # A merge is optional work: it must not take the room that acks and hand-over need.
        need = HEADER_BYTES + ROW_BYTES * run.count + CONTROL_RESERVE_BYTES
        if self._storage.free_bytes() < need:
            self._merge_from = self.count + _FULL_PAUSE * self._buffer_rows
            return None
        for each in inputs:
            self._rebuild_if_damaged(each)
        name = key_run_name(run.first, run.count)
        self._remove(name)
        try:
            file = self._storage.open(f"{self._directory}/{name}", create=True)
        except HorologError as error:
            self._remove_unwritten(name, error)
            return None
        self._merge = Merge(inputs, run, file, self._step_rows)
        return self._merge

    def _mergeable(self) -> list[KeyRun]:
        """Return the oldest eight neighbouring runs of one size, or an empty list."""
        same: list[KeyRun] = []
        for run in self._runs:
            if same and self._level(run) != self._level(same[0]):
                same = []
            same.append(run)
            if len(same) == FANOUT and self._level(run) < _LEVELS:
                return same
        return []

    def _level(self, run: KeyRun) -> int:
        level = 0
        while run.count > self._buffer_rows * FANOUT**level:
            level += 1
        return level

    # --- finding --------------------------------------------------------------------------------

    def _rebuild_if_damaged(self, run: KeyRun) -> None:
        """Rebuild a run found damaged at its first use after a start, or found cut."""
        if not run.is_damaged():
            return
        assert self._read_keys is not None, f"nobody knows the keys of {self._directory}"
        stop = run.first + run.count
        starts = range(run.first, stop, self._buffer_rows)
        keys = [self._read_keys(at, min(stop, at + self._buffer_rows)) for at in starts]
        run.columns = sorted_columns(np.concatenate(keys))
        run.name, run.view, run.unchecked = "", memoryview(b""), None
        self._write(run)

    def find(self, key: int) -> list[int]:
        """Return the global indexes of all entries with that key, ascending."""
        wanted = np.uint64(key)
        found: list[int] = []
        for run in self._runs:
            self._rebuild_if_damaged(run)
            keys = run.columns.keys
            low = int(keys.searchsorted(wanted))
            if low < run.count and keys[low] == wanted:
                high = int(keys.searchsorted(wanted, side="right"))
                found += [run.first + i for i in run.columns.rows[low:high].tolist()]
        # Scanning a full buffer takes 14 µs; sorting it first would take 300 µs after each `add`.
        buffered = np.flatnonzero(self._buffer[: self._buffered] == wanted)
        return found + (buffered + (self.count - self._buffered)).tolist()

    def close(self) -> None:
        """Drop the views; the next `open` rebuilds keys in memory and a merge under way."""
        if self._merge is not None:
            self._end_merge(self._merge)
        self._runs = []
        self._buffered = self.count = 0
