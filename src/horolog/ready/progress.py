"""The progress of a consumer group in one queue: floor, acks above it, leases, next new offset.

    floor    every queue offset below is consumed
    acked    consumed offsets above the floor
    leases   offsets given out and not yet consumed, each with its newest grant
    next     queue offset from which on no message was given out yet

An offset between floor and next is in exactly one of `acked` and `leases`.  `acked` is kept as
runs, of which there are no more than leases: a lease that is extended for ever holds back the
floor, but memory does not grow with the messages consumed after it.  A lease whose time is over
stays in `leases`, and its offset in `free`, until the message is given out again; its handle cannot
ack any more.  The table of `lease_life` states which events an offset allows, and every method here
checks it.  Of a group that consumes in order, `order` keeps the message groups, and is informed of
every change.
"""

from __future__ import annotations

import heapq
from itertools import pairwise

from horolog.ready.deadlines import Deadlines
from horolog.ready.lease_life import TABLE, Event, State
from horolog.ready.leases import Lease, Leases
from horolog.ready.offset_runs import OffsetRuns
from horolog.ready.order import QueueOrder
from horolog.state_table import after


class Tally:
    """Counts over all queues of a shard.

    leases   leases that exist
    expired  leases that ended without an ack since the start
    """

    __slots__ = ("expired", "leases")

    def __init__(self) -> None:
        self.leases = 0
        self.expired = 0


class QueueProgress:
    """The progress of one group in one queue."""

    __slots__ = ("_taken", "_tally", "acked", "ends", "floor", "free", "leases", "next", "order")

    def __init__(self, floor: int = 0, tally: Tally | None = None) -> None:
        self.floor = floor
        self.next = floor
        self.acked = OffsetRuns()
        self.leases = Leases()
        self.ends: Deadlines[int] = Deadlines()  # of leased offsets that are not in `free`
        self.free: list[int] = []  # heap of offsets whose lease is over, and of those in `_taken`
        # Offsets removed from the heap lazily: they stay in it until they reach its top
        self._taken: set[int] = set()
        self.order: QueueOrder | None = None  # while the group consumes in order
        self._tally = tally or Tally()

    def state(self, offset: int) -> State:
        """Return the state of an offset (`lease_life`)."""
        if offset < self.floor or offset in self.acked:
            return State.CONSUMED
        if offset not in self.leases:
            return State.NEW
        return State.LEASED if offset in self.ends else State.ENDED

    def lease(self, offset: int, lease: Lease, event: Event) -> None:
        """Set the newest grant of an offset; the caller has taken it out of `free` if need be."""
        assert after(TABLE, self.state(offset), event) is State.LEASED
        self._tally.leases += offset not in self.leases
        self.leases[offset] = lease
        self.ends.set(offset, lease.ends_at)
        if self.order is not None and event is not Event.RENEW:  # a renewal keeps grant and receive
            self.order.leased(offset)

    def lease_all(self, leases: dict[int, Lease], ends_at: int, event: Event) -> None:
        """Set the newest grants of many offsets, whose leases end at the same moment."""
        if not leases:
            return
        offsets = list(leases)
        fresh = not self.leases.has_any(offsets) and min(offsets) >= self.floor
        if not fresh or (self.acked and any(offset in self.acked for offset in offsets)):
            for offset, lease in leases.items():
                self.lease(offset, lease, event)
            return
        assert after(TABLE, State.NEW, event) is State.LEASED
        self._tally.leases += len(leases)
        self.leases.update(leases)
        self.ends.set_all(offsets, ends_at)
        if self.order is not None:
            for offset in offsets:
                self.order.leased(offset)

    def expire(self, mono_ms: int) -> None:
        """Move offsets whose lease is over to `free`."""
        for offset in self.ends.take(mono_ms):
            assert self.leases[offset].ends_at <= mono_ms, (offset, self.leases[offset], mono_ms)
            self._tally.expired += 1
            self._free(offset)

    def end(self, offset: int, mono_ms: int) -> None:
        """End the lease of an offset now: its handle is no longer valid."""
        assert after(TABLE, self.state(offset), Event.END) is State.ENDED
        self.ends.drop(offset)
        self.leases[offset] = self.leases[offset]._replace(ends_at=mono_ms, duration_ms=0)
        self._free(offset)

    def _free(self, offset: int) -> None:
        if offset in self._taken:
            self._taken.discard(offset)
        else:
            heapq.heappush(self.free, offset)
        if self.order is not None:
            self.order.ended(offset)

    def waiting(self, length: int) -> int:
        """Return how many messages are not consumed, leased ones included.

        length  of the queue
        """
        return max(0, length - self.floor - len(self.acked))

    def next_end(self) -> int | None:
        """Return the monotonic ms at which the first lease ends; None if none is live."""
        return self.ends.first()

    def has_for(self, length: int, mono_ms: int) -> bool:
        """Return whether a receive could get a message: a new one, or one whose lease is over.

        length  of the queue
        """
        if self.order is not None:
            has = self.order.has_for(self.next, length)
        else:
            has = self.next < length or self.first_free() is not None
        if has:
            return True
        end = self.ends.first()
        return end is not None and end <= mono_ms

    def first_free(self) -> int | None:
        """Return the lowest offset whose lease is over; `take_free` removes it."""
        while self.free and self.free[0] in self._taken:
            self._taken.discard(heapq.heappop(self.free))
        return self.free[0] if self.free else None

    def take_free(self) -> None:
        """Remove the offset that `first_free` returned."""
        heapq.heappop(self.free)

    def take_out(self, offset: int) -> None:
        """Remove any offset whose lease is over from `free`."""
        assert self.state(offset) is State.ENDED, offset
        assert offset not in self._taken, offset
        self._taken.add(offset)
        if 2 * len(self._taken) > len(self.free):  # bounds the removed offsets in the heap
            self.free = [free for free in self.free if free not in self._taken]
            heapq.heapify(self.free)
            self._taken.clear()

    def consume(self, offset: int, event: Event) -> bool:
        """Mark an offset as consumed; False if it was already."""
        state = self.state(offset)
        assert after(TABLE, state, event) is State.CONSUMED
        if state is State.CONSUMED:
            return False
        if self.leases.pop(offset) is not None:
            self._tally.leases -= 1
            self.ends.drop(offset)
        self.acked.add(offset)
        self._raise_floor()
        if self.order is not None:
            self.order.consumed(offset)
        return True

    def consume_leased(self, offsets: list[int], event: Event) -> None:
        """Mark many offsets as consumed, like `consume`; all are leased and different."""
        assert after(TABLE, State.LEASED, event) is State.CONSUMED
        assert self.ends.has_all(offsets), offsets
        self.ends.drop_all(offsets)
        for offset in offsets:
            del self.leases[offset]
        self._tally.leases -= len(offsets)
        if self.order is not None:
            for offset in offsets:
                self.order.consumed(offset)
        offsets = sorted(offsets)
        first = offsets[0]
        for offset, following in pairwise((*offsets, -1)):
            if following != offset + 1:
                self.acked.add(first, offset + 1)
                first = following
        self._raise_floor()

    def _raise_floor(self) -> None:
        self.floor = self.acked.take_from(self.floor)
        self.next = max(self.next, self.floor)

    def drop_below(self, offset: int) -> None:
        """Move the floor to `offset` for retention; drop the leases of offsets below."""
        if offset <= self.floor:
            return
        for gone in [leased for leased in self.leases if leased < offset]:
            del self.leases[gone]
            self._tally.leases -= 1
            self.ends.drop(gone)
        self.free = [free for free in self.free if free >= offset and free not in self._taken]
        heapq.heapify(self.free)
        self._taken.clear()
        self.acked.drop_below(offset)
        self.floor = offset
        self._raise_floor()
        self._begin_order_again()

    def commit(self, offset: int) -> list[int]:
        """Mark every offset below `offset` as consumed; return the offsets of dropped leases.

        Acks above `offset` stay.  An `offset` below the floor rewinds the group: every offset from
        there on is new again.
        """
        forward = offset > self.floor
        gone = [leased for leased in self.leases if forward is (leased < offset)]
        if forward:
            self.drop_below(offset)
        elif offset < self.floor:
            for leased in gone:
                del self.leases[leased]
                self.ends.drop(leased)
            self._tally.leases -= len(gone)
            self.free.clear()
            self._taken.clear()
            self.acked.clear()
            self.floor = self.next = offset
            self._begin_order_again()
        else:
            gone = []
        return gone

    def _begin_order_again(self) -> None:
        """Forget which message groups are blocked, and by what; that is news for waiting polls."""
        if self.order is not None:
            self.order = QueueOrder(self.next, self.leases, self.ends)
            self.order.has_news = True

    def put_in_order(self, *, in_order: bool) -> None:
        """Make the group consume in order from now on, or in any order."""
        if not in_order:
            self.order = None
        elif self.order is None:
            self.order = QueueOrder(self.next, self.leases, self.ends)

    def skip_to(self, offset: int, leased: set[int]) -> None:
        """Move `next` to `offset`, and mark skipped offsets not in `leased` as consumed."""
        if self.floor == self.next < offset and not (self.acked or self.leases or leased):
            self.floor = self.next = offset  # the usual case where a tag filter skips many
            return
        if leased.issuperset(range(self.next, offset)):
            self.next = max(self.next, offset)  # the usual case where nothing is skipped
            return
        assert after(TABLE, State.NEW, Event.SKIP) is State.CONSUMED
        at = self.next
        # Most leases lie below `next`: walk this stretch or all leases, whichever is shorter.
        held = self.leases
        if offset - at <= len(held):
            kept_offsets = [each for each in range(at, offset) if each in leased or each in held]
        else:
            kept_offsets = sorted({each for each in (*leased, *held) if at <= each < offset})
        for kept in kept_offsets:
            if at < kept:
                self.acked.add(at, kept)
            at = kept + 1
        if at < offset:
            self.acked.add(at, offset)
        self._raise_floor()
        self.next = max(self.next, offset)

    def check_invariants(self) -> None:
        """Assert that each offset is in exactly one place, and that every lease will end."""
        assert 0 <= self.floor <= self.next, (self.floor, self.next)
        self.acked.check_invariants()
        self.leases.check_invariants()
        runs = list(self.acked.runs())
        assert not runs or runs[0][0] > self.floor, (self.floor, runs[0])
        assert all(offset >= self.floor for offset in self.leases), (self.floor, min(self.leases))
        assert not [offset for offset in self.leases if offset in self.acked]
        there = self.acked.count_below(self.next) + sum(each < self.next for each in self.leases)
        assert there == self.next - self.floor, (self.floor, self.next, runs, list(self.leases))
        ends = dict(self.ends.items())
        for offset, at in ends.items():
            assert offset in self.leases, f"{offset} is not leased, and will end"
            assert self.leases[offset].ends_at == at, (offset, at, self.leases[offset])
        free = [offset for offset in self.free if offset not in self._taken]
        assert sorted(free) == sorted(set(self.leases) - ends.keys()), self.free
        assert self._taken <= set(self.free), self._taken
        if self.order is not None:
            self.order.check_invariants(self.next, self.leases)
        self.ends.check_invariants()
