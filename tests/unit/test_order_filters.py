"""Consumer groups in order whose members ask with different filters, or change theirs."""

from __future__ import annotations

import pytest
from tests.unit.test_order import MINUTE, ack, after, names, send, take

from horolog.protocol.commands import CreateTopic, TopicType
from horolog.protocol.queue_commands import GroupSettings, PutGroup


@pytest.fixture
def broker(world):
    world.broker.ask(CreateTopic("t", TopicType.FIFO, 1))
    world.broker.ask(PutGroup("g", GroupSettings(orderly=True)))
    return world.broker


def test_a_message_that_another_filter_left_out_is_not_forgotten_after_later_ones(
    world, broker
) -> None:
    """Members with different filters, and a restart: it is found after its group has had its turn in the same receive."""
    send(world, "c1 c2", tag="A")
    send(world, "a1", tag="B")
    send(world, "a2", tag="A")
    assert names(take(world, 1)) == "c1"
    assert names(take(world, filter_expression="A")) == "a2", (
        "c1 holds back c2; a1 is of another tag"
    )
    world.reopen()
    after(world, MINUTE)
    late = take(world)
    assert names(late) == "c1 a2 c2"
    found = take(world)
    assert names(found) == "a1 a2", "it need not wait for what was given out too early"
    assert found["a2"].receipt_handle != late["a2"].receipt_handle
    ack(world, *found.values(), late["c1"], late["c2"])
    assert not take(world)


def test_what_is_held_is_taken_by_the_filter_that_comes_for_it(world, broker) -> None:
    send(world, "a1 a2 a3")
    found = take(world, 1)
    assert not take(world)
    ack(world, found["a1"])
    assert not take(world, filter_expression="other"), "held, and not wanted"
    world.reopen()
    assert not take(world)
