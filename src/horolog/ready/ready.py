"""The side of consumers: groups, their progress in every queue, and the polls that wait.

Works on consume queues and progress only; reading messages and writing grants to the log is the broker's part.
All times are monotonic milliseconds unless a name says wall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from horolog.limits import INVISIBLE_MAX_MS, LEASES_MAX
from horolog.log.consume_queue import ConsumeQueue
from horolog.ready.chosen import Ask, Chosen
from horolog.ready.deadlines import Deadlines
from horolog.ready.free_pick import pick_free
from horolog.ready.groups import GroupTable
from horolog.ready.lease_life import Event
from horolog.ready.leases import Lease
from horolog.ready.order_pick import pick_in_order
from horolog.ready.polls import News, Polls, Waiter
from horolog.ready.progress import QueueProgress, Tally
from horolog.ready.receipt import Receipt, invalid_receipt

_ROOM_PART = 100  # of the most leases: when so much has become free, those who wait are looked at


class Ready:
    """Groups and their progress on this shard."""

    def __init__(self, first_offset: Callable[[int, int], int] = lambda _topic, _queue: 0) -> None:
        self.epoch = 0  # set once recovery knows it
        self._first_offset = first_offset  # of (topic id, queue id)
        self.groups = GroupTable()
        self.progress: dict[tuple[int, int], dict[int, QueueProgress]] = {}
        self._topics_of: dict[int, set[int]] = {}  # group → topics that it has progress in
        self.polls = Polls()
        self._ends: dict[tuple[int, int], Deadlines[int]] = {}  # queue → end of its first lease
        self.leases_max = LEASES_MAX
        # Whether something was kept back, because there was no room for its lease
        self.is_short = False
        self._tally = Tally()
        self._grants = 0
        self._turn: dict[tuple[int, int], int] = {}

    # --- groups ---------------------------------------------------------------------------------

    def drop_group(self, group_id: int) -> None:
        """A group is deleted, with all its progress; nobody of it waits."""
        self.groups.drop(group_id)
        self._drop_progress([(group_id, topic) for topic in self.topics_of(group_id)])

    def drop_topic(self, topic_id: int) -> None:
        """A topic is deleted, with the progress of all groups in it; nobody waits for it."""
        self._drop_progress([place for place in self.progress if place[1] == topic_id])

    def _drop_progress(self, places: list[tuple[int, int]]) -> None:
        for place in places:
            for progress in self.progress.pop(place).values():
                self._tally.leases -= len(progress.leases)
            topics = self._topics_of[place[0]]
            topics.remove(place[1])
            if not topics:
                del self._topics_of[place[0]]
            self._ends.pop(place, None)
            self._turn.pop(place, None)

    def topics_of(self, group: int) -> list[int]:
        """Topics that a group has progress in."""
        return list(self._topics_of.get(group, ()))

    def find(self, group: int, topic: int, queue: int) -> QueueProgress | None:
        """Progress of a group in a queue, None if it has taken nothing from it yet."""
        return self.progress.get((group, topic), {}).get(queue)

    def has_for(
        self, place: tuple[int, int, int], queue: ConsumeQueue, mono_ms: int, in_order: int | None
    ) -> bool:
        """Whether a receive could get something of a queue; most have nothing, and are looked at no further.

        place     group, topic and queue
        in_order  None: the receive is not in order; else what stands for it, if it may come again, or 0
        """
        found = self.find(*place)
        if found is None:
            return queue.first < queue.length
        found.put_in_order(in_order=in_order is not None)
        if in_order and found.order is not None and found.order.given(in_order):
            return True
        return found.has_for(queue.length, mono_ms)

    def rest(self, group: int, topic: int, queues: list[ConsumeQueue]) -> int:
        """How many messages of a topic were never leased to a group, by where its queues go on."""
        known = self.progress.get((group, topic), {})
        return sum(
            queue.length - (known[id].next if id in known else queue.first)
            for id, queue in enumerate(queues)
        )

    def given_first(
        self, group: int, topic: int, queues: Iterable[int], in_order: int | None
    ) -> Iterable[int]:
        """The queues, those first of which this receive was given something before."""
        if not in_order:
            return queues
        known = self.progress.get((group, topic), {})

        def has_given(queue: int) -> bool:
            order = known[queue].order if queue in known else None
            return order is not None and bool(order.given(in_order))

        return sorted(queues, key=has_given, reverse=True)

    def of(self, group: int, topic: int, queue: int) -> QueueProgress:
        """Progress of a group in a queue; a new group begins where the queue begins."""
        queues = self.progress.get((group, topic))
        if queues is None:
            queues = self.progress[group, topic] = {}
            self._topics_of.setdefault(group, set()).add(topic)
        found = queues.get(queue)
        if found is None:
            found = queues[queue] = QueueProgress(self._first_offset(topic, queue), self._tally)
        return found

    def drop_below(self, topic: int, queue: int, first: int) -> None:
        """Retention has dropped what lies below: all groups go on at `first`."""
        for (group, of_topic), queues in self.progress.items():
            if of_topic == topic and queue in queues:
                queues[queue].drop_below(first)
                self.watch(group, topic, queue)

    def commit(self, place: tuple[int, int, int], offset: int) -> list[int]:
        """A group commits an offset of a queue, (group, topic, queue); gives the offsets whose leases vanish.

        A checkpoint may know of more that retention has dropped than the record that follows it in the log.
        """
        gone = self.of(*place).commit(max(offset, self._first_offset(*place[1:])))
        self.watch(*place)
        return gone

    def restore_lease(self, group: int, topic: int, queue: int, offset: int, lease: Lease) -> None:
        """A lease as the checkpoint or the log says."""
        self.of(group, topic, queue).lease(offset, lease, Event.RECORD)
        self.watch(group, topic, queue)

    @property
    def leased(self) -> int:
        """Leases of all groups, those included that are over and not given out again."""
        return self._tally.leases

    @property
    def expired(self) -> int:
        """Leases that have come to their end without an ack, since the start."""
        return self._tally.expired

    @property
    def room(self) -> int:
        """How many more there may be."""
        return max(0, self.leases_max - self._tally.leases)

    def new_grant(self) -> int:
        """A grant id that was never used: epoch << 32 | serial."""
        return self.new_grants(1)[0]

    def new_grants(self, count: int) -> range:
        """Number so many grants to come."""
        first = (self.epoch << 32 | self._grants) + 1
        self._grants += count
        return range(first, first + count)

    # --- choosing -------------------------------------------------------------------------------

    def queue_order(
        self, group: int, topic: int, queue_id: int, queues: int, only: list[int] | None = None
    ) -> Iterator[int]:
        """The queues that a receive looks at: all, beginning with the one named, or another one each time.

        only  those that have news for a poll that waits; None: all

        A queue that a 5.x consumer names is where it would like to begin: official brokers balance messages,
        not queues, and the official Node client always names queue 0.
        """
        first = queue_id
        if first < 0:
            first = self._turn.get((group, topic), 0)
            self._turn[(group, topic)] = (first + 1) % queues
        if only is not None:
            yield from sorted(only, key=lambda queue: (queue - first) % queues)
            return
        for i in range(queues):
            yield (first + i) % queues

    def pick(self, progress: QueueProgress, ask: Ask, mono_ms: int) -> Chosen:
        """Choose messages; nothing is changed but the list of ended leases."""
        order, room = progress.order, self.room
        if order is None:
            chosen = pick_free(progress, ask, room, mono_ms)
        else:
            chosen = pick_in_order(progress, order, ask, room, mono_ms)
        self.is_short |= chosen.is_short
        return chosen

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

    @property
    def parked(self) -> int:
        """How many polls wait."""
        return len(self.polls)

    def park(self, waiter: Waiter) -> None:
        """Let a receive wait that was offered everything there is for it."""
        self.polls.park(waiter, self._first_end(waiter.group, waiter.topic))

    def watch(self, group: int, topic: int, queue: int) -> None:
        """Leases of a queue have changed: whoever waits is woken when the first one ends."""
        found = self.of(group, topic, queue)
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
        """Note for the polls that wait in which queues leases are over; `watch` these when they were looked at."""
        for group, topic in self.polls.ended(mono_ms):
            self.polls.note(group, topic, self._ends[group, topic].take(mono_ms))
            self.polls.watch(group, topic, self._first_end(group, topic))

    def lacks_room(self, group: int, topic: int, queues: list[ConsumeQueue]) -> bool:
        """Whether there is something new for a group that cannot be leased."""
        return not self.room and any(
            (found.next if (found := self.find(group, topic, id)) else queue.first) < queue.length
            for id, queue in enumerate(queues)
        )

    def note_room(self, queues_of: Callable[[int], int]) -> None:
        """Once there is room again, let all who wait be looked at; `queues_of` a topic id."""
        if self.is_short and self.room >= -(-self.leases_max // _ROOM_PART):
            self.is_short = False
            for group, topic in list(self.polls.groups()):
                self.polls.note(group, topic, list(range(queues_of(topic))))

    # --- what must hold -------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """AssertionError if a lease could end and nobody who waits for it would be woken."""
        self.polls.check_invariants()
        self.groups.check_invariants()
        pairs = {(group, topic) for group in self._topics_of for topic in self.topics_of(group)}
        assert pairs == self.progress.keys(), "topics of a group that are not those of its progress"
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
