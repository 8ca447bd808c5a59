"""The transactions that are open, and those that ended last: decided state of a shard.

A transaction is known by the log position of its HALF record for ever.  Its message stays there:
memory holds only what is needed to find the message, to ask its producers in time, and to recognise
a half message that is sent again.  Retention keeps the log from there on (`broker.life.retention`),
so there are at most TRANSACTIONS_OPEN_MAX open transactions, and none for longer than
TRANSACTION_OPEN_MS.

    begin           a HALF is appended
    note_checked    a HALF_CHECK is appended
    end             a HALF_END is appended

A repeated end is answered like the first one while the transaction is among the
TRANSACTIONS_OVER_KEPT that ended last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.errors import ErrorCode, refused
from horolog.limits import TRANSACTIONS_OPEN_MAX, TRANSACTIONS_OVER_KEPT
from horolog.log.checkpoint import HALF, HALF_OVER
from horolog.log.half_records import HalfMessage, HalfOutcome
from horolog.protocol.rocketmq import layout, properties

_OLD_LOOKS = 1_024  # that may be in the heap besides twice the open ones


@dataclass(slots=True)
class Half:
    """An open transaction.

    half_offset  of the message among the half messages of the shard; 4.x clients know it
    group        of its producers; for a 5.x producer the topic
    check_ms     wall clock from which on its producer is to be asked
    next_ms      when the broker looks after it again: at check_ms, or later without a producer
    """

    position: int
    topic: int
    key: int
    half_offset: int
    group: str
    queue: int
    size: int
    begun_ms: int
    check_ms: int
    next_ms: int
    checks: int = 0


class Over(NamedTuple):
    """A transaction that has ended."""

    key: int
    half_offset: int
    queue: int
    begun_ms: int
    outcome: HalfOutcome


class OpenHalves:
    """The transactions of one shard."""

    def __init__(self) -> None:
        self.open: dict[int, Half] = {}  # by log position, oldest first
        self.over: dict[int, Over] = {}  # the last ones, oldest first
        self.last_offset = -1
        self.bytes = 0  # of the messages of all open ones
        self.under_way: Counter[int] = Counter()  # topic → count decided, not appended
        self._ending: set[int] = set()  # keys of messages appended later in this turn
        self._ends_keyed = False  # whether one of these has user keys
        self._by_key: dict[int, int] = {}  # key → position of the newest, open or over
        self._of_topic: Counter[int] = Counter()
        # A heap of (next ms, position); some entries are out of date.
        self._looks: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.open)

    # --- what happens -----------------------------------------------------------------------------

    def check_room(self, more: int) -> None:
        """Raise TOO_MANY_REQUESTS if there is no room for `more` transactions."""
        count = len(self.open) + self.under_way.total()
        if count + more > TRANSACTIONS_OPEN_MAX:
            raise refused(
                "transactions",
                f"{count} are open; at most {TRANSACTIONS_OPEN_MAX} are allowed",
                f"{TRANSACTIONS_OPEN_MAX} transactions",
                code=ErrorCode.TOO_MANY_REQUESTS,
            )

    def begin(self, half: Half) -> None:
        """Open the transaction of a half message that is appended."""
        assert half.half_offset == self.last_offset + 1, (half.half_offset, self.last_offset)
        self.last_offset = half.half_offset
        self._put(half)

    def _put(self, half: Half) -> None:
        assert half.position not in self.open, half.position
        self.open[half.position] = half
        self._by_key[half.key] = max(half.position, self._by_key.get(half.key, -1))
        self._of_topic[half.topic] += 1
        self.bytes += half.size
        heappush(self._looks, (half.next_ms, half.position))

    def note_checked(self, position: int, next_ms: int, checks: int) -> None:
        """Record that the producers of a transaction are asked, and when next."""
        half = self.open[position]
        assert checks == half.checks + 1, (checks, half.checks)
        half.checks, half.check_ms = checks, next_ms
        self.set_next_look(half, next_ms)

    def set_next_look(self, half: Half, next_ms: int) -> None:
        """Set when the broker looks after a transaction next."""
        half.next_ms = next_ms
        heappush(self._looks, (next_ms, half.position))
        self._forget_old_looks()

    def _forget_old_looks(self) -> None:
        """Drop heap entries of ended transactions, once there are many.

        Otherwise they would stay until their time comes.
        """
        if len(self._looks) > 2 * len(self.open) + _OLD_LOOKS:
            self._looks = [look for look in set(self._looks) if self._is_current(look)]
            heapify(self._looks)

    def end(self, position: int, outcome: HalfOutcome) -> Half:
        """End a transaction; return what it was."""
        half = self.open.pop(position)
        self._of_topic[half.topic] -= 1
        if not self._of_topic[half.topic]:
            del self._of_topic[half.topic]
        self.bytes -= half.size
        self._forget_old_looks()
        self._keep(position, Over(half.key, half.half_offset, half.queue, half.begun_ms, outcome))
        return half

    def note_committed(self, key: int, *, keyed: bool) -> None:
        """Note the keys of a committed message that is appended later in this turn."""
        self._ending.add(key)
        self._ends_keyed |= keyed

    def note_appended(self) -> None:
        """Note that everything decided in this turn is appended."""
        self._ending.clear()
        self._ends_keyed = False
        self.under_way.clear()

    def is_ending(self, key: int) -> bool:
        """Return whether a message with that index key may be appended later in this turn."""
        return self._ends_keyed or key in self._ending

    def _keep(self, position: int, over: Over) -> None:
        self.over[position] = over
        while len(self.over) > TRANSACTIONS_OVER_KEPT:
            oldest = next(iter(self.over))
            gone = self.over.pop(oldest)
            if self._by_key.get(gone.key) == oldest:
                del self._by_key[gone.key]

    # --- questions --------------------------------------------------------------------------------

    def with_key(self, key: int) -> int | None:
        """Return the position of the newest transaction with that key hash, open or over."""
        return self._by_key.get(key)

    def is_open(self, key: int) -> bool:
        """Return whether the newest transaction whose message has that key hash is open."""
        return self._by_key.get(key) in self.open

    def in_topic(self, topic: int) -> int:
        """Return how many transactions are open in a topic, or about to be."""
        return self._of_topic[topic] + self.under_way[topic]

    @property
    def oldest(self) -> int | None:
        """The lowest position of an open transaction: the log is needed from there on."""
        return next(iter(self.open), None)

    def next_ms(self) -> int | None:
        """Return when the next transaction has to be looked after; None if none is open."""
        looks = self._looks
        while looks and not self._is_current(looks[0]):
            heappop(looks)
        return looks[0][0] if looks else None

    def take_due(self, wall_ms: int, limit: int) -> Iterator[Half]:
        """Yield due transactions; the caller must set the next time of each, or end it."""
        for _ in range(limit):
            at = self.next_ms()
            if at is None or at > wall_ms:
                return
            yield self.open[heappop(self._looks)[1]]

    def _is_current(self, look: tuple[int, int]) -> bool:
        half = self.open.get(look[1])
        return half is not None and half.next_ms == look[0]

    # --- checkpoints ------------------------------------------------------------------------------

    def captured(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the fields of a checkpoint's registry, and its columns."""
        if self.last_offset < 0:
            return {}, {}
        groups: dict[str, int] = {}
        rows = [
            (
                half.position,
                half.key,
                half.half_offset,
                half.begun_ms,
                half.check_ms,
                half.topic,
                groups.setdefault(half.group, len(groups)),
                half.size,
                half.queue,
                half.checks,
            )
            for half in self.open.values()
        ]
        over = [
            (position, each.key, each.half_offset, each.begun_ms, each.queue, int(each.outcome))
            for position, each in self.over.items()
        ]
        registry = {"half_groups": list(groups), "last_half": self.last_offset}
        return registry, {"halves": np.array(rows, HALF), "halves_over": np.array(over, HALF_OVER)}

    def restore(self, registry: dict[str, Any], columns: dict[str, npt.NDArray[Any]]) -> None:
        """Restore the transactions of a checkpoint; one of an older horolog has none."""
        self.last_offset = registry.get("last_half", -1)
        for position, key, half_offset, begun_ms, queue, outcome in columns["halves_over"].tolist():
            self.over[position] = Over(key, half_offset, queue, begun_ms, HalfOutcome(outcome))
            self._by_key[key] = max(position, self._by_key.get(key, -1))  # ordered by their ends
        for row in columns["halves"].tolist():
            position, key, half_offset, begun_ms, check_ms, topic, group, size, queue, checks = row
            name = registry["half_groups"][group]
            times = begun_ms, check_ms, check_ms
            half = Half(position, topic, key, half_offset, name, queue, size, *times, checks)
            self.restore_half(half)

    def restore_half(self, half: Half) -> None:
        """Add a transaction that was open before the restart; called in log order."""
        self._put(half)

    # --- invariants -------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Check that counts are right, and that each open transaction will be looked after."""
        assert len(self.open) <= TRANSACTIONS_OPEN_MAX, len(self.open)
        assert len(self.over) <= TRANSACTIONS_OVER_KEPT, len(self.over)
        assert not self.open.keys() & self.over.keys()
        assert all(a < b for a, b in pairwise(self.open)), "not in the order of the log"
        assert not self._ending, "ended, and not appended"
        assert not self.under_way, self.under_way
        assert self.bytes == sum(half.size for half in self.open.values()), self.bytes
        assert self._of_topic == Counter(half.topic for half in self.open.values())
        looks = set(self._looks)
        assert all((half.next_ms, at) in looks for at, half in self.open.items())
        assert all(half.half_offset <= self.last_offset for half in self.open.values())
        assert len(looks) <= 2 * len(self.open) + _OLD_LOOKS, len(looks)


def half_of(position: int, message: HalfMessage, append_ms: int, first_check_ms: int) -> Half:
    """Build an open transaction from its record."""
    stored = message.layout
    head = message.head
    group = properties.value_of(layout.topic_and_properties(stored)[1], properties.PRODUCER_GROUP)
    return Half(
        position,
        int(head["topic"]),
        int(head["key"]),
        layout.queue_offset_of(stored),
        group or "",
        layout.queue_id_of(stored),
        int(head["size"]),
        append_ms,
        first_check_ms,
        first_check_ms,
    )
