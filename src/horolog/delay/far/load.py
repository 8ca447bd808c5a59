"""Loading seconds of a far buffer or a run: its rows in bounded, sorted pieces (`delay.source`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from horolog.delay.damage import quarantine_problem
from horolog.delay.entry import is_readable
from horolog.delay.source import Loaded, Rows, Wanted, add_piece
from horolog.delay.state import EntryState
from horolog.errors import Problem

if TYPE_CHECKING:
    from horolog.delay.far.buffer import FarBuffer
    from horolog.delay.far.run import FarRun


class RowLoad:
    """Some rows as they were when the load began; the wheel gets later rows of a buffer directly.

    rows  those that may be due in the seconds from `second` to before `stop`
    """

    def __init__(
        self,
        source: FarBuffer | FarRun,
        rows: Rows | range,
        second: int,
        stop: int,
        wanted: Wanted | None,
    ) -> None:
        self.problem: Problem | None = None
        self._source = source
        self._wanted = wanted
        self._rows = rows
        self._first_ms, self._stop_ms = second * 1000, stop * 1000
        self._at = 0
        self._pieces: list[Loaded] = []

    def walk(self, limit: int) -> tuple[int, bool]:
        """Take up to `limit` rows; return (rows taken, whether the load is done)."""
        part = self._rows[self._at : self._at + limit]
        self._at += len(part)
        if len(part):
            rows = np.arange(part.start, part.stop) if isinstance(part, range) else part
            self._read(rows)
        return len(part), self._at == len(self._rows)

    def _read(self, rows: Rows) -> None:
        source = self._source
        entries = source.entries(rows)
        good = is_readable(entries)
        if source.repair is not None and not bool(good.all()):
            source.repair(source, rows[~good])
            entries = source.entries(rows)
            good = is_readable(entries)
        if not bool(good.all()) and source.quarantine_damaged(rows[~good]):
            self.problem = quarantine_problem(source)
        waits = good & (entries["due_ms"] >= self._first_ms) & (entries["due_ms"] < self._stop_ms)
        waits &= source.states_at(rows) == EntryState.WAITING
        entries = entries.compress(waits)
        add_piece(self._pieces, self._wanted, source.source_id, entries, rows[waits])

    def pieces(self) -> list[Loaded]:
        """Return the waiting rows."""
        return self._pieces
