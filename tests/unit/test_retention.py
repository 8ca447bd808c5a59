"""Retention: old segments of the log go, what still waits stays (P9), and everything that speaks of them follows."""

from __future__ import annotations

import pytest
from worlds import checkpoint, killed_at, made, names, send, view

from horolog.errors import ErrorCode, HorologError
from horolog.log import consume_queue
from horolog.protocol.commands import (
    Ack,
    CountPending,
    CreateTopic,
    DescribeGroup,
    DescribeTopic,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import CommitOffsets, CountLags
from horolog.protocol.rocketmq import properties
from horolog.testing.sim_broker import Answer, properties_of

HOUR = 3_600_000
SEGMENT = 65_536


@pytest.fixture
def small(make_world):
    """A broker that keeps an hour of its log, with a topic of one queue."""
    return opened(make_world(), retention_ms=HOUR)


def opened(world, **settings):
    world.broker.settings = world.broker.settings._replace(**settings)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    return world


def age(world, by_ms: int = 2 * HOUR, checkpoints: int = 3) -> None:
    """Let time pass, with a little traffic, so that there are checkpoints to drop by."""
    world.clock.advance(by_ms)
    for i in range(checkpoints):
        send(world, f"age{world.clock.wall_ms()}-{i}-", 1)
        checkpoint(world)


def take(world, group: str = "g", *, ack: bool = True) -> list[str]:
    got = []
    while messages := world.broker.ask(
        Receive(group, "t", -1, "*", 32, 60_000, False, 0, "c")
    ).messages:
        for m in messages:
            found = properties_of(m)
            got.append(found[properties.UNIQ_KEY])
        if ack:
            world.broker.ask(Ack(group, "t", [m.receipt_handle for m in messages]))
    return got


def test_segments_go_by_age_and_a_new_group_begins_at_the_min_offset(small) -> None:
    send(small, "old", 200)
    checkpoint(small)
    before = names(small, "log")
    age(small)
    assert view(small).log_start > 0
    assert names(small, "log")[0] == f"{view(small).log_start:020d}.log"
    assert len(names(small, "log")) < len(before)
    topic = small.broker.ask(DescribeTopic("t"))
    assert 0 < topic.min_offsets[0] <= 200
    got = take(small)
    assert len(got) == topic.queue_offsets[0] - topic.min_offsets[0]
    group = small.broker.ask(DescribeGroup("g", "t"))[0]
    assert group.min_offset == topic.min_offsets[0]
    assert group.ack_floor == topic.queue_offsets[0]
    assert view(small).problems == []


def test_segments_that_are_young_stay(small) -> None:
    send(small, "old", 200)
    checkpoint(small)
    age(small, HOUR // 2)
    assert view(small).log_start == 0
    assert len(take(small)) == 203


@pytest.mark.parametrize("restart", [False, True])
def test_a_passing_step_of_the_clock_keeps_nothing(small, restart: bool) -> None:
    """One message came while it was ten hours ahead: its segment, and all after it, are not ten hours younger."""
    small.clock.step_wall(10 * HOUR)
    send(small, "ahead", 1)
    small.clock.step_wall(-10 * HOUR)
    send(small, "old", 200)
    checkpoint(small)
    full = view(small).log_end - SEGMENT
    assert full > SEGMENT
    if restart:
        small.reopen()
        checkpoint(small)
    age(small, HOUR // 2)
    assert view(small).log_start == 0, "not older either"
    age(small, HOUR // 2 + 1)
    assert view(small).log_start >= full - SEGMENT


def test_a_clock_that_was_behind_drops_nothing(small) -> None:
    """As on a machine that starts in 1970, until a time service is there."""
    send(small, "old", 200)
    small.clock.step_wall(-1_000 * HOUR)
    send(small, "behind", 200)
    checkpoint(small)
    small.reopen()
    send(small, "behind-too", 1)
    checkpoint(small)
    small.clock.step_wall(1_000 * HOUR)
    age(small, HOUR // 2)
    assert view(small).log_start == 0


def test_segments_go_by_size_oldest_first(make_world) -> None:
    world = opened(make_world(), retention_bytes=3 * SEGMENT, dedup_ms=0)
    for i in range(10):
        send(world, f"{i}-", 100)
        checkpoint(world)
    end = view(world).log_end
    assert view(world).log_start >= end - 4 * SEGMENT
    assert view(world).log_start > 0
    checkpoint(world)
    held = [name for name in names(world, "log") if int(name[:20]) <= end]
    assert len(held) <= 5
    assert take(world)[-1] == "9-99"


def test_queues_begin_where_the_log_does_though_its_end_was_not_applied_yet(make_world) -> None:
    world = opened(make_world(), retention_ms=HOUR, retention_bytes=1, dedup_ms=0)
    broker = world.broker
    send(world, "applied", 20)
    broker.work_disk = lambda: None  # the disk is slow: nothing is committed for now
    sends = [Answer(SendMessages("t", [made(f"m{i}", body=bytes(1_000))])) for i in range(60)]
    for each in sends:
        broker.step([each])
    assert broker.shard.applied < SEGMENT < broker.end
    broker.request_checkpoint()
    broker.step([])
    del broker.work_disk
    broker.settle()
    assert all(each.done for each in sends)
    checkpoint(world)
    start = view(world).log_start
    topic = broker.ask(DescribeTopic("t"))
    got = take(world)
    assert len(got) == topic.queue_offsets[0] - topic.min_offsets[0]
    assert start == SEGMENT, "the segment went later"


def test_p3_the_dedup_window_outlives_retention(make_world) -> None:
    """A retry finds the first send, however small the log must be; once the window is over the log shrinks, idle."""
    world = opened(make_world(), retention_bytes=1, retention_ms=60_000, dedup_ms=120_000)
    due_ms = world.clock.wall_ms() + 10 * HOUR
    first = world.broker.ask(SendMessages("t", [made("again", due_ms, body=bytes(1_000))]))
    for i in range(6):
        send(world, f"{i}-", 100)
        checkpoint(world)
        world.clock.advance(15_000)
    retry = world.broker.ask(SendMessages("t", [made("again", due_ms, body=bytes(1_000))]))
    assert retry.origins == first.origins
    assert world.broker.ask(CountPending()).total == 1
    assert view(world).log_start == 0
    for _ in range(30):
        world.clock.advance(15_000)
        world.broker.settle()
    assert view(world).log_start > 0


def test_p9_what_waits_outlives_its_segment(small) -> None:
    """Near ones in an hour, far ones in a buffer or a run: the log has neither of them any more."""
    now = small.clock.wall_ms()
    send(small, "near", 60, due_ms=now + 20 * HOUR)
    send(small, "far", 60, due_ms=now + 60 * HOUR)
    send(small, "filler", 200)
    checkpoint(small)
    age(small)
    assert view(small).log_start > SEGMENT
    assert small.broker.ask(CountPending()).total == 120
    for power_cut in (False, True):
        small.reopen(power_cut=power_cut)
        assert small.broker.ask(CountPending()).total == 120
    take(small)
    small.clock.advance(20 * HOUR)
    small.broker.settle()
    assert [name for name in take(small) if name.startswith("near")] == [
        f"near{i}" for i in range(60)
    ]
    age(small)
    small.clock.advance(40 * HOUR)
    small.broker.settle()
    got = take(small)
    assert [name for name in got if name.startswith("far")] == [f"far{i}" for i in range(60)]
    assert view(small).pending == 0
    assert view(small).problems == []


def test_a_group_after_continues_at_the_min_offset_and_its_leases_vanish(small) -> None:
    send(small, "old", 100)
    held = small.broker.ask(Receive("g", "t", -1, "*", 32, 12 * HOUR, False, 0, "c")).messages
    checkpoint(small)
    age(small)
    first = small.broker.ask(DescribeTopic("t")).min_offsets[0]
    assert first > 32
    group = small.broker.ask(DescribeGroup("g", "t"))[0]
    assert (group.ack_floor, group.next_offset, group.leased) == (first, first, 0)
    late = small.broker.ask(Ack("g", "t", [held[0].receipt_handle]))
    assert late.refused == [None], "whoever worked on it has done so"
    assert len(take(small)) == small.broker.ask(DescribeTopic("t")).queue_offsets[0] - first
    small.reopen(power_cut=True)
    assert small.broker.ask(DescribeGroup("g", "t"))[0].leased == 0
    assert take(small) == []


def test_what_is_dropped_does_not_count_as_consumed(small) -> None:
    """Rates of 4.x tools showed a group that consumes nothing as busy."""

    def consumed(group: str) -> int:
        return small.broker.ask(CountLags([(group, "t")]))[0].consumed

    send(small, "old", 200)
    small.broker.ask(CommitOffsets("behind", "t", {0: 20}))
    checkpoint(small)
    age(small)
    first = small.broker.ask(DescribeTopic("t")).min_offsets[0]
    assert first > 20
    assert consumed("behind") == 20
    small.broker.ask(CommitOffsets("behind", "t", {0: first + 1}))
    assert consumed("behind") == 21
    small.broker.ask(CommitOffsets("new", "t", {0: first + 2}))
    assert consumed("new") == 2
    small.reopen()
    before = consumed("behind")
    small.broker.ask(CommitOffsets("behind", "t", {0: first + 2}))
    assert consumed("behind") == before + 1


@pytest.mark.parametrize("restart", ["crash", "damage"])
def test_p3_an_ack_of_what_was_dropped_outlives_the_checkpoint_that_dropped_it(
    small, restart: str
) -> None:
    """A start from the older checkpoint has the dropped messages again, and must not give them out."""
    send(small, "old", 100)
    request = Receive("g", "t", -1, "*", 32, 12 * HOUR, False, 0, "c")
    held = [m.receipt_handle for m in small.broker.ask(request).messages]
    checkpoint(small)
    small.clock.advance(2 * HOUR)
    if restart == "crash":

        def full(what: str) -> None:
            if ".ckpt" in what:
                raise HorologError(ErrorCode.DISK_FULL, what)

        small.disk.on_effect = full
    checkpoint(small)
    small.disk.on_effect = None
    first = small.broker.ask(DescribeTopic("t")).min_offsets[0]
    assert first > len(held)
    assert small.broker.ask(Ack("g", "t", held)).refused == [None] * len(held)
    if restart == "damage":
        small.disk.flip(f"shard-00/checkpoint/{names(small, 'checkpoint')[-1]}", 90, 0)
    small.reopen(power_cut=True)
    assert small.broker.ask(DescribeTopic("t")).min_offsets == [0]
    small.clock.advance(12 * HOUR)
    assert take(small) == [f"old{i}" for i in range(len(held), 100)]


def test_reading_below_the_start_is_a_clean_error(small) -> None:
    send(small, "old", 200)
    checkpoint(small)
    age(small)
    shard = small.broker.shard
    hole = shard.log.record(100, 50)
    assert hole.dropped
    assert "older than the retention" in hole.why
    queue = shard.topics.get("t").queues[0]
    with pytest.raises(HorologError) as caught:
        queue.read(queue.first - 1, 1)
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_an_idle_broker_drops_too_and_comes_to_rest(small) -> None:
    send(small, "old", 200)
    checkpoint(small)
    small.clock.advance(200)
    small.broker.settle()
    for _ in range(60):
        if (wait := small.broker.pending_next_ms) is None:
            break
        small.clock.advance(wait)
        small.broker.settle()
    assert small.broker.pending_next_ms is None, "nothing ticks when there is nothing to drop"
    assert view(small).log_start > 0
    assert names(small, "log")[0] == f"{view(small).log_start:020d}.log"
    assert small.clock.wall_ms() - 1_700_000_000_000 < 2 * HOUR


def test_row_8_after_retention_the_older_checkpoint_has_all_it_needs(small) -> None:
    send(small, "old", 200)
    send(small, "near", 40, due_ms=small.clock.wall_ms() + 10 * HOUR)
    send(small, "more", 200)
    checkpoint(small)
    small.clock.advance(2 * HOUR)
    for i in range(4):  # whichever of the checkpoints is the newest
        send(small, f"later{i}-", 1)
        checkpoint(small)
        small.disk.flip(f"shard-00/checkpoint/{names(small, 'checkpoint')[-1]}", 90, 0)
        small.reopen(power_cut=i % 2 == 0)
        assert "recovery row 8" in small.broker.reports[-1]
        assert small.broker.ask(CountPending()).total == 40
        send(small, f"after{i}-", 1)
        checkpoint(small)
        assert len(names(small, "checkpoint")) == 2
    assert view(small).log_start > 0
    small.clock.advance(8 * HOUR)
    small.broker.settle()
    assert len([name for name in take(small) if name.startswith("near")]) == 40


def test_killed_between_a_checkpoint_and_its_deletions(make_world) -> None:
    """At each effect of the jobs that drop and remove: the next start finds all it needs, and removes the rest."""
    for after in range(200):
        world = opened(make_world(), retention_ms=HOUR)
        send(world, "old", 200)
        send(world, "near", 20, due_ms=world.clock.wall_ms() + 10 * HOUR)
        send(world, "more", 100)
        checkpoint(world)
        world.clock.advance(2 * HOUR)
        with killed_at(world.disk, after) as life:
            for i in range(3):
                send(world, f"later{i}-", 1)
                checkpoint(world)
        world.reopen(power_cut=True)
        assert world.broker.ask(CountPending()).total == 20
        assert names(world, "log")[0] <= f"{view(world).log_start:020d}.log"
        age(world)
        assert view(world).log_start > 0
        assert names(world, "log")[0] == f"{view(world).log_start:020d}.log"
        assert view(world).problems == []
        if not life.killed:
            assert after > 30
            return
    raise AssertionError("it never came to the end")


def test_files_of_queues_follow(monkeypatch, make_world) -> None:
    monkeypatch.setattr(consume_queue, "QUEUE_FILE_UNITS", 16)
    world = opened(make_world(), retention_ms=HOUR)
    send(world, "old", 200)
    checkpoint(world)
    age(world)
    first = world.broker.ask(DescribeTopic("t")).min_offsets[0]
    queue = names(world, "queues")[0]
    files = world.disk.list(f"shard-00/queues/{queue}")
    assert files[0] == f"{first - first % 16:020d}.cq"
    world.reopen(power_cut=True)
    assert world.broker.ask(DescribeTopic("t")).min_offsets[0] == first
    assert len(take(world)) == world.broker.ask(DescribeTopic("t")).queue_offsets[0] - first
    world.disk.flip(f"shard-00/checkpoint/{names(world, 'checkpoint')[-1]}", 90, 0)
    world.reopen()
    assert "recovery row 8" in world.broker.reports[-1]
    assert (
        len(take(world, "other"))
        == world.broker.ask(DescribeTopic("t")).queue_offsets[0]
        - (world.broker.ask(DescribeTopic("t")).min_offsets[0])
    )


@pytest.mark.parametrize("place", ["/state.", ".ckpt"])
def test_a_checkpoint_that_fails_for_want_of_space_leaves_nothing_unsynced(
    make_world, place
) -> None:
    """Its files are synced and written by the next one: a power cut after that costs nothing."""
    world = opened(make_world())
    due = world.clock.wall_ms() + 10 * HOUR
    send(world, "a", 40, due_ms=due)
    checkpoint(world)
    send(world, "b", 40, due_ms=due)
    send(world, "c", 10)
    shard = world.broker.shard
    was = shard.checkpoint_position
    failed = []

    def full(what: str) -> None:
        if not failed and what.startswith("write") and place in what:
            failed.append(what)
            raise HorologError(ErrorCode.DISK_FULL, what)

    world.disk.on_effect = full
    checkpoint(world)
    world.disk.on_effect = None
    assert failed
    assert shard.checkpoint_position == was
    send(world, "d", 1)
    world.clock.advance(10_000)
    checkpoint(world)
    assert shard.checkpoint_position > was
    world.reopen(power_cut=True)
    assert "recovery row 11" not in world.broker.reports[-1]
    assert world.broker.ask(CountPending()).total == 80
    assert len(take(world)) == 11


@pytest.mark.parametrize("left", [0, 19, 20 * 20 + 7])
def test_a_queue_file_that_is_cut_does_not_end_retention(make_world, left) -> None:
    world = make_world(segment_bytes=16_384)
    opened(world, retention_ms=HOUR)
    send(world, "m", 40)
    world.broker.ask(CreateTopic("other", TopicType.NORMAL, 1))
    checkpoint(world)
    queue = world.broker.shard.topics.by_name["t"].id
    world.disk.open(f"shard-00/queues/{queue:05d}-00000/{0:020d}.cq").truncate(left)
    for i in range(4):
        world.clock.advance(2 * HOUR)
        fill = [made(f"n{i}-{j}", topic="other", body=bytes(1_000)) for j in range(30)]
        world.broker.ask(SendMessages("other", fill))
        checkpoint(world)
    assert view(world).log_start > 0
    world.reopen()
    assert take(world) == []
