"""Acknowledge leased messages, give leases a new end, or give messages up."""

from __future__ import annotations

from collections.abc import Iterator

from horolog.broker.consume.acks import Acks, lease_of, message_of
from horolog.broker.consume.renewals import Renewals, regrant_record
from horolog.broker.counters import Count
from horolog.broker.effects import Now
from horolog.broker.send.send_backs import LeasedPlace, SendBacks
from horolog.broker.shard import Shard
from horolog.broker.topics import Topic
from horolog.errors import ErrorCode, HorologError, refused
from horolog.protocol.commands import (
    Ack,
    Acked,
    Changed,
    ChangeInvisible,
)
from horolog.protocol.retry_commands import ForwardToDeadLetters
from horolog.protocol.rocketmq.lease_time import check_invisible, lease_duration
from horolog.protocol.rocketmq.names import check_group
from horolog.ready.lease_life import Event
from horolog.ready.leases import Lease
from horolog.ready.pop_receipt import decode_pop, is_pop, resolved
from horolog.ready.progress import QueueProgress
from horolog.ready.receipt import (
    Receipt,
    decode_receipts,
    encode_receipt,
    invalid_receipt,
)


class LeaseChanges:
    """Decides by receipt handles; `records` collects control records for the turn's frame."""

    def __init__(
        self, shard: Shard, send_backs: SendBacks, renewals: Renewals, records: list[bytes]
    ) -> None:
        self._shard = shard
        self._send_backs = send_backs
        self._renewals = renewals
        self._records = records

    def ack(self, command: Ack, now: Now) -> Acked:
        """Consume messages by their handles; return each refusal at the index of its handle."""
        topic = self._shard.topics.get(command.topic)
        acks = Acks(self._shard, self._renewals, topic, self._known_group(command.group), now)
        refused = acks.take(self._receipts(command.receipt_handles, acks.group, topic))
        self._records += acks.seal()
        return Acked(refused)

    def _receipts(
        self, handles: list[str], group: int, topic: Topic
    ) -> Iterator[Receipt | HorologError]:
        """Decode handles; those of pop consumers are looked up among the leases."""
        if any(map(is_pop, handles)):
            return (self._popped(handle, group, topic) for handle in handles)
        return decode_receipts(handles)

    def _popped(self, handle: str, group: int, topic: Topic) -> Receipt | HorologError:
        ready = self._shard.ready
        try:
            pop = decode_pop(handle)
            progress = ready.progress_if_any(group, topic.id, pop.queue)
            lease = None if progress is None else progress.leases.get(pop.offset)
            return resolved(pop, lease, group, topic.id, ready.epoch)
        except HorologError as error:
            return error.without_traceback()

    def _known_group(self, name: str) -> int:
        group_id = self._shard.ready.groups.ids.get(name)
        if group_id is None:
            check_group(name)
            raise refused(
                "receipt_handle",
                f"consumer group {name!r} has received nothing",
                code=ErrorCode.INVALID_RECEIPT_HANDLE,
            )
        return group_id

    def give_up(self, token: object, command: ForwardToDeadLetters, now: Now) -> bool:
        """Move a leased message to the dead letters of its group.

        Return False if the message is consumed already.

        Raise TOPIC_NOT_FOUND; INVALID_RECEIPT_HANDLE for a handle that is void, or of a message
        that the log has lost.
        """
        topic, group, receipt, _, lease = self._checked(command, now)
        if lease is None:
            return False
        place = LeasedPlace(topic.id, receipt.queue, receipt.offset)
        record = self._shard.queued.record_at(topic, receipt.queue, receipt.offset)
        if record is None:
            raise invalid_receipt("of a message that the log has lost")
        self._send_backs.bury(token, group, place, record, lease.attempt, now)
        self._renewals.release((group, *place))
        self._shard.ready.watch(group, topic.id, receipt.queue)
        return True

    def _checked(
        self, command: ChangeInvisible | ForwardToDeadLetters, now: Now
    ) -> tuple[Topic, int, Receipt, QueueProgress, Lease | None]:
        """Return topic, group, receipt, progress and lease of a handle.

        There is no lease if the message is consumed already.
        """
        topic = self._shard.topics.get(command.topic)
        group = self._known_group(command.group)
        (read,) = self._receipts([command.receipt_handle], group, topic)
        receipt = message_of(topic, read)
        found = lease_of(self._shard, topic, receipt, group, now)
        return topic, group, receipt, *found

    def change(self, command: ChangeInvisible, now: Now) -> Changed:
        """Give a lease a new end; the old handle is void from here on.

        Raise TOPIC_NOT_FOUND; INVALID_RECEIPT_HANDLE for a handle that is void, or of a message
        that is consumed; BAD_REQUEST for a duration that is not allowed.
        """
        shard = self._shard
        check_invisible(command.invisible_ms, 0)
        topic, group, receipt, progress, lease = self._checked(command, now)
        if lease is None:
            raise refused(
                "receipt_handle", "the message is consumed", code=ErrorCode.INVALID_RECEIPT_HANDLE
            )
        duration = lease_duration(command.invisible_ms)
        if command.by_group:
            duration = shard.ready.groups.pause_ms(group, lease.attempt)
        shard.counters.add(topic.id, Count.POSTPONED, 1)
        grant = self._regrant(progress, receipt.offset, lease._replace(client_id=""), duration, now)
        place = (group, topic.id, receipt.queue)
        self._renewals.release((*place, receipt.offset))
        self._records.append(regrant_record(place, progress, [receipt.offset], duration))
        shard.ready.watch(*place)
        changed = receipt._replace(
            grant=grant & 0xFFFFFFFF, epoch=shard.ready.epoch, expires_ms=now.wall_ms + duration
        )
        return Changed(encode_receipt(changed))

    def _regrant(
        self, progress: QueueProgress, offset: int, lease: Lease, duration: int, now: Now
    ) -> int:
        grant = self._shard.ready.new_grant()
        progress.lease(
            offset,
            lease._replace(
                grant=grant,
                ends_at=now.mono_ms + duration,
                granted_ms=now.wall_ms,
                duration_ms=duration,
            ),
            Event.CHANGE,
        )
        return grant
