"""Runs that a broker has frozen for an offload: the files and rows that go to the lake.

The broker names the files, the rows [`first`, `stop`) of each file, and the rows among them that
were removed when the run was frozen (recalled, moved, expired, quarantined).  The files do not
change; each task opens them by itself.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import is_readable, record_crcs
from horolog.delay.run.reader import Run
from horolog.errors import ErrorCode, HorologError
from horolog.storage.disk import Disk

Rows = npt.NDArray[np.int64]
_CHECKED_ROWS = 65_536  # rows checked at a time: some 30 MiB of records
_NEIGHBOURS = 128  # rows read on either side of a damaged one, to bound its due time


class FrozenRun:
    """Rows [first, stop) of one run file, without the removed rows.

    fields  a run as `POST /v1/offloads/begin` returns it: path, log_id, first, stop, gone; for
            adopted runs also position and first_row, from which the origins of its messages follow
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.path = Path(fields["path"])
        self.first = int(fields["first"])
        self.stop = int(fields["stop"])
        self._log_id = int(fields["log_id"], 16)
        self._removed = str(fields.get("gone", ""))
        self._adopted: int | None = fields.get("position")
        self._first_row = int(fields.get("first_row", 0))

    @cached_property
    def run(self) -> Run:
        """The open file; DAMAGED if it is missing, with advice in the message."""
        place = self.path.parent
        if not self.path.is_file():
            raise HorologError(
                ErrorCode.DAMAGED,
                f"run {self.path.stem}: {self.path} cannot be read here; the broker's data "
                "directory must be mounted at the same path, and a broker that was restarted "
                "rebuilds its runs: begin again",
                field="path",
            )
        storage = Disk(place.parent)
        return Run.open(storage, place.name, self.path.stem, self._log_id)

    @cached_property
    def waits(self) -> npt.NDArray[np.bool_]:
        """A mask of the rows [first, stop) that go to the lake."""
        count = self.stop - self.first
        if not self._removed:
            return np.ones(count, bool)
        bits = np.frombuffer(zlib.decompress(base64.b64decode(self._removed)), np.uint8)
        removed = np.unpackbits(bits, bitorder="little")[:count]
        waits: npt.NDArray[np.bool_] = removed == 0
        return waits

    def rows_between(self, from_ms: int, to_ms: int) -> Rows:
        """Return the rows due in [from_ms, to_ms) that go to the lake, ascending."""
        low = max(self.first, self.run.row_at(from_ms))
        stop = min(self.stop, self.run.row_at(to_ms))
        if low >= stop:
            return np.empty(0, np.int64)
        rows: Rows = np.flatnonzero(self.waits[low - self.first : stop - self.first]) + low
        return rows

    def entries(self, rows: Rows) -> npt.NDArray[Any]:
        """Read ENTRY rows of the file; DAMAGED if one fails its check."""
        entries = self.run.entries(rows)
        self._check(is_readable(entries), rows)
        return entries

    def records(self, entries: npt.NDArray[Any], rows: Rows) -> list[memoryview]:
        """Read the records of entries, which are of these rows; DAMAGED if one fails its check."""
        records = self.run.records(entries)
        crcs = record_crcs(records, entries["origin"], entries["row"])
        self._check(crcs == entries["crc"], rows)
        return records

    def damaged_spans(self) -> list[tuple[int, int]]:
        """Return [from, to) due ms for each damaged row, bounded by its intact neighbours."""
        spans = []
        for first in range(self.first, self.stop, _CHECKED_ROWS):
            rows = np.arange(first, min(self.stop, first + _CHECKED_ROWS))
            rows = rows[self.waits[rows - self.first]]
            entries = self.run.entries(rows)
            good = is_readable(entries)
            records = self.run.records(entries.compress(good))
            crcs = record_crcs(records, entries["origin"][good], entries["row"][good])
            good[good] = crcs == entries["crc"][good]
            spans += [self._span_of(row) for row in rows[~good].tolist()]
        return spans

    def _span_of(self, row: int) -> tuple[int, int]:
        info = self.run.info
        around = np.arange(max(0, row - _NEIGHBOURS), min(self.run.rows, row + _NEIGHBOURS + 1))
        entries = self.run.entries(around)
        sound = is_readable(entries)
        before = entries["due_ms"][sound & (around <= row)]
        after = entries["due_ms"][sound & (around >= row)]
        from_ms = int(before[-1]) if len(before) else info.first_ms
        return from_ms, (int(after[0]) if len(after) else info.last_ms) + 1

    def origins(self, entries: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the positions and the rows of the messages' origins."""
        if self._adopted is None:
            return entries["origin"], entries["row"]
        positions = np.full(len(entries), self._adopted, np.uint64)
        return positions, entries["row"] + np.uint32(self._first_row)

    def _check(self, good: npt.NDArray[np.bool_], rows: Rows) -> None:
        if not bool(good.all()):
            raise HorologError(
                ErrorCode.DAMAGED,
                f"run {self.path.stem}: row {int(rows[~good][0])} does not verify, so nothing is "
                "offloaded; see `horolog verify`; after an offload with --abort the next one "
                "leaves out what the broker has quarantined",
                field="path",
            )
