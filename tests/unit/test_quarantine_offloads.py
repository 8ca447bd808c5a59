"""Repair from a log that begins after 0 (row 12), of which an offload has taken messages since (P2, P8)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cut_worlds import HOUR, cut_world
from offloads import begin
from worlds import checkpoint, names, send, take_all, view

from horolog.broker.adopt.staging import Begun
from horolog.delay.tier import Promotion
from horolog.lake.core.recalled_set import LAKE_ROW
from horolog.protocol.adoption_commands import BeginAdoption
from horolog.protocol.commands import Recall
from horolog.protocol.tier_commands import (
    AbortOffload,
    CommitOffload,
    DescribeTier,
    RecallRows,
)
from horolog.testing.sim_adoptions import Transaction
from horolog.testing.sim_lake_rows import LakeMessage, frozen_messages, stage


def offload(world, taken: int) -> dict[str, LakeMessage]:
    """Offload all far messages; return message id → row of the table."""
    offload = begin(world, world.far // HOUR * HOUR)
    rows = frozen_messages(world.broker.place, offload)
    done = world.broker.ask(CommitOffload(offload.offload_id, len(rows), "lake"))
    assert done.waiting == len(rows) == taken
    return {row.message_id: row for row in rows}


def recall(world, *rows: LakeMessage) -> None:
    named = [(1, row.position, row.row, row.topic, row.due_ms) for row in rows]
    assert world.broker.ask(RecallRows(np.array(named, LAKE_ROW))).all()


def checkpoint_twice(world) -> None:
    for _ in range(2):
        checkpoint(world)
        send(world, "x", 1)


def damage_buffer(world) -> None:
    (buffer,) = [name for name in names(world, "runs") if name.startswith("buffer.")]
    world.disk.open(f"shard-00/runs/{buffer}/delay.idx").truncate(64)


def restart(world, pending: int) -> None:
    """Start with row 12, which repairs the same at each start until the next checkpoint."""
    world.reopen()
    assert "recovery row 12" in world.broker.reports[-1]
    for _ in range(2):
        world.broker.core.check_invariants()
        assert view(world).pending == pending
        world.reopen(power_cut=True)


def handed_over(world) -> list[str]:
    world.clock.advance(60 * HOUR)
    world.broker.settle()
    return sorted(name for name in take_all(world) if "-far" in name)


def test_what_an_offload_took_does_not_wait_here_as_well(make_world) -> None:
    """It was filed again from its record in the log: it was pending twice, and handed over twice once promoted."""
    world = cut_world(make_world)
    offload(world, 15)
    send(world, "later-far", 4, due_ms=world.far)
    checkpoint_twice(world)
    damage_buffer(world)
    restart(world, pending=48)
    assert world.broker.shard.tier.waiting == 15
    assert handed_over(world) == [f"later-far{i}" for i in range(4)]


def test_what_was_sent_after_the_begin_or_was_kept_by_an_abort_waits(make_world) -> None:
    world = cut_world(make_world)
    aborted = begin(world, world.far // HOUR * HOUR)
    assert world.broker.ask(AbortOffload(aborted.offload_id))
    taken = begin(world, world.far // HOUR * HOUR + HOUR)
    send(world, "later-far", 4, due_ms=world.far + HOUR)
    assert world.broker.ask(CommitOffload(taken.offload_id, 0, "lake")).waiting == 0
    checkpoint_twice(world)
    damage_buffer(world)
    restart(world, pending=48)
    assert len(handed_over(world)) == 19


def test_an_offload_under_way_takes_what_was_filed_again(make_world) -> None:
    world = cut_world(make_world)
    taken = begin(world, world.far // HOUR * HOUR)
    send(world, "later-far", 4, due_ms=world.far)
    checkpoint_twice(world)
    (run,) = [name for name in names(world, "runs") if name.endswith(".run")]
    world.disk.open(f"shard-00/runs/{run}").truncate(64)
    restart(world, pending=38)
    world.broker.settle()
    assert world.broker.ask(CommitOffload(taken.offload_id, 5, "lake")).waiting == 5
    assert view(world).pending == 38
    assert handed_over(world) == [f"later-far{i}" for i in range(4)]


def test_what_the_lost_lake_had_waits_here_without_what_was_recalled_or_promoted(
    make_world,
) -> None:
    """Recalled messages came back from the log, and those of a promoted hour a second time."""
    world = cut_world(make_world)
    send(world, "next-far", 4, due_ms=world.far + HOUR)
    world.broker.ask(Recall("t", "next-far3", world.far + HOUR))
    rows = offload(world, 18)
    recall(world, rows["young-far0"], rows["next-far0"])
    promote_first_hour(world, rows, 14)
    checkpoint_twice(world)
    assert view(world).pending == 45
    for name in names(world, "runs"):
        if name.startswith("lake.state"):
            world.disk.open(f"shard-00/runs/{name}").truncate(10)
    restart(world, pending=45)
    assert view(world).problems == []
    assert handed_over(world) == sorted(rows.keys() - {"young-far0", "next-far0"})


@pytest.mark.parametrize("promoted", [False, True])
def test_what_the_lost_lake_had_is_recalled_and_promoted_by_the_tail_as_well(
    make_world, promoted
) -> None:
    """No replay found those messages: the lake did not have them any more, and the tail does not name their rows."""
    world = cut_world(make_world)
    rows = offload(world, 15)
    checkpoint_twice(world)
    recall(world, rows["young-far0"])
    if promoted:
        promote_first_hour(world, rows, 14)
    (state,) = [name for name in names(world, "runs") if name.startswith("lake.state")]
    world.disk.open(f"shard-00/runs/{state}").truncate(10)
    restart(world, pending=29 + (14 if promoted else 4))
    left = [name for name in rows if promoted or name.startswith("young")]
    assert handed_over(world) == sorted({*left} - {"young-far0"})


def promote_first_hour(world, rows: dict[str, LakeMessage], count: int) -> Any:
    hour = world.broker.ask(DescribeTier(1 << 50)).hours[0]
    assert hour.waiting == count
    app = Promotion(hour.offload_id, hour.hour, hour.topic).app
    answer = world.broker.ask(BeginAdoption(app, hour.hour, hour.topic_name))
    now = world.clock.wall_ms()
    begun = Begun("a" * 16, app, hour.hour, hour.topic_name, now)
    transaction = Transaction(world.broker.place, begun, answer.topic_id, answer.queues)
    transaction.begin()
    mine = [
        row
        for name, row in rows.items()
        if row.due_ms // HOUR == hour.hour and name != "young-far0"
    ]
    transaction.claims.append(stage(transaction, "promoted.run", mine))
    assert world.broker.ask(transaction.prepare(now, inline=False)).rows == count
    transaction.end()
