"""Lanes against a model: exact counts whatever the clock, the process and the table do, and FIFO in each lane.

But for large steps of the clock back: then another order begins.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from remoting_sends import batch_frame, item, send_frame

from horolog.clock import SimulatedClock
from horolog.errors import ErrorCode, HorologError
from horolog.limits import DAY_MS, HOUR_MS, LEVEL_STEP_MAX_MS
from horolog.protocol.commands import (
    CreateTopic,
    DescribeLanes,
    Recall,
    RecallMany,
    Receive,
    Reschedule,
    TopicType,
)
from horolog.protocol.remoting.gathered import Site
from horolog.protocol.remoting.send import gather
from horolog.protocol.remoting.shapes import Shapes
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.delays import Levels, parse_levels
from horolog.testing.disk import FaultyDisk
from horolog.testing.sim_broker import SimBroker

START_MS = 1_700_000_000_000
TABLES = [parse_levels("1s 5s 1m 2h"), parse_levels("5s 1s 30d"), parse_levels("2s")]


class World:
    """A disk, a clock and a broker on them."""

    def __init__(self) -> None:
        self.disk = FaultyDisk(1)
        self.clock = SimulatedClock(START_MS)
        self.broker = SimBroker(Random(1), self.disk, self.clock, "sync", 32_768)
        self.broker.open()

    def reopen(self, *, power_cut: bool = False) -> None:
        """Crash and start again."""
        self.disk.crash(power_cut=power_cut)
        self.broker.open()


class Lanes:
    """A broker and what it should say of its lanes."""

    def __init__(self) -> None:
        self.world = World()
        self.world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
        self.table = TABLES[0]
        self.numbers = count()
        self.waits: dict[str, tuple[int, int]] = {}  # id → due ms, level (0: it has left its lane)
        self.order: dict[
            tuple[int, int, int], list[str]
        ] = {}  # (level, delay, era) → ids as stored
        self.era = 0  # ends with a large step back
        self.since_ms = 0  # of the last one by a level
        self.restarted = True  # and none by a level since then
        self.scheduled: Counter[int] = Counter()
        self.done: Counter[int] = Counter()
        self.seen: list[str] = []
        self.store_ms: list[int] = []

    def send(self, levels: list[int], *, whole: bool) -> None:
        """By level each (0: now), in a batch or one by one."""
        ids = [f"m{next(self.numbers)}" for _ in levels]
        properties_of = [
            {"UNIQ_KEY": name, **({"DELAY": level} if level else {})}
            for name, level in zip(ids, levels, strict=True)
        ]
        frames = [send_frame(each) for each in properties_of]
        if whole:
            frames = [batch_frame([item(each) for each in properties_of])]
        site = Site("broker-a", bytes(8), self.table)
        (gathered,), refused = gather(frames, (bytes(4), 0), site, lambda n: [b""] * n, Shapes())
        assert not refused
        now = self.since(self.world.clock.wall_ms()) if any(levels) else 0
        sent = self.world.broker.ask(gathered.command)
        for name, level, due_ms in zip(ids, levels, sent.due_ms, strict=True):
            lane = min(level, len(self.table.delays_ms))
            if not lane:
                continue
            delay_ms = self.table.delays_ms[lane - 1]
            assert due_ms == now + delay_ms
            self.waits[name] = due_ms, lane
            self.order.setdefault((lane, delay_ms, self.era), []).append(name)
            self.scheduled[lane] += 1
        self.settled()

    def since(self, wall_ms: int) -> int:
        """From when on a level counts; what is known of before is the store time, after a restart."""
        last = self.world.broker.shard.store_ms if self.restarted else self.since_ms
        since = wall_ms if last - wall_ms > LEVEL_STEP_MAX_MS else max(last, wall_ms)
        self.era += since < self.since_ms
        self.since_ms, self.restarted = since, False
        return since

    def settled(self) -> None:
        """What is due is handed over, and nothing else."""
        self.world.broker.settle()
        now = self.world.clock.wall_ms()
        for name, (due_ms, lane) in list(self.waits.items()):
            if due_ms <= now:
                self.done[lane] += 1
                del self.waits[name]
        self.take()

    def take(self) -> None:
        while messages := self.world.broker.ask(
            Receive("g", "t", -1, "*", 32, 12 * HOUR_MS, False, 0, "c")
        ).messages:
            for each in messages:
                stored = layout.decode(each.layout)
                name = properties.value_of(stored.properties, properties.UNIQ_KEY)
                assert name is not None
                assert name not in self.waits, "P1"
                if name not in self.seen:  # leases end
                    self.seen.append(name)

    def gone(self, name: str, *, moved_to: int | None = None) -> None:
        lane = self.waits.pop(name)[1]
        self.done[lane] += 1
        for names in self.order.values():
            if name in names:
                names.remove(name)
        if moved_to is not None:
            self.waits[name] = moved_to, 0

    def check(self) -> None:
        del self.done[0]
        view = self.world.broker.ask(DescribeLanes())
        assert view == [(lane, n, self.done[lane]) for lane, n in sorted(self.scheduled.items())]
        place = {name: at for at, name in enumerate(self.seen)}
        for key, names in self.order.items():
            came = [place[name] for name in names if name in place]
            assert came == sorted(came), f"{key} is no FIFO"


STEPS = st.one_of(
    st.tuples(st.just("send"), st.lists(st.integers(0, 5), min_size=1, max_size=6), st.booleans()),
    st.tuples(st.just("advance"), st.sampled_from([1, 999, 1_000, 5_000, 61_000, 2 * HOUR_MS])),
    st.tuples(st.just("step"), st.sampled_from([-HOUR_MS, -1_500, -1, 1, 2_000, HOUR_MS])),
    st.tuples(st.just("crash"), st.booleans()),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("table"), st.sampled_from(TABLES)),
    st.tuples(st.just("recall"), st.integers(0, 9)),
    st.tuples(st.just("move"), st.integers(0, 9), st.sampled_from([0, 3_000, DAY_MS])),
    st.tuples(st.just("recall many"), st.sampled_from([5_000, HOUR_MS, 90 * DAY_MS])),
)


def perform(lanes: Lanes, step: tuple) -> None:
    world, broker = lanes.world, lanes.world.broker
    waits = sorted(lanes.waits)
    match step:
        case "send", levels, whole:
            lanes.send(levels, whole=whole)
        case "advance", by:
            world.clock.advance(by)
        case "step", by:
            world.clock.step_wall(by)
        case "crash", power_cut:
            world.reopen(power_cut=power_cut)
            lanes.restarted = True
        case ("checkpoint",):
            broker.request_checkpoint()
        case "table", Levels() as table:
            lanes.table = table
        case "recall", at if waits:
            name = waits[at % len(waits)]
            broker.ask(Recall("t", name, lanes.waits[name][0]))
            lanes.gone(name)
        case "move", at, by if waits:
            name = waits[at % len(waits)]
            new = world.clock.wall_ms() + by
            broker.ask(Reschedule("t", name, lanes.waits[name][0], new))
            lanes.gone(name, moved_to=new)
        case "recall many", ahead:
            from_ms, to_ms = world.clock.wall_ms(), world.clock.wall_ms() + ahead
            broker.ask(RecallMany("t", from_ms, to_ms))
            for name in waits:
                if from_ms <= lanes.waits[name][0] < to_ms:
                    lanes.gone(name)
    lanes.settled()


@given(st.lists(STEPS, max_size=25))
@settings(max_examples=60)
def test_lanes_are_fifos_and_counted_exactly(steps) -> None:
    lanes = Lanes()
    for step in steps:
        perform(lanes, step)
    lanes.check()
    lanes.world.reopen(power_cut=True)
    lanes.world.clock.advance(max(0, START_MS + 200 * DAY_MS - lanes.world.clock.wall_ms()))
    lanes.settled()
    lanes.check()
    assert all(lane.scheduled == lane.done for lane in lanes.world.broker.ask(DescribeLanes()))


def test_a_passing_step_of_the_clock_does_not_stay_with_the_levels() -> None:
    """Somebody sends while it is wrong; afterwards delays are as long as they are, also after a restart."""
    lanes = Lanes()
    lanes.world.clock.step_wall(HOUR_MS)
    lanes.send([0, 1], whole=True)
    lanes.world.clock.step_wall(-HOUR_MS)
    for restart in (False, True):
        if restart:
            lanes.world.reopen()
        wall_ms = lanes.world.clock.wall_ms()
        lanes.send([1, 2], whole=True)
        assert sorted(due_ms - wall_ms for due_ms, _ in lanes.waits.values())[:2] == [1_000, 5_000]
        lanes.world.clock.advance(5_000)
        lanes.settled()
    assert lanes.seen == ["m0", "m2", "m3", "m4", "m5"], (
        "m1 is due when it was sent, as it was then"
    )


def test_a_level_stays_a_fifo_across_a_small_step_back() -> None:
    lanes = Lanes()
    for step_ms in (LEVEL_STEP_MAX_MS, 1, 1):
        lanes.send([3], whole=False)
        lanes.world.clock.step_wall(-step_ms)
    assert lanes.era == 1, "smaller steps add up"
    lanes.world.clock.advance(DAY_MS)
    lanes.settled()
    assert lanes.seen == ["m2", "m0", "m1"]
    lanes.check()


def test_counts_are_shown_beside_the_checkpoint() -> None:
    lanes = Lanes()
    lanes.send([1, 1, 2, 4], whole=True)
    lanes.world.clock.advance(1_000)
    lanes.settled()
    lanes.world.broker.request_checkpoint()
    lanes.world.broker.settle()
    disk = lanes.world.disk
    file = disk.open("shard-00/delayOffset.json")
    content = file.read(0, file.size())
    assert b'"offsetTable":{"1":2,"2":0,"4":0}' in content
    assert content.startswith(b'{"dataVersion":{"counter":')
    disk.remove("shard-00/delayOffset.json")
    lanes.world.reopen()
    lanes.check()


@pytest.mark.parametrize("operation", ["write", "sync", "rename"])
def test_a_file_of_counts_that_cannot_be_written_ends_nothing(operation: str) -> None:
    """Nobody reads it back, so a bad sector below it is no reason to end."""
    lanes = Lanes()
    lanes.send([1, 2], whole=True)
    lanes.world.broker.request_checkpoint()
    failed = []

    def fail(change: str) -> None:
        if change.startswith(f"{operation} shard-00/delayOffset.json"):
            failed.append(change)
            raise HorologError(ErrorCode.DISK_FAILED, f"{change}: Input/output error")

    lanes.world.disk.on_effect = fail
    lanes.world.broker.settle()
    assert failed
    lanes.world.disk.on_effect = None
    lanes.world.reopen()
    lanes.check()
