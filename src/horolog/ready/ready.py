"""The entry point of the consumer side: groups, their progress in queues, and waiting polls.

Works on consume queues and progress only; the broker reads messages and writes grants to the log.
All times are monotonic milliseconds unless a name says wall.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from horolog.limits import INVISIBLE_MAX_MS, LEASES_MAX
from horolog.log.consume_queue import ConsumeQueue
from horolog.ready.deadlines import Deadlines
from horolog.ready.free_pick import pick_free
from horolog.ready.groups import GroupTable
from horolog.ready.lease_life import Event
from horolog.ready.leases import Lease
from horolog.ready.order_pick import pick_in_order
from horolog.ready.picking import PickRequest, PickResult
from horolog.ready.polls import News, Polls, Waiter
from horolog.ready.progress import QueueProgress, Tally
from horolog.ready.receipt import Receipt, invalid_receipt

_ROOM_PART = 100  # waiting polls are checked once 1/100 of the leases has become free


class Ready:
    """The consumer groups of a shard, their progress, and their waiting polls."""

    def __init__(self, first_offset: Callable[[int, int], int] = lambda _topic, _queue: 0) -> None:
        self.epoch = 0  # set once recovery knows it
        self._first_offset = first_offset  # returns where a queue begins, by (topic id, queue id)
        self.groups = GroupTable()
        self.progress: dict[tuple[int, int], dict[int, QueueProgress]] = {}
        # (group, topic) → messages that retention dropped before the group consumed them, since start
        self.dropped: Counter[tuple[int, int]] = Counter()
        self._topics_of: dict[int, set[int]] = {}  # group → topics that it has progress in
        self.polls = Polls()
        self._ends: dict[tuple[int, int], Deadlines[int]] = {}  # queue → end of its first lease
        self.leases_max = LEASES_MAX
        # Whether a message was kept back because there was no room for its lease
        self.is_short = False
        self._tally = Tally()
        self._grants = 0
        # (group, topic) → queue where the next receive that names none begins; also of a group that
        # has received nothing, and has no progress
        self._next_queue: dict[tuple[int, int], int] = {}

    # --- groups ---------------------------------------------------------------------------------

    def drop_group(self, group_id: int) -> None:
        """Remove a deleted group with all its progress; none of its polls may wait."""
        self.groups.drop(group_id)
        self._drop_progress([(group_id, topic) for topic in self.topics_of(group_id)])
        for place in [place for place in self._next_queue if place[0] == group_id]:
            del self._next_queue[place]

    def drop_topic(self, topic_id: int) -> None:
        """Remove the progress of all groups in a deleted topic; no poll may wait for the topic."""
        self._drop_progress([place for place in self.progress if place[1] == topic_id])
        for place in [place for place in self._next_queue if place[1] == topic_id]:
            del self._next_queue[place]

    def _drop_progress(self, places: list[tuple[int, int]]) -> None:
        for place in places:
            for progress in self.progress.pop(place).values():
                self._tally.leases -= len(progress.leases)
            topics = self._topics_of[place[0]]
            topics.remove(place[1])
            if not topics:
                del self._topics_of[place[0]]
            self._ends.pop(place, None)
            self.dropped.pop(place, None)

    def topics_of(self, group: int) -> list[int]:
        """Return the topics that a group has progress in."""
        return list(self._topics_of.get(group, ()))

    def progress_if_any(self, group: int, topic: int, queue: int) -> QueueProgress | None:
        """Return the progress of a group in a queue; None if it has taken nothing from it yet."""
        return self.progress.get((group, topic), {}).get(queue)

    def has_for(
        self, place: tuple[int, int, int], queue: ConsumeQueue, mono_ms: int, in_order: int | None
    ) -> bool:
        """Return whether a receive could get a message of a queue: a cheap test, often False.

        place     group, topic and queue
        in_order  None: the receive is not in order; else its id if the client may repeat it, or 0
        """
        found = self.progress_if_any(*place)
        if found is None:
            return queue.first < queue.length
        found.put_in_order(in_order=in_order is not None)
        if in_order and found.order is not None and found.order.offsets_given(in_order):
            return True
        return found.has_for(queue.length, mono_ms)

    def unleased_count(self, group: int, topic: int, queues: list[ConsumeQueue]) -> int:
        """Return how many messages of a topic were never leased to a group, by `next`."""
        known = self.progress.get((group, topic), {})
        return sum(
            queue.length - (known[id].next if id in known else queue.first)
            for id, queue in enumerate(queues)
        )

    def repeated_first(
        self, group: int, topic: int, queues: Iterable[int], in_order: int | None
    ) -> Iterable[int]:
        """Return the queues, first those of which the repeated receive was given messages."""
        if not in_order:
            return queues
        known = self.progress.get((group, topic), {})

        def has_given(queue: int) -> bool:
            order = known[queue].order if queue in known else None
            return order is not None and bool(order.offsets_given(in_order))

        return sorted(queues, key=has_given, reverse=True)

    def progress_of(self, group: int, topic: int, queue: int) -> QueueProgress:
        """Return or make a group's progress in a queue; a new group begins where the queue does."""
        queues = self.progress.get((group, topic))
        if queues is None:
            queues = self.progress[group, topic] = {}
            self._topics_of.setdefault(group, set()).add(topic)
        found = queues.get(queue)
        if found is None:
            first = self._first_offset(topic, queue)
            found = queues[queue] = QueueProgress(first, self._tally)
            self.dropped[group, topic] += first
        return found

    def drop_below(self, firsts: Mapping[tuple[int, int], int]) -> None:
        """Move all groups to the first offset of each (topic, queue).

        Retention has dropped the messages below.
        """
        topics = {topic for topic, _ in firsts}
        for (group, topic), queues in self.progress.items():
            if topic not in topics:
                continue
            for queue, progress in queues.items():
                first = firsts.get((topic, queue))
                if first is not None and progress.floor < first:
                    before = progress.floor - len(progress.acked)
                    progress.drop_below(first)
                    self.dropped[group, topic] += progress.floor - len(progress.acked) - before
                    self.watch(group, topic, queue)

    def commit(self, place: tuple[int, int, int], offset: int) -> list[int]:
        """Commit an offset of a queue, (group, topic, queue); return offsets of dropped leases.

        The offset is raised to where the queue begins: in a replay, the checkpoint may know of
        later drops by retention than the record.
        """
        gone = self.progress_of(*place).commit(max(offset, self._first_offset(*place[1:])))
        self.watch(*place)
        return gone

    def restore_lease(self, group: int, topic: int, queue: int, offset: int, lease: Lease) -> None:
        """Restore a lease from the checkpoint or the log."""
        self.progress_of(group, topic, queue).lease(offset, lease, Event.RECORD)
        self.watch(group, topic, queue)

    @property
    def leased(self) -> int:
        """Count of leases of all groups, including leases that are over and not given out again."""
        return self._tally.leases

    @property
    def expired(self) -> int:
        """Count of leases that ended without an ack since the start."""
        return self._tally.expired

    @property
    def room(self) -> int:
        """Count of further leases that there may be."""
        return max(0, self.leases_max - self._tally.leases)

    def new_grant(self) -> int:
        """Return a new grant id: epoch << 32 | serial."""
        return self.new_grants(1)[0]

    def new_grants(self, count: int) -> range:
        """Return the ids of `count` new grants."""
        first = (self.epoch << 32 | self._grants) + 1
        self._grants += count
        return range(first, first + count)

    # --- choosing -------------------------------------------------------------------------------

    def queue_order(
        self, group: int, topic: int, queue_id: int, queues: int, only: list[int] | None
    ) -> Iterator[int]:
        """Yield the queues that a receive scans, from the named one on, else in turn.

        queue_id  the queue that the receive names; below 0: none
        only      the queues with news for a waiting poll; None: all

        A queue that a 5.x consumer names is only where the scan begins: official brokers balance
        messages, not queues, and the official Node client always names queue 0.
        """
        first = queue_id
        if first < 0:
            first = self._next_queue.get((group, topic), 0)
            self._next_queue[group, topic] = (first + 1) % queues
        if only is not None:
            yield from sorted(only, key=lambda queue: (queue - first) % queues)
            return
        for i in range(queues):
            yield (first + i) % queues

    def pick(self, progress: QueueProgress, request: PickRequest, mono_ms: int) -> PickResult:
        """Pick messages for a receive; changes ended leases, and the order of a group in order."""
        order, room = progress.order, self.room
        if order is None:
            result = pick_free(progress, request, room, mono_ms)
        else:
            result = pick_in_order(progress, order, request, room, mono_ms)
        self.is_short |= result.is_short
        return result

    # --- handles --------------------------------------------------------------------------------

    def find_lease(
        self, receipt: Receipt, group: int, topic: int, mono_ms: int, wall_ms: int
    ) -> tuple[QueueProgress | None, Lease | None]:
        """Find the lease of a handle, None if its message is consumed; else INVALID_RECEIPT_HANDLE.

        Returns the progress of the queue too.  Changes nothing: a group that has none there gets
        none.
        """
        if receipt.group != group or receipt.topic != topic:
            raise invalid_receipt("of another consumer group or topic")
        if receipt.epoch > self.epoch:
            raise invalid_receipt("of an epoch that has not begun")
        progress = self.progress_if_any(group, topic, receipt.queue)
        lease = None if progress is None else progress.leases.get(receipt.offset)
        if lease is not None:
            if lease.grant != receipt.epoch << 32 | receipt.grant:
                raise invalid_receipt("superseded: the message was given out again")
            if lease.ends_at <= mono_ms:
                raise invalid_receipt("expired")
            return progress, lease
        if receipt.expires_ms <= wall_ms:
            raise invalid_receipt("expired")
        floor = self._first_offset(topic, receipt.queue) if progress is None else progress.floor
        if receipt.offset < floor or (progress is not None and receipt.offset in progress.acked):
            return progress, None
        if receipt.epoch == self.epoch:
            raise invalid_receipt("unknown")
        # The record of this grant was lost with its process: the handle itself is the proof.
        left = min(receipt.expires_ms - wall_ms, INVISIBLE_MAX_MS)
        return progress, Lease(
            receipt.attempt,
            receipt.epoch << 32 | receipt.grant,
            mono_ms + left,
            wall_ms,
            left,
        )

    # --- polls ----------------------------------------------------------------------------------

    @property
    def parked(self) -> int:
        """Count of waiting polls."""
        return len(self.polls)

    def park(self, waiter: Waiter) -> None:
        """Park a receive that was offered everything there is."""
        self.polls.park(waiter, self._first_end(waiter.group, waiter.topic))

    def watch(self, group: int, topic: int, queue: int) -> None:
        """Watch the first lease end of a queue after a change, to wake the group's polls then."""
        found = self.progress_of(group, topic, queue)
        end = found.next_end()
        ends = self._ends.get((group, topic))
        if end is not None:
            if ends is None:
                ends = self._ends[group, topic] = Deadlines()
            if ends.at(queue) != end:
                ends.set(queue, end)
        elif ends is not None:
            ends.drop(queue)
            if not ends:
                del self._ends[group, topic]
        self.polls.watch(group, topic, self._first_end(group, topic))
        order = found.order
        if order is not None and order.has_news:
            order.has_news = False
            self.polls.postpone(News(topic, group, [queue]))

    def _first_end(self, group: int, topic: int) -> int | None:
        ends = self._ends.get((group, topic))
        return None if ends is None else ends.first()

    def note_ended(self, mono_ms: int) -> None:
        """Record as news in which queues leases are over; `watch` these queues after the scan."""
        for group, topic in self.polls.take_ended(mono_ms):
            self.polls.note(group, topic, self._ends[group, topic].take(mono_ms))
            self.polls.watch(group, topic, self._first_end(group, topic))

    def lacks_room(self, group: int, topic: int, queues: list[ConsumeQueue]) -> bool:
        """Return whether there is a new message for a group, but no room for its lease."""
        return not self.room and any(
            (found.next if (found := self.progress_if_any(group, topic, id)) else queue.first)
            < queue.length
            for id, queue in enumerate(queues)
        )

    def note_room(self, queues_of: Callable[[int], int]) -> None:
        """Record all queues as news of all waiting groups once there is room for leases again.

        queues_of  returns the count of queues of a topic id
        """
        if self.is_short and self.room >= -(-self.leases_max // _ROOM_PART):
            self.is_short = False
            for group, topic in list(self.polls.groups()):
                self.polls.note(group, topic, list(range(queues_of(topic))))

    # --- what must hold -------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Assert that the end of a lease wakes every poll that waits for it."""
        self.polls.check_invariants()
        self.groups.check_invariants()
        pairs = {(group, topic) for group in self._topics_of for topic in self.topics_of(group)}
        assert pairs == self.progress.keys(), "topics of a group that are not those of its progress"
        assert self.dropped.keys() <= self.progress.keys(), "dropped of a group without progress"
        assert {group for group, _ in self._next_queue} <= self.groups.names.keys(), (
            "a group is gone"
        )
        for (group, topic), queues in self.progress.items():
            assert group in self.groups.names, f"progress of group {group}, which does not exist"
            ends = self._ends.get((group, topic))
            for queue, found in queues.items():
                watched, place = None if ends is None else ends.at(queue), (group, topic, queue)
                assert found.next_end() == watched, (place, found.next_end(), watched)
        leases = [found.leases for queues in self.progress.values() for found in queues.values()]
        assert self.leased == sum(map(len, leases)), (self.leased, sum(map(len, leases)))
        for group, topic in self.polls.groups():
            watched, first = self.polls.watched(group, topic), self._first_end(group, topic)
            assert watched == first, (group, topic, watched, first)
