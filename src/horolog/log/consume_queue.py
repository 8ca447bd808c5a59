"""Consume queues: which message has which queue offset.  Rebuilt from the commit log.

One directory per queue, `<topic number>-<queue>`, with files of 262 144 units named by their first queue
offset.  A unit is RocketMQ's, but little-endian:

======  =====  ============  =====================================================================
offset  bytes  field         meaning
======  =====  ============  =====================================================================
0       8      position      log position of the message's record
8       4      size          of the record
12      8      tags code     Java hash of the tag, sign-extended; 0 without a tag
======  =====  ============  =====================================================================

Units are appended in memory when their frame is committed and written in bulk; a disk that is full only makes
the part in memory grow until space returns.  Synced before a checkpoint names the length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.errors import ErrorCode, HorologError
from horolog.limits import QUEUE_FILE_UNITS
from horolog.storage.api import File, Storage

UNIT = np.dtype([("position", "<i8"), ("size", "<i4"), ("tags", "<i8")])
UNIT_BYTES = 20
assert UNIT.itemsize == UNIT_BYTES
_WRITE_UNITS = 1_024  # kept in memory until there are this many, or a checkpoint wants them


def queue_file_name(first: int) -> str:
    """File that begins with queue offset `first`."""
    return f"{first:020d}.cq"


class ConsumeQueue:
    """Units 0 … length − 1 of one queue."""

    def __init__(self, storage: Storage, directory: str, length: int = 0) -> None:
        self._storage = storage
        self._directory = directory
        self._file: File | None = None
        self._file_first = -1
        self._tail: list[npt.NDArray[Any]] = []
        self._written = length
        self._dirty: set[int] = set()
        self.length = length

    def append(self, units: npt.NDArray[Any]) -> None:
        """Add UNIT rows at the end."""
        self._tail.append(units)
        self.length += len(units)
        if self.length - self._written >= _WRITE_UNITS:
            self.flush()

    def flush(self) -> bool:
        """Write what is in memory; False if the disk is full, and then it stays in memory."""
        if not self._tail:
            return True
        rows = self._tail[0] if len(self._tail) == 1 else np.concatenate(self._tail)
        try:
            while len(rows):
                first = self._written - self._written % QUEUE_FILE_UNITS
                n = min(len(rows), first + QUEUE_FILE_UNITS - self._written)
                at = (self._written - first) * UNIT_BYTES
                self._open(first, create=True).write(at, rows[:n].tobytes())
                self._dirty.add(first)
                self._written += n
                rows = rows[n:]
        except HorologError as error:
            if error.code is not ErrorCode.DISK_FULL:
                raise
            self._tail = [rows]
            return False
        self._tail = []
        return True

    def _open(self, first: int, *, create: bool = False) -> File:
        if self._file is None or self._file_first != first:
            self.close()
            if create:
                self._storage.make_dir(self._directory)
            path = f"{self._directory}/{queue_file_name(first)}"
            self._file = self._storage.open(path, create=create)
            self._file_first = first
        return self._file

    def read(self, offset: int, count: int) -> npt.NDArray[Any]:
        """UNIT rows from `offset`, at most `count`, fewer at the end of a file or of the queue."""
        if offset >= self.length or count <= 0:
            return np.empty(0, UNIT)
        if offset >= self._written:
            rows = self._tail[0] if len(self._tail) == 1 else np.concatenate(self._tail)
            self._tail = [rows]
            return rows[offset - self._written : offset - self._written + count]
        first = offset - offset % QUEUE_FILE_UNITS
        count = min(count, self._written - offset, first + QUEUE_FILE_UNITS - offset)
        raw = self._open(first).read((offset - first) * UNIT_BYTES, count * UNIT_BYTES)
        if len(raw) != count * UNIT_BYTES:
            raise HorologError(
                ErrorCode.DAMAGED, f"{self._directory}/{queue_file_name(first)} is cut short"
            )
        return np.frombuffer(raw, UNIT)

    def sync_paths(self) -> list[str]:
        """Files written since the last call; everything in memory is written first."""
        if not self.flush():
            raise HorologError(ErrorCode.DISK_FULL, "no space to write consume queues")
        dirty, self._dirty = sorted(self._dirty), set()
        return [f"{self._directory}/{queue_file_name(first)}" for first in dirty]

    def stored_length(self) -> int:
        """How many whole units the files hold (at start, to be compared with the checkpoint)."""
        firsts = [int(n[:-3]) for n in self._storage.list(self._directory) if n.endswith(".cq")]
        if not firsts:
            return 0
        size = self._open(max(firsts)).size()
        return max(firsts) + size // UNIT_BYTES

    def cut(self, length: int) -> bool:
        """At start: the queue has `length` units; False if the files hold fewer (then rebuild)."""
        if self.stored_length() < length:
            return False
        self.length = self._written = length
        return True

    def close(self) -> None:
        """Close the open file."""
        if self._file is not None:
            self._file.close()
            self._file = None
