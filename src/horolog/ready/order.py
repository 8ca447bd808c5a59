"""Which messages of a queue an orderly consumer group may take next.

A message group is *blocked* while one of its messages is leased: no consumer gets a later message
of the group.  Once all leased messages are consumed, or the lease of the first of them ends, the
group may continue from its first member.  Other message groups of the queue are not affected.
Messages without a message group together form one group.

    members  of a message group: messages that are leased, were leased, or are held, by queue offset
    held     scanned and matched by the filter, but not given out: the group is blocked, or the
             receive was full
    able     message groups whose first member is not leased, ordered by their first member
    frontier queue offset up to which new messages were scanned

Example.  The queue has a1 b1 a2 c1 a3 b2, a receive of 2 gets a1 and b1.  The next receive finds a2
and holds it, gives out c1, holds a3 and b2.  When a1 is acknowledged, a2 and a3 may be given out
together.  If the lease of a1 ends instead, a1 a2 a3 may be given out, in this order.

`next` of the progress stays at the first held message, so a start or a replay needs to know no more
than for other groups: offsets below `next` are leased or consumed, and so are some above.
Everything here follows from that and from the messages themselves, and is rebuilt, by reading the
leased messages, when a receive needs it (`learn`).

At most `ORDER_HELD_MAX` messages of a queue are held, and later messages wait: a blocked group with
more messages than that blocks its queue.  An event costs O(log n); no held message is scanned
twice.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import islice

from horolog.limits import ORDER_HELD_MAX
from horolog.ready.deadlines import Deadlines

GroupAt = Callable[[int], int | None]  # queue offset → hash of its message group


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
        "frontier",
        "has_news",
        "held",
        "repeated",
    )

    def __init__(self, first: int, leased: Iterable[int], ends: Deadlines[int]) -> None:
        """Make the order of a queue, unread from `first` on; `ends`: offsets with a live lease."""
        self.frontier = first
        self.held: OrderedDict[int, int] = OrderedDict()  # queue offset → message group; ascending
        self.repeated: set[int] = set()  # given again to the same receive: counts as no new attempt
        self.has_news = False  # a group has become able since this was set to False
        self._ends = ends
        self._members: dict[int, list[int]] = {}
        self._group_of: dict[int, int] = {}  # leased offset → message group
        self._unknown = dict.fromkeys(leased)  # leased offsets whose messages were not read yet
        # Heap of (first member, group); some entries are out of date
        self._able: list[tuple[int, int]] = []
        self._listed: set[int] = set()  # groups in the heap
        self._attempts: dict[int, dict[int, None]] = {}  # receive → queue offsets that it was given
        self._attempt_of: dict[int, int] = {}

    # --- what is known ----------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether no further message can be held."""
        return len(self.held) >= ORDER_HELD_MAX

    @property
    def is_learned(self) -> bool:
        """Whether the groups of all leased messages are known."""
        return not self._unknown

    def learn(self, group_at: GroupAt, most: int) -> int:
        """Read up to `most` leased messages of unknown groups; return how many were learned.

        A message whose group cannot be found (None) stays unknown, and blocks all groups: it may
        belong to any.
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
        """Return the highest possible `next`: all below is given out, consumed, or unwanted."""
        taken = set(chosen)
        return next((offset for offset in self.held if offset not in taken), self.frontier)

    def has_for(self, next_offset: int, length: int) -> bool:
        """Return whether a receive could get or learn something now, before any lease ends.

        length  of the queue
        """
        if self._unknown or self.first_able() is not None:
            return True
        if self.settled() > next_offset:
            return True
        return max(self.frontier, next_offset) < length and not self.is_full

    def pass_to(self, next_offset: int) -> None:
        """Move the frontier to `next_offset` at least: offsets below were consumed without a scan.

        That happens by handles whose grants a crash has lost.
        """
        self.frontier = max(self.frontier, next_offset)

    def members(self, group: int) -> list[int]:
        """Return the members of a message group, by queue offset."""
        return list(self._members.get(group, ()))

    # --- choosing ---------------------------------------------------------------------------------

    def hold(self, offset: int, group: int) -> bool:
        """Hold a new message, the last one scanned; return whether it is the first of its group."""
        assert offset == self.frontier - 1, (offset, self.frontier)
        self.held[offset] = group
        return self._join(offset, group) == 0

    def take_able(self) -> int:
        """Take the group of `first_able` off the heap, until `put_back` or its next event."""
        assert self.first_able() is not None, "no group can go on"
        _, group = heappop(self._able)
        self._listed.discard(group)
        return group

    def put_back(self, group: int) -> None:
        """Put a taken group back: the receive had no room for its message."""
        self._list(group)

    def first_able(self) -> int | None:
        """Return the lowest offset that can be given out; None if all groups are blocked."""
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
        """List a group as able if its first member is not leased; return whether it was added."""
        members = self._members.get(group)
        if not members or group in self._listed or members[0] in self._ends:
            return False
        self._listed.add(group)
        heappush(self._able, (members[0], group))
        return True

    def _list_all(self) -> None:
        """List all able groups: no leased message is of an unknown group any more."""
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
        """Record that an offset was leased, or that its lease has a new end and a new grant."""
        self.repeated.discard(offset)
        self._forget_attempt(offset)
        if offset in self._group_of:
            return
        group = self.held.pop(offset, None)
        if group is None:
            self._unknown[offset] = None
        else:
            self._group_of[offset] = group

    def ended(self, offset: int) -> None:
        """Record that the lease of an offset is over."""
        group = self._group_of.get(offset)
        if group is not None:
            self._note(group)

    def consumed(self, offset: int) -> None:
        """Record that an offset is consumed or dropped."""
        was_learned = self.is_learned
        self._unknown.pop(offset, None)
        self.repeated.discard(offset)
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

    def record_given(self, receive: int, offsets: Iterable[int]) -> None:
        """Record which offsets, leased just now, a receive was given.

        The client may repeat the receive if the response was lost.
        """
        for offset in offsets:
            self._attempts.setdefault(receive, {})[offset] = None
            self._attempt_of[offset] = receive

    def offsets_given(self, receive: int) -> list[int]:
        """Return the offsets a receive was given that were not consumed or leased since."""
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
        """Assert that each message has a group, and that no able group is missing from the heap."""
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
        assert self.repeated <= leased, self.repeated
        given = {offset: receive for receive, all in self._attempts.items() for offset in all}
        assert given == self._attempt_of
        assert given.keys() <= leased, "given, and not leased"
