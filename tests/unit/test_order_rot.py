"""Consumer groups in order over files that rot: of a message group nothing is given before what somebody still has."""

from __future__ import annotations

import pytest
from tests.unit.test_order import MINUTE, ack, after, name_of, put, receive, send, take
from worlds import checkpoint

from horolog.protocol.commands import CreateTopic, Delivered, TopicType
from horolog.protocol.queue_commands import GroupSettings, PutGroup
from horolog.testing.sim_broker import Answer


@pytest.fixture
def broker(world):
    world.broker.ask(CreateTopic("t", TopicType.FIFO, 1))
    world.broker.ask(PutGroup("g", GroupSettings(orderly=True)))
    return world.broker


def start_again(world) -> None:
    """With nothing to replay: no frame is verified before somebody reads it."""
    checkpoint(world)
    world.reopen()


def rot(world, message_id: str) -> None:
    """Flip a bit of that message in the log."""
    (log, *_) = (path for path in world.disk.names() if "/log/" in path)
    file = world.disk.open(log)
    world.disk.flip(log, file.read(0, file.size()).index(b"\x01%b\x02" % message_id.encode()), 1, 4)


def leased_then_rotten(world) -> Delivered:
    """Lease b1, half a minute later a1, start again, and rot a1; return a1."""
    send(world, "b1")
    take(world)
    after(world, MINUTE // 2)
    send(world, "a1")
    found = take(world)
    start_again(world)
    rot(world, "a1")
    return found["a1"]


def poll(world) -> Answer:
    """A receive that waits for 20 s."""
    answer = put(world, receive(poll_ms=20_000))
    world.broker.settle()
    return answer


def test_a_queue_that_is_cut_gives_nothing_of_the_group_of_a_leased_message(world, broker) -> None:
    """The messages that are new are in memory, and could be given out."""
    send(world, "a1 b1")
    found = take(world)
    start_again(world)
    (queue,) = (path for path in world.disk.names() if path.endswith(".cq"))
    world.disk.open(queue).truncate(7)
    send(world, "a2 c1")
    for _ in range(2):
        assert not take(world), "which groups a1 and b1 are of cannot be read"
    world.reopen()
    assert [*take(world)] == ["c1"]
    ack(world, found["a1"])
    assert [*take(world)] == ["a2"]


def test_what_has_rotted_blocks_all_groups_while_somebody_has_it(world, broker) -> None:
    """It may be of any of them."""
    a1 = leased_then_rotten(world)
    send(world, "a2 b2")
    after(world, MINUTE // 2 - 1)
    waits = poll(world)
    after(world, 1)
    assert not waits.done, "b could go on, if a1 were not of it"
    ack(world, a1)
    assert [name_of(each) for each in waits.result.messages] == ["b1", "a2", "b2"]


def test_a_group_whose_lease_has_ended_goes_on_when_what_has_rotted_is_consumed(
    world, broker
) -> None:
    """Nothing else happens to the group, which was read when its lease had ended."""
    a1 = leased_then_rotten(world)
    after(world, MINUTE // 2)
    waits = poll(world)
    assert not waits.done
    ack(world, a1)
    assert [name_of(each) for each in waits.result.messages] == ["b1"]


def test_what_has_rotted_blocks_nothing_once_its_lease_has_ended(world, broker) -> None:
    send(world, "a1")
    take(world)
    start_again(world)
    rot(world, "a1")
    send(world, "a2")
    after(world, MINUTE - 1)
    waits = poll(world)
    assert not waits.done
    after(world, 1)
    assert [name_of(each) for each in waits.result.messages] == ["a2"]
