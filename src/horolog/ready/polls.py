"""Waiting long polls, and the events that wake them.

There are two kinds.  A *receive* of a group waits for a topic: for new messages in any of its
queues, and for messages of its group whose lease is over.  A *pull* waits for one queue, and has no
group.  A poll is parked after it was offered everything there is, so it must be checked again only
when one of its queues grows, or when a lease of its group in one of them ends.  Both are recorded
as *news* of a place, (topic, group) or (topic, queue); a turn checks only places with news, however
many polls wait: a message costs nothing for 1 000 groups that wait for 1 000 other queues.

    park          adds a poll; with the first poll of a group for a topic, the end of its first
                  lease there is watched
    note_grown    a queue of a topic has new messages: news for every group that waits for the
                  topic, and for the pulls of that queue
    take_ended    returns the groups with a watched lease that is over; then `note` in which queues
    take_news     returns the groups to check in this turn, a bounded count, and clears their news
    take_grown    returns the queues whose pulls to check in this turn
    postpone      keeps unfinished news for the next turn, after groups that have had no turn yet
    leave         removes a poll that was answered, cancelled or timed out

A lease is watched only while a poll waits for it, so no turn is woken in vain.  Times are monotonic
milliseconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeAlias

from horolog.errors import ErrorCode, HorologError
from horolog.limits import PARKED_POLLS_MAX
from horolog.protocol.commands import Receive
from horolog.protocol.queue_commands import Pull
from horolog.ready.deadlines import Deadlines
from horolog.ready.filter import Filter, parse_filter

# (topic, group); for pulls (topic, −1 − queue), since the ids of groups are above 0.
PollPlace: TypeAlias = tuple[int, int]


@dataclass(slots=True, eq=False)
class Waiter:
    """A parked Receive, or a parked Pull, which has no group (0)."""

    token: object
    command: Receive | Pull
    topic: int
    group: int
    deadline: int

    @property
    def place(self) -> PollPlace:
        """The place whose news wakes this poll."""
        return self.topic, self.group or place_of_pulls(self.command.queue_id)


def place_of_pulls(queue: int) -> int:
    """Return the second part of the place of the pulls that wait for a queue."""
    return -1 - queue


def _queue_of_pulls(part: int) -> int:
    """Return the queue whose `place_of_pulls` is `part`."""
    return -1 - part


def check_may_park(parked: int) -> None:
    """Raise TOO_MANY_REQUESTS if too many polls wait already."""
    if parked >= PARKED_POLLS_MAX:
        raise HorologError(
            ErrorCode.TOO_MANY_REQUESTS,
            f"{PARKED_POLLS_MAX} polls are waiting already, the most that are allowed",
            field="long_polling_timeout",
            limit=f"{PARKED_POLLS_MAX} polls",
        )


@dataclass(slots=True, eq=False)
class Bucket:
    """Polls of a place with the same queue and filter, first come first.

    seen  of pulls: queue offset below which no message matches them, or they would not wait
    """

    filter: Filter
    queue_id: int
    waiters: OrderedDict[object, Waiter] = field(default_factory=OrderedDict)  # by token
    seen: int = 0


class News(NamedTuple):
    """The queues that may have messages for the waiting polls of a group."""

    topic: int
    group: int
    queues: list[int]


@dataclass(slots=True)
class _Waiting:
    """The polls of one place, and the queues that have news for them."""

    buckets: dict[tuple[int, str, bool], Bucket] = field(default_factory=dict)
    news: set[int] = field(default_factory=set)


class Polls:
    """All parked polls of a shard."""

    def __init__(self) -> None:
        self._waiters: dict[object, Waiter] = {}  # by token
        self._places: dict[PollPlace, _Waiting] = {}
        self._groups: dict[int, dict[int, None]] = {}  # topic → groups that wait for it
        self._clients: dict[str, OrderedDict[object, Waiter]] = {}  # by client id and token
        self._deadlines: Deadlines[object] = Deadlines()  # by token
        self._ends: Deadlines[PollPlace] = Deadlines()  # place of a group → end of its first lease
        self._news: set[PollPlace] = set()  # places of groups with news
        # Places of groups whose news waits for another turn, the oldest first
        self._later: dict[PollPlace, None] = {}
        self._grown: set[PollPlace] = set()  # places of pulls whose queue has grown

    def __len__(self) -> int:
        """Return the count of waiting polls."""
        return len(self._waiters)

    # --- who waits ------------------------------------------------------------------------------

    def park(self, waiter: Waiter, first_end: int | None = None, seen: int = 0) -> None:
        """Park a receive or a pull that was offered everything there is.

        first_end  first end of all leases that the group has in the topic; None if it has none
        seen       length of the queue that a pull waits for
        """
        assert waiter.token not in self._waiters, "parked twice"
        place = waiter.place
        waiting = self._places.get(place)
        if waiting is None:
            waiting = self._places[place] = _Waiting()
            if waiter.group:
                self._groups.setdefault(waiter.topic, {})[waiter.group] = None
        if waiter.group:
            self.watch(waiter.group, waiter.topic, first_end)
        command = waiter.command
        name = (command.queue_id, command.filter_expression, command.is_sql)
        bucket = waiting.buckets.get(name)
        if bucket is None:
            filter = parse_filter(command.filter_expression, is_sql=command.is_sql)
            bucket = waiting.buckets[name] = Bucket(filter, command.queue_id, seen=seen)
        assert bucket.seen == seen, (bucket.seen, seen)
        bucket.waiters[waiter.token] = waiter
        self._waiters[waiter.token] = waiter
        self._clients.setdefault(command.client_id, OrderedDict())[waiter.token] = waiter
        self._deadlines.set(waiter.token, waiter.deadline)

    def leave(self, waiter: Waiter) -> None:
        """Remove a parked poll: it was answered, or its client no longer waits."""
        del self._waiters[waiter.token]
        self._deadlines.drop(waiter.token)
        of_client = self._clients[waiter.command.client_id]
        del of_client[waiter.token]
        if not of_client:
            del self._clients[waiter.command.client_id]
        place = waiter.place
        waiting = self._places[place]
        command = waiter.command
        name = (command.queue_id, command.filter_expression, command.is_sql)
        bucket = waiting.buckets[name]
        del bucket.waiters[waiter.token]
        if bucket.waiters:
            return
        del waiting.buckets[name]
        if not waiting.buckets:
            del self._places[place]
            self._nobody_waits(waiter.topic, waiter.group, place)
        if not self._waiters:
            self._waiters = {}  # free the memory of the most polls that ever waited

    def _nobody_waits(self, topic: int, group: int, place: PollPlace) -> None:
        self._ends.drop(place)
        self._news.discard(place)
        self._later.pop(place, None)
        self._grown.discard(place)
        if group:
            groups = self._groups[topic]
            del groups[group]
            if not groups:
                del self._groups[topic]

    def cancel(self, token: object) -> Waiter | None:
        """Remove the poll of a client that has gone; return it, or None if it was not parked."""
        waiter = self._waiters.get(token)
        if waiter is not None:
            self.leave(waiter)
        return waiter

    def of_client(self, client_id: str) -> list[Waiter]:
        """Return the parked polls of a client, in the order they were parked."""
        return list(self._clients.get(client_id, OrderedDict()).values())

    def of_topic(self, topic: int) -> list[Waiter]:
        """Return the parked polls for a topic; scans all parked polls."""
        return [waiter for waiter in self._waiters.values() if waiter.topic == topic]

    def of_group(self, name: str) -> list[Waiter]:
        """Return the parked receives of a group and pulls of its members; scans all polls."""
        return [waiter for waiter in self._waiters.values() if waiter.command.group == name]

    def waits(self, group: int, topic: int) -> bool:
        """Return whether a poll of a group waits for a topic."""
        return (topic, group) in self._places

    def groups(self) -> Iterator[tuple[int, int]]:
        """Yield (group, topic) of all groups with waiting polls."""
        for topic, groups in self._groups.items():
            for group in groups:
                yield group, topic

    def pulled(self) -> Iterator[tuple[int, int, Bucket]]:
        """Yield (topic, queue, bucket of pulls) of all waiting pulls."""
        for (topic, other), waiting in self._places.items():
            if other < 0:
                for bucket in waiting.buckets.values():
                    yield topic, _queue_of_pulls(other), bucket

    def buckets(self, place: PollPlace) -> Iterator[Bucket]:
        """Yield the waiting polls of a place, by queue and filter; polls may leave meanwhile."""
        waiting = self._places.get(place)
        if waiting is not None:
            yield from list(waiting.buckets.values())

    # --- what wakes them ------------------------------------------------------------------------

    def watch(self, group: int, topic: int, first_end: int | None) -> None:
        """Watch the first lease end of a group in a topic (None: no lease), if a poll waits."""
        place = (topic, group)
        if first_end is None:
            self._ends.drop(place)
        elif place in self._places and self._ends.at(place) != first_end:
            self._ends.set(place, first_end)

    def watched(self, group: int, topic: int) -> int | None:
        """Return when a waiting group is woken by the end of a lease; None if by none."""
        return self._ends.at((topic, group))

    def note_grown(self, topic: int, queue: int) -> None:
        """Record that a queue has new messages: news for the polls that wait for it."""
        for group in self._groups.get(topic, ()):
            self._places[topic, group].news.add(queue)
            self._news.add((topic, group))
        place = topic, place_of_pulls(queue)
        if place in self._places:
            self._grown.add(place)

    def take_ended(self, mono_ms: int) -> list[tuple[int, int]]:
        """Return (group, topic) with a watched lease that is over.

        The caller must `note` in which queues, and `watch` the next end.
        """
        return [(group, topic) for topic, group in self._ends.take(mono_ms)]

    def note(self, group: int, topic: int, queues: list[int]) -> None:
        """Record news: messages of these queues can be given out again."""
        self._places[topic, group].news.update(queues)
        self._news.add((topic, group))

    def postpone(self, news: News) -> None:
        """Keep news for the next turn; ignored if no poll of the group waits any more."""
        place = news.topic, news.group
        if place in self._places:
            self._places[place].news.update(news.queues)
            self._later[place] = None

    @property
    def has_postponed(self) -> bool:
        """Whether news is left for a next turn, which should begin at once."""
        return bool(self._later)

    def is_noted(self, group: int, topic: int, queue: int) -> bool:
        """Return whether a queue has news that a later turn will check."""
        waiting = self._places.get((topic, group))
        return waiting is not None and queue in waiting.news

    def take_news(self, most: int) -> list[News]:
        """Take the news of at most `most` groups: first postponed ones, then by topic and group.

        One message may be news for all groups there are: the other groups follow in the next turns.
        """
        self._later.update(dict.fromkeys(sorted(self._news - self._later.keys())))
        self._news.clear()
        found = []
        for place in list(islice(self._later, most)):
            del self._later[place]
            waiting = self._places[place]
            found.append(News(*place, sorted(waiting.news)))
            waiting.news.clear()
        return found

    def take_grown(self) -> list[tuple[int, int]]:
        """Take the (topic, queue) pairs whose pulls must be checked now."""
        found = [(topic, _queue_of_pulls(other)) for topic, other in sorted(self._grown)]
        self._grown.clear()
        return found

    def take_timed_out(self, mono_ms: int) -> list[Waiter]:
        """Remove and return the parked polls whose deadline has come."""
        over = []
        for token in self._deadlines.take(mono_ms):
            waiter = self._waiters[token]
            self.leave(waiter)
            over.append(waiter)
        return over

    def next_at(self) -> int | None:
        """Return the next moment at which a poll times out or a watched lease ends; None: never."""
        moments = (self._deadlines.first(), self._ends.first())
        return min((at for at in moments if at is not None), default=None)

    # --- what must hold -------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Assert that no removed poll has left a trace, and that each waiting poll will end."""
        waiters: dict[object, Waiter] = {}
        for place, waiting in self._places.items():
            assert waiting.buckets, f"nobody waits at {place}"
            is_noted = place in self._news or place in self._later
            assert not waiting.news or is_noted, "news that nobody looks at"
            for bucket in waiting.buckets.values():
                assert bucket.waiters, "an empty bucket"
                for token, waiter in bucket.waiters.items():
                    assert waiter.place == place, waiter
                    assert self._deadlines.at(token) == waiter.deadline, waiter
                    waiters[token] = waiter
        assert waiters == self._waiters, "a poll in no bucket"
        groups = {(topic, group) for group, topic in self.groups()}
        assert groups == {place for place in self._places if place[1] > 0}, groups
        assert all(self._groups.values()), "a topic that nobody waits for"
        clients = [waiter for each in self._clients.values() for waiter in each.values()]
        assert set(clients) == set(waiters.values()), "a poll of no client"
        assert len(self._deadlines) == len(waiters), "a deadline of a poll that has left"
        assert groups.issuperset(place for place, _ in self._ends.items())
        assert groups.issuperset(self._news), self._news
        assert groups.issuperset(self._later), self._later
        assert self._grown <= self._places.keys() - groups, self._grown
        self._deadlines.check_invariants()
        self._ends.check_invariants()
