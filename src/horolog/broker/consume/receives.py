"""Receives: lease messages at once, or when messages for a parked poll arrive."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from xxhash import xxh64_intdigest

from horolog.broker.consume.offsets import Offsets
from horolog.broker.consume.renewals import Renewals, regrant_record
from horolog.broker.effects import Now, Reply
from horolog.broker.groups import Groups
from horolog.broker.send.send_backs import LeasedPlace, SendBacks
from horolog.broker.send.sends import NO_REPLY
from horolog.broker.shard import Shard
from horolog.broker.topics import Topic
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import (
    AUTO_RENEW_MS,
    AUTO_RENEW_TOTAL_MAX_MS,
    INVISIBLE_MAX_MS,
    POLL_MAX_MS,
    RECEIVE_BATCH_MAX,
    RECEIVE_SCAN_MAX,
    SCAN_WAIT_MS,
    TURN_LEASED_BYTES,
    TURN_SCAN_MAX,
    TURN_SERVED_MAX,
)
from horolog.log.control_records import encode_ack, encode_grant, granted_rows
from horolog.log.record import HEAD_BYTES
from horolog.protocol.commands import Delivered, Receive, Received
from horolog.protocol.rocketmq.bodies import size_for_5x
from horolog.protocol.rocketmq.message import due_of
from horolog.ready.filter import Filter, parse_filter
from horolog.ready.lease_life import Event
from horolog.ready.leases import Lease
from horolog.ready.picking import PickedMessage, PickRequest, PickResult
from horolog.ready.polls import News, Waiter, check_may_park
from horolog.ready.progress import QueueProgress
from horolog.ready.receipt import encode_receipts


class _Leased(NamedTuple):
    messages: list[Delivered]
    # Queues that this turn has not scanned to their end, because its budget is used up
    unseen: list[int]


class Receives:
    """Grants the leases of a shard; `records` collects control records for the turn's frame."""

    def __init__(
        self, shard: Shard, groups: Groups, send_backs: SendBacks, records: list[bytes]
    ) -> None:
        self._shard = shard
        self._send_backs = send_backs
        self.records = records
        self._groups = groups
        self.renewals = Renewals(shard, self.records)
        self._scan_left = TURN_SCAN_MAX  # units that polls with a filter may compare in this turn
        self._answers_left = TURN_SERVED_MAX  # to parked polls, in this turn
        self._bytes_left = TURN_LEASED_BYTES  # of messages in the answers of this turn

    # --- receive --------------------------------------------------------------------------------

    def receive(self, token: object, command: Receive, now: Now, offsets: Offsets) -> Reply | None:
        """Lease messages; return None if there are none yet and the poll was parked.

        `serve` answers parked polls.  Raise TOPIC_NOT_FOUND, and the refusals of topic, queue,
        filter and group; then nothing is parked, and no group is made or begun (`offsets`).
        """
        topic = self._shard.topics.get(command.topic)
        topic.check_readable()
        if not -1 <= command.queue_id < len(topic.queues):
            raise refused(
                "message_queue",
                f"topic {topic.name!r} has no queue {command.queue_id}",
                f"-1 (any) to {len(topic.queues) - 1}",
            )
        filter = parse_filter(command.filter_expression, is_sql=command.is_sql)
        if command.from_end:
            offsets.begin(command.group, command.topic)
        offsets.seal()  # a replay must set offsets before it grants leases after them
        group = self._groups.id_of(command.group)
        self._groups.check_may_consume(group)
        self.renewals.note_seen(command.client_id, now)
        leased = self._lease(topic, group, command, filter, now)
        if leased.messages:
            return self._leased_reply(token, group, command, leased)
        wait_ms = min(command.poll_ms, POLL_MAX_MS)
        if leased.unseen:
            wait_ms = max(wait_ms, SCAN_WAIT_MS)
        if wait_ms <= 0:
            return Reply(token, self._empty_answer(topic, group))
        ready = self._shard.ready
        check_may_park(ready.parked)
        ready.park(Waiter(token, command, topic.id, group, now.mono_ms + wait_ms))
        if leased.unseen:
            ready.polls.postpone(News(topic.id, group, leased.unseen))
        return None

    def _leased_reply(self, token: object, group: int, command: Receive, leased: _Leased) -> Reply:
        """Return the reply to a receive that has leased messages.

        The reply to an orderly receive waits for its leases, so that no start leases the messages
        to another client.
        """
        found = Received(leased.messages)
        if command.counts_rest:
            topic = self._shard.topics.get(command.topic)
            found.rest = self._shard.ready.unleased_count(group, topic.id, topic.queues)
        return Reply(token, found, waits=self._in_order(group, command) is not None)

    def _lease(
        self,
        topic: Topic,
        group: int,
        command: Receive,
        filter: Filter,
        now: Now,
        only: list[int] | None = None,
    ) -> _Leased:
        """Lease messages; a filter compares no more units than this turn has left."""
        ready = self._shard.ready
        limit = max(1, min(command.batch, RECEIVE_BATCH_MAX))
        queues = ready.queue_order(group, topic.id, command.queue_id, len(topic.queues), only)
        in_order = self._in_order(group, command)
        leased = _Leased([], [])
        left = RECEIVE_SCAN_MAX
        room = min(command.bytes_max, max(1, self._bytes_left))  # at least one message
        weigh = size_for_5x if command.inflates else len
        for queue_id in ready.repeated_first(group, topic.id, queues, in_order):
            queue = topic.queues[queue_id]
            place = group, topic.id, queue_id
            if not ready.has_for(place, queue, now.mono_ms, in_order):
                continue
            progress = ready.progress_of(*place)
            progress.put_in_order(in_order=in_order is not None)
            read = partial(self._shard.queued.record, topic, queue_id)
            follow = partial(self._shard.queued.following, topic, queue_id)
            while len(leased.messages) < limit:
                is_scan = in_order is not None or not filter.wants_all
                if is_scan and min(left, self._scan_left) <= 0:
                    leased.unseen.append(queue_id)
                    break
                count = limit - len(leased.messages)
                request = PickRequest(
                    queue_id, queue, filter, count, room, read, in_order or 0, weigh, follow
                )
                chosen = ready.pick(progress, request, now.mono_ms)
                room -= chosen.size
                self._bytes_left -= chosen.size
                left -= chosen.cost
                self._scan_left -= chosen.cost
                buried = command.gives_up and self._bury(topic, group, queue_id, chosen, now)
                granted = self._grant(topic, group, queue_id, progress, chosen, command, now)
                leased.messages.extend(granted)
                if chosen.unreadable:
                    self._shard.queued.report_unreadable(topic, queue_id, chosen.unreadable)
                if buried and not granted:
                    continue
                if chosen.picked or chosen.unreadable or chosen.is_through:
                    break
            ready.watch(*place)
            if len(leased.messages) >= limit or room <= 0:
                break
        return leased

    def _in_order(self, group: int, command: Receive) -> int | None:
        """Return None if not in order; else a hash of the receive if it may be repeated, or 0."""
        if not command.in_order and not self._shard.ready.groups.settings_of(group).orderly:
            return None
        return _receive_hash(command) if command.attempt_id else 0

    def _bury(self, topic: Topic, group: int, queue_id: int, chosen: PickResult, now: Now) -> bool:
        """Move messages leased as often as allowed to the dead letters, and out of `chosen`.

        A message that the dead letters cannot take is leased once more.
        """
        most = self._shard.ready.groups.settings_of(group).attempts_max
        spent = [p for p in chosen.picked if p.attempt > most]
        for p in spent:
            place = LeasedPlace(topic.id, queue_id, p.offset)
            try:
                self._send_backs.bury(NO_REPLY, group, place, p.record, p.attempt - 1, now)
            except HorologError as error:
                if error.fatal:
                    raise
                return False
            chosen.picked.remove(p)
        return bool(spent)

    def _grant(
        self,
        topic: Topic,
        group: int,
        queue_id: int,
        progress: QueueProgress,
        chosen: PickResult,
        command: Receive,
        now: Now,
    ) -> list[Delivered]:
        """Lease the chosen messages; consume those passed over, and log holes as consumed."""
        place = group, topic.id, queue_id
        lost = [offset for offset in chosen.lost if progress.consume(offset, Event.HOLE)]
        lost += [offset for offset in chosen.unwanted if progress.consume(offset, Event.SKIP)]
        if lost:
            self.records.append(encode_ack(*place, lost))
        self._revoke(place, progress, chosen)
        progress.skip_to(chosen.upto, {p.offset for p in chosen.picked})
        if not chosen.picked and not chosen.holes:
            return []
        ready = self._shard.ready
        duration = (
            AUTO_RENEW_MS if command.auto_renew else min(command.invisible_ms, INVISIBLE_MAX_MS)
        )
        grant_ids = ready.new_grants(len(chosen.picked))
        self._shard.counters.count_leased(topic.id, chosen.picked, now.wall_ms)
        leases = _leases(chosen.picked, grant_ids, command, duration, now)
        progress.lease_all(leases, now.mono_ms + duration, Event.GRANT)
        if progress.order is not None and command.attempt_id:
            progress.order.record_given(_receive_hash(command), leases)
        if command.auto_renew:
            for offset in leases:
                self.renewals.hold((*place, offset), command.client_id, now)
        grants = [
            (offset, attempt, grant_id & 0xFFFFFFFF)
            for (_, offset, attempt, _), grant_id in zip(chosen.picked, grant_ids, strict=True)
        ]
        self.records.append(encode_grant(*place, progress.next, duration, granted_rows(grants)))
        handles = encode_receipts(place, ready.epoch, now.wall_ms + duration, grants)
        named = tuple.__new__  # takes half as long as Delivered does
        return [
            named(
                Delivered, (record[HEAD_BYTES:], queue_id, offset, attempt, handle, *due_of(record))
            )
            for (_, offset, attempt, record), handle in zip(chosen.picked, handles, strict=True)
        ]

    def _revoke(
        self, place: tuple[int, int, int], progress: QueueProgress, chosen: PickResult
    ) -> None:
        """Log the leases that have ended before their time and are not granted again now.

        This must come before `next` moves, which in a replay passes over messages that no earlier
        record leases.
        """
        for offset in chosen.revoked:
            self.renewals.release((*place, offset))
        again = {p.offset for p in chosen.picked}
        left = [each for each in chosen.revoked if each in progress.leases and each not in again]
        if left:
            self.records.append(regrant_record(place, progress, left, 0))

    # --- waiting polls --------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """Begin a turn with full budgets of units, answers and bytes."""
        self._scan_left = TURN_SCAN_MAX
        self._answers_left = TURN_SERVED_MAX
        self._bytes_left = TURN_LEASED_BYTES

    @property
    def may_scan(self) -> bool:
        """Whether a poll with a tag filter may compare units in this turn."""
        return self._scan_left > 0

    def serve(self, news: News, now: Now) -> tuple[list[Reply], News | None]:
        """Answer parked polls of a group that now get messages, first come first served.

        Return also the news that is left to look at, because a tag filter has too much to pass
        over, or this turn has answered as many polls as it may.
        """
        ready = self._shard.ready
        topic = self._shard.topics.by_id[news.topic]
        replies: list[Reply] = []
        unseen: set[int] = set()
        for bucket in ready.polls.buckets((news.topic, news.group)):
            while bucket.waiters:
                if self._answers_left <= 0:
                    unseen.update(news.queues)
                    break
                waiter = next(iter(bucket.waiters.values()))
                command, filter = waiter.command, bucket.filter
                assert isinstance(command, Receive)
                leased = self._lease(topic, news.group, command, filter, now, news.queues)
                if not leased.messages:
                    unseen.update(leased.unseen)
                    if not leased.unseen:
                        replies += self._end_scanned(list(bucket.waiters.values()))
                    break
                ready.polls.leave(waiter)
                self._answers_left -= 1
                replies.append(self._leased_reply(waiter.token, news.group, command, leased))
        for queue_id in news.queues:
            ready.watch(news.group, news.topic, queue_id)
        left = News(news.topic, news.group, sorted(unseen)) if unseen else None
        return replies, left

    def _end_scanned(self, waiters: list[Waiter]) -> list[Reply]:
        """Answer, with no messages, the polls that waited only for the scan to end."""
        replies = []
        for waiter in waiters:
            if waiter.command.poll_ms <= 0:
                self._shard.ready.polls.leave(waiter)
                replies.append(Reply(waiter.token, self.empty_answer(waiter)))
        return replies

    def empty_answer(self, waiter: Waiter) -> Received | HorologError:
        """Return the answer to a parked poll whose time is over."""
        return self._empty_answer(self._shard.topics.by_id[waiter.topic], waiter.group)

    def _empty_answer(self, topic: Topic, group: int) -> Received | HorologError:
        """Return the answer to a receive that gets no message.

        It is TOO_MANY_REQUESTS if there are messages that may not be leased.  That is said at the
        end of a poll, not at its beginning, because a client tries again at once.
        """
        ready = self._shard.ready
        if not ready.lacks_room(group, topic.id, topic.queues):
            return Received([])
        return HorologError(
            ErrorCode.TOO_MANY_REQUESTS,
            f"{ready.leased} messages are leased and not acknowledged, the most that are allowed; "
            "acknowledge some, or let their invisible time end",
            field="batch_size",
            limit=f"{ready.leases_max} leases",
        )


def _receive_hash(command: Receive) -> int:
    """Hash a receive that may come again with the same attempt id, because its answer was lost."""
    return xxh64_intdigest(f"{command.client_id}\0{command.attempt_id}".encode()) or 1


def _leases(
    picked: list[PickedMessage], grant_ids: range, command: Receive, duration: int, now: Now
) -> dict[int, Lease]:
    """Build the leases of the picked messages, by queue offset."""
    ends_at, renew_until = now.mono_ms + duration, now.mono_ms + AUTO_RENEW_TOTAL_MAX_MS
    client_id = command.client_id if command.auto_renew else ""
    named, wall_ms = tuple.__new__, now.wall_ms  # takes half as long as Lease does
    return {
        offset: named(Lease, (attempt, grant, ends_at, wall_ms, duration, client_id, renew_until))
        for (_, offset, attempt, _), grant in zip(picked, grant_ids, strict=True)
    }
