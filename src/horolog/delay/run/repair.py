"""Repair of a run while it is in use, and a blank that replaces a run beyond repair.

All parts after the records of a run (key groups, fences, both directories, footer) follow from its
index.  If every index row is readable these parts are rebuilt, and only bytes that differ are
written: good bytes stay good, whatever happens meanwhile.  If not, or if the file is gone or cut, a
blank stands in for the run until the next start, which sets the file aside and files again what the
log still has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import ENTRY, ENTRY_BYTES, is_readable
from horolog.delay.run.format import GROUP_ROWS, HEADER_BYTES, TOPIC_HOUR, encode_header, run_path
from horolog.delay.run.keys import Rows
from horolog.delay.run.reader import Run, RunInfo
from horolog.delay.run.writer import RunWriter
from horolog.errors import HorologError
from horolog.storage.api import Storage

_NO_ROWS: Rows = np.empty(0, np.int64)


class _Rebuilder(RunWriter):
    """Writes missing or wrong parts of a file whose index and records are intact."""

    def __init__(self, storage: Storage, directory: str, info: RunInfo, log_id: int) -> None:
        self.name = info.name
        self.changed = 0
        self._storage = storage
        self._log_id = log_id
        self._rows = self._added = info.rows
        self._path = run_path(directory, info.name)
        self._unsynced = 0
        self._file = storage.open(self._path)
        self._record_bytes = 0

    def rebuild(self, size: int, *, adopted: bool) -> bool:
        """Rebuild the file; return False if its index is damaged or its size is wrong."""
        for first in range(0, self._rows, GROUP_ROWS):
            count = min(GROUP_ROWS, self._rows - first)
            raw = self._file.read(HEADER_BYTES + ENTRY_BYTES * first, ENTRY_BYTES * count)
            if len(raw) != ENTRY_BYTES * count:
                return False
            entries = np.frombuffer(raw, ENTRY)
            if not bool(is_readable(entries).all()):
                return False
            self._record_bytes += int(entries["size"].sum())
        if self._file.size() != size:
            return False
        self._write(0, encode_header(self._log_id, self._rows, adopted=adopted))
        self.finish()
        return True

    def _write(self, offset: int, content: bytes | memoryview) -> None:
        if self._file.read(offset, len(content)) != content:
            self._file.write(offset, content)
            self.changed += 1


def rebuild_from_index(
    storage: Storage, directory: str, info: RunInfo, log_id: int, *, adopted: bool
) -> bool:
    """Rebuild a damaged run from its index; False if that is impossible or the disk refuses."""
    try:
        rebuilder = _Rebuilder(storage, directory, info, log_id)
        return rebuilder.rebuild(info.size, adopted=adopted) and rebuilder.changed > 0
    except (HorologError, FileNotFoundError):
        return False


class BlankRun(Run):
    """Stands in for an unreadable run: has as many rows, but finds and reads nothing."""

    def __init__(self, info: RunInfo, path: str) -> None:
        self.info = info
        self.rows = info.rows
        self.path = path
        self.problems = []
        self.report_problem = None
        self.view = memoryview(b"")

    @property
    def directory(self) -> npt.NDArray[Any]:
        """No rows."""
        return np.empty(0, TOPIC_HOUR)

    def entries(self, index: Rows) -> npt.NDArray[Any]:
        """Return as many unreadable rows as asked for."""
        return np.zeros(len(index), ENTRY)

    def slice(self, first: int, stop: int) -> npt.NDArray[Any]:
        """Return as many unreadable rows as asked for."""
        return np.zeros(stop - first, ENTRY)

    def readable(self, first: int, stop: int) -> tuple[npt.NDArray[Any], Rows, int]:
        """Return no rows, and all of them as damaged."""
        return np.empty(0, ENTRY), _NO_ROWS, stop - first

    def fence_ms(self, row: int) -> int | None:
        """Return None: no fence is known."""
        return None

    def row_at(self, due_ms: int) -> int:
        """Return `rows`: nothing is due."""
        return self.rows

    def second_counts(self, hour: int, first: int, stop: int) -> Rows:
        """Return zeros: nothing is due."""
        return np.zeros(3_600, np.int64)

    def find(
        self,
        due_ms: npt.NDArray[np.int64],
        origins: npt.NDArray[np.uint64],
        origin_rows: npt.NDArray[np.uint32] | None = None,
    ) -> Rows:
        """Return −1 for each: nothing is found."""
        return np.full(len(origins), -1, np.int64)

    def rows_of_key(self, key: int, due_ms: int | None = None) -> list[int]:
        """Return an empty list: nothing is found."""
        return []

    def close(self) -> None:
        """Do nothing: no file is open."""
