"""The far store beside hours, under a wheel: jobs, restarts, recalls and any clock, against plain lists (P3–P7, P10)."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from waiting_machine import WaitingMachine

from horolog.delay import pending
from horolog.delay.far import checkpoint as far_checkpoint
from horolog.delay.far.compaction import FarSettings
from horolog.delay.resolve import resolve
from horolog.delay.state import EntryState
from horolog.delay.store import DelayStore
from horolog.lake.core.tier import LakeTier
from horolog.limits import DAY_MS, HOUR_MS
from horolog.log.control_records import origins_of
from horolog.testing.disk import FaultyDisk
from horolog.wheel.wheel import Wheel

SMALL = FarSettings(buffer_bytes=400, runs_max=2, part_runs_max=1)
DELAYS = st.one_of(
    st.integers(0, 3_000),
    st.integers(0, 2 * HOUR_MS),
    st.integers(24 * HOUR_MS, 27 * HOUR_MS),
    st.integers(2 * DAY_MS, 40 * DAY_MS),
    st.sampled_from([30 * HOUR_MS, 30 * HOUR_MS + 1, 90 * DAY_MS, 3_000 * DAY_MS]),
)


class FarMachine(WaitingMachine):
    @initialize()
    def start(self) -> None:
        self.disk = FaultyDisk()
        self.disk.make_dir("runs")
        self.begin(self._make())

    def _make(self) -> DelayStore:
        return DelayStore(
            self.disk, "hours", far_directory="runs", log_id=7, far_settings=SMALL, tier=LakeTier()
        )

    @rule(due=st.lists(DELAYS, min_size=1, max_size=20), keys=st.integers(0, 4))
    def file(self, due: list[int], keys: int) -> None:
        topics = [(self.next_origin + i) % 2 + 1 for i in range(len(due))]
        self.file_all([self.now + d for d in due], self.now, keys, topics)

    @rule(
        by=st.sampled_from(
            [0, 1, 999, 60_000, HOUR_MS, 23 * HOUR_MS, 30 * HOUR_MS, 35 * DAY_MS, -1, -2 * HOUR_MS]
        )
    )
    def pass_time(self, by: int) -> None:
        self.now += by

    @rule(limit=st.integers(1, 30), chunk=st.sampled_from([1, 7, 10_000]))
    def hand_over(self, limit: int, chunk: int) -> None:
        refs, entries, records = self.take(limit, chunk)
        if not len(refs):
            return
        self.store.mark_inflight(refs, EntryState.HANDING_OVER)
        self.store.settle(refs, EntryState.HANDED_OVER)
        stated = [int.from_bytes(bytes(record[-8:]), "little") for record in records]
        assert stated == entries["origin"].tolist()
        self.note_handed_over(entries)

    @rule(key=st.integers(0, 8), pick=st.integers(0, 1_000), moved=st.booleans())
    def recall(self, key: int, pick: int, moved: bool) -> None:
        if not self.waiting:
            return
        due, expected = self.chosen(key, pick)
        found = np.concatenate([self.store.find_key(key, t, due) for t in (1, 2)])
        refs = found[self.store.states(found) == EntryState.WAITING]
        entries = self.store.entries(refs)
        assert set(entries["origin"].tolist()) == expected
        by_origin = resolve(
            self.store, entries["due_ms"], origins_of(entries["origin"], entries["row"])
        )
        assert by_origin.tolist() == refs.tolist()
        state = EntryState.MOVED if moved else EntryState.RECALLED
        if moved:
            self.store.mark_inflight(refs, EntryState.RECALLING)
        self.store.settle(refs, state)
        assert set(self.store.states(refs).tolist()) <= {int(state)}
        for origin in expected:
            del self.waiting[origin]

    @rule(delays=st.lists(DELAYS, min_size=1, max_size=8), times=st.integers(1, 6))
    def fill_up(self, delays: list[int], times: int) -> None:
        """Several full buffers, each made a run: so that there is something to merge."""
        for i in range(times):
            self.file([DAY_MS + HOUR_MS + i + d for d in delays] * 2, i)
            self.begin_job()
            self.end_job()

    @rule()
    def begin_job(self) -> None:
        self.store.far.compaction.start(self.now)

    @rule()
    def end_job(self) -> None:
        job = self.store.far.compaction.job
        if job is None:
            return
        job.carry_out(self.disk)
        moved = self.store.finish_job()
        assert self.store.far.compaction.job is None
        if moved is not None and moved < self.wheel.loaded_until * 1000:
            self.wheel.reset()

    @rule()
    def restart(self) -> None:
        captured = self.store.capture()
        for path, encode in captured.states:
            self.disk.open(path, create=True).write(0, encode())
        self.store.close()
        self.store = self._make()
        for row in captured.registry:
            assert self.store.restore_hour(row) is None
        assert far_checkpoint.restore(self.store.far, captured.far, captured.settled) == []
        self.store.cut()
        self.wheel = Wheel(self.store)

    @invariant()
    def counts_are_exact(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.store.waiting == len(self.waiting), "P10"
        hours: dict[int, int] = {}
        topics: dict[int, int] = {}
        for origin, (due, _) in self.waiting.items():
            hours[due // HOUR_MS] = hours.get(due // HOUR_MS, 0) + 1
            topics[origin % 2 + 1] = topics.get(origin % 2 + 1, 0) + 1
        assert dict(pending.by_hour(self.store, None)) == hours
        assert pending.by_topic(self.store) == topics
        for topic in (1, 2):
            of_topic = dict(pending.by_hour(self.store, topic))
            assert sum(of_topic.values()) == topics.get(topic, 0)
        for hour in list(hours)[:2]:
            seconds = [d // 1000 for d, _ in self.waiting.values() if d // HOUR_MS == hour]
            rows = dict(pending.by_second(self.store, hour, None))
            assert rows == {s: seconds.count(s) for s in set(seconds)}
            both: dict[int, int] = {}
            for topic in (1, 2):
                for second, n in pending.by_second(self.store, hour, topic):
                    both[second] = both.get(second, 0) + n
            assert both == rows

    @rule()
    def list_all(self) -> None:
        listed: list[Any] = []
        place: pending.ListingPlace | None = pending.ListingPlace(0)
        while place is not None:
            load = pending.PageLoad(self.store, place, 1 << 50, None, 7)
            while not load.walk(3)[1]:
                pass
            page = load.page(1 << 20)
            listed += [(int(each["due_ms"]), int(each["origin"])) for each in page.entries]
            place = page.next
        assert listed == sorted((d, o) for o, (d, _) in self.waiting.items())

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        latest = max((d for d, _ in self.waiting.values()), default=self.now)
        self.now = max(self.now, latest)
        for _ in range(1_000):
            if not self.waiting:
                return
            self.hand_over(30, 10_000)
        raise AssertionError(f"never handed over: {self.waiting}")


TestFar = FarMachine.TestCase
TestFar.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
