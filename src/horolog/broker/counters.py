"""What a shard has done since its start, as plain numbers: for metrics, and for nothing else.

Counted once a batch, beside what is done with it anyway; nothing of it is logged or kept, and a replay's is forgotten
(`begin`).  Of every topic there is a row, up to `topics_max`; what comes after that counts together in row 0, so memory
and the cost of a look do not grow with the number of topics.  A topic keeps its row until it is deleted: a counter of a
topic never falls.

Lateness is counted when a hand-over is committed, which is when consumers can see the message: between its due time and
that moment by the broker's wall clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.state import EntryState
from horolog.limits import COUNTED_TOPICS
from horolog.log.half_records import HalfOutcome
from horolog.log.record import DUE_AT, KIND_AT, Kind

if TYPE_CHECKING:
    from horolog.broker.shard import Applied
    from horolog.ready.chosen import Picked

LATENESS_BOUNDS_MS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500,
    1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 600_000, 3_600_000,
)  # fmt: skip
OTHERS = 0  # the row of all topics that have none of their own
_BUCKETS = len(LATENESS_BOUNDS_MS) + 1
_BOUNDS = np.array(LATENESS_BOUNDS_MS, np.int64)
_SENDS = frozenset({EntryState.RECALLED, EntryState.MOVED, EntryState.EXPIRED})


class Count(IntEnum):
    """Columns of a topic's row; all are messages."""

    SENT = 0  # taken in, and visible at once
    SCHEDULED = 1  # taken in, to be handed over later
    HANDED_OVER = 2
    EXPIRED = 3  # too late to be handed over
    LEASED = 4  # given out by lease, every time
    REDELIVERED = 5  # of these not for the first time
    PULLED = 6  # given out by offset
    ACKED = 7  # by handle, or by a committed offset
    POSTPONED = 8  # leases that a consumer has changed: given up for now, or extended


class _Appended(NamedTuple):
    """A hand-over that is not committed."""

    end: int
    topics: npt.NDArray[Any]
    due_ms: npt.NDArray[Any]


class Counters:
    """One shard's.

    rows              of each topic row a list of `Count`
    lateness          of each topic row how many were handed over how late, by LATENESS_BOUNDS_MS
    lateness_ms       of each topic row the sum
    gone              the same of topics that are deleted, together
    lease_lateness    the first time that scheduled messages were leased, all topics together
    settled           scheduled messages by what became of them
    """

    def __init__(self, topics_max: int = COUNTED_TOPICS) -> None:
        self._topics_max = topics_max
        self.begin(())

    def begin(self, topics: Iterable[int]) -> None:
        """Count from here on; these topics are there."""
        size = self._topics_max + 1
        self.row_of: dict[int, int] = {}
        self._free = list(range(size - 1, 0, -1))
        self._column = np.zeros(64, np.int32)  # topic id → row
        self.rows = [[0] * len(Count) for _ in range(size)]
        self.lateness = np.zeros((size, _BUCKETS), np.int64)
        self.lateness_ms = np.zeros(size, np.int64)
        self.gone = Gone([0] * len(Count), np.zeros(_BUCKETS, np.int64), 0)
        self.lease_lateness = [0] * _BUCKETS
        self.lease_lateness_ms = 0
        self.settled = dict.fromkeys(sorted(_SENDS), 0)
        self.retries = self.dead_letters = 0
        self.firings = 0
        self.halves_begun = self.half_checks = 0
        self.halves_ended = dict.fromkeys(HalfOutcome, 0)
        self.adoptions = self.adopted = 0
        self.tier_steps = 0
        self.refused_for_space = 0
        self._appended: deque[_Appended] = deque()
        self.know(topics)

    # --- rows -------------------------------------------------------------------------------------

    def know(self, topics: Iterable[int]) -> None:
        """Give these topics rows, as long as there are some."""
        for topic_id in topics:
            if not self._free:
                return
            if topic_id not in self.row_of:
                self._row_for(topic_id)

    def _row_for(self, topic_id: int) -> int:
        """Of a topic that has none; OTHERS if there is none left."""
        if not self._free:
            return OTHERS
        row = self.row_of[topic_id] = self._free.pop()
        if topic_id >= len(self._column):
            wider = np.zeros(2 * topic_id, np.int32)
            wider[: len(self._column)] = self._column
            self._column = wider
        self._column[topic_id] = row
        return row

    def _row(self, topic_id: int) -> int:
        row = self.row_of.get(topic_id)
        return self._row_for(topic_id) if row is None else row

    def drop(self, topic_id: int) -> None:
        """A topic is deleted: its row is for another one."""
        row = self.row_of.pop(topic_id, None)
        if row is None:
            return
        self._column[topic_id] = OTHERS
        self.gone = Gone(
            [a + b for a, b in zip(self.gone.counts, self.rows[row], strict=True)],
            self.gone.lateness + self.lateness[row],
            self.gone.lateness_ms + int(self.lateness_ms[row]),
        )
        self.rows[row] = [0] * len(Count)
        self.lateness[row] = 0
        self.lateness_ms[row] = 0
        self._free.append(row)

    def total(self, count: Count) -> int:
        """Of all topics, those that are deleted among them."""
        return sum(row[count] for row in self.rows) + self.gone.counts[count]

    # --- counting ---------------------------------------------------------------------------------

    def add(self, topic_id: int, count: Count, messages: int) -> None:
        """So many more."""
        self.rows[self._row(topic_id)][count] += messages

    def _add_column(self, topics: npt.NDArray[Any], count: Count) -> None:
        first = int(topics[0])
        if len(topics) == 1 or bool((topics == first).all()):
            self.add(first, count, len(topics))
            return
        for topic_id, n in zip(*(c.tolist() for c in np.unique_counts(topics)), strict=True):
            self.add(topic_id, count, n)

    def applied(self, change: Applied) -> None:
        """A frame is committed."""
        state = change.settled[0].state if change.settled else None
        if state is not EntryState.HANDED_OVER:
            for topic, _, units in change.units:
                self.add(topic.id, Count.SENT, len(units))
        for refs, of, _ in change.settled:
            if of in _SENDS:
                self.settled[of] += len(refs)
        if change.unfiled is not None and change.adopted is None:
            self._add_column(change.unfiled.heads["topic"], Count.SCHEDULED)
        if change.adopted is not None:
            self.adoptions += 1
            self.adopted += change.adopted.rows
        self.tier_steps += change.step is not None

    def settled_in_tier(self, messages: int) -> None:
        """So many were recalled that are elsewhere."""
        self.settled[EntryState.RECALLED] += messages

    def hand_over(self, end: int, topics: npt.NDArray[Any], due_ms: npt.NDArray[Any]) -> None:
        """A hand-over is appended, in frames that end there."""
        self._appended.append(_Appended(end, topics, due_ms))

    def visible(self, applied: int, wall_ms: int) -> None:
        """What is appended below that log position can be seen from now on."""
        while self._appended and self._appended[0].end <= applied:
            _, topics, due_ms = self._appended.popleft()
            late_ms = np.maximum(wall_ms - due_ms, 0)  # the clock may have been stepped since
            buckets = np.searchsorted(_BOUNDS, late_ms)
            self._add_column(topics, Count.HANDED_OVER)
            first = int(topics[0])
            if len(topics) == 1 or bool((topics == first).all()):
                row = self._row(first)
                self.lateness[row] += np.bincount(buckets, minlength=_BUCKETS)
                self.lateness_ms[row] += int(late_ms.sum())
            else:
                rows = self._column[np.minimum(topics, len(self._column) - 1)]
                np.add.at(self.lateness, (rows, buckets), 1)
                np.add.at(self.lateness_ms, rows, late_ms)

    def leased(self, topic_id: int, picked: Sequence[Picked], wall_ms: int) -> None:
        """These messages are given out."""
        again = 0
        for offset_and_record in picked:
            record = offset_and_record.record
            if offset_and_record.attempt > 1:
                again += 1
            elif record[KIND_AT] == Kind.HANDED:
                late_ms = wall_ms - int.from_bytes(record[DUE_AT : DUE_AT + 8], "little")
                self.lease_lateness[bisect_left(LATENESS_BOUNDS_MS, late_ms)] += 1
                self.lease_lateness_ms += max(0, late_ms)
        row = self.rows[self._row(topic_id)]
        row[Count.LEASED] += len(picked)
        row[Count.REDELIVERED] += again

    # --- reading ----------------------------------------------------------------------------------

    def by_topic(self, names: Mapping[int, str]) -> dict[str, int]:
        """Topic → row, of those that have one."""
        return {names[topic_id]: row for topic_id, row in self.row_of.items()}

    def check_invariants(self) -> None:
        """Rows are free or of one topic; what was handed over was late in some bucket."""
        rows = sorted([*self._free, *self.row_of.values()])
        assert rows == list(range(1, self._topics_max + 1)), "a row of no topic, or of two"
        for topic_id, row in self.row_of.items():
            assert int(self._column[topic_id]) == row, topic_id
        for row, counts in enumerate(self.rows):
            assert counts[Count.HANDED_OVER] == int(self.lateness[row].sum()), row
            assert min(counts) >= 0, row


class Gone(NamedTuple):
    """What topics that are deleted have counted."""

    counts: list[int]
    lateness: npt.NDArray[np.int64]
    lateness_ms: int
