"""When producers are asked for the outcome of transactions, and when the broker stops asking.

    begun            a HALF record has the time of the first check
    due              the core reports the check (`Effects.checks`): position, topic, producer group
    a producer       of that group is connected: the door asks for the half message
                     (`CheckTransactions`); that is counted and logged with the time of the next
                     check, and the producer is asked when that is committed
    no producer      is connected: the check is reported again when one comes (`LookForProducers`),
                     or after TRANSACTION_LOOK_MS; nothing is counted
    asked in vain    as often as the setting says, or open for TRANSACTION_OPEN_MS: the transaction
                     is given up (`ends`)

So a start goes on counting where the process before had stopped, and no transaction is checked more
often than that.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from horolog.broker.effects import Effects, Now
from horolog.broker.shard import Shard
from horolog.broker.topic_changes import TopicChanges
from horolog.broker.transactions.ends import Ends
from horolog.broker.transactions.open_halves import Half
from horolog.errors import Problem
from horolog.limits import (
    CHECKED_AT_ONCE,
    TRANSACTION_LOOK_MS,
    TRANSACTION_OPEN_MS,
    TRANSACTION_SLOW_CHECKS,
    TURN_CHECKS_MAX,
    TURN_GIVEN_UP_MAX,
)
from horolog.log.frame_reader import Hole
from horolog.log.half_records import HALF_CHECKED, encode_half_checks
from horolog.log.record import HEAD_BYTES
from horolog.protocol.transaction_commands import (
    CheckDue,
    CheckTransactions,
    LookForProducers,
    TransactionCheck,
)


class Checks:
    """Looks after open transactions; `records` collects control records for the turn's frame."""

    def __init__(
        self, shard: Shard, topics: TopicChanges, ends: Ends, records: list[bytes]
    ) -> None:
        self._shard = shard
        self._topics = topics
        self._ends = ends
        self._records = records

    def report_due(self, now: Now, effects: Effects) -> None:
        """Report transactions whose producers are to be asked; give up hopeless ones."""
        halves = self._shard.halves
        given_up = 0
        for half in halves.take_due(now.wall_ms, TURN_CHECKS_MAX):
            if half.position >= self._shard.log.commit_position:
                halves.set_next_look(half, now.wall_ms + 1)  # not committed yet
            elif self._is_hopeless(half, now):
                if given_up >= TURN_GIVEN_UP_MAX or self._ends.is_full or self._shard.is_log_full:
                    halves.set_next_look(half, now.wall_ms)  # with the others, in the next turn
                    break
                given_up += 1
                self._give_up(half, effects)
            else:
                open_until = half.begun_ms + TRANSACTION_OPEN_MS
                halves.set_next_look(half, min(now.wall_ms + TRANSACTION_LOOK_MS, open_until))
                topic = self._shard.topics.by_id[half.topic].name
                effects.checks.append(CheckDue(half.position, topic, half.group))

    def _is_hopeless(self, half: Half, now: Now) -> bool:
        if half.checks >= self._shard.settings.transactions.check_max:
            return True
        return now.wall_ms - half.begun_ms >= TRANSACTION_OPEN_MS

    def _give_up(self, half: Half, effects: Effects) -> None:
        self._topics.make_given_up()
        name = self._shard.topics.by_id[half.topic].name
        effects.given_up.append(
            f"transaction of log position {half.position} (topic {name}, producer group "
            f"{half.group}) is given up after {half.checks} checks"
        )
        self._ends.give_up(half)

    def take(self, command: CheckTransactions, now: Now) -> list[TransactionCheck]:
        """Read half messages for producers, and count that these are asked."""
        shard = self._shard
        found: list[TransactionCheck] = []
        rows = []
        size = 0
        for row, position in enumerate(command.positions[:CHECKED_AT_ONCE]):
            half = shard.halves.open.get(position)
            if half is None or self._is_hopeless(half, now):
                continue
            record = self._ends.record(half)
            if isinstance(record, Hole):
                shard.problems.append(Problem(f"transaction: {record.why}"))
                self._ends.give_up(half)
                continue
            size += len(record)
            if found and size > shard.settings.turn_bytes:
                self._report_again(command.positions[row:], now)
                break
            checks = half.checks + 1
            next_ms = now.wall_ms + self._pause_ms(checks)
            shard.halves.note_checked(position, next_ms, checks)
            rows.append((position, next_ms, checks))
            topic = shard.topics.by_id[half.topic].name
            layout = record[HEAD_BYTES:]
            found.append(
                TransactionCheck(position, half.half_offset, topic, half.group, layout, checks)
            )
        if rows:
            self._records.append(encode_half_checks(np.array(rows, HALF_CHECKED)))
            self._shard.counters.half_checks += len(rows)
        return found

    def _report_again(self, positions: Iterable[int], now: Now) -> None:
        """Report transactions again in the next turn, since this one has no room.

        A producer of these transactions is connected.
        """
        halves = self._shard.halves
        for position in positions:
            half = halves.open.get(position)
            if half is not None:
                halves.set_next_look(half, now.wall_ms)

    def _pause_ms(self, checks: int) -> int:
        pause_ms = self._shard.settings.transactions.check_ms
        return pause_ms if checks <= TRANSACTION_SLOW_CHECKS else 2 * pause_ms

    def look_again(self, command: LookForProducers, now: Now) -> None:
        """Look at once at transactions of these groups that wait for a producer."""
        halves = self._shard.halves
        waiting = [
            half
            for half in halves.open.values()
            if half.group in command.groups and self._waits(half, now)
        ]
        for half in waiting:
            halves.set_next_look(half, now.wall_ms)

    def _waits(self, half: Half, now: Now) -> bool:
        """Return whether the check of a transaction was due, and no producer was there."""
        return half.check_ms <= now.wall_ms < half.next_ms
