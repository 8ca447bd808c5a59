"""Loading seconds of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from horolog.delay.damage import quarantine_problem
from horolog.delay.entry import entry_sums
from horolog.delay.source import Loaded, loaded
from horolog.delay.state import EntryState
from horolog.errors import Problem

if TYPE_CHECKING:
    from horolog.delay.far.run import FarRun


class RunLoad:
    """The rows of some seconds of a run."""

    def __init__(self, run: FarRun, seconds: tuple[int, int], first: int, stop: int) -> None:
        self.problem: Problem | None = None
        self._run = run
        self._seconds = seconds  # from, to before
        self._at = first
        self._stop = stop
        self._pieces: list[Loaded] = []

    def walk(self, limit: int) -> tuple[int, bool]:
        """Take up to `limit` rows: (rows taken, whether done)."""
        stop = min(self._stop, self._at + limit)
        taken = max(0, stop - self._at)
        if taken:
            rows = np.arange(self._at, stop)
            entries = self._run.entries(rows)
            good = entry_sums(entries) == entries["sum"]
            if self._run.mend is not None and not bool(good.all()):
                self._run.mend(self._run, rows[~good])
                entries = self._run.entries(rows)
                good = entry_sums(entries) == entries["sum"]
            if not bool(good.all()):
                self._run.quarantine_damaged(rows[~good])
                self.problem = quarantine_problem(self._run)
            second, end = self._seconds
            mine = good & (entries["due_ms"] >= second * 1000) & (entries["due_ms"] < end * 1000)
            mine &= self._run.states_at(rows) == EntryState.WAITING
            self._pieces.append(loaded(self._run.number, entries[mine], rows[mine]))
            self._at = stop
        return taken, self._at >= self._stop

    def pieces(self) -> list[Loaded]:
        """What waits."""
        return self._pieces
