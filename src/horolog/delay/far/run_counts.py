"""Counts of a run's waiting rows by hour and topic: its directory minus the rows that are gone.

The directory counts all rows, `gone_by` those that are gone.  Rows and directory are both in order
of time, so hours below the cursor are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import HANDED_BYTES
from horolog.delay.far.row_states import RowStates
from horolog.delay.far.run_access import RunAccess
from horolog.delay.run.format import TOPIC_HOUR
from horolog.delay.source import Rows
from horolog.delay.state import SECONDS
from horolog.errors import ErrorCode, HorologError
from horolog.limits import HOUR_MS

_STEP_ROWS = 8_192


class RunCounts:
    """Counts according to committed records.

    limit_ms  messages due at or after it are not in this run
    gone_by   (hour, topic) → rows that are handed over, recalled, moved, expired or quarantined
    """

    def __init__(self, access: RunAccess, states: RowStates) -> None:
        self.limit_ms = access.info.last_ms + 1
        self.gone_by: dict[tuple[int, int], int] = {}
        self._access = access
        self._states = states

    def settle(self, entries: npt.NDArray[Any]) -> None:
        """Count these ENTRY rows as gone."""
        both = (entries["due_ms"] // HOUR_MS << 32) | entries["topic"].astype(np.int64)
        keys, amounts = np.unique(both, return_counts=True)
        for key, n in zip(keys.tolist(), amounts.tolist(), strict=True):
            self._add((key >> 32, key & 0xFFFFFFFF), n)

    def settle_unreadable(self, rows: Rows) -> None:
        """Count rows whose index entries cannot be read as gone.

        The hour follows from the place of the row; if the hour has several topics, the topic is a
        guess.
        """
        directory = self._access.directory if len(rows) else None
        for row in rows.tolist():
            place = self._row_of(row, directory)
            self._add((int(place["hour"]), int(place["topic"])), 1)

    def _add(self, key: tuple[int, int], n: int) -> None:
        self.gone_by[key] = self.gone_by.get(key, 0) + n

    def capture(self) -> dict[tuple[int, int], int]:
        """Return `gone_by` for a state file (a copy), without hours in which nothing waits."""
        try:
            first = self._first_hour()
        except HorologError as error:
            if error.code is not ErrorCode.TOO_MANY_FILES:
                raise
            return dict(self.gone_by)  # hours too many do no harm; a later capture drops them
        self.gone_by = {key: n for key, n in self.gone_by.items() if key[0] >= first}
        return dict(self.gone_by)

    def _first_hour(self, directory: npt.NDArray[Any] | None = None) -> int:
        """Return the hour of the first row that was not handed over; nothing due earlier waits.

        directory  as read just now: each reading verifies it
        """
        row = min(self._states.passed_rows().tolist(), default=self._states.cursor)
        if row >= self._states.limit:
            return self.limit_ms // HOUR_MS + 1
        return int(self._row_of(row, directory)["hour"])

    def _row_of(self, row: int, directory: npt.NDArray[Any] | None) -> Any:
        """Return the directory row with the hour of a row: both are in order of time."""
        directory = self._access.directory if directory is None else directory
        if not len(directory):
            return np.array([(self.limit_ms // HOUR_MS, 0, 0, 0)], TOPIC_HOUR)[0]
        ends = np.cumsum(directory["count"].astype(np.int64))
        return directory[int(np.searchsorted(ends, row, side="right"))]

    def _rows(self, to_ms: int | None = None) -> tuple[npt.NDArray[Any], Rows]:
        """Return the directory rows of hours in which messages may wait, and how many wait.

        to_ms  None, or only rows of hours that begin before that moment
        """
        rows = self._access.directory
        last = ((self.limit_ms if to_ms is None else min(to_ms, self.limit_ms)) - 1) // HOUR_MS
        hours = rows["hour"]
        rows = rows[hours.searchsorted(self._first_hour(rows)) : hours.searchsorted(last, "right")]
        counts = rows["count"].astype(np.int64)
        if self.gone_by:
            hours, topics = rows["hour"].tolist(), rows["topic"].tolist()
            keys = zip(hours, topics, strict=True)
            counts -= np.array([self.gone_by.get(key, 0) for key in keys], np.int64)
        return rows, np.maximum(counts, 0)

    def by_hour(self, topic: int | None) -> tuple[Rows, Rows]:
        """Return (hours, counts) of waiting messages, ascending."""
        rows, counts = self._rows()
        chosen = counts > 0
        if topic is not None:
            chosen &= rows["topic"] == topic
        return rows["hour"][chosen].astype(np.int64), counts[chosen]

    def by_hour_and_topic(self, from_hour: int) -> npt.NDArray[Any]:
        """Return directory rows {hour, topic, count, …} from an hour on, counting what waits."""
        rows, counts = self._rows()
        chosen = (rows["hour"] >= from_hour) & (counts > 0)
        found = rows[chosen].copy()
        found["count"] = counts[chosen]
        return found

    def by_topic(self) -> dict[int, int]:
        """Count the waiting messages by topic id."""
        rows, counts = self._rows()
        topics, at = np.unique(rows["topic"], return_inverse=True)
        sums = np.bincount(at, weights=counts, minlength=len(topics)).astype(np.int64)
        return {t: n for t, n in zip(topics.tolist(), sums.tolist(), strict=True) if n}

    def by_second(self, hour: int, topic: int | None) -> npt.NDArray[np.int64]:
        """Return the 3 600 counts of waiting messages, one a second, of one hour."""
        run = self._access.file
        low = run.row_at(hour * HOUR_MS)
        passed = self._states.passed_rows()
        first = max(self._states.cursor, low)
        stop = min(self._states.limit, run.row_at((hour + 1) * HOUR_MS))
        counts = self._by_second(hour, passed, topic)
        if first >= stop:
            return counts
        if topic is None:
            counts += run.second_counts(hour, first, stop)
            gone = (
                np.flatnonzero(self._states.gone_between(first, stop)) + first
                if self._states.maps
                else ()
            )
            return counts - self._by_second(hour, np.asarray(gone, np.int64), None)
        for at in range(first, stop, _STEP_ROWS):
            end = min(stop, at + _STEP_ROWS)
            counts += self._by_second(
                hour, np.flatnonzero(~self._states.gone_between(at, end)) + at, topic
            )
        return counts

    def _by_second(self, hour: int, rows: Rows, topic: int | None) -> npt.NDArray[np.int64]:
        if not len(rows):
            return np.zeros(SECONDS, np.int64)
        entries = self._access.file.entries(rows)
        if topic is not None:
            entries = entries[entries["topic"] == topic]
        seconds = entries["due_ms"] // 1000 - hour * SECONDS
        seconds = seconds[(seconds >= 0) & (seconds < SECONDS)]
        return np.bincount(seconds, minlength=SECONDS).astype(np.int64)

    def bytes_due_before(self, to_ms: int) -> int:
        """Return the bytes that handing over what is due before `to_ms` takes, by the directory."""
        if self._access.info.first_ms >= to_ms or self._states.waiting <= 0:
            return 0
        rows, counts = self._rows(to_ms)
        sizes = rows["bytes"] / np.maximum(rows["count"], 1) + HANDED_BYTES
        return int((sizes * counts).sum())
