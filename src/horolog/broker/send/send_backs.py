"""Messages that a consumer failed on: where their next copies go, and what these are.

    failed for the n-th time      the copy goes to             it is due
    n ≤ further attempts allowed  the group's retry topic      after the pause of level 2 + n, or as asked
    n > that, or level below 0    the group's dead letters     now
    in order (`is_last`)          the group's dead letters     now

Both topics are made when the first copy comes.  From here on a copy is a send like any other (`sends`): one record
in one frame, scheduled or visible, and not stored if it repeats one (`repeats` tells attempts apart).
"""

from __future__ import annotations

from typing import NamedTuple

from horolog.broker.consume.queue_times import read_visible
from horolog.broker.groups import Groups
from horolog.broker.shard import Shard
from horolog.log.record import HEAD_BYTES
from horolog.protocol.commands import NewRecords, SendMessages
from horolog.protocol.queue_commands import GroupSettings
from horolog.protocol.retry_commands import SendBack, SendRetry
from horolog.protocol.rocketmq import layout, retry


class Planned(NamedTuple):
    """The record of a copy, and its topic, which is to be made if it is not there."""

    topic: str
    queues: int
    record: bytes

    @property
    def command(self) -> SendMessages:
        """What sends it."""
        return SendMessages(self.topic, NewRecords(self.record, [len(self.record)]))


class SendBacks:
    """Plans the copies of what consumers of a shard have failed on."""

    def __init__(self, shard: Shard, groups: Groups) -> None:
        self._shard = shard
        self._groups = groups

    def plan(self, command: SendBack | SendRetry) -> Planned | None:
        """What is to be sent; None: nothing, for the group keeps no retries."""
        number = self._groups.known(command.group)
        settings = self._shard.ready.groups.settings_of(number)
        retry_max = settings.retry_max if command.retry_max < 0 else command.retry_max
        if isinstance(command, SendRetry):
            stored = command.record[HEAD_BYTES:]
            if command.is_last or layout.reconsume_times(stored) > retry_max:
                return _dead(retry.sent_by_client(stored, command.group))
            return _again(command.group, settings, command.record)
        if settings.retry_queues <= 0:
            return None
        failed = retry.failed(read_visible(self._shard, command.position), command.group)
        if command.level < 0 or failed.attempts >= retry_max:
            return _dead(failed)
        level = command.level or retry.FIRST_LEVEL + failed.attempts
        again = retry.again(failed, level, self._shard.settings.levels)
        return _again(command.group, settings, again)


def _again(group: str, settings: GroupSettings, record: bytes) -> Planned:
    return Planned(retry.retry_topic(group), max(1, settings.retry_queues), record)


def _dead(failed: retry.Failed) -> Planned:
    return Planned(retry.dead_letter_topic(failed.group), 1, retry.dead(failed))
