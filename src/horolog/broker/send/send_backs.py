"""Messages that a consumer failed on: decide where the next copy goes, and make it.

    failed for the n-th time      the copy goes to             it is due
    n ≤ further attempts allowed  the group's retry topic      after its back-off, or as asked
    n > that, or level below 0    the group's dead letters     now
    in order (`is_last`)          the group's dead letters     now

A message that a 5.x consumer fails on stays in its queue and is leased again.  When it was leased
as often as the group allows, or a consumer gives it up, it is copied to the dead letters too, and
consumed (`bury`).  The copy is appended first: a crash between the two leaves the message leased,
and its second copy is a repeat of the first.

The record that it is consumed follows the turn's control records.  A command of the same turn that
ends the progress of the group there, or moves it back, takes that record first (`take_buried`): in
a replay it would otherwise come after what the command has decided.

Both topics are made when the first copy comes.  From here on a copy is a send like any other
(`sends`): one record in one frame, scheduled or visible, and not stored if it repeats one
(`repeats` tells attempts apart).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from horolog.broker.consume.queue_times import read_visible
from horolog.broker.effects import Now
from horolog.broker.groups import Groups
from horolog.broker.life.space import DiskPressure
from horolog.broker.send.sends import Sends
from horolog.broker.shard import Shard
from horolog.broker.topic_changes import TopicChanges
from horolog.log.control_records import encode_ack
from horolog.log.record import HEAD_BYTES
from horolog.protocol.commands import CreateTopic, NewRecords, SendMessages, TopicType
from horolog.protocol.queue_commands import GroupSettings
from horolog.protocol.retry_commands import SendBack, SendRetry
from horolog.protocol.rocketmq import layout, retry
from horolog.ready.lease_life import Event


class LeasedPlace(NamedTuple):
    """The topic id, queue id and queue offset of a leased message."""

    topic: int
    queue: int
    offset: int


class PlannedCopy(NamedTuple):
    """The record of a copy, and its topic, which is made if it does not exist."""

    topic: str
    queues: int
    record: bytes

    @property
    def command(self) -> SendMessages:
        """The command that sends the copy, whatever type an operator has given its topic."""
        records = NewRecords(self.record, [len(self.record)])
        return SendMessages(self.topic, records, any_type=True)


class SendBacks:
    """Makes copies of messages that the consumers of a shard have failed on."""

    def __init__(
        self, shard: Shard, groups: Groups, topics: TopicChanges, sends: Sends, disk: DiskPressure
    ) -> None:
        self._shard = shard
        self._groups = groups
        self._topics = topics
        self._sends = sends
        self._disk = disk
        self._buried: list[tuple[int, LeasedPlace]] = []  # group id and place, consumed this turn

    def add(self, token: object, command: SendBack | SendRetry, now: Now) -> bool:
        """Send the requested copy; return False if none is to be sent.

        Raise DISK_FULL, and the refusals of a send.
        """
        planned = self.plan(command)
        if planned is not None:
            self._send(token, planned, now)
        return planned is not None

    def bury(
        self, token: object, group: int, place: LeasedPlace, record: bytes, leases: int, now: Now
    ) -> None:
        """Copy a message leased `leases` times to its group's dead letters, and consume it.

        Raises the refusals of a send; then the message stays as it is.
        """
        failed = retry.failed(record[HEAD_BYTES:], self._shard.ready.groups.names[group])
        failed = failed._replace(attempts=failed.attempts + leases - 1)
        self._send(token, _dead_letter(failed), now)
        consumed = self._shard.ready.progress_of(group, *place[:2]).consume(
            place.offset, Event.GIVE_UP
        )
        assert consumed, place
        self._buried.append((group, place))

    def take_buried(
        self, is_meant: Callable[[int, LeasedPlace], bool] = lambda _group, _place: True
    ) -> list[bytes]:
        """Take the control records of this turn that must follow its sends.

        is_meant  which of them, by group id and place
        """
        taken = [each for each in self._buried if is_meant(*each)]
        self._buried = [each for each in self._buried if not is_meant(*each)]
        return [encode_ack(group, *place[:2], [place.offset]) for group, place in taken]

    def _send(self, token: object, planned: PlannedCopy, now: Now) -> None:
        self._disk.check(now.mono_ms, now.wall_ms, len(planned.record))
        if planned.topic not in self._shard.topics.by_name:
            self._topics.make(CreateTopic(planned.topic, TopicType.MIXED, planned.queues))
        self._sends.add(token, planned.command)
        if planned.topic.startswith(retry.DEAD_LETTER_PREFIX):
            self._shard.counters.dead_letters += 1
        else:
            self._shard.counters.retries += 1

    def plan(self, command: SendBack | SendRetry) -> PlannedCopy | None:
        """Plan the copy to send; None if there is none, because the group keeps no retries."""
        group_id = self._groups.existing_id(command.group)
        settings = self._shard.ready.groups.settings_of(group_id)
        retry_max = settings.retry_max if command.retry_max < 0 else command.retry_max
        if isinstance(command, SendRetry):
            stored = command.record[HEAD_BYTES:]
            if command.is_last or layout.reconsume_times(stored) > retry_max:
                return _dead_letter(retry.sent_by_client(stored, command.group))
            return _retry_copy(command.group, settings, command.record)
        if settings.retry_queues <= 0:
            return None
        failed = retry.failed(read_visible(self._shard, command.position), command.group)
        if command.level < 0 or failed.attempts >= retry_max:
            return _dead_letter(failed)
        if not command.level and settings.backoff is not None:
            pause_ms = self._shard.ready.groups.pause_ms(group_id, failed.attempts + 1)
            again = retry.retry_record_after(failed, pause_ms, self._shard.settings.levels)
            return _retry_copy(command.group, settings, again)
        level = command.level or retry.FIRST_LEVEL + failed.attempts
        again = retry.retry_record(failed, level, self._shard.settings.levels)
        return _retry_copy(command.group, settings, again)


def _retry_copy(group: str, settings: GroupSettings, record: bytes) -> PlannedCopy:
    return PlannedCopy(retry.retry_topic(group), max(1, settings.retry_queues), record)


def _dead_letter(failed: retry.Failed) -> PlannedCopy:
    return PlannedCopy(retry.dead_letter_topic(failed.group), 1, retry.dead_letter_record(failed))
