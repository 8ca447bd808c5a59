"""Receives and pulls with SQL92 filters."""

from __future__ import annotations

import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.limits import SCAN_MAX, SQL_COST
from horolog.protocol.commands import CreateTopic, Receive, SendMessages, TopicType
from horolog.protocol.queue_commands import Pull, PullStatus, PutGroup
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import Answer

WANTED = "price > 5 AND region IN ('eu', 'us')"


@pytest.fixture
def broker(world):
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    world.broker.ask(PutGroup("g"))
    return world.broker


def send(world, *prices: int, region: str = "eu") -> None:
    made = [
        encode(
            topic="t",
            body=str(price).encode(),
            message_id=f"{world.clock.wall_ms()}-{price}-{i}",
            user_properties={"price": str(price), "region": region},
        )
        for i, price in enumerate(prices)
    ]
    for at in range(0, len(made), 500):
        world.broker.ask(SendMessages("t", made[at : at + 500]))


def receive(text: str = WANTED, poll_ms: int = 0) -> Receive:
    return Receive("g", "t", -1, text, 32, 60_000, False, poll_ms, "c", is_sql=True)


def pull(first: int = 0, text: str = WANTED, poll_ms: int = 0) -> Pull:
    return Pull("t", 0, first, 32, 1 << 20, text, poll_ms, "c", "g", is_sql=True)


def bodies(layouts) -> list[bytes]:
    return [layout.decode(bytes(each)).body for each in layouts]


def test_an_empty_property_is_missing(world, broker) -> None:
    send(world, 1, region="")
    send(world, 2)
    got = broker.ask(pull(text="region <> 'us'"))
    assert bodies(got.layouts) == [b"2"]
    got = broker.ask(pull(text="region IS NULL"))
    assert bodies(got.layouts) == [b"1"]


def test_a_receive_gets_what_matches_and_passes_over_the_rest(world, broker) -> None:
    send(world, 1, 6, 9)
    send(world, 7, region="asia")
    send(world, 8, region="us")
    got = broker.ask(receive()).messages
    assert bodies(each.layout for each in got) == [b"6", b"9", b"8"]
    assert broker.ask(receive()).messages == []
    assert broker.ask(receive("TRUE")).messages == [], "the group is through, whatever it asks for"


def test_a_poll_that_waits_wakes_for_what_matches(world, broker) -> None:
    poll = Answer(receive(poll_ms=10_000))
    broker.step([poll])
    send(world, 1, 2)
    broker.settle()
    assert not poll.done
    send(world, 6)
    broker.settle()
    assert bodies(each.layout for each in poll.result.messages) == [b"6"]


def test_the_same_text_as_tags_is_another_filter(world, broker) -> None:
    polls = [
        Answer(receive("TRUE", 10_000)),
        Answer(Receive("g", "t", -1, "TRUE", 32, 60_000, False, 10_000, "c")),
    ]
    broker.step(polls)
    send(world, 6)
    broker.settle()
    assert [poll.done for poll in polls] == [True, False]


def test_a_long_stretch_without_a_match_takes_several_turns(world, broker) -> None:
    send(world, *[1] * 3_000, 6)
    got = Answer(receive())
    turns = 0
    broker.step([got])
    while not got.done:
        turns += 1
        broker.step([])
        assert turns < 1_000
    assert turns > 3_000 // (16 * SCAN_MAX // SQL_COST)
    assert bodies(each.layout for each in got.result.messages) == [b"6"]


def test_a_pull_gets_what_matches_and_says_where_to_go_on(world, broker) -> None:
    send(world, 1, 6, 9)
    found = broker.ask(pull())
    assert (found.status, bodies(found.layouts)) == (PullStatus.FOUND, [b"6", b"9"])
    assert found.next_offset == 3
    send(world, *[1] * 200)
    found = broker.ask(pull(3))
    assert (found.status, found.layouts) == (PullStatus.FILTERED, [])
    assert found.next_offset == 3 + SCAN_MAX // SQL_COST


def test_a_pull_that_waits_is_answered_when_something_matches(world, broker) -> None:
    waiting = Answer(pull(poll_ms=10_000))
    broker.step([waiting])
    send(world, 1, 2)
    broker.settle()
    assert not waiting.done
    send(world, 3, 7)
    broker.settle()
    assert bodies(waiting.result.layouts) == [b"7"]
    assert waiting.result.next_offset == 4


@pytest.mark.parametrize("command", [receive("a >"), pull(text="a >")])
def test_an_expression_that_cannot_be_read_is_refused(broker, command) -> None:
    with pytest.raises(HorologError) as refused:
        broker.ask(command)
    assert refused.value.code is ErrorCode.ILLEGAL_FILTER
