"""Messages that a 4.x consumer has received and sends on: they keep their ids, and are no repeats."""

from __future__ import annotations

import pytest
from tests.support.worlds import take_all
from tests.unit.test_repeats import results, reuse

from horolog.protocol.commands import CreateTopic, MessageType, SendMessages, TopicType
from horolog.protocol.rocketmq import properties
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import Answer


@pytest.fixture
def broker(world):
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 3))
    return world.broker


def made(received: str, born_ms: int = 1_000, port: int = 4_711, due_ms: int = 0):
    """As a 4.x client sends it over one connection; received then, if it was."""
    pulled = {"MIN_OFFSET": "0", "MAX_OFFSET": "1", "CONSUME_START_TIME": received}
    return encode(
        topic="t",
        body=b"x",
        message_id="a",
        type=MessageType.DELAY if due_ms else MessageType.NORMAL,
        due_ms=due_ms,
        system_properties=properties.encode(pulled) if received else b"",
        born_ms=born_ms,
        born_host=(b"\x7f\0\0\1", port),
    )


@pytest.mark.parametrize("due_in", [0, 5_000])
def test_over_another_connection(world, broker, due_in: int) -> None:
    first = reuse(world, made(""))
    assert take_all(world) == ["a"]
    for received in ("7001", "7002"):
        due = world.clock.wall_ms() + due_in if due_in else 0
        sent = reuse(world, made(received, 2_000, 4_712, due))
        assert sent.first_due_ms == {}, "it is another message"
        again = reuse(world, made(received, 5_000, 4_713, due))
        assert results(again) == results(sent), "and a retry of it is none"
        world.clock.advance(due_in)
        broker.settle()
        assert take_all(world) == ["a"]
    assert results(reuse(world, made("", 9_000, 4_714))) == results(first), "a late retry"


def test_in_the_same_turn(world, broker) -> None:
    messages = [made(received) for received in ("", "7001", "7001", "7002")]
    answers = [Answer(SendMessages("t", [each], reuses_ids=True)) for each in messages]
    broker.step(answers)
    broker.settle()
    assert len({answer.result.origins[0] for answer in answers}) == 3
    assert take_all(world) == ["a", "a", "a"]
