"""Disk pressure (P9): sends are refused before what was promised is in danger, and everything else goes on."""

from __future__ import annotations

import re
from random import Random

import pytest
from worlds import checkpoint, made, over_quota, refused, send, take_all

from horolog.broker.life import checkpoints
from horolog.broker.recall import bulk_recalls
from horolog.delay.far.compaction import FarSettings
from horolog.errors import ErrorCode, HorologError
from horolog.log.segment import SegmentWriter, Write
from horolog.protocol.commands import (
    CountPending,
    CreateTopic,
    DescribeBroker,
    MessageType,
    Recall,
    RecallMany,
    RecallStatus,
    Reschedule,
    SendMessages,
    TopicType,
)
from horolog.protocol.move_commands import MoveMany
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.transaction_commands import EndTransaction, Resolution, SendHalf
from horolog.testing.disk import FaultyDisk
from horolog.testing.sim_broker import Answer

HOUR = 3_600_000
SEGMENT = 65_536
RESERVE = 65_536


@pytest.fixture
def small(make_world):
    """A broker on a disk that can be made small."""
    return opened(make_world())


def opened(world, **settings):
    world.broker.settings = world.broker.settings._replace(reserve_bytes=RESERVE, **settings)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    return world


def free(world, room: int) -> None:
    """Leave that many bytes; the broker looks at the next send."""
    world.disk.capacity_bytes = world.disk.used_bytes() + room
    world.clock.advance(1_000)


def refusal(world) -> HorologError:
    return no_room(world, SendMessages("t", [made("refused", body=bytes(1_000))]))


def no_room(world, command) -> HorologError:
    error = refused(world.broker, command)
    assert error.code is ErrorCode.DISK_FULL, error
    return error


def test_the_refusal_names_the_figures(small) -> None:
    free(small, RESERVE // 2 - 1_000)
    error = refusal(small)
    assert error.field == "disk"
    assert error.retriable
    assert f"{RESERVE // 2 - 1_000} bytes are free" in error.message
    assert f"{RESERVE} in reserve" in error.message
    assert error.limit == f"{RESERVE} bytes"
    with pytest.raises(HorologError, match="disk: "):
        small.broker.ask(CreateTopic("another", TopicType.NORMAL, 1))
    assert "disk: " in small.broker.ask(DescribeBroker()).problems[0]
    free(small, 10 * SEGMENT)
    assert small.broker.ask(DescribeBroker()).problems == []
    send(small, "again", 1)
    assert take_all(small) == ["again0"]


def test_a_quota_that_nobody_can_see_leaves_what_is_allocated(small) -> None:
    """The broker hears from its writer that a segment was refused, though bytes are free."""

    def fill() -> None:
        for i in range(2 * SEGMENT // 1_000):
            small.clock.advance(1_000)
            send(small, f"{i}-", 1)

    small.disk.on_effect = over_quota
    with pytest.raises(HorologError, match="no further segment"):
        fill()
    assert small.broker.end < SEGMENT + 2_000, "the last one is for acks, recalls and hand-over"
    small.disk.on_effect = None
    small.broker.settle()
    small.clock.advance(1_000)
    send(small, "again", 1)


def test_what_is_due_within_the_hour_needs_its_space(small) -> None:
    """100 messages of 1 KB due soon: so much more must be free than for those due later."""
    now = small.clock.wall_ms()
    for due_ms, needed in ((now + 5 * HOUR, RESERVE), (now + HOUR // 2, RESERVE + 100_000)):
        send(small, f"{due_ms}-", 100, due_ms=due_ms)
        free(small, 1_000)
        limit = int(refusal(small).limit.split()[0])
        assert needed <= limit < needed + 40_000
        free(small, 1 << 30)


def test_far_messages_that_have_to_become_a_run_need_their_space(make_world) -> None:
    world = opened(make_world(), far=FarSettings(buffer_bytes=1 << 20))
    send(world, "far", 100, due_ms=world.clock.wall_ms() + 60 * HOUR)
    free(world, 1_000)
    error = refusal(world)
    assert int(error.limit.split()[0]) >= RESERVE + 100_000
    assert "for far messages" in error.message


def test_two_checkpoints_need_their_space(small) -> None:
    send(small, "a", 10, due_ms=small.clock.wall_ms() + 5 * HOUR)
    checkpoint(small)
    written = small.broker.shard.checkpoint_bytes
    assert written > 57_600, "heads of an hour"
    free(small, 1_000)
    assert int(refusal(small).limit.split()[0]) == RESERVE + 2 * written


@pytest.mark.parametrize("due_in", [0, 3 * HOUR])
def test_p9_open_transactions_need_their_space(small, due_in: int) -> None:
    """The log, and the files of what is scheduled, can take what is committed when sends have filled the disk."""
    ids = [f"half{i}" for i in range(60)]
    due_ms = small.clock.wall_ms() + due_in if due_in else 0
    kind = MessageType.TRANSACTION
    halves = [
        encode(topic="t", body=bytes(4_000), message_id=each, type=kind, due_ms=due_ms)
        for each in ids
    ]
    positions = []
    for first in range(0, len(halves), 12):
        positions += small.broker.ask(SendHalf("t", halves[first : first + 12])).origins
    size = small.broker.shard.halves.bytes
    assert size > 240_000
    free(small, RESERVE + 2 * size + 100_000)
    with pytest.raises(HorologError) as caught:
        send(small, "sent", 1_000)
    message = caught.value.message
    assert f", {2 * size} for open transactions (" in message
    for position in positions:
        small.broker.ask(EndTransaction(position, Resolution.COMMIT))
    free(small, 0)
    assert "open transactions" not in refusal(small).message
    free(small, 1 << 30)
    small.reopen(power_cut=True)
    small.clock.advance(due_in)
    small.broker.settle()
    assert [each for each in take_all(small) if each in ids] == ids


def test_a_crowd_of_sends_in_one_turn_cannot_overrun_the_space(small) -> None:
    free(small, RESERVE)
    due_ms = small.clock.wall_ms() + 3 * HOUR
    sends = [
        Answer(SendMessages("t", [made(f"m{i}", due_ms, body=bytes(1_000))])) for i in range(200)
    ]
    small.broker.step(sends)
    small.broker.settle()
    accepted = [each for each in sends if not isinstance(each.result, HorologError)]
    assert 0 < len(accepted) < 100
    assert small.disk.free_bytes() > RESERVE // 4


def test_a_full_disk_at_a_segment_roll_with_many_messages_due(small) -> None:
    """The next segment cannot be allocated: the log grows in the reserve, and all that was promised happens."""
    due_ms = small.clock.wall_ms() + 60_000
    send(small, "due", 150, due_ms=due_ms, size=975)
    recalled = small.clock.wall_ms() + 10 * HOUR
    send(small, "later", 5, due_ms=recalled, size=975)  # near the end of a segment
    checkpoint(small)
    log = small.broker.shard.log
    before = log.end // SEGMENT
    needs = small.broker.core.disk
    needs._looked_ms = -10_000
    needs.refresh(small.clock.monotonic_ms(), small.clock.wall_ms())
    free(small, needs._needs.total - needs._needs.log // 2)
    refusal(small)
    small.clock.advance(60_000)
    small.broker.settle()
    assert log.end // SEGMENT > before + 1, "it has rolled, more than once"
    assert len(take_all(small)) == 150
    assert small.broker.ask(Recall("t", "later0", recalled)).status is RecallStatus.CANCELLED
    checkpoint(small)
    small.reopen(power_cut=True)
    assert small.broker.ask(CountPending()).total == 4
    assert take_all(small) == []
    assert len(take_all(small, "other")) == 150
    free(small, 100 * SEGMENT)
    send(small, "again", 1)
    assert take_all(small) == ["again0"]
    small.reopen(power_cut=True)
    assert len(take_all(small, "third")) == 151


def test_another_process_takes_all_of_the_disk(small) -> None:
    """What is allocated already still serves acks, recalls and hand-over."""
    due_ms = small.clock.wall_ms() + 60_000
    send(small, "due", 20, due_ms=due_ms)
    small.broker.settle()
    free(small, 0)
    refusal(small)
    small.clock.advance(60_000)
    small.broker.settle()
    assert len(take_all(small)) == 20
    small.reopen()
    assert take_all(small) == []


def test_a_disk_without_inodes_refuses_what_would_wait_in_memory(small) -> None:
    """All was taken, health said nothing, and the broker ended when the log wanted its next segment."""

    def no_inode(effect: str) -> None:
        if effect.startswith("create"):
            raise HorologError(ErrorCode.DISK_FULL, f"{effect}: No space left on device")

    due_ms = small.clock.wall_ms() + HOUR
    send(small, "before", 2, due_ms=due_ms)
    small.broker.settle()
    small.disk.on_effect = no_inode
    send(small, "unfiled", 3, due_ms=due_ms + 2 * HOUR)
    for _ in range(2):  # they are filed together with what comes a moment later
        small.broker.settle()
        small.clock.advance(1_000)
    said = refusal(small)
    assert said.message.startswith(
        "disk: 3 scheduled messages wait in memory, as the disk takes no"
    )
    problems = small.broker.ask(DescribeBroker()).problems
    assert problems == [said.message]
    assert small.broker.ask(Recall("t", "before0", due_ms)).status is RecallStatus.CANCELLED
    small.disk.on_effect = None
    small.clock.advance(1_000)
    small.broker.settle()
    send(small, "again", 1)
    small.clock.advance(3 * HOUR)
    small.broker.settle()
    assert sorted(take_all(small)) == ["again0", "before1", "unfiled0", "unfiled1", "unfiled2"]


def test_a_start_without_inodes_says_what_is_missing_and_loses_nothing(small) -> None:
    """It said only that there was no space, on a disk with bytes free."""

    def no_inode(effect: str) -> None:
        if effect.startswith("create") and "/hours/" in effect:
            raise HorologError(ErrorCode.DISK_FULL, f"{effect}: No space left on device")

    send(small, "unfiled", 3, due_ms=small.clock.wall_ms() + HOUR)
    small.disk.on_effect = no_inode
    for _ in range(2):
        with pytest.raises(HorologError, match="make room, and start again") as met:
            small.reopen()
        assert met.value.code is ErrorCode.DISK_FULL
        said = r"disk: 3 or more scheduled messages of the log find no place in shard-00, .* inodes"
        assert re.match(said, met.value.message)
    small.disk.on_effect = None
    small.reopen()
    small.clock.advance(HOUR)
    small.broker.settle()
    assert sorted(take_all(small)) == ["unfiled0", "unfiled1", "unfiled2"]


@pytest.mark.parametrize("left", [0, RESERVE // 4, RESERVE // 2 - 1_000])
def test_what_ends_messages_goes_on_and_what_copies_them_is_refused(make_world, left) -> None:
    """A bulk recall was refused when all that was left lay in segments that are allocated already."""
    world = opened(make_world(segment_bytes=4 * SEGMENT))
    due_ms = world.clock.wall_ms() + 3 * HOUR
    send(world, "later", 40, due_ms=due_ms)
    send(world, "now", 3)
    world.broker.settle()
    free(world, left)
    refusal(world)
    window = ("t", due_ms, due_ms + 1)
    no_room(world, Reschedule("t", "later0", due_ms, due_ms + 1))
    no_room(world, Reschedule("t", "later0", due_ms, 0, now=True))
    no_room(world, MoveMany(*window, new_due_ms=due_ms + 1))
    no_room(world, MoveMany(*window, now=True))
    assert len(take_all(world)) == 3
    recalled = world.broker.ask(Recall("t", "later0", due_ms))
    assert recalled.status is RecallStatus.CANCELLED
    assert world.broker.ask(RecallMany(*window, dry_run=True)).matched == 39
    assert world.broker.ask(RecallMany(*window)).cancelled == 39
    world.reopen(power_cut=True)
    assert world.broker.ask(CountPending()).total == 0
    world.disk.capacity_bytes = None


def test_a_bulk_recall_leaves_half_of_the_reserve_to_acks(make_world) -> None:
    """It may be larger than the reserve; single recalls and acks go on after it has stopped."""
    world = opened(make_world())
    due_ms = world.clock.wall_ms() + 3 * HOUR
    send(world, "later", 4_000, due_ms=due_ms, size=10)
    send(world, "now", 3)
    world.broker.settle()
    room = world.broker.core.disk._log_space()
    free(world, max(0, RESERVE - room))
    error = no_room(world, RecallMany("t", due_ms, due_ms + 1))
    assert f"less than {RESERVE // 2} bytes are left for the log" in error.message
    left = world.broker.ask(CountPending()).total
    assert 0 < left < 4_000
    assert f"{4_000 - left} messages were cancelled before" in error.message
    for i in range(3_950, 4_000):
        recalled = world.broker.ask(Recall("t", f"later{i}", due_ms))
        assert recalled.status is RecallStatus.CANCELLED
    assert len(take_all(world)) == 3


def test_a_bulk_move_stops_where_sends_are_refused(make_world, monkeypatch) -> None:
    """It was accepted where a send was, and then refused with 0 moved: what is allocated did not count."""
    monkeypatch.setattr(bulk_recalls, "BULK_MOVED_ROWS", 4)
    world = opened(make_world(segment_bytes=16 * SEGMENT))
    due_ms = world.clock.wall_ms() + 3 * HOUR
    send(world, "later", 300, due_ms=due_ms)
    world.broker.settle()
    free(world, RESERVE - 1_000)
    send(world, "taken", 1)
    error = no_room(world, MoveMany("t", due_ms, due_ms + 1, new_due_ms=due_ms + 1))
    refusal(world)
    moved = world.broker.ask(RecallMany("t", due_ms + 1, due_ms + 2, dry_run=True)).matched
    assert 0 < moved < 300
    assert f"; {moved} messages were moved before" in error.message
    assert world.broker.ask(CountPending()).total == 300


@pytest.mark.parametrize("seed", range(12))
def test_p9_whatever_was_accepted_is_handed_over_and_acknowledged(make_world, seed) -> None:
    """Send until the disk refuses, again and again, then let all time pass on the full disk."""
    random = Random(seed)
    world = opened(make_world())
    world.disk.capacity_bytes = world.disk.used_bytes() + random.randrange(2, 12) * SEGMENT
    accepted, refused = set(), 0
    while refused < 5:
        world.clock.advance(random.choice([0, 10, 1_000, 20_000]))
        due_ms = world.clock.wall_ms() + random.choice([1_000, 60_000, HOUR // 2, 3 * HOUR])
        ids = [f"{seed}-{len(accepted)}-{i}" for i in range(random.choice([1, 5, 20]))]
        size = random.choice([10, 500, 2_000])
        try:
            world.broker.ask(SendMessages("t", [made(i, due_ms, body=bytes(size)) for i in ids]))
            accepted |= set(ids)
        except HorologError as error:
            assert error.code is ErrorCode.DISK_FULL
            refused += 1
        if random.random() < 0.1:
            checkpoint(world)
    assert accepted
    got: list[str] = []
    for _ in range(200):
        world.clock.advance(60_000)
        world.broker.settle()
        got += take_all(world)
    assert sorted(got) == sorted(accepted)
    assert world.broker.ask(DescribeBroker()).pending == 0
    world.disk.capacity_bytes = None
    world.reopen(power_cut=True)
    assert take_all(world) == []


def test_a_checkpoint_without_space_leaves_no_files_behind(small) -> None:
    send(small, "a", 10, due_ms=small.clock.wall_ms() + 5 * HOUR)
    small.broker.settle()
    for _ in range(3):
        free(small, 30_000)
        before = set(small.disk.names())
        small.clock.advance(10_000)
        checkpoint(small)
        left = set(small.disk.names()) - before
        assert not [name for name in left if "/state." in name or ".ckpt" in name]
    free(small, 1 << 30)
    small.clock.advance(10_000)
    checkpoint(small)
    small.reopen(power_cut=True)
    assert "recovery row 11" not in small.broker.reports[-1]
    assert small.broker.ask(CountPending()).total == 10


@pytest.mark.parametrize("room", [0, 30_000])  # not even for a queue; for the queue alone
def test_a_long_tail_does_not_ask_for_a_checkpoint_over_and_over(small, monkeypatch, room) -> None:
    """What is handed over on a full disk makes it long; the broker was busy with checkpoints that had no space."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_LOG_BYTES", 20_000)
    send(small, "due", 30, due_ms=small.clock.wall_ms() + 60_000)
    checkpoint(small)
    free(small, room)
    small.clock.advance(60_000)
    small.broker.settle()
    shard = small.broker.shard
    assert shard.log.end - shard.checkpoint_position > 20_000
    assert len(take_all(small)) == 30
    free(small, 1 << 30)
    small.clock.advance(10_000)
    small.broker.settle()
    assert shard.log.end == shard.checkpoint_position


def test_merges_of_runs_wait_for_space(make_world) -> None:
    world = opened(make_world(), far=FarSettings(buffer_bytes=4_096, runs_max=3, part_runs_max=2))
    core = world.broker.core
    far = core.shard.delay.far
    real_look = core.disk.refresh
    core.disk.refresh = lambda *_: setattr(far.compaction, "room", 10_000)
    for i in range(8):
        send(world, f"far{i}-", 5, due_ms=world.clock.wall_ms() + 60 * HOUR + i)
        world.clock.advance(2_000)
        world.broker.settle()
    assert len(far.runs) > 3
    assert all(run.level == 0 for run in far.runs.values())
    core.disk.refresh = real_look
    for i in range(5):
        world.clock.advance(2_000)
        send(world, f"more{i}-", 5, due_ms=world.clock.wall_ms() + 60 * HOUR)
        world.broker.settle()
    assert any(run.level for run in far.runs.values())
    assert world.broker.ask(CountPending()).total == 65


def test_a_segment_grows_when_it_cannot_be_allocated() -> None:
    disk = FaultyDisk(1, capacity_bytes=1_500)
    disk.make_dir("log")
    writer = SegmentWriter(disk, "log", 1_024)
    writer.write([Write(0, b"a" * 1_000)])
    assert not writer.prepare_next(), "no space for a whole one"
    assert disk.list("log") == ["00000000000000000000.log"]
    writer.write([Write(1_024, b"b" * 200)])
    assert disk.open("log/00000000000000001024.log").size() == 200
    writer.sync()
    disk.crash(power_cut=True)
    assert disk.open("log/00000000000000001024.log").read(0, 200) == b"b" * 200
    disk.capacity_bytes = 4_096
    writer = SegmentWriter(disk, "log", 1_024)
    writer.write([Write(1_224, b"c")])
    assert disk.open("log/00000000000000001024.log").size() == 1_024
    writer.keep_free = 2_000
    assert not writer.prepare_next(), "others need what is left"
    writer.keep_free = 0
    assert writer.prepare_next()


@pytest.mark.parametrize("code", [ErrorCode.TOO_MANY_FILES, ErrorCode.DISK_FULL])
@pytest.mark.parametrize("change", ["create log/00000000000000001024.log", "sync log"])
def test_a_segment_that_cannot_be_made_at_all_is_known_in_advance(change: str, code) -> None:
    """For want of inodes or descriptors: sends went on to the end of the last segment, and the broker with it."""
    disk = FaultyDisk(1, capacity_bytes=1 << 20)
    disk.make_dir("log")
    writer = SegmentWriter(disk, "log", 1_024)
    writer.write([Write(0, b"a" * 1_000)])

    def fail(what: str) -> None:
        if what == change:
            raise HorologError(code, f"{what}: none is left")

    disk.on_effect = fail
    assert not writer.is_confined
    assert not writer.prepare_next()
    assert writer.is_confined
    disk.on_effect = None
    assert writer.prepare_next()
    assert not writer.is_confined


@pytest.mark.parametrize("code", [ErrorCode.TOO_MANY_FILES, ErrorCode.DISK_FAILED])
def test_where_nobody_can_look_what_was_known_holds(small, monkeypatch, code) -> None:
    """It ended the broker, which had only wanted to know how much space a segment has."""
    send(small, "a", 3)

    def fails(path: str, *, create: bool = False) -> None:
        raise HorologError(code, f"open {path}: Too many open files, or an I/O error")

    monkeypatch.setattr(small.disk, "open", fails)
    small.clock.advance(2_000)
    send(small, "b", 3)
    small.broker.settle()
    monkeypatch.undo()
    assert sorted(take_all(small)) == ["a0", "a1", "a2", "b0", "b1", "b2"]
