"""A broker that is killed soon after each start does not replay more each time."""

from __future__ import annotations

import pytest
from worlds import checkpoint, killed_at, names, send

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


def test_what_a_killed_checkpoint_has_left_is_removed(world) -> None:
    """Each kill in the middle of one left a file of its size for ever."""
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    checkpoint(world)
    for life in range(3):
        send(world, f"{life}-", 3)
        with killed_at(world.disk, 0, "rename shard-00/checkpoint/") as killed:
            checkpoint(world)
        assert killed.killed
        world.reopen()
    assert [name for name in names(world, "checkpoint") if name.endswith(".tmp")]
    for life in range(2):
        send(world, f"after{life}-", 3)
        checkpoint(world)
    assert all(name.endswith(".ckpt") for name in names(world, "checkpoint"))
