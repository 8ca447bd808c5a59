"""What a consumer group has taken from one queue: ack floor, acks above it, leases, and what is to come.

    floor    every queue offset below it is consumed
    acked    consumed offsets above the floor
    leases   offsets given out and not yet consumed, each with its newest grant
    next     never given out yet, from here on

An offset between floor and next is in exactly one of `acked` and `leases`.  A lease whose time is over stays in
`leases` until it is given out again or is changed; it cannot be acked any more.

========================  =======================================================================
event                     what happens
========================  =======================================================================
grant of `next`           lease, attempt 1; offsets that a filter skipped become consumed
lease over                the offset waits in `free` for the next receive: attempt + 1
ack, newest grant         consumed
a hole                    consumed: what cannot be read is never given out (again), and logged so
ack, older grant          refused: somebody else has the message
change of invisible time  a new grant of the same attempt with a new end; the old handle is void
retention                 what it dropped counts as consumed; a late ack of it is taken
========================  =======================================================================
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from horolog.ready.deadlines import Deadlines


class Lease(NamedTuple):
    """The newest grant of one queue offset; times are monotonic milliseconds, `granted_ms` is wall."""

    attempt: int
    grant: int
    ends_at: int
    granted_ms: int
    duration_ms: int
    client_id: str = ""  # set with auto_renew: the lease is kept while that client lives
    renew_until: int = 0


class QueueProgress:
    """Progress of one group in one queue."""

    __slots__ = ("acked", "ends", "floor", "free", "leases", "next")

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        self.next = floor
        self.acked: set[int] = set()
        self.leases: dict[int, Lease] = {}
        self.ends: Deadlines[int] = Deadlines()  # of leased offsets that are not in `free`
        self.free: list[int] = []  # heap of offsets whose lease is over

    def lease(self, offset: int, lease: Lease) -> None:
        """Give out, or change the newest grant of, an offset."""
        self.leases[offset] = lease
        self.ends.set(offset, lease.ends_at)

    def expire(self, mono_ms: int) -> None:
        """Move offsets whose lease is over to `free`."""
        for offset in self.ends.take(mono_ms):
            heapq.heappush(self.free, offset)

    def next_end(self) -> int | None:
        """Monotonic time at which the first lease ends."""
        return self.ends.first()

    def has_for(self, length: int, mono_ms: int) -> bool:
        """Whether a receive could get something of a queue of that length: something new, or a lease that is over."""
        if self.next < length or self.free:
            return True
        end = self.ends.first()
        return end is not None and end <= mono_ms

    def first_free(self) -> int | None:
        """The lowest offset whose lease is over; `take_free` when it is given out or consumed."""
        while self.free:
            if self.free[0] in self.leases:
                return self.free[0]
            heapq.heappop(self.free)
        return None

    def take_free(self) -> None:
        """Take what `first_free` gave."""
        heapq.heappop(self.free)

    def consume(self, offset: int) -> bool:
        """The offset is consumed; False if it was already."""
        if offset < self.floor or offset in self.acked:
            return False
        if self.leases.pop(offset, None) is not None:
            self.ends.drop(offset)
        self.acked.add(offset)
        while self.floor in self.acked:
            self.acked.discard(self.floor)
            self.floor += 1
        self.next = max(self.next, self.floor)
        return True

    def drop_below(self, offset: int) -> None:
        """Offsets below are gone: leases on them vanish, and the group goes on here."""
        if offset <= self.floor:
            return
        for gone in [leased for leased in self.leases if leased < offset]:
            del self.leases[gone]
            self.ends.drop(gone)
        self.acked = {acked for acked in self.acked if acked >= offset}
        self.floor = offset
        while self.floor in self.acked:
            self.acked.discard(self.floor)
            self.floor += 1
        self.next = max(self.next, self.floor)

    def skip_to(self, offset: int, leased: set[int]) -> None:
        """Everything from `next` to below `offset` that is not in `leased` is consumed; `next` moves there."""
        for skipped in range(self.next, offset):
            if skipped not in leased and skipped not in self.leases:
                self.consume(skipped)
        self.next = max(self.next, offset)
