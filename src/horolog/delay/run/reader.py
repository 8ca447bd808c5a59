"""Reading a run (`delay.run.format`): rows of a second, an origin, a key; mapped, never loaded.

Damaged rows are left out, and reported in `problems`; `delay.run.search` explains why a damaged row
does not mislead a search.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.delay.entry import ENTRY, is_readable, records_of
from horolog.delay.run.format import (
    FENCE_ROWS,
    FOOTER_BYTES,
    GROUP_ROWS,
    HEADER_BYTES,
    KEY_GROUP,
    KEY_ROW_BYTES,
    TOPIC_HOUR,
    Footer,
    Layout,
    RunInfo,
    damaged,
    decode_footer,
    decode_header,
    is_adopted,
    run_path,
)
from horolog.delay.run.keys import KeyGroups, Rows
from horolog.delay.run.search import RowSearch
from horolog.delay.state import SECONDS
from horolog.errors import Problem
from horolog.limits import HOUR_MS, MIB, SECOND_MS
from horolog.log.whole_rows import copied
from horolog.storage.api import Storage

__all__ = ["Run", "RunInfo"]

PROBLEMS_MAX = 20  # sentences kept of one run
_DAMAGED_ROWS_MAX = 65_536  # damaged rows remembered, so that each is reported once
_DIRECTORY_AT_OPEN_BYTES = 1 * MIB  # a larger directory is checked only when used


class Run:
    """An open run.  Several threads may search it; after `close` it must not be used.

    log_id     of the log that its origins lie in
    view       the file, mapped
    adopted    whether the run was made for adoption: its origins are not those of its messages
    problems   sentences about the damage met so far, bounded
    """

    def __init__(
        self, name: str, log_id: int, view: memoryview, footer: Footer, layout: Layout, rows: int
    ) -> None:
        self.info = RunInfo(name, rows, layout.size, footer.first_ms, footer.last_ms)
        self.rows = rows
        self.log_id = log_id
        self.adopted = is_adopted(bytes(view[:HEADER_BYTES]))
        self.problems: list[str] = []
        # Also called with each problem.
        self.report_problem: Callable[[Problem], None] | None = None
        self.path = ""
        self.view = view
        self._footer = footer
        self._layout = layout
        self._index = np.frombuffer(view, ENTRY, rows, HEADER_BYTES)
        # Copies: what is verified at the opening must not rot afterwards.
        fences = np.frombuffer(view, "<i8", -(-rows // FENCE_ROWS), layout.fences_at).copy()
        self._search = RowSearch(self._index, fences, footer.last_ms, self.readable)
        groups = -(-rows // GROUP_ROWS)
        key_directory = np.frombuffer(view, KEY_GROUP, groups, layout.key_directory_at).copy()
        self._keys = KeyGroups(view, key_directory, self._add_problem)
        self._damaged: set[int] = set()

    @classmethod
    def open(cls, storage: Storage, directory: str, name: str, log_id: int | None) -> Run:
        """Map a run and check the parts that searches rely on; 0.1 ms, whatever its size.

        log_id  of the log the run must belong to; None: any (tools)

        DAMAGED: missing, cut short, or header, footer, fences or a directory are damaged.
        VERSION_UNSUPPORTED: a newer horolog wrote it.  DIRECTORY_FOREIGN: its origins lie in
        another log.  TOO_MANY_FILES: the process can open or map no more files.
        """
        try:
            file = storage.open(run_path(directory, name))
        except FileNotFoundError as error:
            raise damaged(name, "the file is missing") from error
        try:
            view = file.view()
        finally:
            file.close()
        of_log, rows = decode_header(name, bytes(view[:HEADER_BYTES]), log_id)
        foot = bytes(view[-FOOTER_BYTES:]) if len(view) >= HEADER_BYTES + FOOTER_BYTES else b""
        footer, layout = decode_footer(name, foot, of_log, rows)
        if len(view) != layout.size:
            raise damaged(name, f"the file has {len(view)} bytes instead of {layout.size}")
        run = cls(name, of_log, view, footer, layout, rows)
        run.path = run_path(directory, name)
        run._check_parts()
        return run

    def _check_parts(self) -> None:
        at, name = self._layout, self.info.name
        if crc32(self.view[at.fences_at : at.key_directory_at]) != self._footer.fences_crc:
            raise damaged(name, "the fences are damaged")
        key_directory = self.view[at.key_directory_at : at.directory_at]
        if crc32(key_directory) != self._footer.key_directory_crc:
            raise damaged(name, "the key directory is damaged")
        if any(self.view[at.records_end : at.key_groups_at]) or any(
            self.view[at.key_groups_at + KEY_ROW_BYTES * self.rows : at.fences_at]
        ):
            raise damaged(name, "bytes between its parts are not zero")
        if at.footer_at - at.directory_at <= _DIRECTORY_AT_OPEN_BYTES:
            _ = self.directory

    @property
    def directory(self) -> npt.NDArray[Any]:
        """TOPIC_HOUR rows {hour, topic, count, bytes} by (hour, topic), of all rows in any state.

        DAMAGED if the rows are not as written: the CRC is compared at each use, which reads all of
        them anyway.
        """
        at = self._layout
        content = self.view[at.directory_at : at.footer_at]
        if crc32(content) != self._footer.directory_crc:
            raise damaged(self.info.name, "the directory is damaged")
        return np.frombuffer(content, TOPIC_HOUR)

    # --- rows -----------------------------------------------------------------------------------

    def entries(self, index: Rows) -> npt.NDArray[Any]:
        """Return the ENTRY rows of these row numbers (a contiguous copy), not verified."""
        return self._index.take(index)

    def slice(self, first: int, stop: int) -> npt.NDArray[Any]:
        """Return ENTRY rows [first, stop) (a copy), not verified."""
        return copied(self._index[first:stop])

    def readable(self, first: int, stop: int) -> tuple[npt.NDArray[Any], Rows, int]:
        """Return entries of [first, stop) with the right sum, their rows, how many are damaged."""
        entries = self.slice(first, stop)
        good = is_readable(entries)
        if good.all():
            return entries, np.arange(first, first + len(entries)), 0
        bad = np.flatnonzero(~good)
        self._report_damaged_rows(first + bad)
        kept = np.flatnonzero(good)
        return entries.take(kept), first + kept, len(bad)

    def records(self, entries: npt.NDArray[Any]) -> list[memoryview]:
        """Return the records of these entries, not verified."""
        return records_of(self.view, entries)

    def _report_damaged_rows(self, rows: npt.NDArray[Any]) -> None:
        new = [row for row in rows.tolist() if row not in self._damaged]
        if not new or len(self._damaged) >= _DAMAGED_ROWS_MAX:
            return
        self._damaged.update(new)
        self._add_problem(f"{len(new)} index rows are damaged (first: row {new[0]})")

    @property
    def damaged_rows(self) -> list[int]:
        """Damaged index rows met so far."""
        return sorted(self._damaged)

    def _add_problem(self, what: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"run {self.info.name}: {what}")
            if self.report_problem is not None:
                self.report_problem(Problem(self.problems[-1], self.path))

    # --- search by time and origin ----------------------------------------------------------------

    def fence_ms(self, row: int) -> int | None:
        """Return the due time of the first fence at or after a row; None: there is none."""
        return self._search.fence_ms(row)

    def row_at(self, due_ms: int) -> int:
        """Return the first row due from a moment on, or `rows`; reads a block of 1 024 rows."""
        return self._search.row_at(due_ms)

    def second_counts(self, hour: int, first: int, stop: int) -> Rows:
        """Count rows of [first, stop) due in each second of an hour: 3 600 counts, by search."""
        due = hour * HOUR_MS + SECOND_MS * np.arange(SECONDS + 1)
        zeros = np.zeros(SECONDS + 1, np.uint64)
        inside: Rows = np.clip(self._search.rows_from((due, zeros, zeros)), first, stop)
        return inside[1:] - inside[:-1]

    def find(
        self,
        due_ms: npt.NDArray[np.int64],
        origins: npt.NDArray[np.uint64],
        origin_rows: npt.NDArray[np.uint32] | None = None,
    ) -> Rows:
        """Return the row of each (due ms, origin, row of the origin), −1: no readable row has it.

        origin_rows  None: all 0
        """
        wanted = np.zeros(len(origins), np.uint32) if origin_rows is None else origin_rows
        found = self._search.rows_from((due_ms, origins, wanted))
        found = self._search.readable_from(found)
        entries = self._index[np.minimum(found, self.rows - 1)]
        hit = (entries["due_ms"] == due_ms) & (entries["origin"] == origins)
        hit &= (entries["row"] == wanted) & (found < self.rows)
        return np.where(hit, found, -1)

    # --- search by key --------------------------------------------------------------------------

    def rows_of_key(self, key: int, due_ms: int | None = None) -> list[int]:
        """Return rows with this key hash, ascending; with `due_ms` only those that may be due then.

        Not verified, and a few rows of other due times may be among them; takes some 10 µs.
        """
        first, stop = 0, self.rows
        if due_ms is not None:
            first, stop = self._search.row_at(due_ms), self._search.row_at(due_ms + 1)
            if stop - first <= FENCE_ROWS:  # few rows: no key group has to be read and checked
                return self._search.rows_with_key(first, stop, key)
        found: list[int] = []
        for group in range(first // GROUP_ROWS, -(-stop // GROUP_ROWS)):
            base = group * GROUP_ROWS
            if self._keys.is_intact(group):
                found += [base + row for row in self._keys.rows_in_group(group, key)]
            else:
                entries, rows, _ = self.readable(base, min(self.rows, base + GROUP_ROWS))
                found += rows[entries["key"] == key].tolist()
        return sorted(row for row in found if first <= row < stop)

    def close(self) -> None:
        """Release the mapping; arrays and records handed out keep it until they are dropped."""
        self.view = memoryview(b"")
        self._index = np.empty(0, ENTRY)
        self._search = RowSearch(self._index, np.empty(0, np.int64), 0, self.readable)
        self._keys = KeyGroups(self.view, np.empty(0, KEY_GROUP), self._add_problem)
