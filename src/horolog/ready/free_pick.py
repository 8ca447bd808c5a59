"""Picks messages of a queue for a consumer group that takes them in any order.

`order_pick` does so for groups in order.
"""

from __future__ import annotations

import numpy as np

from horolog.limits import SCAN_MAX
from horolog.log.record import HEAD_BYTES
from horolog.ready.chosen import Ask, Chosen, Picked
from horolog.ready.progress import QueueProgress


def pick_free(progress: QueueProgress, ask: Ask, leases: int, mono_ms: int) -> Chosen:
    """Pick messages: first those whose lease is over, then new ones that match the filter.

    leases  how many more leases there may be; a message that is given out again needs none
    """
    chosen, limit = Chosen(progress.next), ask.limit
    progress.expire(mono_ms)
    while (
        len(chosen.picked) < limit
        and chosen.size < ask.room
        and (offset := progress.first_free()) is not None
    ):
        units = chosen.units(ask.queue, offset, 1)
        if not len(units):
            return chosen
        progress.take_free()
        record = ask.read(offset, *units[0].tolist()[:2])
        if record is None:
            chosen.lost.append(offset)
        else:
            attempt = progress.leases[offset].attempt + 1
            chosen.picked.append(Picked(ask.queue_id, offset, attempt, record))
            chosen.size += ask.weigh(record)
    fresh = min(limit, len(chosen.picked) + leases)  # messages given out again need no lease
    _choose_new(chosen, progress, ask, fresh)
    if fresh < limit and len(chosen.picked) >= fresh and chosen.upto < ask.queue.length:
        chosen.is_short = True
    chosen.cost = (chosen.upto - progress.next) * ask.tags.cost
    chosen.is_through = chosen.upto >= ask.queue.length or not leases
    return chosen


def _following(progress: QueueProgress, ask: Ask, first: int, most: int) -> list[bytes]:
    """Return messages from offset `first` on, none of them acknowledged; none if one is leased."""
    if progress.leases.has_any(range(first, first + most)):
        return []
    return ask.follow(first, most)


def _that_fit(records: list[bytes], ask: Ask, room: int) -> tuple[list[bytes], int]:
    """Return the records up to the one that uses up `room`, and their bytes in the response."""
    size = 0
    for count, record in enumerate(records, 1):
        size += ask.weigh(record)
        if size >= room:
            return records[:count], size
    return records, size


def _choose_new(chosen: Chosen, progress: QueueProgress, ask: Ask, limit: int) -> None:
    """Pick messages that were never given out."""
    picked, tags = chosen.picked, ask.tags
    stop = min(ask.queue.length, progress.next + SCAN_MAX // tags.cost)
    known = progress.acked.stop  # mostly nothing from `next` on is acknowledged
    while len(picked) < limit and chosen.size < ask.room and chosen.upto < stop:
        first, wants_all = chosen.upto, tags.wants_all
        count = stop - first
        if wants_all and first >= known:
            found = _following(progress, ask, first, min(count, limit - len(picked)))
            some, size = _that_fit(found, ask, ask.room - chosen.size)
            if some:
                named, queue = tuple.__new__, ask.queue_id  # takes half as long as Picked does
                picked += [named(Picked, (queue, at, 1, rec)) for at, rec in enumerate(some, first)]
                chosen.size += size
                chosen.upto += len(some)
                continue
        units = chosen.units(
            ask.queue, first, min(count, limit - len(picked)) if wants_all else count
        )
        if not len(units):
            return
        if wants_all:
            rows, places = list(range(len(units))), units.tolist()
        else:
            matching = np.flatnonzero(tags.may_match(units))
            rows, places = matching.tolist(), units[matching].tolist()
        for row, (position, size, _) in zip(rows, places, strict=True):
            offset = first + row
            if offset in progress.leases or (offset < known and offset in progress.acked):
                continue
            record = ask.read(offset, position, size)
            if record is None:
                chosen.holes.append(offset)
            elif wants_all or tags.takes(memoryview(record)[HEAD_BYTES:]):
                picked.append(Picked(ask.queue_id, offset, 1, record))
                chosen.size += ask.weigh(record)
                if len(picked) == limit or chosen.size >= ask.room:
                    chosen.upto = offset + 1
                    return
        chosen.upto = first + len(units)
