"""One near hour: entry files, with a chain of entries for each second.

Formats: `delay.entry`, `delay.state`.  The *heads* state for each second its newest entry, how many
entries were filed and how many wait; each entry states which entry of its second precedes it.  So
the wheel loads a second without looking at the others (`near.chain`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import ENTRY_WORDS, PREVIOUS_WORD, is_readable
from horolog.delay.entry_files import EntryFiles
from horolog.delay.source import Rows
from horolog.delay.state import (
    RECALLED_STATES,
    SECONDS,
    EntryState,
    HourState,
    check_event,
    empty_heads,
    state_name,
)
from horolog.log.record import TAGS_AT
from horolog.log.unaligned import get
from horolog.log.whole_rows import copied
from horolog.storage.api import Storage


class Touched(NamedTuple):
    """Seconds of an hour in which messages were filed, ascending: how many, the newest entry."""

    seconds: npt.NDArray[np.int64]
    counts: npt.NDArray[np.uint32]
    newest: npt.NDArray[np.int64]


def topic_counts(topics: npt.NDArray[Any]) -> dict[int, int]:
    """Count the messages of each topic."""
    if len(topics) and bool((topics == topics[0]).all()):
        return {int(topics[0]): len(topics)}
    found, amounts = np.unique(topics, return_counts=True)
    return dict(zip(found.tolist(), amounts.tolist(), strict=True))


class Hour(EntryFiles):
    """The messages due in one hour, `hour` = due ms // 3 600 000."""

    def __init__(self, storage: Storage, directory: str, hour: int, source_id: int = 0) -> None:
        super().__init__(storage, directory, source_id)
        self.hour = hour
        self.heads = empty_heads()
        self.by_topic: dict[int, int] = {}
        self.handed_over = 0
        self.recalled = 0
        self.version = 0
        self.changed = True
        self._waits_from = 0  # nothing waits in the seconds before this one

    @property
    def waiting(self) -> int:
        """Messages that wait, according to committed records."""
        return sum(self.by_topic.values())

    @property
    def label(self) -> str:
        """The name of the hour in problems."""
        return f"hour {self.hour}"

    @property
    def until_ms(self) -> int:
        """The end of the hour."""
        return (self.hour + 1) * SECONDS * 1000

    def restore(self, state: HourState, version: int) -> bool:
        """Take over a state file; return False if the files are not those that it states.

        Call `cut` before filing.
        """
        if not self._restore_lengths(state.count, state.log_bytes):
            return False
        self.heads, self.by_topic = state.heads, state.by_topic
        self.handed_over, self.recalled = state.handed_over, state.recalled
        if len(state.states):
            self.states = state.states
        self.version, self.changed = version, False
        self._open_keys()
        return True

    def append(
        self,
        entries: npt.NDArray[Any],
        records: memoryview,
        touched: Touched,
        topics: dict[int, int],
    ) -> Rows:
        """Append entries made by `filing`, and their records; return their rows.

        DISK_FULL changes nothing.
        """
        rows = self._append(entries, records)
        heads = self.heads
        heads["newest"][touched.seconds] = touched.newest
        heads["filed"][touched.seconds] += touched.counts
        heads["waiting"][touched.seconds] += touched.counts
        self._waits_from = min(self._waits_from, int(touched.seconds[0]))
        self._count_topics(topics, 1)
        self.changed = True
        return rows

    def next_waiting(self, second: int) -> int | None:
        """Return the first second (0 to 3 599), from `second` on, in which something waits."""
        waiting = self.heads["waiting"]
        at = max(second, self._waits_from)
        if not waiting[at]:
            waits = waiting[at:] != 0
            step = int(waits.argmax())  # the first waiting second, if any
            if not waits[step]:
                return None
            at += step
        if second <= self._waits_from:
            self._waits_from = at
        return at

    def _count_topics(self, counts: dict[int, int], sign: int) -> None:
        for topic, n in counts.items():
            left = self.by_topic.get(topic, 0) + sign * n
            if left:
                self.by_topic[topic] = left
            else:
                self.by_topic.pop(topic, None)

    def walk(self, index: int, limit: int) -> tuple[list[int], int]:
        """Follow a chain back from `index` for up to `limit` entries.

        Returns the entries, and where to continue (−1: end of the chain).
        """
        words = self._words("i")
        found: list[int] = []
        while index >= 0 and limit > 0:
            if index >= self.count:
                return found, -1  # a damaged link: the caller compares counts and notices
            found.append(index)
            index = words[index * ENTRY_WORDS + PREVIOUS_WORD]
            limit -= 1
        return found, index

    def entries_around(self, due_ms: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield pieces of entries that may be due at `due_ms`, with the index of the first."""
        del due_ms  # damage may hide a due time
        return self.scan()

    def unreadable(self) -> npt.NDArray[np.int64]:
        """Return the global indexes of all damaged entries."""
        found = [np.empty(0, np.int64)]
        for first, entries in self.scan():
            found.append(np.flatnonzero(~is_readable(entries)) + first)
        return np.concatenate(found)

    def quarantine_unreadable(self, second: int, rows: npt.NDArray[np.int64]) -> int:
        """Quarantine as many damaged entries as a second (0 to 3 599) lacks; return how many.

        The second and topic of a damaged entry cannot be trusted: the counts of what waits in the
        second, and of each topic, tell how many they lack.

        rows  global indexes of the damaged entries
        """
        waits, topics = 0, Counter(self.by_topic)
        for first, entries in self.scan():
            states = self.states[first : first + len(entries)] & np.uint8(EntryState.SETTLED_BITS)
            sound = is_readable(entries) & (states == EntryState.WAITING)
            mine = entries["due_ms"] // 1000 - self.hour * SECONDS == second
            waits += int(np.count_nonzero(mine & sound))
            topics.subtract(topic_counts(entries["topic"][sound]))
        lost = int(self.heads["waiting"][second]) - waits
        rows = rows[self.states[rows] == EntryState.WAITING]
        seconds = self.entries(rows)["due_ms"] // 1000 - self.hour * SECONDS
        rows = rows[np.argsort(seconds != second, kind="stable")][: max(0, lost)]
        self.heads["waiting"][second] -= np.uint32(len(rows))
        self.states[rows] = EntryState.QUARANTINED
        for topic in self.entries(rows)["topic"].tolist():
            lacking = topic if topics[topic] > 0 else next(iter(+topics or self.by_topic))
            topics[lacking] -= 1
            self._count_topics({lacking: 1}, -1)
        self.changed = self.changed or bool(len(rows))
        return len(rows)

    def _recount(self) -> None:
        """Rebuild the counts from readable entries; damaged entries that wait are quarantined."""
        self.heads["waiting"] = 0
        self._waits_from = 0
        self.by_topic.clear()
        for first, entries in self.scan():
            states = self.states[first : first + len(entries)]
            good = is_readable(entries)
            states[~good & (states == EntryState.WAITING)] = EntryState.QUARANTINED
            mine = entries.compress(good & (states & EntryState.SETTLED_BITS == EntryState.WAITING))
            seconds = mine["due_ms"] // 1000 - self.hour * SECONDS
            self.heads["waiting"] += np.bincount(seconds, minlength=SECONDS).astype(np.uint32)
            self._count_topics(topic_counts(mine["topic"]), 1)

    def check_invariants(self) -> None:
        """Assert what must hold between two steps; a few microseconds, whatever waits."""
        assert self.count <= len(self.states)
        assert all(n > 0 for n in self.by_topic.values()), self.by_topic
        assert int(self.heads["waiting"].sum()) == self.waiting
        assert not self.heads["waiting"][: self._waits_from].any()
        assert int(self.heads["filed"].sum()) == self.count
        assert bool((self.heads["waiting"] <= self.heads["filed"]).all())
        assert int(self.heads["newest"].max()) < self.count or not self.count
        assert self.waiting + self.handed_over + self.recalled <= self.count

    def tags_of(self, entries: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Return the tags code of each entry, from its record."""
        raw = np.frombuffer(self._log_view.view(self.log_bytes), np.uint8)
        at = entries["position"].astype(np.int64) + TAGS_AT
        return get(raw, at, "<i4")

    def settle(self, index: npt.NDArray[np.int64], state: EntryState) -> None:
        """Settle entries for good: handed over, recalled, moved, expired or quarantined.

        An entry that was quarantined before did not wait any more.
        """
        check_event(self.states[index], state)
        waited = index[self.states[index] != EntryState.QUARANTINED]
        self.states[index] = np.uint8(state)
        entries = self.entries(waited)
        seconds = entries["due_ms"] // 1000 - self.hour * SECONDS
        is_sound = bool(((seconds >= 0) & (seconds < SECONDS)).all())
        is_sound = is_sound and bool(is_readable(entries).all())
        if not is_sound:
            self._recount()
        elif len(waited) and bool((seconds == seconds[0]).all()):
            self.heads["waiting"][seconds[0]] -= np.uint32(len(waited))
        else:
            counts = np.bincount(seconds, minlength=SECONDS)
            self.heads["waiting"] -= counts.astype(np.uint32)
        if is_sound:
            self._count_topics(topic_counts(entries["topic"]), -1)
        if state is EntryState.HANDED_OVER:
            self.handed_over += len(index)
        elif state in RECALLED_STATES:
            self.recalled += len(index)
        self.changed = True

    def capture(self) -> tuple[str, HourState]:
        """Return a new state file's name, and a copy of the state to `encode_state` elsewhere."""
        self.version += 1
        self.changed = self.unsynced = False
        return f"{self.directory}/{state_name(self.version)}", HourState(
            self.hour,
            self.count,
            self.log_bytes,
            self.handed_over,
            self.recalled,
            copied(self.heads),
            dict(self.by_topic),
            self.states[: self.count].copy(),
        )
