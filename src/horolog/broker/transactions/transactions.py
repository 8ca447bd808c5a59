"""The transactions of a shard, as the rest of the core uses them.

They have command handlers, and two parts of a turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from horolog.broker.effects import Effects, Now, Reply
from horolog.broker.handlers import LATER, WAIT, Handler, Input
from horolog.broker.life.space import DiskPressure
from horolog.broker.shard import Shard
from horolog.broker.topic_changes import TopicChanges
from horolog.broker.transactions.checks import Checks
from horolog.broker.transactions.ends import Ends
from horolog.broker.transactions.halves import Halves
from horolog.protocol.transaction_commands import (
    CheckTransactions,
    EndTransaction,
    LookForProducers,
    SendHalf,
    TopicOfTransaction,
)


class Transactions:
    """Decides commands about transactions.

    `report_due` and `flush` are called once a turn, in this order.
    """

    def __init__(
        self, shard: Shard, disk: DiskPressure, topics: TopicChanges, records: list[bytes]
    ) -> None:
        self._shard = shard
        self._halves = Halves(shard, disk)
        self._ends = Ends(shard)
        self._checks = Checks(shard, topics, self._ends, records)

    def handlers(self) -> Mapping[type, Handler]:
        """Map each transaction command to its handler."""
        return {
            SendHalf: self._send,
            EndTransaction: self._end,
            CheckTransactions: lambda _, command, now, _effects: self._checks.take(command, now),
            TopicOfTransaction: lambda _, command, _now, _effects: self._topic(command),
            LookForProducers: lambda _, command, now, _effects: self._checks.look_again(
                command, now
            ),
        }

    def _send(self, item: Input, command: SendHalf, now: Now, _: Effects) -> object:
        self._halves.add(item.token, command, now)
        return LATER

    def _end(self, _: Input, command: EndTransaction, now: Now, _effects: Effects) -> Any:
        if self._ends.is_full or self._shard.is_log_full:
            return WAIT
        self._ends.end(command, now)
        return None

    def _topic(self, command: TopicOfTransaction) -> str:
        half = self._shard.halves.open.get(command.position)
        if half is None or half.position >= self._shard.log.commit_position:
            return ""
        return self._shard.topics.by_id[half.topic].name

    def report_due(self, now: Now, effects: Effects) -> None:
        """Report transactions whose producers are to be asked; give up hopeless ones."""
        self._checks.report_due(now, effects)

    def flush(self, now: Now) -> list[Reply]:
        """Append the decisions of this turn; return the replies to half messages."""
        self._ends.flush(now)
        return self._halves.flush(now)

    def check_invariants(self) -> None:
        """Raise AssertionError if something was decided and will not be appended."""
        self._halves.check_invariants()
        self._ends.check_invariants()
