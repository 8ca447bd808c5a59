"""Counts of what a shard has done since its start, as plain integers; used by metrics only.

Events are noted once a batch, and counted as columns when enough are noted or the counts are read
(`fold`).  Counts are neither logged nor kept, and those of a replay are forgotten (`begin`).  Every
topic has a row, up to `topics_max`; further topics are counted together in row 0, so memory and the
cost of a read do not grow with the count of topics.  A topic keeps its row until it is deleted: a
counter of a topic never falls.

Lateness is counted when a hand-over is committed, which is when consumers can see the message:
between its due time and that moment by the broker's wall clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.delay.state import EntryState
from horolog.limits import COUNTED_TOPICS
from horolog.log.half_records import HalfOutcome
from horolog.log.record import DUE_AT, KIND_AT, Kind

if TYPE_CHECKING:
    from horolog.broker.applied import Applied
    from horolog.ready.picking import PickedMessage

LATENESS_BOUNDS_MS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500,
    1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 600_000, 3_600_000,
)  # fmt: skip
OTHERS = 0  # the row of all topics that have none of their own
_BUCKETS = len(LATENESS_BOUNDS_MS) + 1
_BOUNDS = np.array(LATENESS_BOUNDS_MS, np.int64)
_FOLD = 8_192  # messages noted before they are counted
_LEASED_AT = slice(KIND_AT, DUE_AT + 8)
_LEASED = np.dtype([("kind", "u1"), ("rest", f"V{DUE_AT - KIND_AT - 1}"), ("due_ms", "<i8")])
assert _LEASED.itemsize == _LEASED_AT.stop - _LEASED_AT.start
_ENDS = frozenset({EntryState.RECALLED, EntryState.MOVED, EntryState.EXPIRED})


class Count(IntEnum):
    """Columns of a topic's row; each counts messages."""

    SENT = 0  # accepted, and visible at once
    SCHEDULED = 1  # accepted, to be handed over later
    HANDED_OVER = 2
    EXPIRED = 3  # too late to be handed over
    LEASED = 4  # given out by lease, counted every time
    REDELIVERED = 5  # leased, but not for the first time
    PULLED = 6  # given out by offset
    ACKED = 7  # by handle, or by a committed offset
    POSTPONED = 8  # leases that a consumer has changed: given up for now, or extended


class _Appended(NamedTuple):
    """A hand-over that is appended and not committed."""

    end: int
    topics: npt.NDArray[Any]
    due_ms: npt.NDArray[Any]


class _Seen(NamedTuple):
    """A hand-over that is committed."""

    topics: npt.NDArray[Any]
    late_ms: npt.NDArray[np.int64]


class _Leased(NamedTuple):
    """Messages leased for the first time: the part of each head that `_LEASED` describes."""

    heads: list[bytes]
    wall_ms: int


class Counters:
    """The counters of one shard; call `fold` before reading.

    rows              a list by `Count` for each topic row
    lateness          for each topic row the count of messages handed over, by LATENESS_BOUNDS_MS
    lateness_ms       for each topic row the sum of lateness
    gone              counts and lateness of deleted topics, together
    lease_lateness    lateness of scheduled messages when first leased, all topics together
    settled           scheduled messages that ended without a hand-over, by state
    """

    def __init__(self, topics_max: int = COUNTED_TOPICS) -> None:
        self._topics_max = topics_max
        self.begin(())

    def begin(self, topics: Iterable[int]) -> None:
        """Start counting from zero, with rows for these topics."""
        size = self._topics_max + 1
        self.row_of: dict[int, int] = {}
        self._free = list(range(size - 1, 0, -1))
        self._column = np.zeros(64, np.int32)  # topic id → row
        self.rows = [[0] * len(Count) for _ in range(size)]
        self.lateness = np.zeros((size, _BUCKETS), np.int64)
        self.lateness_ms = np.zeros(size, np.int64)
        self.gone = Gone([0] * len(Count), np.zeros(_BUCKETS, np.int64))
        self.lease_lateness = np.zeros(_BUCKETS, np.int64)
        self.lease_lateness_ms = 0
        self.settled = dict.fromkeys(sorted(_ENDS), 0)
        self.retries = self.dead_letters = 0
        self.firings = 0
        self.halves_begun = self.half_checks = 0
        self.halves_ended = dict.fromkeys(HalfOutcome, 0)
        self.adoptions = self.adopted = 0
        self.tier_steps = 0
        self.refused_for_space = 0
        self._appended: deque[_Appended] = deque()
        self._seen: list[_Seen] = []  # counted by the next `fold`, as are the next two
        self._scheduled: list[npt.NDArray[Any]] = []  # topic ids
        self._leased: list[_Leased] = []  # heads and times of leases
        self._unfolded = 0
        self.assign_rows(topics)

    # --- rows -------------------------------------------------------------------------------------

    def assign_rows(self, topics: Iterable[int]) -> None:
        """Assign rows to these topics, as long as rows are free."""
        for topic_id in topics:
            if not self._free:
                return
            if topic_id not in self.row_of:
                self._row_for(topic_id)

    def _row_for(self, topic_id: int) -> int:
        """Assign a row to a topic; return OTHERS if no row is free."""
        if not self._free:
            return OTHERS
        row = self.row_of[topic_id] = self._free.pop()
        if topic_id >= len(self._column) - 1:
            wider = np.zeros(2 * topic_id + 2, np.int32)
            wider[: len(self._column)] = self._column
            self._column = wider
        self._column[topic_id] = row
        return row

    def _row(self, topic_id: int) -> int:
        row = self.row_of.get(topic_id)
        return self._row_for(topic_id) if row is None else row

    def drop(self, topic_id: int) -> None:
        """Fold the counts of a deleted topic into `gone`, and free its row."""
        if topic_id not in self.row_of:
            return
        self.fold()
        row = self.row_of.pop(topic_id)
        self._column[topic_id] = OTHERS
        self.gone = Gone(
            [a + b for a, b in zip(self.gone.counts, self.rows[row], strict=True)],
            self.gone.lateness + self.lateness[row],
        )
        self.rows[row] = [0] * len(Count)
        self.lateness[row] = 0
        self.lateness_ms[row] = 0
        self._free.append(row)

    def total(self, count: Count) -> int:
        """Return the sum over all topics, deleted ones included."""
        return sum(row[count] for row in self.rows) + self.gone.counts[count]

    def accepted(self) -> int:
        """Return how many messages were sent; the copy that a move makes is not one of them."""
        self.fold()
        moved = self.settled[EntryState.MOVED]
        return self.total(Count.SENT) + self.total(Count.SCHEDULED) - moved

    # --- counting ---------------------------------------------------------------------------------

    def add(self, topic_id: int, count: Count, messages: int) -> None:
        """Add `messages` to one counter of a topic."""
        self.rows[self._row(topic_id)][count] += messages

    def count_applied(self, change: Applied) -> None:
        """Count the change of a committed frame."""
        state = change.settled[0].state if change.settled else None
        if state is not EntryState.HANDED_OVER:
            rows, row_of = self.rows, self.row_of
            for topic, _, units in change.units:
                row = row_of.get(topic.id)
                rows[self._row_for(topic.id) if row is None else row][Count.SENT] += len(units)
        for refs, of, _ in change.settled:
            if of in _ENDS:
                self.settled[of] += len(refs)
        if change.unfiled is not None and change.adopted is None:
            topics = change.unfiled.heads["topic"]
            self._scheduled.append(topics)
            self._noted(len(topics))
        if change.adopted is not None:
            self.adoptions += 1
            self.adopted += change.adopted.rows
        self.tier_steps += change.step is not None

    def count_settled_in_tier(self, messages: int) -> None:
        """Count messages that the tier held and that were recalled."""
        self.settled[EntryState.RECALLED] += messages

    def note_hand_over(self, end: int, topics: npt.NDArray[Any], due_ms: npt.NDArray[Any]) -> None:
        """Note a hand-over that is appended in frames up to log position `end`."""
        self._appended.append(_Appended(end, topics, due_ms))

    def note_visible(self, applied: int, wall_ms: int) -> None:
        """Note that hand-overs appended below log position `applied` are visible from now on."""
        while self._appended and self._appended[0].end <= applied:
            _, topics, due_ms = self._appended.popleft()
            self._seen.append(_Seen(topics, wall_ms - due_ms))
            self._noted(len(topics))

    def count_leased(self, topic_id: int, picked: Sequence[PickedMessage], wall_ms: int) -> None:
        """Count messages that are leased to a consumer."""
        heads = [each.record[_LEASED_AT] for each in picked if each.attempt == 1]
        row = self.rows[self._row(topic_id)]
        row[Count.LEASED] += len(picked)
        row[Count.REDELIVERED] += len(picked) - len(heads)
        self._leased.append(_Leased(heads, wall_ms))
        self._noted(len(heads))

    def _noted(self, messages: int) -> None:
        self._unfolded += messages
        if self._unfolded >= _FOLD:
            self.fold()

    def fold(self) -> None:
        """Count the noted events as columns: many hand-overs at once cost as much as one."""
        self._unfolded = 0
        size = len(self.rows)
        if self._scheduled:
            rows = self._rows_of(self._scheduled)
            self._scheduled = []
            for row, n in enumerate(np.bincount(rows, minlength=size).tolist()):
                self.rows[row][Count.SCHEDULED] += n
        if self._seen:
            rows = self._rows_of([each.topics for each in self._seen])
            late_ms = np.concatenate([each.late_ms for each in self._seen]).clip(0)
            self._seen = []
            places = rows * _BUCKETS + _BOUNDS.searchsorted(late_ms)
            found = np.bincount(places, minlength=size * _BUCKETS).reshape(size, _BUCKETS)
            self.lateness += found
            self.lateness_ms += np.bincount(rows, late_ms, size).astype(np.int64)
            for row, n in enumerate(found.sum(axis=1).tolist()):
                self.rows[row][Count.HANDED_OVER] += n
        if self._leased:
            heads = b"".join([b"".join(each.heads) for each in self._leased])
            walls = [each.wall_ms for each in self._leased]
            walls_ms = np.array(walls).repeat([len(each.heads) for each in self._leased])
            self._leased = []
            columns = np.frombuffer(heads, _LEASED)
            was_handed = columns["kind"] == Kind.HANDED
            late_ms = (walls_ms - columns["due_ms"])[was_handed].clip(0)
            self.lease_lateness += np.bincount(_BOUNDS.searchsorted(late_ms), minlength=_BUCKETS)
            self.lease_lateness_ms += int(late_ms.sum())

    def _rows_of(self, topics: list[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
        """Return the row of each topic; assign rows to new topics."""
        ids = np.concatenate(topics)
        rows = self._column.take(ids, mode="clip")  # the last place belongs to no topic
        if self._free and bool((without := rows == OTHERS).any()):
            self.assign_rows(np.unique(ids[without]).tolist())
            rows = self._column.take(ids, mode="clip")
        return rows.astype(np.int64)

    # --- reading ----------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Check that each row is free or of one topic, and each hand-over is in one bucket."""
        assert 0 <= self._unfolded < _FOLD, self._unfolded
        rows = sorted([*self._free, *self.row_of.values()])
        assert rows == list(range(1, self._topics_max + 1)), "a row of no topic, or of two"
        for topic_id, row in self.row_of.items():
            assert int(self._column[topic_id]) == row, topic_id
        counts = np.array(self.rows)
        assert (counts[:, Count.HANDED_OVER] == self.lateness.sum(axis=1)).all()
        assert counts.min() >= 0


class Gone(NamedTuple):
    """Counts and lateness of deleted topics."""

    counts: list[int]
    lateness: npt.NDArray[np.int64]
