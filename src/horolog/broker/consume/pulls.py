"""Pulls: messages of a queue from an offset on, for clients that keep their own offsets.

A pull is answered with slices of the log.  Where messages lie together in a frame, only the first
is looked up by its unit (`log.queue_runs`).  A message whose unit leads nowhere, or that is in no
run, is read by itself, and a hole is passed over (`broker.consume.queued`).  With a tag filter the
units' codes are compared first, many at once.

A pull that has seen everything waits for its queue to grow.  Pulls with the same filter wait
together, and new units are compared once for all of them.

A turn reads only so much for pulls (`TURN_PULLED_MAX`, `TURN_PULLED_BYTES`); further pulls are
decided in the next turns.  A client may ask for thousands of pulls with one write, and does not
even have to take the answers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.counters import Count
from horolog.broker.effects import Now, Reply
from horolog.broker.groups import Groups
from horolog.broker.shard import Shard
from horolog.broker.topics import Topic, queue_of
from horolog.errors import ErrorCode, HorologError
from horolog.limits import (
    POLL_MAX_MS,
    SCAN_MAX,
    TURN_PULLED_BYTES,
    TURN_PULLED_MAX,
    TURN_READ_BYTES,
    TURN_READ_MAX,
)
from horolog.log.consume_queue import ConsumeQueue
from horolog.log.queue_runs import QueueRun
from horolog.log.queue_unit import MANY_CODE
from horolog.log.record import HEAD_BYTES
from horolog.protocol.queue_commands import Pull, Pulled, PullStatus
from horolog.ready.filter import Filter, parse_filter
from horolog.ready.polls import Bucket, Waiter, check_may_park, place_of_pulls


class _Found(NamedTuple):
    layouts: list[memoryview]
    next_offset: int


class Pulls:
    """The pulls of a shard."""

    def __init__(self, shard: Shard, groups: Groups) -> None:
        self._shard = shard
        self._groups = groups
        self._run: QueueRun | None = None  # of the message read last in this search
        self._messages_left = self._bytes_left = 0  # budget of this turn

    def begin_turn(self) -> None:
        """Set the reading budget of a turn; the rest of the last turn's budget is not added."""
        self._messages_left, self._bytes_left = TURN_PULLED_MAX, TURN_PULLED_BYTES

    @property
    def may_read(self) -> bool:
        """Whether this turn may read for one more pull."""
        return self._messages_left > 0 and self._bytes_left > 0

    def pull(self, token: object, command: Pull, now: Now) -> Reply | None:
        """Answer a pull with the messages that are there.

        Return None if there are none yet and the pull was parked.
        """
        topic = self._shard.topics.get(command.topic)
        topic.check_readable()
        queue = queue_of(topic, command.queue_id)
        group = self._shard.ready.groups.ids.get(command.group)
        if group is not None:
            # A group that no heartbeat has named is unknown, and no settings forbid it anything.
            self._groups.check_may_consume(group, broadcasts=command.broadcasts)
        filter = parse_filter(command.filter_expression, is_sql=command.is_sql)
        first, length = command.first, queue.length
        if first < queue.first:
            return Reply(token, _pulled(queue, PullStatus.MOVED, queue.first))
        if first > length:
            resumed = self._resume_offset(topic, command)
            return Reply(token, _pulled(queue, PullStatus.MOVED, resumed))
        if first == length:
            if command.poll_ms <= 0:
                return Reply(token, _pulled(queue, PullStatus.NOTHING, first))
            check_may_park(self._shard.ready.parked)
            deadline = now.mono_ms + min(command.poll_ms, POLL_MAX_MS)
            waiter = Waiter(token, command, topic.id, 0, deadline)
            self._shard.ready.polls.park(waiter, seen=length)
            return None
        found = self._read_from(topic, command, filter, first)
        self._shard.counters.add(topic.id, Count.PULLED, len(found.layouts))
        self._messages_left -= max(1, len(found.layouts))
        self._bytes_left -= sum(map(len, found.layouts))
        return Reply(token, found)

    def _resume_offset(self, topic: Topic, command: Pull) -> int:
        """Return where a consumer goes on whose offset is past the end of a queue.

        At the end; but if its group's progress is kept here, where the group is, or where a new
        group begins.  Such an offset is from a topic that was deleted and made again, or from
        before a restore of the directory: messages that have come since are new to the group.
        """
        queue = topic.queues[command.queue_id]
        if not command.resumes:
            return queue.length
        group = self._shard.ready.groups.ids.get(command.group)
        if group is not None:
            found = self._shard.ready.progress_if_any(group, topic.id, command.queue_id)
            if found is not None:
                return max(found.floor, queue.first)
        return queue.length if queue.first else 0

    # --- waiting pulls --------------------------------------------------------------------------

    def serve(self, topic_id: int, queue_id: int) -> list[Reply]:
        """Answer the parked pulls of a queue that has grown, if new messages match."""
        topic = self._shard.topics.by_id[topic_id]
        queue = topic.queues[queue_id]
        place = topic_id, place_of_pulls(queue_id)
        replies: list[Reply] = []
        for bucket in self._shard.ready.polls.buckets(place):
            if self._has_news(topic, bucket, queue):
                replies += self._serve(topic, bucket)
        return replies

    def _has_news(self, topic: Topic, bucket: Bucket, queue: ConsumeQueue) -> bool:
        """Return whether a queue has new units that may match.

        `bucket.seen` moves to the first such unit, or to the end.
        """
        if bucket.filter.wants_all:
            return bucket.seen < queue.length
        while bucket.seen < queue.length:
            units = self._units(topic, bucket.queue_id, bucket.seen, queue.length - bucket.seen)
            if isinstance(units, HorologError):
                return True  # serving these pulls will return the error
            first = self._first_match(topic, bucket, units)
            bucket.seen += len(units) if first is None else first
            if first is not None:
                return True
        return False

    def _first_match(self, topic: Topic, bucket: Bucket, units: npt.NDArray[np.void]) -> int | None:
        """Return the row of the first unit whose message may match the bucket's filter."""
        rows = np.flatnonzero(bucket.filter.may_match(units)).tolist()
        if bucket.filter.is_sql or bool((units["tags"] >= MANY_CODE).any()):
            self._run = None
            for row in rows:
                position, size, code = units[row].tolist()
                at = bucket.seen + row
                layout = self._one(topic, bucket.queue_id, at, position, size)
                is_exact = bucket.filter.is_sql or code >= MANY_CODE
                if layout is not None and (not is_exact or bucket.filter.takes(layout)):
                    return int(row)
            return None
        return int(rows[0]) if rows else None

    def _serve(self, topic: Topic, bucket: Bucket) -> list[Reply]:
        """Answer all pulls of a bucket; pulls with the same limits share one answer."""
        polls, filter, seen = self._shard.ready.polls, bucket.filter, bucket.seen
        answers: dict[tuple[int, int], Pulled | HorologError] = {}
        replies = []
        for waiter in list(bucket.waiters.values()):
            command = waiter.command
            assert isinstance(command, Pull)
            asked = command.limit, command.max_bytes
            if asked not in answers:
                try:
                    answers[asked] = self._read_from(topic, command, filter, seen)
                except HorologError as error:
                    if error.fatal:
                        raise
                    answers[asked] = error.without_traceback()
            polls.leave(waiter)
            found = answers[asked]
            if isinstance(found, Pulled):
                self._shard.counters.add(topic.id, Count.PULLED, len(found.layouts))
            replies.append(Reply(waiter.token, found))
        return replies

    def empty_answer(self, waiter: Waiter) -> Pulled:
        """Return the answer to a parked pull whose time is over.

        Messages that came meanwhile did not match its filter.
        """
        command = waiter.command
        assert isinstance(command, Pull)
        queue = self._shard.topics.by_id[waiter.topic].queues[command.queue_id]
        first = max(command.first, queue.first)
        status = PullStatus.FILTERED if first < queue.length else PullStatus.NOTHING
        return _pulled(queue, status, max(first, queue.length))

    # --- reading --------------------------------------------------------------------------------

    def _read_from(self, topic: Topic, command: Pull, filter: Filter, first: int) -> Pulled:
        """Read a queue from `first` on, which lies below its end."""
        queue = topic.queues[command.queue_id]
        limit = max(1, min(command.limit, TURN_READ_MAX))
        room = max(1, min(command.max_bytes, TURN_READ_BYTES))
        first = max(first, queue.first)  # retention may have moved it while the pull waited
        if filter.wants_all:
            found = self._all(topic, command.queue_id, first, limit, room)
        else:
            found = self._matching(topic, command.queue_id, filter, first, limit, room)
        status = PullStatus.FOUND if found.layouts else PullStatus.FILTERED
        return Pulled(status, found.layouts, found.next_offset, queue.first, queue.length)

    def _all(self, topic: Topic, queue_id: int, first: int, limit: int, room: int) -> _Found:
        length, queued = topic.queues[queue_id].length, self._shard.queued
        layouts: list[memoryview] = []
        place = topic.id, queue_id
        at, stop = first, min(length, first + SCAN_MAX)  # a hole counts as scanned
        while at < stop and len(layouts) < limit:
            run, i = queued.run_at(place, at) or (None, -1)
            position = size = 0
            if run is None:
                units = self._units(topic, queue_id, at, 1)
                if isinstance(units, HorologError):
                    return _so_far(layouts, at, units)
                position, size, _ = units[0].tolist()
                run = self._shard.log.run(position, *place)
                i = -1 if run is None else run.at(at, position)
            if run is None or i < 0:
                record = queued.record(topic, queue_id, at, position, size)
                if record is not None:
                    if layouts and len(record) - HEAD_BYTES > room:
                        break
                    layouts.append(memoryview(record)[HEAD_BYTES:])
                    room -= len(record) - HEAD_BYTES
                at += 1
                continue
            queued.read_from(place, run)
            most = min(limit - len(layouts), length - at)
            some, size = run.take(i, most, room)
            if not some:
                if layouts:
                    break
                some, size = run.take(i, 1, run.ends[i])
            layouts += some
            room -= size
            at += len(some)
            if i + len(some) < len(run.starts) and len(layouts) < limit:
                break  # no room for the next one of this run, or it is not visible
        return _Found(layouts, at)

    def _matching(
        self, topic: Topic, queue_id: int, filter: Filter, first: int, limit: int, room: int
    ) -> _Found:
        length = topic.queues[queue_id].length
        layouts: list[memoryview] = []
        self._run = None
        at, stop = first, min(length, first + SCAN_MAX // filter.cost)
        while at < stop:
            units = self._units(topic, queue_id, at, stop - at)
            if isinstance(units, HorologError):
                return _so_far(layouts, at, units)
            rows = np.flatnonzero(filter.may_match(units))
            for row, (position, size, code) in zip(
                rows.tolist(), units[rows].tolist(), strict=True
            ):
                layout = self._one(topic, queue_id, at + row, position, size)
                # For one tag the hash is enough, since a pulling client compares the tag itself.
                is_exact = filter.is_sql or code >= MANY_CODE
                if layout is None or (is_exact and not filter.takes(layout)):
                    continue
                if layouts and len(layout) > room:
                    return _Found(layouts, at + row)
                layouts.append(layout)
                room -= len(layout)
                if len(layouts) == limit:
                    return _Found(layouts, at + row + 1)
            at += len(units)
        return _Found(layouts, at)

    def _one(
        self, topic: Topic, queue_id: int, offset: int, position: int, size: int
    ) -> memoryview | None:
        run = self._run  # mostly that of the message before
        if run is None or (i := run.at(offset, position)) < 0:
            run = self._run = self._shard.log.run(position, topic.id, queue_id)
            i = -1 if run is None else run.at(offset, position)
        if run is not None and i >= 0:
            return run.layout(i)
        record = self._shard.queued.record(topic, queue_id, offset, position, size)
        return None if record is None else memoryview(record)[HEAD_BYTES:]

    def _units(
        self, topic: Topic, queue_id: int, first: int, count: int
    ) -> npt.NDArray[Any] | HorologError:
        """Return some of `count` units from `first` on.

        If the queue's own files cannot be read there, return the error, which is reported once.
        """
        try:
            return self._shard.queued.units(topic, queue_id, first, min(count, SCAN_MAX))
        except HorologError as error:
            if error.code is not ErrorCode.DAMAGED:
                raise
            return error


def _pulled(queue: ConsumeQueue, status: PullStatus, next_offset: int) -> Pulled:
    return Pulled(status, [], next_offset, queue.first, queue.length)


def _so_far(layouts: list[memoryview], at: int, error: HorologError) -> _Found:
    """Return what was read before the queue's files end; raise the error if that is nothing."""
    if not layouts:
        raise error
    return _Found(layouts, at)
