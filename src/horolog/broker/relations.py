"""Invariants between the parts of a shard, asserted after every step of tests and of the simulator.

Each part asserts what it alone can know (`check_invariants`).  This module asserts what spans
several parts and would otherwise be noticed late: a queue offset that was assigned and never comes,
an in-flight mark that is never removed, a pending message that the window has passed over.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from horolog.broker.shard import Shard
from horolog.delay.entry import is_readable
from horolog.delay.source import refs_of
from horolog.delay.state import EntryState
from horolog.limits import ADOPTION_APPS_MAX

_IN_FLIGHT = EntryState.HANDING_OVER | EntryState.RECALLING
_END_MS = 1 << 62


def check_shard(shard: Shard) -> None:
    """Check all parts and the relations between them, between two steps.

    The cost grows with the count of parts.  `check_rows` checks message by message.
    """
    for part in shard.parts():
        part.check_invariants()
    assert all(shard.log.start <= base < shard.log.end for base in shard.full_since_ms)
    check_positions(shard)
    check_queues(shard)
    check_polls(shard)
    check_tier(shard)


def check_rows(shard: Shard) -> None:
    """Check what must hold for each pending or in-flight message; for small shards or rarely."""
    check_marks(shard)
    check_window(shard)
    for run in shard.delay.far.runs.values():
        assert run.states.count_waiting() == run.waiting, run.label


def check_positions(shard: Shard) -> None:
    """Check applied ≤ commit, the order of unapplied frames, and the checkpoint positions."""
    log = shard.log
    assert shard.applied <= log.commit_position, (shard.applied, log.commit_position)
    ends = [shard.applied, *(change.end for change in shard.uncommitted), log.end]
    assert all(a <= b for a, b in pairwise(ends)), ends
    if shard.uncommitted:
        assert shard.uncommitted[0].end > log.commit_position, "committed, and not applied"
    assert shard.checkpoint_position <= shard.applied, (shard.checkpoint_position, shard.applied)
    last = shard.last_checkpoint
    assert last.position <= shard.checkpoint_position, last.position
    assert last.start <= log.start, (last.start, log.start)
    assert shard.removed_below <= log.start, (shard.removed_below, log.start)


def check_queues(shard: Shard) -> None:
    """Check that every assigned queue offset is in its queue or in flight.

    No group may be ahead of a queue.
    """
    under_way: Counter[tuple[int, int]] = Counter()
    for change in shard.uncommitted:
        for topic, queue_id, units in change.units:
            under_way[topic.id, queue_id] += len(units)
    for topic, queue_id, queue in shard.topics.all_queues():
        assigned = topic.tails[queue_id] - queue.length
        context = topic.name, queue_id, topic.tails[queue_id], queue.length
        assert assigned == under_way[topic.id, queue_id], (*context, under_way)
    for (_, topic_id), queues in shard.ready.progress.items():
        for queue_id, progress in queues.items():
            queue = shard.topics.by_id[topic_id].queues[queue_id]
            assert queue.first <= progress.floor, (topic_id, queue_id, queue.first, progress.floor)
            assert progress.next <= queue.length, (topic_id, queue_id, progress.next, queue.length)


def check_polls(shard: Shard) -> None:
    """Check that every parked poll has been offered all messages.

    Otherwise a message that wakes no poll would stay unseen.
    """
    if len(shard.problems) or shard.ready.is_short:
        return  # messages that cannot be read are offered to no poll
    for topic_id, queue_id, bucket in shard.ready.polls.pulled():
        length = shard.topics.by_id[topic_id].queues[queue_id].length
        if bucket.seen != length:
            assert (topic_id, queue_id) in shard.visible, (topic_id, queue_id, bucket.seen, length)
    for group, topic_id in shard.ready.polls.groups():
        for queue_id, queue in enumerate(shard.topics.by_id[topic_id].queues):
            found = shard.ready.progress_if_any(group, topic_id, queue_id)
            if found is None:
                has_more = queue.first < queue.length
            elif found.order is not None:
                has_more = found.order.has_for(found.next, queue.length)
            else:
                has_more = found.next < queue.length
            place = (group, topic_id, queue_id)
            noted = place[1:] in shard.visible or shard.ready.polls.is_noted(*place)
            assert not has_more or noted, (place, found, queue.length)
            is_free = found is not None and found.order is None and found.first_free() is not None
            assert not is_free or noted, f"{place}: a lease is over, and a poll waits"


def check_tier(shard: Shard) -> None:
    """Check that at most one step of the tier is under way, and what is frozen.

    Only sources that the tier is about to take may be frozen.
    """
    steps = [change for change in shard.uncommitted if change.moves_tier]
    assert len(steps) == shard.uncommitted.tier_steps <= 1, steps
    adopted = [change for change in shard.uncommitted if change.adopted is not None]
    assert len(adopted) == shard.uncommitted.adoptions, adopted
    assert len(shard.adoptions) <= ADOPTION_APPS_MAX, len(shard.adoptions)
    assert all(version >= 0 for version in shard.adoptions.values()), shard.adoptions
    frozen = any(source.frozen for source in shard.delay.far.sources())
    assert not frozen or shard.tier.is_taking, "frozen, and the tier takes nothing"


def check_marks(shard: Shard) -> None:
    """Check that the entries marked as in flight are exactly those of unapplied records."""
    marked: dict[int, int] = {}
    for refs, states in _states(shard):
        at = np.flatnonzero(states & _IN_FLIGHT)
        marked |= dict(zip(refs[at].tolist(), (states[at] & _IN_FLIGHT).tolist(), strict=True))
    wanted: dict[int, int] = {}
    for change in shard.uncommitted:
        for refs, state, _ in change.settled:
            handed = state is EntryState.HANDED_OVER
            mark = EntryState.HANDING_OVER if handed else EntryState.RECALLING
            wanted |= dict.fromkeys(refs.tolist(), int(mark))
    assert marked == wanted, f"marked {_some(marked, wanted)}, wanted {_some(wanted, marked)}"


def check_window(shard: Shard) -> None:
    """Check that every pending message due before `loaded_until` is in the window, once."""
    wheel = shard.wheel
    stop = wheel.loaded_until
    if wheel.loading_from is not None:
        stop = min(stop, wheel.loading_from)
    there = wheel.refs_before(stop)
    assert len(np.unique(there)) == len(there), "twice in the window"
    there = there[shard.delay.states(there) == EntryState.WAITING]
    there = there[is_readable(shard.delay.entries(there))]  # damaged ones are in neither
    waits = []
    for source in shard.delay.sources_between(0, stop * 1000):
        rows = source.rows_between(0, stop * 1000, 0, _END_MS)[0]
        rows = rows[source.states_at(rows) == EntryState.WAITING]
        rows = rows[is_readable(source.entries(rows))]
        waits.append(refs_of(source.source_id, rows))
    every = np.concatenate([np.empty(0, np.int64), *waits])
    assert set(there.tolist()) == set(every.tolist()), (
        f"passed over {np.setdiff1d(every, there)[:9]}, too much {np.setdiff1d(there, every)[:9]}"
    )


def _states(shard: Shard) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]]:
    found = []
    for hour in shard.delay.hours.values():
        rows = np.arange(hour.count)
        found.append((refs_of(hour.source_id, rows), hour.states_at(rows)))
    for buffer in shard.delay.far.buffers:
        rows = np.arange(buffer.count)
        found.append((refs_of(buffer.source_id, rows), buffer.states_at(rows)))
    for run in shard.delay.far.runs.values():
        rows = np.arange(run.states.limit)
        found.append((refs_of(run.source_id, rows), run.states_at(rows)))
    return found


def _some(of: dict[int, int], without: dict[int, int]) -> dict[int, int]:
    return dict(list(of.items() - without.items())[:9])
