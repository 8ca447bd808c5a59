"""What is made between the decision of a checkpoint and its capture, while the disk is slow, is not part of it."""

from __future__ import annotations

from random import Random

import pytest

from horolog.protocol.commands import ChangeTopic, CreateTopic, DescribeTopic, TopicType
from horolog.testing.sim_broker import Answer, SimBroker


class Slow(Random):
    """The disk works only when it is told to."""

    def random(self) -> float:
        return 1.0


@pytest.mark.parametrize("made", [CreateTopic("u", TopicType.MIXED, 2), ChangeTopic("t", 3)])
def test_queues_that_are_made_meanwhile(world, made) -> None:
    broker = SimBroker(Slow(1), world.disk, world.clock, "sync", 65_536)
    broker.open()
    broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    broker.request_checkpoint()
    broker.step([Answer(CreateTopic("last", TopicType.MIXED, 1))])  # the checkpoint is decided
    broker.step([Answer(made)])  # what it waits for is not committed yet
    broker.settle()
    assert broker.shard.checkpoint_position > 0
    world.disk.crash(power_cut=True)
    broker.open()
    assert broker.ask(DescribeTopic(made.name)).queues == made.queues
