"""Answer with pages of a list: topics, groups, lags of groups, messages of a queue.

A page is a few milliseconds of a turn, and its encoding as much again.  Tools ask for many at a
time, so once a turn has listed `TURN_LISTED_MIN` rows, further pages wait for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from horolog.broker import queries
from horolog.broker.consume.lags import count_lags
from horolog.broker.effects import Effects, Now
from horolog.broker.groups import Groups
from horolog.broker.handlers import WAIT, Handler, Input
from horolog.broker.shard import Shard
from horolog.limits import TURN_LISTED_MIN
from horolog.protocol.commands import ListTopics, ReadQueue
from horolog.protocol.queue_commands import CountLags, ListGroups


class Pages:
    """Pages of lists of one shard; `begin_turn` before the commands of a turn are decided."""

    def __init__(self, shard: Shard, groups: Groups) -> None:
        self._listed = 0  # rows, in this turn
        self._kinds: Mapping[type, Callable[[Any, Now], Any]] = {
            CountLags: lambda command, now: count_lags(shard, command, now.mono_ms),
            ListGroups: lambda command, _: groups.page(command),
            ListTopics: lambda command, _: queries.answer(shard, command),
            ReadQueue: lambda command, _: queries.answer(shard, command),
        }

    def handlers(self) -> Mapping[type, Handler]:
        """Return the rows of the handler table."""
        return dict.fromkeys(self._kinds, self._list)

    def begin_turn(self) -> None:
        """Begin a turn, in which nothing is listed yet."""
        self._listed = 0

    def _list(self, _: Input, command: Any, now: Now, _effects: Effects) -> object:
        if self._listed >= TURN_LISTED_MIN:
            return WAIT
        found = self._kinds[type(command)](command, now)
        self._listed += len(found.records if isinstance(command, ReadQueue) else found)
        return found
