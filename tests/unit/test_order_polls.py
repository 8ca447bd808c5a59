"""Waiting polls of consumer groups in order, when what blocks their messages is gone."""

from __future__ import annotations

import pytest
from tests.unit.test_order import (
    MINUTE,
    after,
    change,
    name_of,
    names,
    put,
    receive,
    send,
    take,
)
from worlds import checkpoint

from horolog.protocol.commands import CreateTopic, TopicType
from horolog.protocol.queue_commands import CommitOffsets, GroupSettings, PutGroup
from horolog.testing.sim_broker import Answer


@pytest.fixture
def broker(world):
    world.broker.ask(CreateTopic("t", TopicType.FIFO, 1))
    world.broker.ask(PutGroup("g", GroupSettings(orderly=True, retry_max=2)))
    return world.broker


@pytest.mark.parametrize(
    "command",
    [
        CommitOffsets("g", "t", {0: 1}),
        CommitOffsets("g", "t", {0: 1}, afresh=True),
        PutGroup("g", GroupSettings(orderly=False)),
    ],
    ids=["committed", "reset", "in any order"],
)
def test_a_poll_is_woken_when_what_blocks_its_group_blocks_it_no_more(
    world, broker, command
) -> None:
    send(world, "a1 a2 a3")
    take(world, 1)
    waiting = put(world, receive(1, poll_ms=20_000))
    world.broker.settle()
    assert not waiting.done
    world.broker.ask(command)
    world.broker.settle()
    (second,) = waiting.result.messages
    assert name_of(second) == "a2"
    world.broker.check_invariants(rows=True)


def test_a_poll_gets_what_a_receive_leaves_that_comes_as_its_group_is_set_free(
    world, broker
) -> None:
    send(world, "a1 a2 a3")
    found = take(world, 3)
    for name in ("a2", "a3"):
        change(world, found[name], 10_000)
    after(world, 11_000)
    waiting = put(world, receive(1, poll_ms=20_000))
    world.broker.settle()
    assert not waiting.done
    free = PutGroup("g", GroupSettings(orderly=False, retry_max=2))
    world.broker.step([Answer(free), receives := Answer(receive(1))])
    world.broker.settle()
    taken = [*receives.result.messages, *waiting.result.messages]
    assert [name_of(each) for each in taken] == ["a2", "a3"]


def test_a_poll_is_woken_when_retention_drops_what_blocks_its_group(make_world) -> None:
    world = make_world()
    world.broker.settings = world.broker.settings._replace(retention_ms=60 * MINUTE)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.FIFO, 1))
    world.broker.ask(PutGroup("g", GroupSettings(orderly=True)))
    world.broker.ask(CreateTopic("other", TopicType.FIFO, 1))
    send(world, "a1")
    for n in range(100):
        send(world, f"b{n}", topic="other", tag="long" * 250)
    send(world, "a2")
    take(world, 1, invisible_ms=600 * MINUTE)
    after(world, 120 * MINUTE)
    waiting = put(world, receive(1, poll_ms=20_000))
    assert not waiting.done
    for _ in range(3):
        checkpoint(world)
    assert names({name_of(each): each for each in waiting.result.messages}) == "a2"
