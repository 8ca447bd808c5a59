"""Offloads of adopted runs: whole or in part, killed at every change, and rebuilt from the log."""

from __future__ import annotations

from typing import Any

import pytest
from offloads import begin, expected_counts, exported, hour_after, open_world, pending, schedule
from worlds import changes_of, checkpoint, killed_at

from horolog.broker.adopt.staging import Begun
from horolog.limits import DAY_MS, HOUR_MS
from horolog.protocol.adoption_commands import BeginAdoption
from horolog.protocol.commands import DescribeBroker, MessageType, Recall, RecallStatus
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.tier_commands import (
    CommitOffload,
    DescribeOffload,
    DescribeTier,
    ListRecalled,
)
from horolog.testing.sim_adoptions import Transaction


def adopt(world, name: str, dues: list[int]) -> None:
    """A file of messages of topic t, adopted."""
    answer = world.broker.ask(BeginAdoption(name, 1, "t"))
    if answer.already:
        return
    now = world.clock.wall_ms()
    transaction = Transaction(
        world.broker.place,
        Begun(f"{len(dues):016x}", name, 1, "t", now),
        answer.topic_id,
        answer.queues,
    )
    transaction.begin()
    messages = [
        encode(topic="t", body=b"y", message_id=f"{name}{i}", type=MessageType.DELAY, due_ms=due)
        for i, due in enumerate(dues)
    ]
    transaction.stage([messages])
    world.broker.ask(transaction.prepare(now))
    transaction.end()


def adopted_story(world, noted: dict[str, Any]) -> None:
    """One adopted run that goes as a whole, one that goes in part, and a recall in each."""
    now = world.clock.wall_ms()
    whole = [now + 4 * DAY_MS + i * HOUR_MS for i in range(10)]
    parts = [now + HOUR_MS + i * 12 * HOUR_MS for i in range(11)]
    adopt(world, "whole", whole)
    adopt(world, "parts", parts)
    schedule(world, 30)
    noted["sent"] = 51
    for name, due in (("whole3", whole[3]), ("parts9", parts[9])):
        assert world.broker.ask(Recall("t", name, due)).status is RecallStatus.CANCELLED
    noted["sent"] = 49
    view = begin(world, hour_after(world, 48 * HOUR_MS))
    noted["rows"] = exported(world, view)
    noted["number"] = view.offload_id
    late = world.broker.ask(Recall("t", "whole4", whole[4]))
    assert late.status is RecallStatus.CANCELLED
    noted["sent"] = 48
    assert exported(world, world.broker.ask(DescribeOffload(view.offload_id))) == noted["rows"]
    world.broker.ask(CommitOffload(view.offload_id, len(noted["rows"]), "lake"))
    noted["committed"] = True
    for _ in range(4):
        world.clock.advance(11_000)
        checkpoint(world)


def test_adopted_runs_go_too(make_world) -> None:
    world = open_world(make_world)
    noted: dict[str, Any] = {}
    adopted_story(world, noted)
    assert pending(world) == 48
    assert world.broker.ask(DescribeTier(1 << 50)).waiting == len(noted["rows"]) - 1
    for i in range(5):
        schedule(world, 2, 1_000 + 2 * i)
        world.clock.advance(11_000)
        checkpoint(world)
    names = world.disk.list("shard-00/runs")
    assert sum(name.startswith("adopted.") and name.endswith(".run") for name in names) == 1
    counts = expected_counts(world)
    world.reopen(power_cut=True)
    assert expected_counts(world) == counts
    for name in world.disk.list("shard-00/checkpoint"):
        world.disk.remove(f"shard-00/checkpoint/{name}")
    world.reopen()  # from the log alone, without the file that went
    assert any("rebuilt" in line for line in world.broker.reports)
    assert expected_counts(world) == counts
    assert world.broker.ask(DescribeBroker()).problems == []


def kill_adopted_at(make_world, nth: int, power_cut: bool) -> None:
    world = open_world(make_world)
    noted: dict[str, Any] = {"sent": 0}
    with killed_at(world.disk, nth):
        adopted_story(world, noted)
    world.reopen(power_cut=power_cut)
    world.broker.settle()
    assert world.broker.ask(DescribeBroker()).problems == []
    if "number" not in noted:
        return
    lake = world.broker.ask(DescribeTier(1 << 50))
    if not any(offload.stage == "lake" for offload in lake.offloads):
        assert not noted.get("committed")
        view = begin(world, hour_after(world, 48 * HOUR_MS))
        assert view.offload_id == noted["number"]
        assert exported(world, view) == noted["rows"]
        world.broker.ask(CommitOffload(view.offload_id, len(noted["rows"]), "lake"))
    gone = len(world.broker.ask(ListRecalled(noted["number"])))
    assert world.broker.ask(DescribeTier(1 << 50)).waiting == len(noted["rows"]) - gone
    assert pending(world) == 49 - gone


@pytest.mark.parametrize("power_cut", [False, True])
def test_killed_at_every_change_with_adopted_runs(make_world, power_cut) -> None:
    world = open_world(make_world)
    with changes_of(world.disk) as seen:
        adopted_story(world, {})
    for nth in range(power_cut, len(seen), 2):
        kill_adopted_at(make_world, nth, power_cut)
