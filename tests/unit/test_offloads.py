"""Offloads on the broker: freeze, commit, abort, promotion; exact counts; killed at every change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from offloads import begin, expected_counts, exported, hour_after, open_world, pending, schedule
from worlds import changes_of, checkpoint, killed_at

from horolog.delay.far.compaction import FarSettings
from horolog.delay.row_sum import MASK, row_sum
from horolog.errors import ErrorCode, HorologError
from horolog.limits import CHECKPOINT_INTERVAL_MS, DAY_MS, HOUR_MS
from horolog.protocol.commands import (
    CountBy,
    CountPending,
    DescribeTopic,
    FindMessages,
    MessageState,
    Recall,
    RecallMany,
    RecallStatus,
    Reschedule,
)
from horolog.protocol.tier_commands import (
    AbortOffload,
    BeginOffload,
    CommitOffload,
    DescribeOffload,
    DescribeTier,
    Elsewhere,
    FreezeOffload,
    ListRecalled,
    TierRow,
)
from horolog.testing.sim_broker import Answer


def test_counts_stay_exact_and_runs_go_when_their_rows_are_in_the_lake(make_world) -> None:
    world = open_world(make_world)
    schedule(world, 120)
    before = expected_counts(world)
    by_topic = world.broker.ask(CountPending(by=CountBy.TOPIC)).topics
    view = begin(world, hour_after(world, 48 * HOUR_MS))
    assert view.stage == "frozen"
    rows = exported(world, view)
    assert len(rows) == 100
    assert len(set(rows)) == 100
    assert min(row[0] for row in rows) >= view.from_ms
    done = world.broker.ask(CommitOffload(view.offload_id, len(rows), "lake"))
    assert (done.stage, done.waiting) == ("lake", 100)
    committed_ms = world.clock.wall_ms()
    for _ in range(2):
        (offload,) = world.broker.ask(DescribeTier(1 << 50)).offloads
        assert offload.committed_ms == committed_ms
        world.clock.advance(1)
        assert expected_counts(world) == before
        assert world.broker.ask(CountPending(by=CountBy.TOPIC)).topics == by_topic
        assert pending(world) == 120
        assert world.broker.ask(DescribeTopic("t")).pending == 60
        far = world.broker.shard.delay.far
        assert far.waiting < 20 + 1
        assert all(run.counts.limit_ms <= view.from_ms for run in far.runs.values())
        lake = world.broker.ask(DescribeTier(1 << 50))
        assert sum(hour.waiting for hour in lake.hours) == lake.waiting == 100
        checkpoint(world)
        world.reopen(power_cut=True)
    for _ in range(3):
        world.clock.advance(20_000)
        checkpoint(world)
    names = world.disk.list("shard-00/runs")
    assert len([n for n in names if n.startswith("lake.state")]) == 1


def test_recalls_after_the_freeze_are_reported(make_world) -> None:
    world = open_world(make_world)
    made = schedule(world, 60)
    assert recall(world, "m2", made).status is RecallStatus.CANCELLED
    view = begin(world, hour_after(world, 48 * HOUR_MS))
    rows = exported(world, view)
    assert len(rows) == 50 - 1
    assert recall(world, "m3", made).status is RecallStatus.CANCELLED
    assert recall(world, "m0", made).status is RecallStatus.CANCELLED  # due before
    moved = world.broker.ask(Reschedule("t", "m4", made["m4"][1], made["m4"][1] + 5))
    assert moved.status.value == "RESCHEDULED"
    for _ in range(2):
        assert exported(world, world.broker.ask(DescribeOffload(view.offload_id))) == rows
        assert len(world.broker.ask(ListRecalled(view.offload_id))) == 2
        checkpoint(world)
        world.reopen()
    with pytest.raises(HorologError, match="the broker 49"):
        world.broker.ask(CommitOffload(view.offload_id, 48, "lake"))
    done = world.broker.ask(CommitOffload(view.offload_id, 49, "lake"))
    assert done.waiting == 47
    assert pending(world) == 57
    gone = world.broker.ask(ListRecalled(view.offload_id))
    due_of = {origin: due for due, origin, _, _ in rows}
    assert {due_of[position] for position, _ in gone} == {made["m3"][1], made["m4"][1]}


def recall(world, name: str, made: dict[str, tuple[str, int]]) -> Any:
    return world.broker.ask(Recall(made[name][0], name, made[name][1]))


def test_recalls_of_what_is_in_the_lake_are_refused_unless_the_row_is_named(make_world) -> None:
    world = open_world(make_world)
    made = schedule(world, 60)
    view = begin(world, hour_after(world, 48 * HOUR_MS))
    rows = exported(world, view)
    world.broker.ask(CommitOffload(view.offload_id, len(rows), "lake"))
    topic, due_ms = made["m2"]
    for command in (
        Recall(topic, "m2", due_ms),
        Reschedule(topic, "m2", due_ms, due_ms + 1),
        RecallMany(topic, 0, 1 << 50),
        RecallMany(topic, 0, 1 << 50, dry_run=True),
        CountPending(hour=due_ms // HOUR_MS),
    ):
        with pytest.raises(HorologError) as refused:
            world.broker.ask(command)
        assert refused.value.code is ErrorCode.IN_TIER
    assert recall(world, "m0", made).status is RecallStatus.CANCELLED  # still on the disk
    (found,) = [row for row in rows if row[0] == due_ms]
    there = Elsewhere((TierRow(view.offload_id, found[1], found[2], due_ms),), (view.offload_id,))
    named = Recall(topic, "m2", due_ms, elsewhere=there)
    assert world.broker.ask(named).status is RecallStatus.CANCELLED
    assert pending(world) == 58
    assert state_of(world, "m2") is MessageState.RECALLED
    assert state_of(world, "m3") is MessageState.IN_TIER
    for _ in range(2):
        assert world.broker.ask(named).status is RecallStatus.NOT_FOUND
        assert world.broker.ask(ListRecalled(view.offload_id)) == [(found[1], found[2])]
        checkpoint(world)
        world.reopen(power_cut=True)


def state_of(world, name: str) -> MessageState:
    topic = "tu"[int(name[1:]) % 2]
    (found,) = world.broker.ask(FindMessages(topic, message_id=name))
    return found.state


def test_begin_is_refused_or_goes_on(make_world) -> None:
    world = open_world(make_world)
    schedule(world, 12)
    for from_ms in (hour_after(world, 10 * HOUR_MS), hour_after(world, 48 * HOUR_MS) + 1):
        with pytest.raises(HorologError, match="from_ms"):
            world.broker.ask(BeginOffload("a", from_ms))
    view = begin(world, hour_after(world, 48 * HOUR_MS))
    again = world.broker.ask(BeginOffload("a", view.from_ms + DAY_MS))
    assert (again.offload_id, again.from_ms) == (view.offload_id, view.from_ms)
    with pytest.raises(HorologError, match="under way") as refused:
        world.broker.ask(BeginOffload("b", view.from_ms))
    assert refused.value.code is ErrorCode.TOO_MANY_REQUESTS
    with pytest.raises(HorologError, match="there is no offload"):
        world.broker.ask(CommitOffload(99, 1, "lake"))
    assert world.broker.ask(AbortOffload(view.offload_id))
    assert not world.broker.ask(AbortOffload(view.offload_id))
    assert begin(world, view.from_ms, "b").offload_id == view.offload_id + 1


def test_a_commit_that_comes_too_late_is_refused(make_world) -> None:
    world = open_world(make_world)
    schedule(world, 12)
    view = begin(world, hour_after(world, 48 * HOUR_MS))
    world.clock.advance(47 * HOUR_MS)
    world.broker.settle()
    with pytest.raises(HorologError, match="less than 3 h"):
        world.broker.ask(CommitOffload(view.offload_id, 10, "lake"))
    assert world.broker.ask(AbortOffload(view.offload_id))
    assert pending(world) == 10


def test_merges_leave_frozen_runs_alone(make_world) -> None:
    world = open_world(make_world)
    schedule(world, 60)
    view = begin(world, hour_after(world, 48 * HOUR_MS))
    paths = [run.path for run in view.runs]
    for start in range(60, 600, 60):
        schedule(world, 60, start)
        world.clock.advance(2_000)
        world.broker.settle()
    now = world.broker.ask(DescribeOffload(view.offload_id))
    assert [run.path for run in now.runs] == paths
    done = world.broker.ask(CommitOffload(view.offload_id, 50, "lake"))
    assert done.waiting == 50
    assert pending(world) == 600


def test_a_commit_waits_for_what_a_start_has_filed_again(make_world) -> None:
    """A start on a full disk has frozen messages in far buffers: a commit would take them, and the lake has them not."""
    world = open_world(make_world)
    schedule(world, 60)
    view = begin(world, hour_after(world, 48 * HOUR_MS))
    rows = exported(world, view)
    schedule(world, 2, 60)
    far = world.broker.shard.delay.far
    assert len(far.buffers) == 1
    far.buffers[0].frozen = True  # as if what was sent last had been frozen, too
    freeze = Answer(FreezeOffload(view.offload_id))
    commit = Answer(CommitOffload(view.offload_id, len(rows), "lake"))
    world.broker.step([freeze, commit])
    world.broker.settle()
    assert not freeze.done
    assert not commit.done
    assert pending(world) == 62
    far.buffers[0].frozen = False
    world.broker.settle()
    assert freeze.result.stage == "frozen"
    assert commit.result.waiting == len(rows)
    assert pending(world) == 62


def test_a_freeze_wants_no_turns_while_a_job_writes_runs_and_is_answered_when_it_is_done(
    make_world,
) -> None:
    world = open_world(make_world, FarSettings())  # nothing is written before the offload begins
    schedule(world, 500)
    freeze = Answer(FreezeOffload(999))
    world.broker.step([freeze])
    world.broker.settle()
    assert freeze.result.code is ErrorCode.NOT_FOUND  # nothing to wait for
    room = 32_768  # for checkpoints, and not for the run
    world.disk.capacity_bytes = world.disk.used_bytes() + room
    view = world.broker.ask(BeginOffload("a", hour_after(world, 48 * HOUR_MS)))
    freeze = Answer(FreezeOffload(view.offload_id))
    world.broker.step([freeze])
    world.broker.settle()  # which asserts that no turn is wanted at once
    assert not freeze.done
    failed_ms = world.clock.monotonic_ms()
    while not freeze.done:
        wait_ms = world.broker.pending_next_ms
        assert wait_ms, "nobody would look again"
        world.clock.advance(wait_ms)
        after_ms = world.clock.monotonic_ms() - failed_ms
        if after_ms > 2 * CHECKPOINT_INTERVAL_MS:  # it has failed for the third time
            world.disk.capacity_bytes = None
        world.broker.settle()
    assert after_ms == 3 * CHECKPOINT_INTERVAL_MS
    assert freeze.result.offload_id == view.offload_id
    assert world.broker.ask(DescribeOffload(view.offload_id)).stage == "frozen"


def test_a_freeze_that_waits_is_answered_when_its_offload_is_aborted(make_world) -> None:
    world = open_world(make_world, FarSettings())
    schedule(world, 60)
    world.disk.capacity_bytes = world.disk.used_bytes()
    view = world.broker.ask(BeginOffload("a", hour_after(world, 48 * HOUR_MS)))
    freeze = Answer(FreezeOffload(view.offload_id))
    world.broker.step([freeze])
    world.broker.settle()
    assert not freeze.done
    assert world.broker.ask(AbortOffload(view.offload_id))
    assert freeze.result.code is ErrorCode.NOT_FOUND


def story(world, noted: dict[str, Any]) -> None:
    """Offload with a recall in between, checkpoints everywhere; `told` holds what was acknowledged."""
    schedule(world, 60)
    noted["sent"] = 60
    checkpoint(world)
    view = begin(world, hour_after(world, 48 * HOUR_MS))
    noted["rows"] = exported(world, view)
    noted["number"] = view.offload_id
    schedule(world, 24, 60)
    noted["sent"] = 84
    checkpoint(world)
    world.broker.ask(CommitOffload(view.offload_id, len(noted["rows"]), "lake"))
    noted["committed"] = True
    for _ in range(3):
        world.clock.advance(11_000)
        checkpoint(world)


def changes_of_story(make_world) -> int:
    world = open_world(make_world)
    with changes_of(world.disk) as seen:
        story(world, {})
    return len(seen)


def kill_at(make_world, nth: int, power_cut: bool) -> None:
    world = open_world(make_world)
    noted: dict[str, Any] = {}
    with killed_at(world.disk, nth):
        story(world, noted)
    world.reopen(power_cut=power_cut)
    world.broker.settle()
    lake = world.broker.ask(DescribeTier(1 << 50))
    assert world.broker.ask(CountPending()).total == pending(world) >= noted.get("sent", 0)
    committed = [offload for offload in lake.offloads if offload.stage == "lake"]
    if noted.get("committed"):
        assert len(committed) == 1
    assert lake.waiting == (50 if committed else 0)
    if "number" in noted and not committed:
        # the lake may have it already, so the same rows must be there to be committed again
        view = begin(world, hour_after(world, 48 * HOUR_MS))
        assert view.offload_id == noted["number"]
        assert exported(world, view) == noted["rows"]
        world.broker.ask(CommitOffload(view.offload_id, len(noted["rows"]), "lake"))
    if "number" in noted:
        assert world.broker.ask(DescribeTier(1 << 50)).waiting == 50
    total = pending(world)
    world.reopen(power_cut=True)
    assert pending(world) == total


@pytest.mark.parametrize("power_cut", [False, True])
def test_killed_at_every_change(make_world, power_cut) -> None:
    count = changes_of_story(make_world)
    assert count > 100
    for nth in range(0, count, 1 if power_cut else 2):
        kill_at(make_world, nth, power_cut)


def test_a_rebuild_from_the_log_comes_to_the_same(make_world) -> None:
    world = open_world(make_world)
    noted: dict[str, Any] = {}
    story(world, noted)
    counts = expected_counts(world)
    world.disk.crash(power_cut=False)
    for name in world.disk.list("shard-00/checkpoint"):
        world.disk.remove(f"shard-00/checkpoint/{name}")
    world.broker.open()
    assert any("rebuilt" in line for line in world.broker.reports)
    assert expected_counts(world) == counts
    assert world.broker.ask(DescribeTier(1 << 50)).waiting == 50


def test_the_sum_does_not_depend_on_order_or_parts() -> None:
    chance = np.random.default_rng(1)
    rows = [chance.integers(0, 1 << 62, 100) for _ in range(4)]
    order = chance.permutation(100)
    whole = row_sum(*rows)
    mixed = [column[order] for column in rows]
    parts = row_sum(*(column[:30] for column in mixed)) + row_sum(
        *(column[30:] for column in mixed)
    )
    assert parts & MASK == whole
    rows[2][5] += 1
    assert row_sum(*rows) != whole
