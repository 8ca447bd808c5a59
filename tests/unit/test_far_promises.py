"""Messages beyond the near window: days, months and ten years ahead, through flushes, merges and kills."""

from __future__ import annotations

import pytest
from offloads import SMALL
from worlds import changes_of, checkpoint, killed_at, take_all

from horolog.delay.far.compaction import FarSettings
from horolog.errors import HorologError
from horolog.limits import DAY_MS, HOUR_MS, MAX_DELAY_MS
from horolog.protocol.commands import (
    CountPending,
    CreateTopic,
    DescribeBroker,
    ListPending,
    MessageType,
    Recall,
    RecallStatus,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode

DAYS = [26 * HOUR_MS, 3 * DAY_MS, 3 * DAY_MS + 1, 33 * DAY_MS, 90 * DAY_MS, 400 * DAY_MS]


def made(message_id: str, due_ms: int):
    return encode(
        topic="t", body=b"x" * 50, message_id=message_id, type=MessageType.DELAY, due_ms=due_ms
    )


def open_world(make_world, far: FarSettings = SMALL):
    world = make_world(segment_bytes=262_144)
    world.broker.settings = world.broker.settings._replace(far=far, retention_ms=MAX_DELAY_MS)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    return world


def schedule(world, delays: list[int], start: int = 0) -> None:
    now = world.clock.wall_ms()
    batch = [made(f"m{start + i}", now + delay) for i, delay in enumerate(delays)]
    sent = world.broker.ask(SendMessages("t", batch))
    assert not sent.refused


def test_ten_years_ahead_to_the_millisecond(make_world) -> None:
    world = open_world(make_world)
    schedule(world, [MAX_DELAY_MS, MAX_DELAY_MS - 1, 25 * HOUR_MS])
    checkpoint(world)
    world.reopen(power_cut=True)
    world.clock.advance(MAX_DELAY_MS - 2)
    world.broker.settle()
    assert take_all(world) == ["m2"]
    for expected in ("m1", "m0"):
        world.clock.advance(1)
        world.broker.settle()
        assert take_all(world) == [expected]


def test_p7_order_of_one_due_time_across_hours_buffers_and_runs(make_world) -> None:
    world = open_world(make_world)
    due = world.clock.wall_ms() + 40 * HOUR_MS
    for i in range(60):  # several runs, and at the end the near window
        world.broker.ask(SendMessages("t", [made(f"m{i}", due), made(f"x{i}", due + 90 * DAY_MS)]))
        world.broker.settle()
        world.clock.advance(HOUR_MS // 2)
    world.clock.advance(due - world.clock.wall_ms())
    world.broker.settle()
    assert take_all(world) == [f"m{i}" for i in range(60)]


def test_counts_by_hour_second_topic_and_list_are_exact_over_runs(make_world) -> None:
    """P10, with what is recalled, handed over, merged and restarted."""
    world = open_world(make_world)
    now = world.clock.wall_ms()
    expected: dict[int, int] = {}
    for i in range(120):
        delay = DAYS[i % len(DAYS)]
        schedule(world, [delay], i)
        expected[(now + delay) // HOUR_MS * HOUR_MS] = (
            expected.get((now + delay) // HOUR_MS * HOUR_MS, 0) + 1
        )
    for i in (0, 1, 2, 61, 119):
        due = now + DAYS[i % len(DAYS)]
        answer = world.broker.ask(Recall("t", f"m{i}", due))
        assert answer.status is RecallStatus.CANCELLED
        expected[due // HOUR_MS * HOUR_MS] -= 1
        assert world.broker.ask(Recall("t", f"m{i}", due)).status is RecallStatus.NOT_FOUND
    for _ in range(2):
        assert dict(world.broker.ask(CountPending()).rows) == expected
        assert dict(world.broker.ask(CountPending("t")).rows) == expected
        hour = (now + DAYS[1]) // HOUR_MS
        seconds = world.broker.ask(CountPending(hour=hour))
        assert seconds.total == expected[hour * HOUR_MS]
        listed = world.broker.ask(ListPending(0, 1 << 50, limit=1_000))
        assert len(listed) == 115
        assert [m.due_ms for m in listed] == sorted(m.due_ms for m in listed)
        checkpoint(world)
        world.reopen(power_cut=True)
    world.clock.advance(4 * DAY_MS)
    world.broker.settle()
    assert len(take_all(world)) == 60 - 4
    assert world.broker.ask(DescribeBroker()).pending == 115 - 56
    gone = world.broker.ask(Recall("t", "m7", now + DAYS[1]))
    assert gone.status is RecallStatus.ALREADY_DELIVERED


def test_p9_the_log_may_go_when_runs_hold_what_waits(make_world) -> None:
    world = open_world(make_world)
    world.broker.settings = world.broker.settings._replace(retention_ms=1_000)
    world.reopen()
    for i in range(0, 800, 20):
        schedule(world, [90 * DAY_MS + i] * 20, i)
    world.clock.advance(60_000)
    for _ in range(3):
        schedule(world, [90 * DAY_MS], 10_000)
        checkpoint(world)
        world.clock.advance(60_000)
    world.reopen(power_cut=True)
    world.clock.advance(91 * DAY_MS)
    world.broker.settle(2_000)
    assert set(take_all(world)) >= {f"m{i}" for i in range(800)}


def test_p5_a_start_merges_nothing(make_world) -> None:
    """However many runs there are; merges come when the broker serves."""
    world = open_world(make_world, SMALL._replace(runs_max=100, part_runs_max=100))
    for i in range(0, 200, 20):
        schedule(world, [90 * DAY_MS + i] * 20, i)
    checkpoint(world)
    schedule(world, [90 * DAY_MS], 200)  # something to replay
    runs = [name for name in world.disk.list("shard-00/runs") if name.endswith(".run")]
    assert len(runs) > 5
    written: list[str] = []
    world.disk.on_effect = lambda what: written.append(what) if ".run" in what else None
    world.broker.settings = world.broker.settings._replace(far=SMALL)
    world.reopen()
    assert [what for what in written if what.startswith("write")] == []
    world.broker.settle()
    assert [what for what in written if what.startswith("write")] != []
    assert world.broker.ask(CountPending()).total == 201


def test_row_8_the_newest_checkpoint_is_damaged_right_after_retention_and_a_merge(
    make_world,
) -> None:
    """What the newer one dropped and merged is still there for the older one to begin from."""
    world = open_world(make_world)
    world.broker.settings = world.broker.settings._replace(retention_ms=1_000, dedup_ms=0)
    world.reopen()
    merges = starts = 0
    former: set[str] = set()
    for i in range(12):
        for at in range(6):
            schedule(world, [90 * DAY_MS + i] * 20 + [5 * DAY_MS] * 20, 1_000 * i + 40 * at)
        world.clock.advance(60_000)
        before = world.broker.ask(DescribeBroker()).log_start
        checkpoint(world)
        runs = {name for name in world.disk.list("shard-00/runs") if name.endswith(".run")}
        merged, former = bool(former - runs), runs
        started = world.broker.ask(DescribeBroker()).log_start > before
        newest = world.disk.list("shard-00/checkpoint")[-1]
        world.disk.flip(f"shard-00/checkpoint/{newest}", 90, 0)
        world.reopen(power_cut=i % 2 == 0)
        assert "recovery row 8" in world.broker.reports[-1] or i == 0
        assert world.broker.ask(DescribeBroker()).problems == []
        assert world.broker.ask(CountPending()).total == 240 * (i + 1)
        merges, starts = merges + merged, starts + started
        checkpoint(world)
    assert merges > 0
    assert starts > 0
    world.clock.advance(91 * DAY_MS)
    world.broker.settle(5_000)
    got = take_all(world)
    assert len(got) == len(set(got)) == 240 * 12


def story(world, acknowledged: list[str]) -> None:
    """Fills, flushes, merges, checkpoints, hand-overs and drops."""
    for i in range(0, 60, 6):
        schedule(world, DAYS, i)
        acknowledged += [f"m{i + j}" for j in range(6)]
        if i % 18 == 0:
            checkpoint(world)
    for _ in range(4):
        world.clock.advance(30 * HOUR_MS)
        world.broker.settle()
        checkpoint(world)


def effects_of_runs(make_world) -> int:
    world = open_world(make_world)
    with changes_of(world.disk) as changes:
        story(world, [])
    seen = [what for what in changes if "/runs/" in what]
    assert any(".run" in what for what in seen)
    return len(seen)


def kill_at(make_world, nth: int, power_cut: bool) -> None:
    """Kill at the nth change under `runs`, start again, and compare with what was acknowledged."""
    world = open_world(make_world)
    acknowledged: list[str] = []
    with killed_at(world.disk, nth, "/runs/"):
        story(world, acknowledged)
    world.reopen(power_cut=power_cut)
    world.broker.settle()
    view = world.broker.ask(DescribeBroker())
    assert world.broker.ask(CountPending()).total == view.pending
    before = take_all(world)
    world.clock.advance(401 * DAY_MS)
    world.broker.settle(2_000)
    after = take_all(world)
    delivered = before + after
    assert len(after) == view.pending, "exact counts"
    assert len(set(delivered)) == len(delivered), "P3"
    assert set(acknowledged) <= set(delivered), "P2"


@pytest.mark.parametrize("power_cut", [False, True])
def test_kill_at_every_change_of_flush_merge_and_drop(make_world, power_cut) -> None:
    for nth in range(effects_of_runs(make_world)):
        kill_at(make_world, nth, power_cut)


def test_a_full_disk_delays_runs_and_nothing_else(make_world) -> None:
    world = open_world(make_world)
    schedule(world, DAYS)
    world.disk.capacity_bytes = world.disk.used_bytes() + 9_000
    try:
        for i in range(6, 200, 6):
            schedule(world, DAYS, i)
    except (HorologError, AssertionError):
        pass  # refused at last
    world.broker.settle()
    pending = world.broker.ask(DescribeBroker()).pending
    world.disk.capacity_bytes = None
    world.clock.advance(60_000)
    world.broker.settle()
    world.clock.advance(401 * DAY_MS)
    world.broker.settle(2_000)
    assert len(take_all(world)) == pending


def ten_years_of_hours(make_world, tmp_path):
    """One message in each of 87 600 hours, through flushes and merges, on the real disk."""
    world = make_world(segment_bytes=1 << 26, root=tmp_path)
    far = FarSettings(buffer_bytes=2 << 20, runs_max=3, part_runs_max=2)
    world.broker.settings = world.broker.settings._replace(far=far, turn_bytes=1 << 20)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    for first in range(1, 87_600, 1_000):
        stop = min(87_600, first + 1_000)
        schedule(world, [hour * HOUR_MS for hour in range(first, stop)], first)
    checkpoint(world)
    world.reopen()
    return world


def test_a_message_in_every_hour_of_ten_years(make_world, tmp_path) -> None:
    world = ten_years_of_hours(make_world, tmp_path)
    counts = world.broker.ask(CountPending())
    assert [n for _, n in counts.rows] == [1] * 87_599
    world.clock.advance(50 * HOUR_MS)
    world.broker.settle(2_000)
    assert take_all(world) == [f"m{i}" for i in range(1, 51)]
    assert len(world.broker.ask(CountPending()).rows) == 87_549


@pytest.mark.slow
def test_every_hour_of_ten_years_is_handed_over(make_world, tmp_path) -> None:
    world = ten_years_of_hours(make_world, tmp_path)
    got = []
    while len(got) < 87_599:
        world.clock.advance(500 * HOUR_MS)
        world.broker.settle(5_000)
        got += take_all(world)
    assert got == [f"m{i}" for i in range(1, 87_600)]
    assert world.broker.ask(CountPending()).total == 0
