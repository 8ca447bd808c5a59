"""Offsets that groups commit by themselves, as 4.x clients do.

A committed offset moves the same progress as 5.x leases do: everything below it is consumed, and
going back drops what is known of later messages (`ready.lease_life`).  Clients commit queue by
queue, so all commits of a group and topic in one turn become one record.  `seal` puts these records
before any other record about the same progress, since a replay goes by the order of records.
"""

from __future__ import annotations

from horolog.broker.consume.renewals import Renewals
from horolog.broker.counters import Count
from horolog.broker.groups import Groups
from horolog.broker.send.send_backs import SendBacks
from horolog.broker.shard import Shard
from horolog.broker.topics import Topic, queue_of
from horolog.errors import refused
from horolog.log.control_records import encode_offsets
from horolog.protocol.queue_commands import CommitOffsets, GetOffsets
from horolog.ready.progress import QueueProgress


class Offsets:
    """Offset commits of a shard; `records` collects control records for the turn's frame."""

    def __init__(
        self,
        shard: Shard,
        groups: Groups,
        renewals: Renewals,
        send_backs: SendBacks,
        records: list[bytes],
    ) -> None:
        self._shard = shard
        self._groups = groups
        self._renewals = renewals
        self._send_backs = send_backs
        self._records = records
        self._pending: dict[tuple[int, int], dict[int, int]] = {}  # (group, topic) → queue → offset

    def commit(self, command: CommitOffsets) -> None:
        """Take over offsets, all of them or none; commits that change nothing are not logged."""
        topic = self._shard.topics.get(command.topic)
        for queue_id, offset in command.offsets.items():
            _check(topic, queue_id, offset)
        group = self._groups.id_of(command.group)
        for queue_id, offset in command.offsets.items():
            if command.afresh:
                self._reset(topic, group, queue_id, offset)
            else:
                self._commit(topic, group, queue_id, offset)

    def _reset(self, topic: Topic, group: int, queue_id: int, offset: int) -> None:
        """Move a group to an offset; leased or consumed messages after it are new again."""
        ready, queue = self._shard.ready, topic.queues[queue_id]
        place = group, topic.id, queue_id
        offset = max(offset, queue.first)
        found = ready.progress_if_any(*place)
        knows_more = found is not None and (found.next > offset or found.acked)
        if found is None or not knows_more or offset < found.floor or offset == queue.length:
            self._commit(topic, group, queue_id, offset)
            return
        self.seal()
        self._count(topic, found, offset)
        ways = [(queue_id, queue.length), (queue_id, offset)]  # past everything known, and back
        for _, to in ways:
            for gone in ready.commit(place, to):
                self._renewals.release((*place, gone))
        self._records += self._buried(place)
        # One record: with only its first half a replay would leave out messages that are leased.
        self._records.append(encode_offsets(group, topic.id, ways))
        self._shard.visible.add((topic.id, queue_id))

    def _commit(self, topic: Topic, group: int, queue_id: int, offset: int) -> None:
        ready = self._shard.ready
        place = group, topic.id, queue_id
        offset = max(offset, topic.queues[queue_id].first)  # retention has dropped lower ones
        found = ready.progress_if_any(*place)
        if found is not None and found.floor == offset:
            return
        goes_back = found is not None and offset < found.floor
        if found is not None and not goes_back:
            self._count(topic, found, offset)
        if goes_back:
            self.seal()  # log both: forward and back again is not a no-op
            self._records += self._buried(place)
        for gone in ready.commit(place, offset):
            self._renewals.release((*place, gone))
        self._pending.setdefault((group, topic.id), {})[queue_id] = offset
        if goes_back:
            self.seal()
            self._shard.visible.add((topic.id, queue_id))  # parked polls get messages again

    def _buried(self, place: tuple[int, int, int]) -> list[bytes]:
        """Take the records of messages of a queue that became dead letters in this turn."""
        return self._send_backs.take_buried(lambda group, at: (group, *at[:2]) == place)

    def _count(self, topic: Topic, found: QueueProgress, offset: int) -> None:
        """Count the messages below an offset as consumed, without those acked by handle before."""
        counted = found.acked.count_below(offset)
        self._shard.counters.add(topic.id, Count.ACKED, offset - found.floor - counted)

    def begin(self, group_name: str, topic_name: str) -> None:
        """Begin the progress of a group in a topic where it has none.

        It begins where a queue begins, or at the queue's end if the first messages are gone.  So a
        consumer that wants only new messages misses none of a new topic that were sent just before
        it came.  The beginning is logged, so that a start knows of it.
        """
        topic = self._shard.topics.get(topic_name)
        topic.check_readable()
        group = self._groups.id_of(group_name)
        self._groups.check_may_consume(group)
        if (group, topic.id) in self._shard.ready.progress:
            return
        for queue_id, queue in enumerate(topic.queues):
            self._commit(topic, group, queue_id, queue.length if queue.first else 0)

    def seal(self) -> None:
        """Make records of the offsets committed so far."""
        if self._pending:
            for (group, topic), offsets in self._pending.items():
                self._records.append(encode_offsets(group, topic, offsets.items()))
            self._pending.clear()

    def get(self, command: GetOffsets) -> dict[int, int]:
        """Return the offsets up to which a group has consumed; none for an unknown group."""
        topic = self._shard.topics.get(command.topic)
        ready = self._shard.ready
        group = ready.groups.ids.get(command.group)
        queues = {} if group is None else ready.progress.get((group, topic.id), {})
        return {queue_id: progress.floor for queue_id, progress in sorted(queues.items())}

    def check_invariants(self) -> None:
        """Raise AssertionError if an offset was committed and not appended."""
        assert not self._pending, "committed, and not appended"


def _check(topic: Topic, queue_id: int, offset: int) -> None:
    """Raise BAD_REQUEST for an offset that is outside the queue."""
    end = queue_of(topic, queue_id).length
    if not 0 <= offset <= end:
        raise refused(
            "offset",
            f"{offset}; queue {queue_id} of topic {topic.name!r} takes offsets from 0 to {end}",
            f"0 to {end}",
        )
