"""Picks messages of a queue for a consumer group in order; `order` says which may be given out.

All able groups are processed together, in the order of the queue, each from its first message on,
as far as the receive has room: the client consumes the messages of a group one after the other.  If
the first message of a group was leased before, the leases of the messages after it are revoked, and
they are given out again after it.

Only that first message counts a further attempt: as far as the broker knows, the ones after it were
never tried.  So a message that fails again and again does not take later messages with it to the
dead letters.
"""

from __future__ import annotations

from heapq import heappop, heappush

from horolog.limits import ORDER_COST, SCAN_MAX
from horolog.log.record import HEAD_BYTES
from horolog.protocol.rocketmq.message_group import NO_GROUP, group_hash
from horolog.ready.order import QueueOrder
from horolog.ready.picking import PickedMessage, PickRequest, PickResult
from horolog.ready.progress import QueueProgress

_CHUNK = 64  # units read at once
_REFUSED_MAX = 32  # a scan ends after so many groups got nothing for lack of room


def pick_in_order(
    progress: QueueProgress, order: QueueOrder, request: PickRequest, leases: int, mono_ms: int
) -> PickResult:
    """Pick messages; the caller leases the picked messages in the same step.

    leases  how many more leases there may be; a message that is given out again needs none
    """
    progress.expire(mono_ms)
    order.pass_to(progress.next)
    pick = _Pick(progress, order, request, leases, mono_ms)
    if not order.is_learned:
        learned = order.learn(pick.group_at, SCAN_MAX // ORDER_COST)
        pick.result.cost += ORDER_COST * learned
        if not order.is_learned:
            pick.result.is_through = not learned
            return pick.result
    for offset in order.offsets_given(request.receive) if request.receive else ():
        pick.give_back(offset)
    pick.take_able()
    while not pick.is_over and pick.scan_new():
        pass
    return pick.seal()


class _Pick:
    """One scan of a queue."""

    def __init__(
        self,
        progress: QueueProgress,
        order: QueueOrder,
        request: PickRequest,
        leases: int,
        mono_ms: int,
    ) -> None:
        self.result = PickResult(progress.next)
        self._progress = progress
        self._order = order
        self._request = request
        self._mono_ms = mono_ms
        self._leases = leases
        self._begun: set[int] = set()  # groups that this scan has begun to pick from
        self._taken: dict[int, bool] = {}  # group with picked messages → whether all are picked

    @property
    def _is_full(self) -> bool:
        return (
            len(self.result.picked) >= self._request.limit or self.result.size >= self._request.room
        )

    @property
    def is_over(self) -> bool:
        """Whether the scan must stop: full, out of leases, too costly, or unreadable files."""
        result = self.result
        is_costly = result.cost >= SCAN_MAX
        return self._is_full or result.is_short or is_costly or bool(result.unreadable)

    def group_at(self, offset: int) -> int | None:
        """Return the hash of a leased message's group; None if it cannot be found.

        The group of a hole is not known while its lease lives; after that the hole counts as
        without a group.
        """
        record = self._read(offset)
        if record is not None:
            return group_hash(memoryview(record)[HEAD_BYTES:])
        is_open = self.result.unreadable or offset in self._progress.ends
        return None if is_open else NO_GROUP

    def _read(self, offset: int) -> bytes | None:
        units = self.result.units(self._request.queue, offset, 1)
        if not len(units):
            return None
        return self._request.read(offset, *units[0].tolist()[:2])

    def give_back(self, offset: int) -> None:
        """End the lease that a repeated receive had got on an offset: it is no new attempt."""
        if offset in self._progress.ends:
            self._end(offset)
        self._order.repeated.add(offset)

    def _end(self, offset: int) -> None:
        self._progress.end(offset, self._mono_ms)
        self.result.revoked.append(offset)

    # --- what was held or leased before -----------------------------------------------------------

    def take_able(self) -> None:
        """Pick messages of the able groups, in the order of the queue."""
        order, refused = self._order, 0
        going: list[tuple[int, int, int]] = []  # heap of (next member, its place, group)
        had: list[int] = []  # groups begun by this scan that have become able again
        while not self._is_full and refused < _REFUSED_MAX and not self.result.unreadable:
            able = order.first_able()
            if able is not None and (not going or able < going[0][0]):
                group = order.take_able()
                if group not in self._begun:
                    self._begun.add(group)
                    heappush(going, (able, 0, group))
                else:
                    had.append(group)
                continue
            if not going:
                break
            offset, place, group = heappop(going)
            if not self._choose(offset, group):
                refused += 1
                self._stop(group, place)
            elif place + 1 < len(members := order.members(group)):
                heappush(going, (members[place + 1], place + 1, group))
            else:
                self._taken[group] = True
        for _, place, group in going:
            self._stop(group, place)
        for group in had:
            order.put_back(group)

    def _stop(self, group: int, place: int) -> None:
        """Stop picking a group before member `place`: revoke the leases from that member on.

        A group that got nothing stays begun, so that this scan comes to the groups after it.
        """
        if not place:
            self._order.put_back(group)
            return
        for offset in self._order.members(group)[place:]:
            if offset not in self._progress.leases:
                break
            if offset in self._progress.ends:
                self._end(offset)

    def _choose(self, offset: int, group: int, record: bytes | None = None) -> bool:
        """Pick a message unless it is lost or unwanted; False if there is no lease for it.

        False too if the files of the queue cannot be read.
        """
        progress, result = self._progress, self.result
        lease = progress.leases.get(offset)
        if lease is None and self._leases <= 0:
            result.is_short = True
            return False
        if offset in progress.ends:
            self._end(offset)
        is_new = record is not None
        if record is None:
            record = self._read(offset)
        if record is None and result.unreadable:
            return False
        if lease is not None:
            progress.take_out(offset)
        if record is None:
            result.lost.append(offset)
            return True
        filter = self._request.filter
        is_held = lease is None and not is_new
        if is_held and not (filter.wants_all or filter.takes(memoryview(record)[HEAD_BYTES:])):
            result.unwanted.append(offset)
            return True
        attempt = 1
        if lease is None:
            self._leases -= 1
        else:
            is_tried = group not in self._taken and offset not in self._order.repeated
            attempt = lease.attempt + is_tried
        self._taken.setdefault(group, False)
        result.picked.append(PickedMessage(self._request.queue_id, offset, attempt, record))
        result.size += self._request.weigh(record)
        return True

    # --- new ones ---------------------------------------------------------------------------------

    def scan_new(self) -> bool:
        """Scan some new messages; False if no more can be scanned now."""
        order, progress, request = self._order, self._progress, self._request
        first, result = order.frontier, self.result
        if order.is_full or first >= request.queue.length:
            return False
        units = result.units(request.queue, first, _CHUNK)
        may = None if request.filter.wants_all else request.filter.may_match(units).tolist()
        for row, (position, size, _) in enumerate(units.tolist()):
            if self.is_over or order.is_full:
                return False
            offset = order.frontier = first + row
            order.frontier += 1
            result.cost += 1
            if offset in progress.leases or offset in progress.acked:
                continue
            if may is not None and not may[row]:
                continue
            record = request.read(offset, position, size)
            if record is None:
                result.lost.append(offset)
            else:
                self._hold_or_pick(offset, record)
        return len(units) > 0

    def _hold_or_pick(self, offset: int, record: bytes) -> None:
        stored, filter = memoryview(record)[HEAD_BYTES:], self._request.filter
        if not filter.wants_all and not filter.takes(stored):
            self.result.cost += filter.cost
            return
        order, group = self._order, group_hash(stored)
        is_first = order.hold(offset, group)
        if not is_first and not self._taken.get(group):
            self.result.cost += ORDER_COST
        elif is_first and order.members(group)[-1] != offset:
            order.put_back(group)
            self.take_able()
        elif self._choose(offset, group, record):
            self._begun.add(group)
            self._taken[group] = True
        else:
            order.put_back(group)

    def seal(self) -> PickResult:
        """Complete the result of the scan and return it."""
        result, order, request = self.result, self._order, self._request
        picked = {each.offset for each in result.picked}
        gone = {*result.lost, *result.unwanted}
        result.upto = order.settled(picked | gone)
        at_end = order.is_full or order.frontier >= request.queue.length
        result.is_through = at_end or result.is_short
        return result
