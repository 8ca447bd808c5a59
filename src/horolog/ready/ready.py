"""The side of consumers: groups, their progress in every queue, and the polls that wait.

Works on consume queues and progress only; reading messages and writing grants to the log is the broker's part.
All times are monotonic milliseconds unless a name says wall.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from horolog.errors import ErrorCode, HorologError
from horolog.limits import INVISIBLE_MAX_MS, REDELIVERY_MIN_MS, SCAN_MAX
from horolog.log.consume_queue import ConsumeQueue
from horolog.log.record import HEAD_BYTES
from horolog.protocol.commands import Receive
from horolog.protocol.rocketmq import layout, properties
from horolog.ready.filter import TagFilter, parse_tags
from horolog.ready.progress import Lease, QueueProgress
from horolog.ready.receipt import Receipt, invalid_receipt

RecordAt: TypeAlias = Callable[[int, int, int], bytes | None]  # (queue offset, position, size)
_UNITS_READ = 256  # at once, while a tag is looked for


class Picked(NamedTuple):
    """A message chosen for a receive."""

    queue: int
    offset: int
    attempt: int
    record: bytes


@dataclass(slots=True)
class Chosen:
    """What a look at one queue has found.

    upto        queue offset up to which new messages were looked at
    lost        holes that were given out before, and can't be again
    holes       those among the new ones
    unreadable  why the queue's own files cannot be read where it was looked last; "": they can
    """

    upto: int
    picked: list[Picked] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    holes: list[int] = field(default_factory=list)
    unreadable: str = ""

    def units(self, queue: ConsumeQueue, offset: int, count: int) -> list[tuple[int, int, int]]:
        """(Log position, size, tags code) of queue offsets; none if the files cannot be read there."""
        try:
            units: list[tuple[int, int, int]] = queue.read(offset, count).tolist()
        except HorologError as error:
            if error.code is not ErrorCode.DAMAGED:
                raise
            self.unreadable = error.message
            return []
        return units


@dataclass(slots=True, eq=False)
class Waiter:
    """A parked Receive."""

    token: object
    command: Receive
    group: int
    topic: int
    deadline: int
    live: bool = True


class Bucket(NamedTuple):
    """Waiters for the same thing."""

    filter: TagFilter
    queue_id: int
    waiters: deque[Waiter]


class Ready:
    """Groups and their progress on this shard."""

    def __init__(self, first_offset: Callable[[int, int], int] = lambda _topic, _queue: 0) -> None:
        self.epoch = 0  # set once recovery knows it
        self._first_offset = first_offset  # of (topic number, queue id)
        self.groups: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.progress: dict[tuple[int, int], dict[int, QueueProgress]] = {}
        self.buckets: dict[tuple[int, int], dict[tuple[int, str], Bucket]] = {}
        self.parked = 0
        self._grants = 0
        self._turn: dict[tuple[int, int], int] = {}
        self._polls: list[tuple[int, int, Waiter]] = []
        self._polls_made = 0
        self._by_token: dict[object, Waiter] = {}
        self._by_client: dict[str, dict[Waiter, None]] = {}

    # --- groups ---------------------------------------------------------------------------------

    def add_group(self, number: int, name: str) -> None:
        """A group exists (created now, or read from the log)."""
        self.groups[name] = number
        self.names[number] = name

    def of(self, group: int, topic: int, queue: int) -> QueueProgress:
        """Progress of a group in a queue; a new group begins where the queue begins."""
        queues = self.progress.setdefault((group, topic), {})
        found = queues.get(queue)
        if found is None:
            found = queues[queue] = QueueProgress(self._first_offset(topic, queue))
        return found

    def drop_below(self, topic: int, queue: int, first: int) -> None:
        """Retention has dropped what lies below: all groups go on at `first`."""
        for (_, number), queues in self.progress.items():
            if number == topic and queue in queues:
                queues[queue].drop_below(first)

    def new_grant(self) -> int:
        """A grant number that was never used: epoch << 32 | serial."""
        self._grants += 1
        return self.epoch << 32 | self._grants

    # --- choosing -------------------------------------------------------------------------------

    def queue_order(self, group: int, topic: int, queue_id: int, queues: int) -> Iterator[int]:
        """The queues that a receive looks at: all, beginning with the one named, or another one each time.

        A queue that a 5.x consumer names is where it would like to begin: official brokers balance messages,
        not queues, and the official Node client always names queue 0.
        """
        first = queue_id
        if first < 0:
            first = self._turn.get((group, topic), 0)
            self._turn[(group, topic)] = (first + 1) % queues
        for i in range(queues):
            yield (first + i) % queues

    def pick(
        self,
        progress: QueueProgress,
        queue_id: int,
        queue: ConsumeQueue,
        tags: TagFilter,
        limit: int,
        mono_ms: int,
        record_at: RecordAt,
    ) -> Chosen:
        """Choose up to `limit` messages: first those whose lease is over, then new ones that match.

        `record_at(offset, position, size)` reads a message; what it cannot read is a hole, and is not chosen.
        Nothing is changed but the list of ended leases.
        """
        chosen = Chosen(progress.next)
        progress.expire(mono_ms)
        while len(chosen.picked) < limit and (offset := progress.first_free()) is not None:
            units = chosen.units(queue, offset, 1)
            if not units:
                return chosen
            progress.take_free()
            record = record_at(offset, *units[0][:2])
            if record is None:
                chosen.lost.append(offset)
            else:
                attempt = progress.leases[offset].attempt + 1
                chosen.picked.append(Picked(queue_id, offset, attempt, record))
        self._choose_new(chosen, progress, queue_id, queue, tags, limit, record_at)
        return chosen

    def _choose_new(
        self,
        chosen: Chosen,
        progress: QueueProgress,
        queue_id: int,
        queue: ConsumeQueue,
        tags: TagFilter,
        limit: int,
        record_at: RecordAt,
    ) -> None:
        picked, stop = chosen.picked, min(queue.length, progress.next + SCAN_MAX)
        while len(picked) < limit and chosen.upto < stop:
            want = limit - len(picked) if tags.tags is None else _UNITS_READ
            units = chosen.units(queue, chosen.upto, min(want, stop - chosen.upto))
            if not units:
                return
            for position, size, code in units:
                if len(picked) == limit:
                    return
                offset = chosen.upto
                chosen.upto += 1
                if offset in progress.acked or offset in progress.leases:
                    continue
                if tags.tags is not None and size and code not in tags.codes and _is_code(code):
                    continue
                record = record_at(offset, position, size)
                if record is None:
                    chosen.holes.append(offset)
                elif tags.tags is None or tags.matches(_tag_of(record)):
                    picked.append(Picked(queue_id, offset, 1, record))

    # --- handles --------------------------------------------------------------------------------

    def check(
        self, receipt: Receipt, group: int, topic: int, mono_ms: int, wall_ms: int
    ) -> tuple[QueueProgress, Lease | None]:
        """The lease that a handle stands for, None if it is consumed already; else INVALID_RECEIPT_HANDLE."""
        if receipt.group != group or receipt.topic != topic:
            raise invalid_receipt("of another consumer group or topic")
        if receipt.epoch > self.epoch:
            raise invalid_receipt("of an epoch that has not begun")
        progress = self.of(group, topic, receipt.queue)
        lease = progress.leases.get(receipt.offset)
        if lease is not None:
            if lease.grant != receipt.epoch << 32 | receipt.grant:
                raise invalid_receipt("superseded: the message was given out again")
            if lease.ends_at <= mono_ms:
                raise invalid_receipt("expired")
            return progress, lease
        if receipt.expires_ms <= wall_ms:
            raise invalid_receipt("expired")
        if receipt.offset < progress.floor or receipt.offset in progress.acked:
            return progress, None
        if receipt.epoch == self.epoch:
            raise invalid_receipt("unknown")
        # The record of this grant was lost with the process that made it: the handle itself is the proof.
        left = min(receipt.expires_ms - wall_ms, INVISIBLE_MAX_MS)
        return progress, Lease(
            receipt.attempt,
            receipt.epoch << 32 | receipt.grant,
            mono_ms + left,
            wall_ms,
            left,
        )

    # --- polls ----------------------------------------------------------------------------------

    def park(self, waiter: Waiter) -> None:
        """Let a receive wait for messages."""
        command = waiter.command
        buckets = self.buckets.setdefault((waiter.group, waiter.topic), {})
        name = (command.queue_id, command.filter_expression)
        bucket = buckets.get(name)
        if bucket is None:
            bucket = buckets[name] = Bucket(
                parse_tags(command.filter_expression), command.queue_id, deque()
            )
        bucket.waiters.append(waiter)
        self._polls_made += 1
        heapq.heappush(self._polls, (waiter.deadline, self._polls_made, waiter))
        self._by_token[waiter.token] = waiter
        self._by_client.setdefault(command.client_id, {})[waiter] = None
        self.parked += 1

    def release(self, waiter: Waiter) -> None:
        """A parked receive has been answered; it is forgotten where it waits when it is met there."""
        if waiter.live:
            waiter.live = False
            self.parked -= 1
            self._by_token.pop(waiter.token, None)
            of_client = self._by_client[waiter.command.client_id]
            del of_client[waiter]
            if not of_client:
                del self._by_client[waiter.command.client_id]

    def cancel(self, token: object) -> None:
        """The caller of a parked receive has gone."""
        waiter = self._by_token.get(token)
        if waiter is not None:
            self.release(waiter)

    def of_client(self, client_id: str) -> list[Waiter]:
        """The parked receives of a client, in the order they were parked."""
        return list(self._by_client.get(client_id, ()))

    def waiting(self, group: int, topic: int) -> Iterator[Bucket]:
        """The buckets of parked receives, without those that were answered; empty ones are dropped."""
        buckets = self.buckets.get((group, topic))
        if not buckets:
            return
        for name, bucket in list(buckets.items()):
            while bucket.waiters and not bucket.waiters[0].live:
                bucket.waiters.popleft()
            if bucket.waiters:
                yield bucket
            else:
                del buckets[name]
        if not buckets:
            del self.buckets[(group, topic)]

    def timed_out(self, mono_ms: int) -> list[Waiter]:
        """Parked receives whose time is over."""
        over = []
        while self._polls and (self._polls[0][0] <= mono_ms or not self._polls[0][2].live):
            waiter = heapq.heappop(self._polls)[2]
            if waiter.live:
                over.append(waiter)
        return over

    def next_poll_end(self) -> int | None:
        """Monotonic time of the first poll deadline."""
        while self._polls and not self._polls[0][2].live:
            heapq.heappop(self._polls)
        return self._polls[0][0] if self._polls else None


def _is_code(code: int) -> bool:
    """Whether it can be a tag's code; else its unit is damaged, and the message itself has to say its tag."""
    return -(1 << 31) <= code < 1 << 31


def _tag_of(record: bytes) -> str:
    return properties.decode(layout.properties_of(memoryview(record)[HEAD_BYTES:])).get(
        properties.TAGS, ""
    )


def lease_duration(invisible_ms: int) -> int:
    """A change of invisible time to (nearly) zero waits a moment, so that a broken client does not spin."""
    return max(invisible_ms, REDELIVERY_MIN_MS)
