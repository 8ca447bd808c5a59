"""Loading one second of an hour: walk its chain in bounded, sorted pieces (`delay.source`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.damage import quarantine_problem
from horolog.delay.entry import is_readable
from horolog.delay.near.hour import Hour
from horolog.delay.source import Loaded, Wanted, add_piece
from horolog.delay.state import SECONDS, EntryState
from horolog.errors import Problem


class ChainLoad:
    """The chain of one second when the load began; the wheel gets later entries directly."""

    def __init__(self, hour: Hour, second: int, wanted: Wanted | None) -> None:
        head = hour.heads[second - hour.hour * SECONDS]
        self.second = second
        self.problem: Problem | None = None
        self._hour = hour
        self._wanted = wanted
        self._next = int(head["newest"])
        self._expected = int(head["filed"])
        self._walked = 0
        self._sound = True
        self._pieces: list[Loaded] = []

    def walk(self, limit: int) -> tuple[int, bool]:
        """Take up to `limit` steps and read their entries; return (steps, whether done)."""
        limit = min(limit, self._expected - self._walked + 1)
        found, self._next = self._hour.walk(self._next, limit)
        self._walked += len(found)
        if found:
            index = np.array(found, np.int64)
            entries = self._hour.entries(index)
            good = self._are_mine(entries)
            self._sound = self._sound and bool(good.all())
            self._add_waiting(entries.compress(good), index[good])
        ended = self._next < 0 or not self._sound or self._walked > self._expected
        return len(found), ended

    def pieces(self) -> list[Loaded]:
        """Return the waiting rows; for a broken chain, scan the hour and set `problem`."""
        if not self._sound or self._walked != self._expected:
            self._scan()
        return self._pieces

    def _are_mine(self, entries: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        mine = is_readable(entries)
        mine &= entries["due_ms"] // 1000 == self.second
        return mine

    def _add_waiting(self, entries: npt.NDArray[Any], index: npt.NDArray[np.int64]) -> None:
        hour = self._hour
        waits = hour.states[index] == EntryState.WAITING
        entries = entries.compress(waits)
        add_piece(self._pieces, self._wanted, hour.source_id, entries, index[waits])

    def _scan(self) -> None:
        """Scan the whole index; entries of this second that cannot be rebuilt are quarantined."""
        hour = self._hour
        bad = hour.unreadable()
        if len(bad) and hour.repair is not None:
            hour.repair(hour, bad)
            bad = hour.unreadable()
        self._pieces = []
        readable = 0
        for first, entries in hour.scan():
            rows = np.flatnonzero(self._are_mine(entries))
            readable += len(rows)
            self._add_waiting(entries.take(rows), rows + first)
        if readable == self._expected:
            return
        if hour.quarantine_unreadable(self.second % SECONDS, bad) or hour.quarantined:
            self.problem = quarantine_problem(hour)
            return
        text = (
            f"hour {hour.hour}: delay index of second {self.second % SECONDS} is damaged, "
            f"{readable} of {self._expected} entries are readable"
        )
        self.problem = Problem(text, hour.directory)
