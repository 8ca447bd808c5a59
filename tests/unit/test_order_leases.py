"""Consumer groups in order and the limit of leases, and leases whose message groups a start does not know."""

from __future__ import annotations

import pytest
from tests.unit.test_order import (
    MINUTE,
    ack,
    after,
    name_of,
    names,
    place,
    put,
    receive,
    send,
    take,
)

from horolog.errors import HorologError
from horolog.protocol.commands import (
    Ack,
    CreateTopic,
    Delivered,
    MessageType,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import GroupSettings, PutGroup
from horolog.protocol.rocketmq.message import encode


@pytest.fixture
def broker(world):
    world.broker.ask(CreateTopic("t", TopicType.FIFO, 1))
    world.broker.ask(PutGroup("g", GroupSettings(orderly=True)))
    return world.broker


def test_without_room_for_leases_a_group_goes_on_when_there_is_some(world, broker) -> None:
    send(world, "a1 a2 b1 c1")
    world.broker.shard.ready.leases_max = 2
    found = take(world)
    assert names(found) == "a1 a2"
    with pytest.raises(HorologError, match="2 messages are leased"):
        world.broker.ask(receive())
    waiting = put(world, receive(poll_ms=20_000))
    after(world, 1_000)
    assert not waiting.done
    ack(world, *found.values())
    world.broker.settle()
    assert [name_of(each) for each in waiting.result.messages] == ["b1", "c1"]
    world.broker.check_invariants(rows=True)


def test_what_comes_again_needs_no_room_for_leases(world, broker) -> None:
    """Not even behind a message that finds none."""
    send(world, "a1 a2 b1")
    world.broker.shard.ready.leases_max = 2
    a1 = take(world, 1)
    assert names(take(world)) == "b1"
    world.broker.ask(CreateTopic("u", TopicType.NORMAL, 1))
    send(world, "-1", topic="u")
    ack(world, *a1.values())
    (other,) = world.broker.ask(receive(group="other", topic="u", invisible_ms=9 * MINUTE)).messages
    after(world, MINUTE)
    b1 = take(world)
    assert names(b1) == "b1"
    assert world.broker.ask(Ack("other", "u", [other.receipt_handle])).refused == [None]
    ack(world, *b1.values())
    assert names(take(world)) == "a2"
    world.broker.check_invariants(rows=True)


def test_many_leases_are_read_in_pieces_after_a_start(world, broker) -> None:
    made = [
        encode(
            topic="t",
            body=b"b",
            message_id=f"m{n}",
            type=MessageType.FIFO,
            message_group=f"g{n % 600}",
        )
        for n in range(1_200)
    ]
    world.broker.ask(SendMessages("t", made))
    found: dict[str, Delivered] = {}
    while more := take(world):
        found |= more
    assert len(found) == 600
    world.reopen()
    assert not take(world)
    assert world.broker.shard.ready.progress_of(*place(world)).order.is_learned
    ack(world, *list(found.values())[:200])
    again: dict[str, Delivered] = {}
    while more := take(world):
        again |= more
    assert list(again) == [f"m{n}" for n in range(600, 800)]
