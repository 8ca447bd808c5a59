"""Messages of several hours, near and far, are filed together, also by a disk that fills up between two of them."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from bare_records import RECORD_BYTES, unfiled

from horolog.delay.entry import HANDED_BYTES
from horolog.delay.filing import Unfiled
from horolog.delay.pending import by_hour, by_second, by_topic
from horolog.delay.state import EntryState
from horolog.delay.store import DelayStore
from horolog.lake.core.tier import LakeTier
from horolog.limits import HOUR_MS
from horolog.testing.disk import FaultyDisk

BASE = 472_222 * HOUR_MS
DUES = [BASE + hours * HOUR_MS + n % 3 for n, hours in enumerate([3, 1, 40, 1, 2, 50, 3, 1, 0, 3])]


def due_at(due: list[int], first_origin: int) -> Unfiled:
    """Bare records, each with a key of its own, of two topics in turn."""
    places = np.arange(len(due))
    return unfiled(due, first_origin, BASE, keys=places, topics=places % 2 + 1)


def made(disk: FaultyDisk) -> DelayStore:
    return DelayStore(disk, "hours", tier=LakeTier())


def files_of(disk: FaultyDisk, store: DelayStore) -> dict[str, bytes]:
    paths = [path for hour in store.hours.values() for path in hour.sync_paths()]
    paths += [path for buffer in store.far.buffers for path in buffer.sync_paths()]
    return {path: bytes(disk.open(path).read(0, 1 << 20)) for path in paths}


def test_together_or_one_by_one_makes_the_same_files() -> None:
    together, alone = FaultyDisk(), FaultyDisk()
    store, singly = made(together), made(alone)
    for first in (100, 200):
        filed, rest = store.file(due_at(DUES, first))
        assert rest is None
        assert sorted(filed.origin.tolist()) == list(range(first, first + len(DUES)))
        assert store.entries(filed.ref)["origin"].tolist() == filed.origin.tolist()
        assert store.entries(filed.ref)["due_ms"].tolist() == filed.due_ms.tolist()
        heads, origins, records, _ = due_at(DUES, first)
        size = RECORD_BYTES
        for i in range(len(DUES)):
            one = records[i * size : (i + 1) * size]
            assert singly.file(Unfiled(heads[i : i + 1], origins[i : i + 1], one, BASE))[1] is None
    assert files_of(together, store) == files_of(alone, singly)
    for hour in store.hours.values():
        hour.check_invariants()
        assert hour.by_topic == singly.hours[hour.hour].by_topic
        assert (hour.heads == singly.hours[hour.hour].heads).all()


@pytest.mark.parametrize("room", range(0, 1_600, 40))
def test_what_a_full_disk_leaves_is_filed_later(room: int) -> None:
    disk = FaultyDisk()
    store = made(disk)
    disk.capacity_bytes = disk.used_bytes() + room
    filed, rest = store.file(due_at(DUES, 100))
    origins = filed.origin.tolist()
    assert store.entries(filed.ref)["origin"].tolist() == origins
    left = rest.origins.tolist() if rest is not None else []
    assert left == sorted(left)
    assert sorted(origins + left) == list(range(100, 110))
    for hour in store.hours.values():
        hour.check_invariants()
    disk.capacity_bytes = None
    if rest is not None:
        more, rest = store.file(rest)
        assert rest is None
        origins += more.origin.tolist()
    assert sorted(origins) == list(range(100, 110))
    assert store.waiting == 10
    for hour in store.hours.values():
        hour.check_invariants()


def test_what_is_due_takes_the_same_bytes_wherever_it_waits() -> None:
    """Sends stop while there is room for them; far messages were counted without what a hand-over adds."""
    disk = FaultyDisk()
    near, far = made(disk), DelayStore(disk, "other", far_directory="far", tier=LakeTier())
    each, later = RECORD_BYTES + HANDED_BYTES, BASE + 60 * HOUR_MS
    near.file(unfiled([BASE + i * HOUR_MS for i in range(3)], 100, BASE))
    filed, _ = far.file(unfiled([BASE + i * HOUR_MS for i in range(40, 43)], 100, BASE))
    assert near.bytes_due_before(later) == far.bytes_due_before(later) == 3 * each
    assert far.bytes_due_before(BASE + 42 * HOUR_MS) == 2 * each
    far.far.seal()
    job = far.far.compaction.start(BASE)
    assert job is not None
    job.carry_out(disk)
    far.finish_job()
    assert far.unflushed_bytes == 0
    assert far.bytes_due_before(later) == 3 * each
    assert far.bytes_due_before(BASE + 42 * HOUR_MS) == 2 * each
    far.settle(far.find_key(0, 0, int(filed.due_ms[0])), EntryState.RECALLED)
    assert far.bytes_due_before(later) == 2 * each


def test_what_waits_is_counted_by_topic_hour_and_second() -> None:
    """In hours, a far buffer, and the run that it becomes (P10)."""
    disk = FaultyDisk()
    store = made(disk)
    filed, _ = store.file(due_at(DUES, 100))
    store.settle(filed.ref[filed.origin == 105], EntryState.RECALLED)
    waiting = [(due, row % 2 + 1) for row, due in enumerate(DUES) if row != 5]
    for _ in range(2):
        assert by_topic(store) == Counter(topic for _, topic in waiting)
        for topic in (None, 1, 2):
            dues = [due for due, of_topic in waiting if topic in (None, of_topic)]
            assert by_hour(store, topic) == sorted(Counter(due // HOUR_MS for due in dues).items())
            for hour in {due // HOUR_MS for due in DUES}:
                seconds = Counter(due // 1_000 for due in dues if due // HOUR_MS == hour)
                assert by_second(store, hour, topic) == sorted(seconds.items())
        store.far.seal()
        if (job := store.far.compaction.start(BASE)) is not None:
            job.carry_out(disk)
            store.finish_job()
    assert store.far.runs


def test_the_next_second_in_which_something_waits() -> None:
    """Whatever was asked before, and filed or settled since."""
    store, random = made(FaultyDisk()), Random(7)
    waiting: dict[int, int] = {}  # reference → second
    for turn in range(200):
        due = [BASE + random.randrange(2 * HOUR_MS) for _ in range(random.randrange(1, 4))]
        filed, _ = store.file(due_at(due, 100 * turn))
        waiting |= dict(zip(filed.ref.tolist(), (filed.due_ms // 1000).tolist(), strict=True))
        first = sorted(waiting, key=waiting.__getitem__)[:12]
        gone = random.sample(first, min(random.randrange(4), len(first)))  # fewer than are filed
        store.settle(np.array(gone), EntryState.HANDED_OVER)
        for ref in gone:
            del waiting[ref]
        for second in (
            0,
            min(waiting.values(), default=0) + 1,
            BASE // 1000 + random.randrange(7_200),
            BASE // 1000 + 3_600,  # right after an hour in which something waits
        ):
            wanted = min((at for at in waiting.values() if at >= second), default=None)
            assert store.next_waiting(second) == wanted
        for hour in store.hours.values():
            hour.check_invariants()
