"""Messages of several hours, near and far, are filed together, also by a disk that fills up between two of them."""

from __future__ import annotations

import numpy as np
import pytest

from horolog.delay.store import DelayStore, Unfiled
from horolog.lake.core.tier import LakeTier
from horolog.limits import HOUR_MS
from horolog.log.record import HEAD, HEAD_BYTES, Kind
from horolog.testing.disk import FaultyDisk

BASE = 472_222 * HOUR_MS
DUES = [BASE + hours * HOUR_MS + n % 3 for n, hours in enumerate([3, 1, 40, 1, 2, 50, 3, 1, 0, 3])]


def unfiled(due: list[int], first_origin: int) -> Unfiled:
    heads = np.zeros(len(due), HEAD)
    heads["size"], heads["kind"], heads["due_ms"] = HEAD_BYTES + 8, Kind.SCHEDULED, due
    heads["topic"], heads["key"] = np.arange(len(due)) % 2 + 1, np.arange(len(due))
    origins = np.arange(first_origin, first_origin + len(due), dtype=np.uint64)
    records = b"".join(heads[i].tobytes() + origins[i].tobytes() for i in range(len(due)))
    return Unfiled(heads, origins, memoryview(records), BASE)


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
        filed, rest = store.file(unfiled(DUES, first))
        assert rest is None
        assert sorted(filed.origin.tolist()) == list(range(first, first + len(DUES)))
        assert store.entries(filed.ref)["origin"].tolist() == filed.origin.tolist()
        assert store.entries(filed.ref)["due_ms"].tolist() == filed.due_ms.tolist()
        heads, origins, records, _ = unfiled(DUES, first)
        size = HEAD_BYTES + 8
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
    filed, rest = store.file(unfiled(DUES, 100))
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
