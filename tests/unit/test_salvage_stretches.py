"""The stretches that a salvage gives up end where a start must find a frame (`log.salvage`)."""

from __future__ import annotations

from worlds import checkpoint, send, take_all, view

from horolog.broker.life.salvage import salvage, survey
from horolog.protocol.commands import CreateTopic, TopicType

SHARD = "shard-00"
LOG = f"{SHARD}/log/{0:020d}.log"


def test_a_stretch_ends_at_a_checkpoint(world) -> None:
    """Zeros cover the frames on both sides of its position, from where a start replays."""
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    due_ms = world.clock.wall_ms() + 60_000
    send(world, "kept", 1, due_ms=due_ms)
    first = view(world).log_end
    send(world, "filed", 1, due_ms=due_ms)
    middle = view(world).log_end
    checkpoint(world)
    send(world, "lost", 1, due_ms=due_ms)
    last = view(world).log_end
    send(world, "after", 1, due_ms=due_ms)
    world.clock.advance(200)
    world.broker.settle()
    world.disk.open(LOG).write(first, bytes(last - first))
    found = survey(world.disk, SHARD, world.broker.meta)
    assert [(each.first, each.stop) for each in found.lost] == [(first, middle), (middle, last)]
    salvage(world.disk, SHARD, world.broker.meta, found)
    world.reopen()
    world.clock.advance(60_000)
    world.broker.settle()
    assert take_all(world) == ["kept0", "filed0", "after0"]
