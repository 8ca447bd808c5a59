"""Several flipped bits anywhere in a directory: a start serves what is left, or a salvage makes that possible (P2, P11)."""

from __future__ import annotations

import copy
import re
from random import Random

import pytest
from worlds import checkpoint

from horolog.broker.life.salvage import salvage, survey
from horolog.delay.far.compaction import FarSettings
from horolog.errors import ErrorCode, HorologError
from horolog.limits import DAY_MS, HOUR_MS
from horolog.log.checkpoint import decode_checkpoint
from horolog.protocol.commands import (
    Ack,
    CreateTopic,
    DescribeBroker,
    MessageType,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.storage.api import read_file
from horolog.testing.sim_broker import SimBroker

SHARD = "shard-00"
DELAYS = [0, 0, 5_000, 2 * HOUR_MS, 3 * DAY_MS, 50 * DAY_MS]


def body_of(message_id: str) -> bytes:
    return (message_id * 9).encode()


@pytest.fixture(scope="module")
def killed(make_world):
    """Killed with a tail after two checkpoints; hours, a buffer, runs, leases and acks; and the ids that were sent."""
    random = Random(5)
    world = make_world(segment_bytes=65_536)
    world.broker.settings = world.broker.settings._replace(far=FarSettings(6_000, 2, 1))
    world.broker.open()
    for topic in ("t", "u"):
        world.broker.ask(CreateTopic(topic, TopicType.MIXED, 2))
    sent = set()
    for i in range(120):
        topic, delay = random.choice("tu"), random.choice(DELAYS)
        due = world.clock.wall_ms() + delay if delay else 0
        kind = MessageType.DELAY if due else MessageType.NORMAL
        ids = [f"{topic}{i}.{j}" for j in range(random.randrange(1, 8))]
        made = [
            encode(topic=topic, body=body_of(each), message_id=each, type=kind, due_ms=due)
            for each in ids
        ]
        world.broker.ask(SendMessages(topic, made))
        sent |= set(ids)
        if i % 5 == 4:
            got = world.broker.ask(Receive("g", topic, -1, "*", 8, 60_000, False, 0, "c")).messages
            if got:
                world.broker.ask(Ack("g", topic, [each.receipt_handle for each in got[::2]]))
        world.clock.advance(random.randrange(400))
        world.broker.settle()
        if i in (50, 80):
            checkpoint(world)
    world.clock.advance(200)
    world.broker.settle()
    world.disk.crash(power_cut=True)
    return world, sent


def again(before):
    world = copy.copy(before)
    world.disk, world.clock = copy.deepcopy((before.disk, before.clock))
    world.broker = SimBroker(Random(1), world.disk, world.clock, "sync", 65_536)
    world.broker.settings = before.broker.settings
    return world


def rot(disk, random: Random) -> list[str]:
    """Flip one to five bits where something was written."""
    hits = []
    files = [name for name in disk.names() if disk.open(name).size()]
    for _ in range(random.choice([1, 1, 2, 3, 5])):
        path = random.choice(files)
        size = len(read_file(disk, path).rstrip(b"\0")) or 1
        hits.append(f"{path} byte {(at := random.randrange(size))}")
        disk.flip(path, at, *random.sample(range(8), random.choice([1, 2, 2])))
    return hits


def consumed(world) -> list[str]:
    got = []
    for topic in ("t", "u"):
        if topic not in world.broker.shard.topics.by_name:
            continue
        command = Receive("all", topic, -1, "*", 32, 3_600_000, False, 0, "c")
        while messages := world.broker.ask(command).messages:
            for message in messages:
                stored = layout.decode(message.layout)
                got.append(properties.decode(stored.properties)["UNIQ_KEY"])
                assert stored.body == body_of(got[-1]), f"{got[-1]} is garbled"
            handles = [message.receipt_handle for message in messages]
            world.broker.ask(Ack("all", topic, handles))
    return got


@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 112), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_what_is_not_hit_is_served_after_a_start_or_a_salvage(killed, seeds) -> None:
    salvages = 0
    for seed in seeds:
        before, sent = killed
        world = again(before)
        hits = rot(world.disk, Random(seed))
        given_up = 0
        try:
            world.broker.open()
        except HorologError as error:
            assert error.code is ErrorCode.DAMAGED, (seed, hits)
            assert "horolog salvage" in error.message, (seed, hits, error.message)
            meta = world.broker.meta
            found = survey(world.disk, SHARD, meta)
            salvage(world.disk, SHARD, meta, found)
            given_up = len(found.lost)
            assert given_up, (seed, hits)
            salvages += 1
            world.broker.open()
        world.broker.core.check_invariants()
        world.clock.advance(51 * DAY_MS)
        world.broker.settle(2_000)
        got = set(consumed(world))
        assert got <= sent, (seed, hits)
        # A bit costs a frame of seven messages at most, or a page of what is derived from a log that has lost it.
        assert len(sent - got) <= 10 * len(hits), (seed, hits, sent - got)
        problems = world.broker.ask(DescribeBroker()).problems
        assert problems or got == sent, (seed, hits, sent - got)
        assert not given_up or any("salvage" in text for text in problems), (seed, hits)
    assert salvages, "no seed needs a salvage"


def test_the_directory_has_a_tail_after_its_checkpoints(killed) -> None:
    """Else no seed could meet row 4."""
    world, _ = killed
    names = world.disk.list(f"{SHARD}/checkpoint")
    assert len(names) == 2
    newest = decode_checkpoint(read_file(world.disk, f"{SHARD}/checkpoint/{names[-1]}"))
    assert newest is not None
    assert newest.position < world.broker.shard.log.end - 10_000


def test_a_directory_in_the_place_of_a_file_costs_no_message(killed) -> None:
    """Of any file that is made from the log: what it held is made again, and the checkpoints after it are written."""
    before, sent = killed
    names = [each for each in before.disk.names() if not each.startswith(f"{SHARD}/log/")]
    one_of_each_kind = {re.sub(r"[0-9]+", "N", each): each for each in names}
    assert {each.split("/")[1] for each in names} == {
        "checkpoint",
        "hours",
        "keys",
        "queues",
        "runs",
    }
    for path in one_of_each_kind.values():
        world = again(before)
        world.disk.remove(path)
        world.disk.make_dir(path)
        world.disk.open(f"{path}/stray", create=True).write(0, b"x")
        world.broker.open()
        world.broker.core.check_invariants()
        world.clock.advance(51 * DAY_MS)
        world.broker.settle(2_000)
        assert set(consumed(world)) == sent, path
        assert world.broker.ask(DescribeBroker()).problems == [], path
        checkpoint(world)
        checkpoint(world)
        assert not world.disk.exists(f"{path}/stray")
        world.reopen()
