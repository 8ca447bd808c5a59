"""Long polls that wait, and what wakes them.

A poll is parked when it was offered everything that its topic's queues have for its group: new messages, and messages
whose lease is over.  So it need be looked at again only when one of these queues grows, or when a lease of its group
in one of them ends.  Both are noted as *news* of a group and topic; nothing else is looked at in a turn, however many
polls wait:

    park          the first poll of a group for a topic: the end of its first lease there is watched
    grown         a queue of a topic has new messages: news for every group that waits for the topic
    ended         a watched lease is over: `note` as news of its group in which queues
    take_news     what must be looked at in this turn, and is old from here on
    leave         answered, cancelled or timed out: nothing of the poll stays

A lease is watched only while somebody waits: no turn is woken for nobody.  Times are monotonic milliseconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from horolog.protocol.commands import Receive
from horolog.ready.deadlines import Deadlines
from horolog.ready.filter import TagFilter, parse_tags


@dataclass(slots=True, eq=False)
class Waiter:
    """A parked Receive."""

    token: object
    command: Receive
    group: int
    topic: int
    deadline: int


class Bucket(NamedTuple):
    """Waiters for the same thing, the first come first."""

    filter: TagFilter
    queue_id: int
    waiters: OrderedDict[object, Waiter]  # by token


class News(NamedTuple):
    """Queues that may have something for the waiting polls of a group."""

    topic: int
    group: int
    queues: list[int]


@dataclass(slots=True)
class _Waiting:
    """The polls of one group for one topic."""

    buckets: dict[tuple[int, str], Bucket] = field(default_factory=dict)
    news: set[int] = field(default_factory=set)


class Polls:
    """All parked polls of a shard."""

    def __init__(self) -> None:
        self._waiters: dict[object, Waiter] = {}  # by token
        self._topics: dict[int, dict[int, _Waiting]] = {}  # topic → group → polls
        self._clients: dict[str, OrderedDict[object, Waiter]] = {}  # by client id and token
        self._deadlines: Deadlines[object] = Deadlines()  # of tokens
        self._ends: Deadlines[tuple[int, int]] = Deadlines()  # (topic, group) → its first lease's
        self._news: set[tuple[int, int]] = set()  # (topic, group)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiters)

    # --- who waits ------------------------------------------------------------------------------

    def park(self, waiter: Waiter, first_end: int | None) -> None:
        """Let a receive wait that was offered everything.

        first_end  of all leases that its group has in that topic
        """
        assert waiter.token not in self._waiters, "parked twice"
        groups = self._topics.setdefault(waiter.topic, {})
        waiting = groups.get(waiter.group)
        if waiting is None:
            waiting = groups[waiter.group] = _Waiting()
        self.watch(waiter.group, waiter.topic, first_end)
        command = waiter.command
        name = (command.queue_id, command.filter_expression)
        bucket = waiting.buckets.get(name)
        if bucket is None:
            tags = parse_tags(command.filter_expression)
            bucket = waiting.buckets[name] = Bucket(tags, command.queue_id, OrderedDict())
        bucket.waiters[waiter.token] = waiter
        self._waiters[waiter.token] = waiter
        self._clients.setdefault(command.client_id, OrderedDict())[waiter.token] = waiter
        self._deadlines.set(waiter.token, waiter.deadline)

    def leave(self, waiter: Waiter) -> None:
        """A parked receive was answered, or nobody waits for its answer."""
        del self._waiters[waiter.token]
        self._deadlines.drop(waiter.token)
        of_client = self._clients[waiter.command.client_id]
        del of_client[waiter.token]
        if not of_client:
            del self._clients[waiter.command.client_id]
        groups = self._topics[waiter.topic]
        waiting = groups[waiter.group]
        name = (waiter.command.queue_id, waiter.command.filter_expression)
        bucket = waiting.buckets[name]
        del bucket.waiters[waiter.token]
        if bucket.waiters:
            return
        del waiting.buckets[name]
        if waiting.buckets:
            return
        self._ends.drop((waiter.topic, waiter.group))
        self._news.discard((waiter.topic, waiter.group))
        del groups[waiter.group]
        if not groups:
            del self._topics[waiter.topic]
        if not self._waiters:
            self._waiters = {}  # gives back the room of the most that ever waited

    def cancel(self, token: object) -> None:
        """The caller of a receive has gone, parked or not."""
        waiter = self._waiters.get(token)
        if waiter is not None:
            self.leave(waiter)

    def of_client(self, client_id: str) -> list[Waiter]:
        """The parked receives of a client, in the order they were parked."""
        return list(self._clients.get(client_id, OrderedDict()).values())

    def waits(self, group: int, topic: int) -> bool:
        """Whether somebody of that group waits for that topic."""
        groups = self._topics.get(topic)
        return groups is not None and group in groups

    def groups(self) -> Iterator[tuple[int, int]]:
        """(group, topic) of all who wait."""
        for topic, groups in self._topics.items():
            for group in groups:
                yield group, topic

    def buckets(self, group: int, topic: int) -> Iterator[Bucket]:
        """The waiting polls of a group for a topic, by what they wait for; they may leave meanwhile."""
        waiting = self._topics.get(topic, {}).get(group)
        if waiting is not None:
            yield from list(waiting.buckets.values())

    # --- what wakes them ------------------------------------------------------------------------

    def watch(self, group: int, topic: int, first_end: int | None) -> None:
        """The first lease of a group in a topic ends then, None: it has none; forgotten if nobody waits."""
        place = (topic, group)
        if first_end is None:
            self._ends.drop(place)
        elif self.waits(group, topic) and self._ends.at(place) != first_end:
            self._ends.set(place, first_end)

    def watched(self, group: int, topic: int) -> int | None:
        """When a group that waits is woken because of a lease."""
        return self._ends.at((topic, group))

    def grown(self, topic: int, queue: int) -> None:
        """A queue has new messages."""
        for group, waiting in self._topics.get(topic, {}).items():
            waiting.news.add(queue)
            self._news.add((topic, group))

    def ended(self, mono_ms: int) -> list[tuple[int, int]]:
        """(group, topic) of those of whom a lease is over; `note` in which queues, and `watch` the next one."""
        return [(group, topic) for topic, group in self._ends.take(mono_ms)]

    def note(self, group: int, topic: int, queues: list[int]) -> None:
        """Messages of these queues can be given out again."""
        self._topics[topic][group].news.update(queues)
        self._news.add((topic, group))

    def take_news(self) -> list[News]:
        """What must be looked at now, by topic and group."""
        found = []
        for topic, group in sorted(self._news):
            waiting = self._topics[topic][group]
            found.append(News(topic, group, sorted(waiting.news)))
            waiting.news.clear()
        self._news.clear()
        return found

    def timed_out(self, mono_ms: int) -> list[Waiter]:
        """Parked receives whose time is over; they have left."""
        over = []
        for token in self._deadlines.take(mono_ms):
            waiter = self._waiters[token]
            self.leave(waiter)
            over.append(waiter)
        return over

    def next_at(self) -> int | None:
        """When something must be done, if nothing else happens: a poll times out, a watched lease ends."""
        moments = (self._deadlines.first(), self._ends.first())
        return min((at for at in moments if at is not None), default=None)

    # --- what must hold -------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """AssertionError if something of a poll is kept that has left, or one waits that nothing will end."""
        waiters: dict[object, Waiter] = {}
        for topic, groups in self._topics.items():
            assert groups, f"topic {topic} has no waiting group"
            for group, waiting in groups.items():
                assert waiting.buckets, f"group {group} has no waiting poll"
                assert not waiting.news or (topic, group) in self._news, "news that nobody looks at"
                for bucket in waiting.buckets.values():
                    assert bucket.waiters, "an empty bucket"
                    for token, waiter in bucket.waiters.items():
                        assert (waiter.topic, waiter.group) == (topic, group), waiter
                        assert self._deadlines.at(token) == waiter.deadline, waiter
                        waiters[token] = waiter
        assert waiters == self._waiters, "a poll in no bucket"
        clients = [waiter for each in self._clients.values() for waiter in each.values()]
        assert set(clients) == set(waiters.values()), "a poll of no client"
        assert len(self._deadlines) == len(waiters), "a deadline of a poll that has left"
        assert all(self.waits(group, topic) for (topic, group), _ in self._ends.items())
        assert all(group in self._topics.get(topic, {}) for topic, group in self._news), self._news
        self._deadlines.check_invariants()
        self._ends.check_invariants()
