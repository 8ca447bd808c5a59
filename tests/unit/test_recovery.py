"""Recovery: the table is complete, and every row happens as it says."""

from __future__ import annotations

import itertools

import pytest
from worlds import checkpoint, names, refused_start

from horolog.errors import ErrorCode, HorologError
from horolog.log.checkpoint import decode_checkpoint
from horolog.log.recovery import (
    TABLE,
    Action,
    CheckpointFound,
    DerivedFound,
    Found,
    LogFound,
    decide,
)
from horolog.protocol.commands import (
    CreateTopic,
    DescribeBroker,
    MessageType,
    Recall,
    RecallStatus,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.storage.api import read_file

LOG = "shard-00/log/00000000000000000000.log"
ALL = list(itertools.product(LogFound, (False, True), (False, True), CheckpointFound, DerivedFound))


@pytest.mark.parametrize("facts", ALL, ids=lambda facts: "-".join(map(str, facts)))
def test_table_covers_every_combination(facts) -> None:
    found = Found(*facts)
    row = decide(found)
    if found.log in (LogFound.HOLE, LogFound.FOREIGN, LogFound.DAMAGED, LogFound.SHORT):
        assert row.action is Action.REFUSE
    if not found.from_zero and found.log in (LogFound.WHOLE, LogFound.TORN):
        assert row.action is not Action.REBUILD, "what is gone from the log cannot be rebuilt"
    if found.log is LogFound.TORN and row.action not in (Action.REFUSE, Action.QUARANTINE):
        assert row.action in (Action.TRUNCATE, Action.REBUILD)
    if found.log is LogFound.NONE:
        assert row.action in (Action.REFUSE, Action.INITIALISE)


def test_every_row_is_reached() -> None:
    reached = {id(decide(Found(*facts))) for facts in ALL}
    assert [row for row in TABLE if id(row) not in reached] == []


def fill(world, n: int = 40, start: int = 0) -> None:
    if start == 0:
        world.broker.ask(CreateTopic("t", TopicType.MIXED, 2))
    now = world.clock.wall_ms()
    messages = [
        encode(
            topic="t",
            body=b"x" * 25,
            message_id=f"m{i}",
            type=MessageType.DELAY,
            due_ms=now + 60_000 + i,
        )
        for i in range(start, start + n)
    ]
    world.broker.ask(SendMessages("t", messages))


def cut(world) -> None:
    """Let retention drop the beginning of the log."""
    world.broker.settings = world.broker.settings._replace(retention_bytes=65_536, dedup_ms=0)
    world.reopen()
    for i in range(4):
        fill(world, 200, 200 * i)
        checkpoint(world)
    assert world.broker.ask(DescribeBroker()).log_start > 0


def pending(world) -> int:
    return world.broker.ask(DescribeBroker()).pending


def drained(world) -> list[int]:
    world.clock.advance(120_000)
    world.broker.settle()
    got = []
    while messages := world.broker.ask(
        Receive("g", "t", -1, "*", 32, 60_000, False, 0, "c")
    ).messages:
        got += [(m.queue_id, m.queue_offset) for m in messages]
    return got


def test_row_1_serves_as_left(world) -> None:
    fill(world)
    checkpoint(world)
    world.broker.settle()
    world.disk.crash(power_cut=False)
    world.broker.open()
    assert (
        "recovery row 2" in world.broker.reports[-1] or "recovery row 1" in world.broker.reports[-1]
    )
    assert pending(world) == 40


def test_row_2_replays_the_tail_and_cuts_longer_files(world) -> None:
    fill(world)
    checkpoint(world)
    fill(world, 30, 40)
    hour = names(world, "hours")[0]
    file = world.disk.open(f"shard-00/hours/{hour}/delay.idx")
    file.write(file.size(), b"junk" * 64)
    world.reopen()
    assert "recovery row 2" in world.broker.reports[-1]
    assert pending(world) == 70
    assert len(drained(world)) == 70


def test_row_3_cuts_a_torn_tail(world) -> None:
    fill(world)
    checkpoint(world)
    end = world.broker.ask(DescribeBroker()).log_end
    world.disk.open(LOG).write(end, b"HLGF torn" + bytes(100))
    world.reopen()
    assert any("torn tail cut" in line for line in world.broker.reports)
    assert pending(world) == 40
    assert world.disk.open(LOG).read(end + 200, 64) == bytes(64)


def test_row_4_refuses_damage_and_names_it(world) -> None:
    fill(world)
    fill(world, 10, 40)
    world.clock.advance(200)
    world.broker.settle()
    world.disk.flip(LOG, 300, 3, 6)
    before = world.disk.open(LOG).read(0, 65_536)
    error = refused_start(world)
    assert error.code is ErrorCode.DAMAGED
    assert "recovery row 4" in error.message
    assert world.disk.open(LOG).read(0, 65_536) == before


def test_row_5_refuses_a_log_shorter_than_the_checkpoint(world) -> None:
    fill(world)
    checkpoint(world)
    size = world.disk.open(LOG).size()
    world.disk.open(LOG).truncate(200)
    world.disk.open(LOG).allocate(size)
    error = refused_start(world)
    assert error.code is ErrorCode.DAMAGED
    assert "recovery row 5" in error.message


@pytest.mark.parametrize("part", ["header", "body"])
@pytest.mark.parametrize("stopped", [True, False])
def test_a_flipped_bit_in_the_last_frame_of_a_checkpoint_is_no_shorter_log(
    world, part, stopped
) -> None:
    """It looks like row 5 and is not: the frame costs what it holds, of which derived files have all."""
    fill(world)
    checkpoint(world)
    if not stopped:
        fill(world, 10, 40)
    (name,) = names(world, "checkpoint")
    found = decode_checkpoint(read_file(world.disk, f"shard-00/checkpoint/{name}"))
    assert found is not None
    world.disk.flip(LOG, found.last_frame + (20 if part == "header" else 100), 3, 6)
    world.reopen()
    assert pending(world) == (40 if stopped else 50)
    assert len(drained(world)) == (40 if stopped else 50)


def test_row_6_refuses_a_hole(world) -> None:
    fill(world, 400)
    fill(world, 400, 400)
    logs = names(world, "log")
    assert len(logs) >= 3
    world.disk.remove(f"shard-00/log/{logs[1]}")
    assert "recovery row 6" in refused_start(world).message


def test_row_7_refuses_a_foreign_log(world, make_world) -> None:
    other = make_world()
    other.broker.meta = other.broker.meta._replace(log_id=1)
    other.broker.open()
    fill(other)
    content = other.disk.open(LOG).read(0, 65_536)
    fill(world)
    world.disk.open(LOG).write(0, content)
    error = refused_start(world)
    assert error.code is ErrorCode.DIRECTORY_FOREIGN
    assert "recovery row 7" in error.message


def test_row_8_falls_back_to_the_older_checkpoint(world) -> None:
    fill(world)
    checkpoint(world)
    fill(world, 30, 40)
    checkpoint(world)
    newest = names(world, "checkpoint")[-1]
    world.disk.flip(f"shard-00/checkpoint/{newest}", 90, 0)
    world.reopen()
    assert "recovery row 8" in world.broker.reports[-1]
    assert pending(world) == 70
    assert len(drained(world)) == 70


def test_row_9_rebuilds_without_a_checkpoint(world) -> None:
    fill(world)
    checkpoint(world)
    for name in names(world, "checkpoint"):
        world.disk.flip(f"shard-00/checkpoint/{name}", 90, 0)
    world.reopen()
    assert "recovery row 9" in world.broker.reports[-1]
    assert pending(world) == 40
    assert len(drained(world)) == 40


def test_row_10_refuses_when_the_beginning_is_gone_and_no_checkpoint_is_valid(world) -> None:
    cut(world)
    for name in names(world, "checkpoint"):
        world.disk.flip(f"shard-00/checkpoint/{name}", 90, 0)
    error = refused_start(world)
    assert error.code is ErrorCode.DAMAGED
    assert "recovery row 10" in error.message
    assert "from a backup" in error.message


def test_row_6_refuses_a_log_that_begins_after_its_checkpoint(world) -> None:
    cut(world)
    world.disk.remove(f"shard-00/log/{names(world, 'log')[0]}")
    error = refused_start(world)
    assert "recovery row 6" in error.message
    assert "by its newest checkpoint the log begins with segment" in error.message


@pytest.mark.parametrize("name", ["delay.idx", "delay.log", "state"])
def test_row_11_rebuilds_short_or_bad_files(world, name) -> None:
    fill(world)
    checkpoint(world)
    hour = f"shard-00/hours/{names(world, 'hours')[0]}"
    if name == "state":
        state = next(n for n in world.disk.list(hour) if n.startswith("state."))
        world.disk.flip(f"{hour}/{state}", 100, 1)
    else:
        world.disk.open(f"{hour}/{name}").truncate(100)
    world.reopen()
    assert "recovery row 11" in world.broker.reports[-1]
    assert pending(world) == 40
    assert len(drained(world)) == 40


def test_row_11_rebuilds_a_short_consume_queue(world) -> None:
    fill(world)
    world.clock.advance(61_000)
    world.broker.settle()
    checkpoint(world)
    queue = f"shard-00/queues/{names(world, 'queues')[0]}"
    world.disk.open(f"{queue}/{world.disk.list(queue)[0]}").truncate(20)
    world.reopen()
    assert "recovery row 11" in world.broker.reports[-1]
    assert len(drained(world)) == 40


def test_row_13_sweeps_hours_that_no_checkpoint_names(world) -> None:
    fill(world)
    checkpoint(world)
    world.disk.make_dir("shard-00/hours/0000000099")
    world.disk.open("shard-00/hours/0000000099/delay.idx", create=True).write(0, b"x" * 64)
    world.reopen()
    assert "0000000099" not in names(world, "hours")
    assert pending(world) == 40


def test_row_14_refuses_a_hand_over_of_what_no_file_has(world) -> None:
    """The log hands over a message whose SCHEDULED record was replaced by one of another hour."""
    fill(world, 1)
    world.clock.advance(61_000)
    world.broker.settle()
    from horolog.broker.life.replay import Replay
    from horolog.log.frame import HEADER_BYTES, parse

    shard = world.broker.shard
    content = world.disk.open(LOG).read(0, 65_536)
    at, frames = 0, []
    while (header := parse(content, at)) is not None:
        frames.append((header, content[at + HEADER_BYTES : header.end]))
        at = header.end
    hand_over = next((h, b) for h, b in frames if h.count == 2)
    shard.delay.hours.clear()
    with pytest.raises(HorologError) as caught:
        Replay(shard, 0, 0).apply(*hand_over)
    assert caught.value.code is ErrorCode.DAMAGED
    assert "that neither the hour's files nor a run has" in caught.value.message


def test_row_15_refuses_derived_files_without_a_log(world) -> None:
    fill(world)
    checkpoint(world)
    for part in ("log", "checkpoint"):
        for name in names(world, part):
            world.disk.remove(f"shard-00/{part}/{name}")
    assert "recovery row 15" in refused_start(world).message


def test_epoch_rises_at_every_start(world) -> None:
    epochs = []
    for _ in range(3):
        epochs.append(world.broker.ask(DescribeBroker()).epoch)
        world.reopen()
    assert epochs == [1, 2, 3]


def test_recall_survives_a_restart(world) -> None:
    fill(world, 3)
    due = world.clock.wall_ms() + 60_001
    assert world.broker.ask(Recall("t", "m1", due)).status is RecallStatus.CANCELLED
    world.reopen(power_cut=True)
    assert world.broker.ask(Recall("t", "m1", due)).status is RecallStatus.NOT_FOUND
    assert len(drained(world)) == 2
