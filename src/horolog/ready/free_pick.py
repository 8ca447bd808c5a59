"""Picks messages of a queue for a consumer group that takes them in any order.

`order_pick` does so for groups in order.
"""

from __future__ import annotations

import numpy as np

from horolog.limits import SCAN_MAX
from horolog.log.record import HEAD_BYTES
from horolog.ready.picking import PickedMessage, PickRequest, PickResult
from horolog.ready.progress import QueueProgress


def pick_free(
    progress: QueueProgress, request: PickRequest, leases: int, mono_ms: int
) -> PickResult:
    """Pick messages: first those whose lease is over, then new ones that match the filter.

    leases  how many more leases there may be; a message that is given out again needs none
    """
    result, limit = PickResult(progress.next), request.limit
    progress.expire(mono_ms)
    while (
        len(result.picked) < limit
        and result.size < request.room
        and (offset := progress.first_free()) is not None
    ):
        units = result.units(request.queue, offset, 1)
        if not len(units):
            return result
        progress.take_free()
        record = request.read(offset, *units[0].tolist()[:2])
        if record is None:
            result.lost.append(offset)
        else:
            attempt = progress.leases[offset].attempt + 1
            result.picked.append(PickedMessage(request.queue_id, offset, attempt, record))
            result.size += request.weigh(record)
    fresh = min(limit, len(result.picked) + leases)  # messages given out again need no lease
    _choose_new(result, progress, request, fresh)
    if fresh < limit and len(result.picked) >= fresh and result.upto < request.queue.length:
        result.is_short = True
    result.cost = (result.upto - progress.next) * request.filter.cost
    result.is_through = result.upto >= request.queue.length or not leases
    return result


def _following(progress: QueueProgress, request: PickRequest, first: int, most: int) -> list[bytes]:
    """Return messages from offset `first` on, none of them acknowledged; none if one is leased."""
    if progress.leases.has_any(range(first, first + most)):
        return []
    return request.follow(first, most)


def _that_fit(records: list[bytes], request: PickRequest, room: int) -> tuple[list[bytes], int]:
    """Return the records up to the one that uses up `room`, and their bytes in the response."""
    size = 0
    for count, record in enumerate(records, 1):
        size += request.weigh(record)
        if size >= room:
            return records[:count], size
    return records, size


def _choose_new(
    result: PickResult, progress: QueueProgress, request: PickRequest, limit: int
) -> None:
    """Pick messages that were never given out."""
    picked, filter = result.picked, request.filter
    stop = min(request.queue.length, progress.next + SCAN_MAX // filter.cost)
    known = progress.acked.stop  # mostly nothing from `next` on is acknowledged
    while len(picked) < limit and result.size < request.room and result.upto < stop:
        first, wants_all = result.upto, filter.wants_all
        count = stop - first
        if wants_all and first >= known:
            found = _following(progress, request, first, min(count, limit - len(picked)))
            some, size = _that_fit(found, request, request.room - result.size)
            if some:
                # `tuple.__new__` takes half as long as PickedMessage does
                new, queue = tuple.__new__, request.queue_id
                picked += [
                    new(PickedMessage, (queue, at, 1, rec)) for at, rec in enumerate(some, first)
                ]
                result.size += size
                result.upto += len(some)
                continue
        units = result.units(
            request.queue, first, min(count, limit - len(picked)) if wants_all else count
        )
        if not len(units):
            return
        if wants_all:
            rows, places = list(range(len(units))), units.tolist()
        else:
            matching = np.flatnonzero(filter.may_match(units))
            rows, places = matching.tolist(), units[matching].tolist()
        for row, (position, size, _) in zip(rows, places, strict=True):
            offset = first + row
            if offset in progress.leases or (offset < known and offset in progress.acked):
                continue
            record = request.read(offset, position, size)
            if record is None:
                result.holes.append(offset)
            elif wants_all or filter.takes(memoryview(record)[HEAD_BYTES:]):
                picked.append(PickedMessage(request.queue_id, offset, 1, record))
                result.size += request.weigh(record)
                if len(picked) == limit or result.size >= request.room:
                    result.upto = offset + 1
                    return
        result.upto = first + len(units)
