"""A log that ends before messages that were filed from it: what is lost is named, not cut in silence (P2)."""

from __future__ import annotations

import pytest
from worlds import checkpoint, names

from horolog.broker.life.early_end import filed_to
from horolog.limits import DAY_MS
from horolog.protocol.commands import (
    CreateTopic,
    DescribeBroker,
    MessageType,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.verify.findings import Findings
from horolog.verify.reading import Reading
from horolog.verify.recorded_damage import find_early_end

LOG = "shard-00/log/00000000000000000000.log"
FAR_MS = 40 * DAY_MS


def send(world, name: str, n: int = 10, *, delay_ms: int = 60_000) -> None:
    due = world.clock.wall_ms() + delay_ms if delay_ms else 0
    kind = MessageType.DELAY if delay_ms else MessageType.NORMAL
    messages = [
        encode(topic="t", body=b"x" * 25, message_id=f"{name}{i}", type=kind, due_ms=due)
        for i in range(n)
    ]
    for first in range(0, n, 500):
        world.broker.ask(SendMessages("t", messages[first : first + 500]))


def log_end(world) -> int:
    return world.broker.ask(DescribeBroker()).log_end


def log_now(world) -> bytes:
    file = world.disk.open(LOG)
    return file.read(0, file.size())


def problems(world) -> list[str]:
    return list(world.broker.ask(DescribeBroker()).problems)


def filled(world) -> int:
    """Ten messages and a checkpoint; where the log ends."""
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 2))
    send(world, "first")
    checkpoint(world)
    return log_end(world)


@pytest.mark.parametrize("delay_ms", [60_000, FAR_MS], ids=["hour", "far buffer"])
@pytest.mark.parametrize("damage", ["old copy", "last frame"])
def test_it_says_what_was_committed_and_is_lost(world, delay_ms, damage) -> None:
    """Before, this looked like a torn tail that no client had an answer for."""
    end = filled(world)
    old = log_now(world)
    send(world, "second", delay_ms=delay_ms)
    lost_to = log_end(world)
    world.disk.crash(power_cut=False)
    if damage == "old copy":
        world.disk.open(LOG).write(0, old)
    else:
        world.disk.open(LOG).write(end, bytes(lost_to - end))
    found = Findings()
    reading = Reading(world.disk, found, quick=True, report=lambda what, done, total: None)
    find_early_end(reading, "shard-00", world.broker.meta.log_id, end)
    world.broker.open()
    (problem,) = problems(world)
    assert f"ends at log position {end}" in problem
    assert f"what was committed reached {lost_to}:" in problem
    assert [each.what for each in found.kept] == [problem], (
        "`horolog verify` says the same before a start"
    )
    assert world.broker.ask(DescribeBroker()).pending == 10


def test_messages_that_are_visible_at_once_are_known_by_the_key_index(make_world) -> None:
    world = make_world(segment_bytes=4 << 20)
    world.broker.open()
    end = filled(world)
    old = log_now(world)
    send(world, "normal", 5_000, delay_ms=0)
    world.disk.crash(power_cut=False)
    world.disk.open(LOG).write(0, old)
    world.broker.open()
    (problem,) = problems(world)
    assert f"ends at log position {end}" in problem


@pytest.mark.parametrize("power_cut", [True, False])
def test_a_torn_tail_is_no_problem(world, power_cut) -> None:
    filled(world)
    send(world, "second")
    send(world, "far", delay_ms=FAR_MS)
    world.disk.crash(power_cut=power_cut)
    log = world.disk.open(LOG)
    log.write(len(log.read(0, log.size()).rstrip(b"\0")) + 64, b"HLGF torn" + bytes(100))
    world.broker.open()
    assert problems(world) == []
    assert world.broker.ask(DescribeBroker()).pending == 30


def test_it_is_listed_for_a_day_and_not_met_again(world) -> None:
    filled(world)
    old = log_now(world)
    send(world, "second")
    world.disk.crash(power_cut=False)
    world.disk.open(LOG).write(0, old)
    world.broker.open()
    checkpoint(world)
    world.reopen()
    assert len(problems(world)) == 1
    world.clock.advance(DAY_MS + 60_000)
    checkpoint(world)
    world.reopen()
    assert problems(world) == []


def test_files_that_say_nothing_are_passed_over(world) -> None:
    end = filled(world)
    log_id = world.broker.meta.log_id
    assert filed_to(world.disk, "shard-00", log_id) == end
    hour = names(world, "hours")[0]
    index = world.disk.open(f"shard-00/hours/{hour}/delay.idx")
    index.write(index.size(), b"junk" * 64 + b"part")
    world.disk.make_dir("shard-00/hours/quarantined-0000000001")
    world.disk.open("shard-00/hours/quarantined-0000000001/delay.idx", create=True)
    world.disk.make_dir("shard-00/hours/0000000002")
    assert filed_to(world.disk, "shard-00", log_id) == end
    assert filed_to(world.disk, "shard-00", log_id + 1) == end, "the key index of another log"
    assert filed_to(world.disk, "shard-01", log_id) == 0
