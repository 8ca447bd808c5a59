"""Which messages of a queue a consumer group in order may take next: of each message group, one stretch at a time.

A message group is *blocked* while one of its messages is leased: nobody gets a later one.  When all that were leased are
consumed, or when the lease of the first of them ends, the group may go on where it stands.  Other groups of the same
queue are not touched by that.  Messages without a message group are one group together.

    members  of a message group: its messages that are leased, were leased, or are held; by queue offset
    held     looked at and wanted by the filter, but not given out: their group is blocked, or the receive was full
    able     message groups whose first member is not leased, the one with the lowest first
    frontier new messages were looked at up to here

Example.  The queue has a1 b1 a2 c1 a3 b2, a receive of 2 gets a1 and b1.  The next one finds a2 and holds it, gives
out c1, holds a3 and b2.  When a1 is acknowledged, a2 and a3 may go, together.  If a1's lease ends instead, a1 a2 a3
may go, in this order.

`next` of the progress stays at the first held message, so what a start or a replay has to know is what it always was:
offsets below `next` are leased or consumed, some above it are too.  All that is here follows from that and from the
messages themselves, and is made again, by reading what is leased, when a receive asks for it (`learn`).

Of the held ones there are at most `ORDER_HELD_MAX` in a queue, and what comes after them waits: a blocked group with more
messages than that blocks its queue.  An event costs O(log n); nothing looks twice at what is held.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import islice

from horolog.limits import ORDER_HELD_MAX
from horolog.ready.deadlines import Deadlines

GroupAt = Callable[[int], int | None]  # queue offset → what stands for its message group


class QueueOrder:
    """The message groups of one queue, for one consumer group."""

    __slots__ = (
        "_able",
        "_attempt_of",
        "_attempts",
        "_ends",
        "_group_of",
        "_listed",
        "_members",
        "_unknown",
        "again",
        "frontier",
        "has_news",
        "held",
    )

    def __init__(self, first: int, leased: Iterable[int], ends: Deadlines[int]) -> None:
        """For a queue of which nothing was looked at from `first` on; `ends` has the offsets whose lease lives."""
        self.frontier = first
        self.held: OrderedDict[int, int] = OrderedDict()  # queue offset → message group; ascending
        self.again: set[int] = set()  # given out again to whoever had them: no further attempt
        self.has_news = False  # a group can go on since this was set to False
        self._ends = ends
        self._members: dict[int, list[int]] = {}
        self._group_of: dict[int, int] = {}  # of offsets that were leased
        self._unknown = dict.fromkeys(leased)  # leased, and their messages were not read
        # Heap of (first member, group); some are out of date
        self._able: list[tuple[int, int]] = []
        self._listed: set[int] = set()  # groups in it
        self._attempts: dict[int, dict[int, None]] = {}  # receive → queue offsets that it was given
        self._attempt_of: dict[int, int] = {}

    # --- what is known ----------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether no more can be held."""
        return len(self.held) >= ORDER_HELD_MAX

    @property
    def is_learned(self) -> bool:
        """Whether the groups of all leased messages are known."""
        return not self._unknown

    def learn(self, group_at: GroupAt, most: int) -> int:
        """Read up to so many leased messages whose groups are not known; gives how many are known now.

        One that cannot be told (None) stays unknown, and blocks all groups: it may be of any.
        """
        learned = 0
        for offset in list(islice(self._unknown, most)):
            group = group_at(offset)
            if group is not None:
                learned += 1
                del self._unknown[offset]
                self._group_of[offset] = group
                self._join(offset, group)
        if self.is_learned and learned:
            self._list_all()
        return learned

    def settled(self, chosen: Iterable[int] = ()) -> int:
        """What `next` can be: all below is leased, consumed, chosen, or not wanted by the filter."""
        taken = set(chosen)
        return next((offset for offset in self.held if offset not in taken), self.frontier)

    def has_for(self, next_offset: int, length: int) -> bool:
        """Whether a receive could get or learn something of a queue of that length without a lease ending."""
        if self._unknown or self.first_able() is not None:
            return True
        if self.settled() > next_offset:
            return True
        return max(self.frontier, next_offset) < length and not self.is_full

    def pass_to(self, next_offset: int) -> None:
        """What is below was consumed without a look: by handles whose grants a crash has lost."""
        self.frontier = max(self.frontier, next_offset)

    def members(self, group: int) -> list[int]:
        """The members of a message group."""
        return list(self._members.get(group, ()))

    # --- choosing ---------------------------------------------------------------------------------

    def hold(self, offset: int, group: int) -> bool:
        """A new message was looked at; whether it is the first of its group."""
        assert offset == self.frontier - 1, (offset, self.frontier)
        self.held[offset] = group
        return self._join(offset, group) == 0

    def take_able(self) -> int:
        """The group of `first_able`; it is not offered again before something happens to it, or `offer`."""
        assert self.first_able() is not None, "no group can go on"
        _, group = heappop(self._able)
        self._listed.discard(group)
        return group

    def offer(self, group: int) -> None:
        """It was taken, and got nothing for want of room."""
        self._list(group)

    def first_able(self) -> int | None:
        """The lowest message that can be given out, None: all groups are blocked."""
        able = self._able
        while able:
            first, group = able[0]
            members = self._members.get(group)
            if members and members[0] == first and first not in self._ends:
                return first
            heappop(able)
            self._listed.discard(group)
            self._list(group)
        return None

    def _list(self, group: int) -> bool:
        """Note a group if it can go on; whether that is new."""
        members = self._members.get(group)
        if not members or group in self._listed or members[0] in self._ends:
            return False
        self._listed.add(group)
        heappush(self._able, (members[0], group))
        return True

    def _list_all(self) -> None:
        """All leased ones are known now: no group waits for one that is not."""
        for group in self._members:
            self._list(group)

    def _join(self, offset: int, group: int) -> int:
        members = self._members.setdefault(group, [])
        if not members or members[-1] < offset:
            members.append(offset)
            return len(members) - 1
        insort(members, offset)
        return bisect_left(members, offset)

    # --- what happens to an offset ----------------------------------------------------------------

    def leased(self, offset: int) -> None:
        """It was given out, or its lease has a new end."""
        self.again.discard(offset)
        self._forget_attempt(offset)
        if offset in self._group_of:
            return
        group = self.held.pop(offset, None)
        if group is None:
            self._unknown[offset] = None
        else:
            self._group_of[offset] = group

    def ended(self, offset: int) -> None:
        """Its lease is over."""
        group = self._group_of.get(offset)
        if group is not None:
            self._note(group)

    def consumed(self, offset: int) -> None:
        """It is consumed, or gone."""
        was_learned = self.is_learned
        self._unknown.pop(offset, None)
        self.again.discard(offset)
        self._forget_attempt(offset)
        if self.is_learned and not was_learned:
            self._list_all()
            self.has_news = True
        group = self._group_of.pop(offset, None)
        if group is None:
            group = self.held.pop(offset, None)
        if group is None:
            return
        members = self._members[group]
        del members[bisect_left(members, offset)]
        if members:
            self._note(group)
        else:
            del self._members[group]

    def _note(self, group: int) -> None:
        if self._list(group):
            self.has_news = True

    # --- receives that are repeated ---------------------------------------------------------------

    def remember(self, receive: int, offsets: Iterable[int]) -> None:
        """A receive was given these, which were leased just now; it may come again, if its answer was lost."""
        for offset in offsets:
            self._attempts.setdefault(receive, {})[offset] = None
            self._attempt_of[offset] = receive

    def given(self, receive: int) -> list[int]:
        """What a receive was given and nobody has consumed, or been given, since."""
        return list(self._attempts.get(receive, ()))

    def _forget_attempt(self, offset: int) -> None:
        receive = self._attempt_of.pop(offset, None)
        if receive is not None:
            offsets = self._attempts[receive]
            del offsets[offset]
            if not offsets:
                del self._attempts[receive]

    # --- what must hold ---------------------------------------------------------------------------

    def check_invariants(self, next_offset: int, leased: Iterable[int]) -> None:
        """AssertionError if a message is of no group, or a group that could go on is forgotten."""
        leased = set(leased)
        assert len(self.held) <= ORDER_HELD_MAX
        assert list(self.held) == sorted(self.held), "held out of order"
        assert all(next_offset <= offset < self.frontier for offset in self.held), next_offset
        assert leased.isdisjoint(self.held), "leased and held"
        assert self._group_of.keys().isdisjoint(self._unknown), "known and unknown"
        assert leased == self._group_of.keys() | self._unknown.keys(), "leased by nobody's group"
        members = {offset: group for group, all in self._members.items() for offset in all}
        assert members == {**self._group_of, **self.held}
        for group, offsets in self._members.items():
            assert offsets == sorted(set(offsets)), group
            assert offsets, f"group {group} has no members"
            can_go_on = offsets[0] not in self._ends and self.is_learned
            assert not can_go_on or group in self._listed, f"group {group} would wait for ever"
        assert self._listed == {group for _, group in self._able}, "listed, and not able"
        assert self.again <= leased, self.again
        given = {offset: receive for receive, all in self._attempts.items() for offset in all}
        assert given == self._attempt_of
        assert given.keys() <= leased, "given, and not leased"
