"""Consume queues: the index from queue offset to message.  Rebuilt from the commit log.

One directory per queue, `<topic id>-<queue>`, with files of 262 144 units (`log.queue_unit`) named
by their first queue offset.

Units are appended in memory when their frame is committed, and written in bulk; while the disk is
full the part in memory grows.  Files are synced before a checkpoint names a queue's length.

A queue has at most one file open, and all queues, perhaps thousands, a bounded count of files.

Retention moves `first`, the lowest queue offset whose message the log still has; files wholly below
`first` are removed once no kept checkpoint needs them.  A unit of size 0 is a *hole*: its message
was lost to damage, and no other message takes its queue offset.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.errors import ErrorCode, HorologError, done_if_room
from horolog.limits import QUEUE_FILE_UNITS
from horolog.log.file_names import numbers_of
from horolog.log.open_queues import OpenQueues
from horolog.log.queue_names import queue_file_name, units_place
from horolog.log.queue_unit import NO_UNITS, UNIT, UNIT_BYTES, UnitsPlace, seal, unseal
from horolog.log.whole_rows import copied, joined
from horolog.storage.api import File, Storage
from horolog.storage.sectors import read_around

REBUILDING = "rebuilding"  # marker file in a queue's directory while the queue is being rebuilt
_WRITE_UNITS = 1_024  # units are kept in memory until there are this many, or a checkpoint syncs


class ConsumeQueue:
    """Units `first` … length − 1 of one queue."""

    __slots__ = (
        "_changed",
        "_directory",
        "_dirty",
        "_file",
        "_file_first",
        "_open_queues",
        "_storage",
        "_tail",
        "_written",
        "files_from",
        "first",
        "length",
        "rotten",
    )

    def __init__(
        self,
        storage: Storage,
        directory: str,
        changed: dict[ConsumeQueue, None] | None = None,
        open_queues: OpenQueues | None = None,
    ) -> None:
        """Make an empty queue, which shares two collections with the other queues.

        changed      the queues that have something to sync
        open_queues  the queues that have a file open
        """
        self.first = 0
        self.files_from = 0  # first offset of the oldest file
        self._storage = storage
        self._directory = directory
        self._file: File | None = None
        self._file_first = -1
        self._tail: list[npt.NDArray[Any]] = []
        self._written = 0
        self._dirty: set[int] = set()
        self._changed = {} if changed is None else changed
        self._open_queues = OpenQueues() if open_queues is None else open_queues
        self.length = 0
        self.rotten: set[int] = set()

    def append(self, units: npt.NDArray[Any]) -> None:
        """Add UNIT rows at the end."""
        self._changed[self] = None
        self._tail.append(units)
        self.length += len(units)
        if self.length - self._written >= _WRITE_UNITS:
            self.flush()

    def check_invariants(self) -> None:
        """Assert files_from ≤ first ≤ length, and that memory holds exactly the unwritten units."""
        assert 0 <= self.files_from <= self.first <= self.length, (self.files_from, self.first)
        assert self.files_from % QUEUE_FILE_UNITS == 0, self.files_from
        assert 0 <= self._written <= self.length, (self._written, self.length)
        assert self in self._changed or not (self._tail or self._dirty), "it would not be synced"
        in_memory = sum(len(units) for units in self._tail)
        assert len(self._open_queues) <= self._open_queues.most
        assert (self in self._open_queues) == (self._file is not None), "it would not be closed"
        assert in_memory == self.length - self._written, (in_memory, self.length, self._written)

    def replace(self, offset: int, unit: npt.NDArray[Any]) -> bool:
        """Replace a damaged unit by a UNIT row; False if the disk is full: it stays damaged."""
        assert self.first <= offset < self.length, (self.first, offset, self.length)
        assert unit.dtype == UNIT
        assert len(unit) == 1
        if offset >= self._written:
            rows = copied(joined(self._tail))
            rows[offset - self._written] = unit[0]
            self._tail = [rows]
            return True
        first = offset - offset % QUEUE_FILE_UNITS
        at, sealed = (offset - first) * UNIT_BYTES, seal(unit, self._place(offset))
        if not done_if_room(lambda: self._open(first).write(at, sealed)):
            return False
        self._dirty.add(first)
        self._changed[self] = None
        return True

    @property
    def is_unwritten(self) -> bool:
        """Whether the queue has units in memory only."""
        return bool(self._tail)

    def flush(self) -> bool:
        """Write the units in memory to files; False if the disk is full: they stay in memory."""
        return done_if_room(self.write)

    def write(self) -> None:
        """Write the units in memory to files, like `flush`; DISK_FULL if there is no space."""
        if not self._tail:
            return
        rows = joined(self._tail)
        try:
            while len(rows):
                first = self._written - self._written % QUEUE_FILE_UNITS
                n = min(len(rows), first + QUEUE_FILE_UNITS - self._written)
                at = (self._written - first) * UNIT_BYTES
                units = seal(rows[:n], self._place(self._written))
                self._open(first, create=True).write(at, units)
                self._dirty.add(first)
                self._written += n
                rows = rows[n:]
        finally:
            self._tail = [rows] if len(rows) else []

    def _place(self, offset: int) -> UnitsPlace:
        return units_place(self._directory.rpartition("/")[2], offset)

    def _open(self, first: int, *, create: bool = False) -> File:
        if self._file is None or self._file_first != first:
            self.close()
            self._file = self._opened(f"{self._directory}/{queue_file_name(first)}", create)
            self._file_first = first
        self._open_queues.note_used(self)
        return self._file

    def _opened(self, path: str, create: bool) -> File:
        try:
            return self._storage.open(path)
        except FileNotFoundError:
            if not create:
                raise
        self._storage.make_dir(self._directory)
        return self._storage.open(path, create=True)

    def read(self, offset: int, count: int) -> npt.NDArray[Any]:
        """Return at most `count` UNIT rows from `offset` on; fewer at the end of file or queue.

        Units that the disk cannot read are zeros: the caller searches the log for their messages.
        Units that fail their check have ROTTEN_CODE, and their offsets stay in `rotten` until the
        caller has handled them.  NOT_FOUND below `first`; DAMAGED if the file ends before `offset`.
        """
        if offset >= self.length or count <= 0:
            return NO_UNITS
        if offset < self.first:
            raise HorologError(
                ErrorCode.NOT_FOUND,
                f"queue offset {offset} is older than the retention; the queue begins at "
                f"{self.first}",
            )
        if offset >= self._written:
            rows = joined(self._tail)
            self._tail = [rows]
            return rows[offset - self._written : offset - self._written + count]
        first = offset - offset % QUEUE_FILE_UNITS
        count = min(count, self._written - offset, first + QUEUE_FILE_UNITS - offset)
        raw = self._raw(first, (offset - first) * UNIT_BYTES, count * UNIT_BYTES)
        there = len(raw) // UNIT_BYTES
        if not there:
            raise HorologError(
                ErrorCode.DAMAGED,
                f"{self._directory}/{queue_file_name(first)} is cut short; it is rebuilt by the "
                "next start",
            )
        units, rotten = unseal(raw, self._place(offset))
        self.rotten.update(offset + row for row in rotten)
        return units

    def _raw(self, first: int, at: int, length: int) -> bytes:
        """Read bytes of the file that begins at `first`; unreadable units are zeros."""
        lost: list[tuple[int, int]] = []
        raw = read_around(
            self._open(first), at, length, lambda start, stop, why: lost.append((start, stop))
        )
        if not lost:
            return raw
        units = bytearray(raw)
        for start, stop in lost:  # a unit that was read in part would name another message
            start = (start - at) // UNIT_BYTES * UNIT_BYTES
            stop = min(len(units), -(-(stop - at) // UNIT_BYTES) * UNIT_BYTES)
            units[start:stop] = bytes(stop - start)
        return bytes(units)

    def begin_at(self, offset: int) -> bool:
        """Move `first` to an offset found by `first_from`; True if it moved."""
        moved = offset > self.first
        self.first = max(self.first, offset)
        return moved

    def first_from(self, position: int) -> int:
        """Find the first unit at or above a log position, by binary search; return its offset."""
        low, high = self.first, self.length
        while low < high:
            middle = (low + high) // 2
            sound = self._sound_from(middle, high)
            if sound < high and int(self.read(sound, 1)["position"][0]) < position:
                low = sound + 1
            else:
                high = middle
        return low

    def _sound_from(self, offset: int, stop: int) -> int:
        """Find the first readable, not all-zero unit in [offset, stop); `stop` if none."""
        count = 1
        while offset < stop:
            try:
                units = self.read(offset, min(count, stop - offset))
            except HorologError as error:
                if error.code is not ErrorCode.DAMAGED:
                    raise
                offset += QUEUE_FILE_UNITS - offset % QUEUE_FILE_UNITS  # on with the next file
                continue
            found = np.flatnonzero((units["position"] != 0) | (units["size"] != 0))
            if len(found):
                return offset + int(found[0])
            offset += len(units)
            count = _WRITE_UNITS
        return stop

    def files_below(self, offset: int) -> list[str]:
        """Return the paths of the files that lie wholly below a queue offset."""
        stop = offset - offset % QUEUE_FILE_UNITS
        return [
            f"{self._directory}/{queue_file_name(first)}"
            for first in range(self.files_from, stop, QUEUE_FILE_UNITS)
        ]

    def forget_files_below(self, offset: int) -> None:
        """Note that the files wholly below a queue offset have been removed."""
        stop = offset - offset % QUEUE_FILE_UNITS
        if self._file is not None and self._file_first < stop:
            self.close()
        self.files_from = max(self.files_from, stop)

    def sync_paths(self) -> list[str]:
        """Write the units in memory, return the files to sync; DISK_FULL if there is no space."""
        self.write()
        dirty, self._dirty = sorted(self._dirty), set()
        self._changed.pop(self, None)
        return [f"{self._directory}/{queue_file_name(first)}" for first in dirty]

    def mark_unsynced(self, paths: Set[str]) -> None:
        """Mark files for sync again: the checkpoint that was to sync them has failed."""
        for first in range(self.files_from, self._written, QUEUE_FILE_UNITS):
            if f"{self._directory}/{queue_file_name(first)}" in paths:
                self._changed[self] = None
                self._dirty.add(first)

    # --- at start -------------------------------------------------------------------------------

    def restore(self, first: int, length: int, *, has_directory: bool = True) -> bool:
        """Take over units `first` … length − 1; False (rebuild) if the files do not hold them."""
        names = self._storage.list(self._directory) if has_directory else []
        firsts = [at for at in numbers_of(names, "cq") if at % QUEUE_FILE_UNITS == 0]
        if REBUILDING in names:
            return False
        wanted = range(first - first % QUEUE_FILE_UNITS, length, QUEUE_FILE_UNITS)
        if first < length and not set(firsts).issuperset(wanted):
            return False
        for begin in wanted:
            units = min(length - begin, QUEUE_FILE_UNITS)
            # An empty queue needs no file, but `verify` and backups read one that is there.
            if begin in firsts and self._open(begin).size() < units * UNIT_BYTES:
                return False
        self.first = first
        self.files_from = firsts[0] if firsts else first - first % QUEUE_FILE_UNITS
        self.length = self._written = length
        return True

    def begin_rebuild(self, first: int) -> None:
        """Discard the files and begin at `first`; no start trusts them until `end_rebuild`."""
        self.close()
        self._storage.make_dir(self._directory)
        mark = self._storage.open(f"{self._directory}/{REBUILDING}", create=True)
        mark.sync()
        mark.close()
        self._storage.sync_dir(self._directory)
        for name in self._storage.list(self._directory):
            if name.endswith(".cq"):
                self._storage.remove(f"{self._directory}/{name}")
        self.first = self.length = self._written = first
        self.files_from = first - first % QUEUE_FILE_UNITS
        self._tail, self._dirty = [], set()

    def fill_holes(self, length: int) -> int:
        """Append holes until the queue is `length` units long; return how many were added."""
        missing = length - self.length
        if missing <= 0:
            return 0
        holes = np.zeros(missing, UNIT)
        if self.length > self.first:
            holes["position"] = self.read(self.length - 1, 1)["position"]
        self.append(holes)
        return missing

    def end_rebuild(self) -> None:
        """Sync what was appended since `begin_rebuild`, and let starts trust the files again."""
        for path in self.sync_paths():
            file = self._storage.open(path)
            file.sync()
            file.close()
        self._storage.sync_dir(self._directory)
        self._storage.remove(f"{self._directory}/{REBUILDING}")
        self._storage.sync_dir(self._directory)

    def close(self) -> None:
        """Close the open file; the next use opens it again."""
        if self._file is not None:
            file, self._file = self._file, None
            self._open_queues.note_closed(self)
            file.close()
