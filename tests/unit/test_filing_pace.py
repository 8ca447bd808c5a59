"""Scheduled messages of several turns are filed together, and nobody can tell."""

from __future__ import annotations

from random import Random

import pytest
from bare_records import unfiled

from horolog.broker import relations
from horolog.delay.filing import FilingBatch
from horolog.delay.store import DelayStore
from horolog.lake.core.tier import LakeTier
from horolog.limits import FILED_TOGETHER_MAX, FILED_TOGETHER_MS, HOUR_MS, SECOND_MS, WINDOW_SECONDS
from horolog.protocol.commands import (
    ClientSeen,
    CountPending,
    CreateTopic,
    DescribeBroker,
    MessageType,
    Recall,
    RecallStatus,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import Pull
from horolog.protocol.rocketmq.message import encode
from horolog.testing.disk import FaultyDisk
from horolog.testing.sim_broker import Answer, SimBroker

LATER = 2 * HOUR_MS


class Quick(Random):
    """The disk has written all of a turn before the next one."""

    def random(self) -> float:
        return 0.0


@pytest.fixture
def world(make_world):
    world = make_world(segment_bytes=1 << 20)
    world.broker = SimBroker(Quick(1), world.disk, world.clock, "sync", 1 << 20)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    world.broker.settle()
    return world


@pytest.fixture
def broker(world):
    return world.broker


def send(world, name: str, delay_ms: int = LATER, count: int = 1) -> Answer:
    made = [
        encode(
            topic="t",
            body=b"x",
            message_id=f"{name}{n}",
            type=MessageType.DELAY,
            due_ms=world.clock.wall_ms() + delay_ms,
        )
        for n in range(count)
    ]
    return Answer(SendMessages("t", made))


def filed(broker) -> int:
    return broker.shard.delay.waiting


def test_sends_wait_for_more_and_a_turn_without_them_files_all(world, broker) -> None:
    for n in range(4):
        broker.step([send(world, f"m{n}-")])
    assert broker.shard.unfiled.count == 3
    assert filed(broker) == 0
    broker.step([])
    assert not broker.shard.unfiled
    assert filed(broker) == 4


def test_consumers_and_what_is_handed_over_do_not_end_the_wait(world, broker) -> None:
    broker.step([send(world, "soon", 5 * SECOND_MS, count=2), send(world, "m")])
    broker.settle()
    assert filed(broker) == 3
    world.clock.advance(5 * SECOND_MS)
    for n in range(3):
        poll = Answer(Pull("t", 0, 0, 32, 1 << 20, "*", 0, group="g"))
        broker.step([send(world, f"n{n}-"), poll, Answer(ClientSeen("c"))])
    assert broker.shard.handed_over == 2
    assert broker.shard.unfiled.count == 2
    assert filed(broker) == 1
    broker.settle()
    assert filed(broker) == 4


def test_an_answer_names_all(world, broker) -> None:
    for n in range(3):
        broker.step([send(world, f"m{n}-")])
    assert filed(broker) == 0
    broker.step([send(world, "m3-"), asked := Answer(DescribeBroker())])
    assert filed(broker) == 3
    broker.settle()
    assert asked.result.pending == 3
    assert broker.ask(CountPending("t")).total == 4


def test_what_waits_can_be_recalled(world, broker) -> None:
    sent = send(world, "m")
    broker.step([sent])
    broker.step([send(world, "n")])
    assert broker.shard.unfiled.count == 1
    due_ms, origin = sent.result.due_ms[0], sent.result.origins[0]
    assert broker.ask(Recall("t", "m0", due_ms, origin)).status is RecallStatus.CANCELLED
    broker.settle()
    assert filed(broker) == 1


def test_enough_is_filed_at_once(world, broker) -> None:
    broker.step([send(world, "m", count=FILED_TOGETHER_MAX - 1)])
    broker.step([send(world, "n")])
    assert filed(broker) == 0
    broker.step([send(world, "o")])
    assert filed(broker) == FILED_TOGETHER_MAX


def test_nothing_waits_for_long(world, broker) -> None:
    broker.step([send(world, "m")])
    broker.step([send(world, "n")])
    world.clock.advance(FILED_TOGETHER_MS - 1)
    broker.step([send(world, "o")])
    assert filed(broker) == 0
    world.clock.advance(1)
    broker.step([send(world, "p")])
    assert filed(broker) == 3


def test_what_is_due_soon_does_not_wait(world, broker) -> None:
    soon_ms = 2 * WINDOW_SECONDS * SECOND_MS
    broker.step([send(world, "m", soon_ms)])
    broker.step([send(world, "n", soon_ms - 1)])
    assert filed(broker) == 0
    broker.step([send(world, "o")])
    assert filed(broker) == 2
    broker.step([send(world, "p", 3 * soon_ms)])
    assert broker.shard.unfiled.count == 1
    world.clock.advance(2 * soon_ms + 1)  # as when the clock is set
    broker.step([send(world, "q")])
    assert not broker.shard.unfiled


def test_a_checkpoint_has_all_that_lies_before_it(world, broker) -> None:
    for n in range(3):
        broker.step([send(world, f"m{n}-")])
    broker.request_checkpoint()
    for n in range(3, 6):
        broker.step([send(world, f"m{n}-")])
    broker.settle()
    assert broker.shard.checkpoint_position > 0
    world.disk.crash(power_cut=True)
    broker.open()
    assert broker.ask(CountPending("t")).total == 6


def test_a_crash_loses_nothing_that_waits(world, broker) -> None:
    for n in range(3):
        broker.step([send(world, f"m{n}-")])
    assert broker.shard.unfiled
    world.disk.crash(power_cut=True)
    broker.open()
    assert broker.ask(CountPending("t")).total == 3


@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_between_sends_finds_them_all(world, broker, seed: int) -> None:
    random = Random(seed)
    waiting: dict[str, Answer] = {}
    most = 0
    for turn in range(80):
        what = random.choice(["send", "send", "send", "count", "recall", "pass", "mark", "crash"])
        if what == "send":
            for n in range(random.randrange(1, 6)):
                delay_ms = random.choice([1_000, 15_000, 60_000, HOUR_MS, 30 * HOUR_MS])
                sent = send(world, f"{turn}-{n}-", delay_ms)
                broker.step([sent])
                waiting[f"{turn}-{n}-0"] = sent
                most = max(most, broker.shard.unfiled.count)
        elif what == "count":
            assert broker.ask(CountPending("t")).total == len(waiting)
        elif what == "recall" and waiting:
            name = random.choice(list(waiting))
            broker.step([])
            due_ms, origin = waiting[name].result.due_ms[0], waiting[name].result.origins[0]
            asked = broker.ask(Recall("t", name, due_ms, origin))
            assert asked.status is RecallStatus.CANCELLED
            del waiting[name]
        elif what == "pass":
            world.clock.advance(random.choice([10, 5_000, 2 * HOUR_MS]))
            broker.settle()
            now_ms = world.clock.wall_ms()
            waiting = {n: sent for n, sent in waiting.items() if sent.result.due_ms[0] > now_ms}
        elif what == "mark":
            broker.request_checkpoint()
        elif what == "crash":
            broker.step([])  # they are told
            world.disk.crash(power_cut=True)
            broker.open()
        relations.check_rows(broker.shard)
    assert broker.ask(CountPending("t")).total == len(waiting)
    assert most > 2, "some have waited together"


def test_frames_that_are_filed_together_make_the_same_files() -> None:
    base = 472_222 * HOUR_MS
    dues = [base + hours * HOUR_MS + n % 3 for n, hours in enumerate([3, 1, 24, 25, 40, 1])]
    frames = [
        unfiled(dues[n % 3 :], 100 * n, base + HOUR_MS - 2 + n)  # the third one of the next hour
        for n in range(1, 5)
    ]
    stores, files = [], []
    for together in (False, True):
        disk = FaultyDisk()
        store = DelayStore(disk, "hours", tier=LakeTier())
        gathered = FilingBatch()
        for frame in frames:
            gathered.append(frame)
        assert gathered.first_ms == min(dues)
        assert gathered.count == sum(len(frame.heads) for frame in frames)
        for each in gathered.take() if together else frames:
            assert store.file(each)[1] is None
        assert not gathered.count if together else gathered
        paths = [path for hour in store.hours.values() for path in hour.sync_paths()]
        paths += [path for buffer in store.far.buffers for path in buffer.sync_paths()]
        stores.append(store)
        files.append({path: bytes(disk.open(path).read(0, 1 << 20)) for path in paths})
    assert files[0] == files[1]
    assert sorted(stores[0].hours) == sorted(stores[1].hours)
