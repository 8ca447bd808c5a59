"""An hour, its window and its key runs against plain lists (P4–P7 in the small)."""

from __future__ import annotations

import numpy as np
from bare_records import RECORD_BYTES, unfiled
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from waiting_machine import BASE_MS, WaitingMachine

from horolog.delay import pending
from horolog.delay.entry_files import Filing
from horolog.delay.near.filing import file_in_hours
from horolog.delay.near.hour import Hour
from horolog.delay.state import EntryState, decode_state, encode_state
from horolog.delay.store import DelayStore
from horolog.lake.core.tier import LakeTier
from horolog.limits import HOUR_MS
from horolog.storage.api import read_file
from horolog.testing.disk import FaultyDisk
from horolog.wheel.wheel import Wheel


class HourMachine(WaitingMachine):
    """File, load, take, hand over, recall and restart in any order; the model is a dict and `sorted`."""

    @initialize()
    def start(self) -> None:
        self.disk = FaultyDisk()
        self.begin(DelayStore(self.disk, "hours", tier=LakeTier()))
        self.settled = {EntryState.HANDED_OVER: 0, EntryState.RECALLED: 0}

    @rule(
        due=st.lists(
            st.one_of(st.integers(0, 3_000), st.integers(0, 2 * HOUR_MS - 1)),
            min_size=1,
            max_size=30,
        ),
        keys=st.integers(0, 4),
    )
    def file(self, due: list[int], keys: int) -> None:
        self.file_all([BASE_MS + d for d in due], BASE_MS, keys, 1)

    @rule(by=st.sampled_from([0, 1, 10, 999, 1_000, 5_000, 60_000, 3_600_000, -1, -7_200_000]))
    def pass_time(self, by: int) -> None:
        self.now += by

    @rule(limit=st.integers(1, 50), chunk=st.sampled_from([1, 7, 10_000]))
    def hand_over(self, limit: int, chunk: int) -> None:
        refs, entries, _ = self.take(limit, chunk)
        if not len(refs):
            return
        self.store.settle(refs, EntryState.HANDED_OVER)
        self.settled[EntryState.HANDED_OVER] += len(refs)
        self.note_handed_over(entries)

    @rule(key=st.integers(0, 8), pick=st.integers(0, 1_000))
    def recall(self, key: int, pick: int) -> None:
        if not self.waiting:
            return
        due, expected = self.chosen(key, pick)
        found = self.store.find_key(key, 1, due)
        refs = found[self.store.states(found) == EntryState.WAITING]
        got = set(self.store.entries(refs)["origin"].tolist())
        self.store.settle(refs, EntryState.RECALLED)
        self.settled[EntryState.RECALLED] += len(refs)
        assert got == expected
        for origin in got:
            del self.waiting[origin]

    @rule()
    def restart(self) -> None:
        states = {}
        for number, hour in self.store.hours.items():
            name, state = hour.capture()
            self.disk.open(name, create=True).write(0, encode_state(state))
            states[number] = (hour.version, hour.count, hour.log_bytes)
        self.store.close()
        self.store = DelayStore(self.disk, "hours", tier=LakeTier())
        for number, (version, count, size) in states.items():
            row = {"hour": number, "version": version, "count": count, "log_bytes": size}
            assert self.store.restore_hour(row) is None
        self.store.cut()
        self.wheel = Wheel(self.store)

    @invariant()
    def counts_are_exact(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.store.waiting == len(self.waiting), "P10"
        for number, hour in self.store.hours.items():
            mine = [d for d, _ in self.waiting.values() if d // HOUR_MS == number]
            assert hour.waiting == len(mine)
            rows = dict(pending.by_second(self.store, number, None))
            assert rows == dict(pending.by_second(self.store, number, 1))
            assert sum(rows.values()) == len(mine)
        assert sum(h.handed_over for h in self.store.hours.values()) == self.settled[1]
        assert sum(h.recalled for h in self.store.hours.values()) == self.settled[2]

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        latest = max((d for d, _ in self.waiting.values()), default=self.now)
        self.now = max(self.now, latest)
        for _ in range(1_000):
            if not self.waiting:
                return
            self.hand_over(50, 10_000)
        raise AssertionError(f"never handed over: {self.waiting}")


TestHour = HourMachine.TestCase
TestHour.settings = settings(max_examples=60, stateful_step_count=30)


def test_worked_example_of_the_format() -> None:
    """The example in `delay.entry`: A …07.5, B …09.0, C …07.1."""
    hour = Hour(FaultyDisk(), "hour", 10)
    base = 10 * HOUR_MS
    for n, due in enumerate((7_500, 9_000, 7_100)):
        filing = Filing(
            np.array([base + due]),
            np.array([n + 100], np.uint64),
            np.array([8]),
            np.array([n], np.uint64),
            np.array([1], np.uint32),
            np.array([0], np.int32),
            np.array([0], np.uint32),
            b"12345678",
        )
        assert [rows.tolist() for rows in file_in_hours([hour], [0, 1], filing)] == [[n]]
    entries = hour.entries(np.arange(3))
    assert entries["local"].tolist() == [0, 0, 1]
    assert entries["previous"].tolist() == [-1, -1, 0]
    assert (hour.heads[7]["newest"], hour.heads[7]["filed"]) == (2, 2)
    assert (hour.heads[9]["newest"], hour.heads[9]["filed"]) == (1, 1)
    assert hour.walk(2, 10) == ([2, 0], -1)


def test_two_flipped_bits_in_index_or_log_are_reported_never_delivered(world) -> None:
    """Rot at rest: each byte of one entry and of its record in turn (P2, P11)."""
    del world
    for name, length in (("delay.idx", 64), ("delay.log", RECORD_BYTES)):
        for offset in range(0, length, 3):
            disk = FaultyDisk()
            store = DelayStore(disk, "hours", tier=LakeTier())
            wheel = Wheel(store)
            store.file(
                unfiled([BASE_MS + at for at in (5, 6, 7)], 100, BASE_MS, keys=[1, 2, 3], topics=1)
            )
            disk.flip(f"hours/{BASE_MS // HOUR_MS:010d}/{name}", length + offset, 4, 7)
            while not wheel.load(BASE_MS + 10, 100):
                pass
            got = []
            refs = wheel.take(BASE_MS + 10, 100).ref
            _, entries, records = store.read_intact(refs, store.entries(refs))
            got += [bytes(r)[-8:] for r in records]
            assert len(entries) == len(records)
            whole = {np.uint64(100).tobytes(), np.uint64(102).tobytes()}
            assert set(got) == whole, f"{name} byte {offset}"
            assert store.problems + wheel.problems


def test_state_file_of_any_bytes() -> None:
    hour = Hour(FaultyDisk(), "hour", 10)
    name, state = hour.capture()
    content = encode_state(state)
    for at in range(0, len(content), 997):
        broken = bytearray(content)
        broken[at] ^= 1
        assert decode_state(bytes(broken)) is None
    assert decode_state(content[:-1]) is None
    assert decode_state(b"") is None
    disk = FaultyDisk()
    disk.open("x", create=True).write(0, content)
    found = decode_state(read_file(disk, "x"))
    assert found is not None
    assert found.hour == 10
    assert name.endswith("state.0000000001")
