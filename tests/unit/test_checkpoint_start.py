"""A broker that is killed soon after each start does not replay more each time."""

from __future__ import annotations

import pytest
from worlds import send

from horolog.broker.life import checkpoints
from horolog.protocol.commands import CreateTopic, TopicType


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_start_that_replays_much_takes_a_checkpoint_at_once(
    world, monkeypatch, power_cut
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_START_BYTES", 20_000)
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    tails = []
    for life in range(4):
        send(world, f"{life}-", 30)
        world.clock.advance(1_000)  # no checkpoint is due yet
        shard = world.broker.shard
        tails.append(shard.log.end - shard.checkpoint_position)
        world.reopen(power_cut=power_cut)
        world.broker.settle()
    assert max(tails) < 2 * tails[0]


def test_a_start_that_replays_little_waits(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    send(world, "m", 30)
    world.reopen()
    world.broker.settle()
    assert world.broker.shard.checkpoint_position == 0
    world.clock.advance(10_000)
    world.broker.settle()
    assert world.broker.shard.checkpoint_position > 0
