"""Settings of topics: who may use them, how many queues are read and written, and what clients store with them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from admin_api import exchange
from worlds import refused

from horolog.errors import ErrorCode
from horolog.limits import HOUR_MS, TOPIC_ATTRIBUTES_MAX
from horolog.protocol.adoption_commands import BeginAdoption
from horolog.protocol.commands import (
    ChangeTopic,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    MessageType,
    Receive,
    SendMessages,
    TopicSettings,
    TopicType,
)
from horolog.protocol.queue_commands import Pull
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import Answer

SETTINGS = TopicSettings(4, order=True, read_queues=3, write_queues=2, attributes={"a": [1, "b"]})


@pytest.fixture
def broker(any_world):
    any_world.broker.ask(CreateTopic("t", TopicType.MIXED, 2))
    return any_world.broker


def send(*names: str, due_ms: int = 0) -> SendMessages:
    kind = MessageType.DELAY if due_ms else MessageType.NORMAL
    messages = [
        encode(topic="t", body=b"x", message_id=name, due_ms=due_ms, type=kind) for name in names
    ]
    return SendMessages("t", messages)


def receive(poll_ms: int = 0) -> Receive:
    return Receive("g", "t", -1, "*", 32, 60_000, False, poll_ms, "c")


def pull(poll_ms: int = 0) -> Pull:
    return Pull("t", 0, 0, 32, 1 << 18, "*", poll_ms)


def permit(broker, perm: int) -> None:
    view = broker.ask(ChangeTopic("t", settings=TopicSettings(perm)))
    assert view.settings.perm == perm


@pytest.mark.parametrize("checkpoint", [False, True])
def test_settings_are_kept(any_world, broker, checkpoint: bool) -> None:
    broker.ask(CreateTopic("u", TopicType.NORMAL, 3, SETTINGS))
    broker.ask(ChangeTopic("t", 4, TopicSettings(order=True)))
    if checkpoint:
        broker.request_checkpoint()
        broker.settle()
    any_world.reopen()
    t, u = (broker.ask(DescribeTopic(name)) for name in ("t", "u"))
    assert (t.queues, t.settings) == (4, TopicSettings(order=True))
    assert (t.read_queues, t.write_queues) == (4, 4)
    assert (u.queues, u.settings, u.read_queues, u.write_queues) == (3, SETTINGS, 3, 2)
    before = broker.shard.log.end
    broker.ask(ChangeTopic("u"))
    broker.ask(ChangeTopic("u", 3, SETTINGS))
    broker.ask(CreateTopic("u", TopicType.NORMAL, 3))
    broker.ask(CreateTopic("u", TopicType.NORMAL, 3, SETTINGS))
    assert broker.shard.log.end == before, "no change"
    assert refused(broker, CreateTopic("u", TopicType.NORMAL, 3, TopicSettings())).code is (
        ErrorCode.TOPIC_EXISTS
    )


def test_a_topic_that_nobody_may_send_to(any_world, broker) -> None:
    broker.ask(send("a"))
    broker.ask(send("later", due_ms=any_world.clock.wall_ms() + 5_000))
    permit(broker, 4)
    any_world.reopen()
    for command in (send("b"), BeginAdoption("app", 1, "t")):
        error = refused(broker, command)
        assert (error.code, error.field) == (ErrorCode.FORBIDDEN, "topic")
        assert "permission 4 (read): nobody may send" in error.message
    any_world.clock.advance(5_000)
    broker.settle()
    assert len(broker.ask(receive()).messages) == 2, "what waits is handed over"
    permit(broker, 6)
    broker.ask(send("b"))


def test_a_topic_that_nobody_may_consume(broker) -> None:
    waiting = [Answer(receive(20_000)), Answer(pull(20_000))]
    broker.step(waiting)
    permit(broker, 2)
    assert [each.result.code for each in waiting] == [ErrorCode.FORBIDDEN] * 2
    broker.ask(send("a"))
    for command in (receive(), pull()):
        error = refused(broker, command)
        assert (error.code, error.field) == (ErrorCode.FORBIDDEN, "topic")
        assert "permission 2 (write): nobody may consume" in error.message
    permit(broker, 6)
    assert len(broker.ask(receive()).messages) == 1


def test_messages_go_to_the_queues_that_are_written(broker) -> None:
    broker.ask(ChangeTopic("t", 4, TopicSettings(write_queues=3)))
    for i in range(12):
        broker.ask(send(f"m{i}"))
    assert broker.ask(DescribeTopic("t")).queue_offsets == [4, 4, 4, 0]


def test_settings_that_nobody_can_keep_to(broker) -> None:
    broker.ask(ChangeTopic("t", 4, TopicSettings(read_queues=3, write_queues=3)))
    huge = {"x": "y" * TOPIC_ATTRIBUTES_MAX}
    for queues, settings, field in (
        (3, None, "queues"),
        (1_025, None, "queues"),
        (0, TopicSettings(7), "perm"),
        (0, TopicSettings(0), "perm"),
        (0, TopicSettings(read_queues=5), "read_queues"),
        (0, TopicSettings(read_queues=2, write_queues=3), "read_queues"),
        (0, TopicSettings(read_queues=3, write_queues=2), "write_queues"),
        (0, TopicSettings(write_queues=-1), "write_queues"),
        (0, TopicSettings(attributes=huge), "attributes"),
        (0, TopicSettings(attributes={"x": object()}), "attributes"),
    ):
        error = refused(broker, ChangeTopic("t", queues, settings))
        assert (error.code, error.field) == (ErrorCode.BAD_REQUEST, field)
        assert error.limit or "attributes" in field
    view = broker.ask(DescribeTopic("t"))
    assert (view.queues, view.read_queues, view.write_queues) == (4, 3, 3)


# --- over HTTP --------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", [each for each in TopicType if each is not TopicType.MIXED])
def test_a_topic_that_takes_all_becomes_one_of_a_type_and_stays_it(any_world, broker, type) -> None:
    due_ms = any_world.clock.wall_ms() + HOUR_MS
    broker.ask(send("now"))
    broker.ask(send("later", due_ms=due_ms))
    before = broker.ask(DescribeTopic("t"))
    changed = broker.ask(ChangeTopic("t", type=type))
    assert (changed.type, changed.queues, changed.pending) == (type, 2, 1)
    any_world.reopen()
    assert broker.ask(DescribeTopic("t")) == replace(before, type=type)
    takes_delay = type is TopicType.DELAY
    sent = broker.ask(send("new", due_ms=0 if takes_delay else due_ms))
    assert f"topic 't' takes {type} messages" in sent.refused[0].message
    for other in (TopicType.MIXED, next(each for each in TopicType if each is not type)):
        error = refused(broker, ChangeTopic("t", 4, type=other))
        assert error.code is ErrorCode.TOPIC_EXISTS
        assert f"exists with type {type}; a type cannot be changed to {other}" in error.message
    assert broker.ask(ChangeTopic("t", type=type)).type is type


def test_permissions_over_http() -> None:
    body = {"name": "reminders", "queues": 2, "perm": 4}
    status, answer, engine = exchange("POST", "/v1/topics", body)
    assert (status, engine.asked[-1].settings) == (201, TopicSettings(4))
    topic = answer["result"]
    assert (topic["perm"], topic["order"]) == (6, False)
    assert (topic["read_queues"], topic["write_queues"]) == (2, 2)
    status, _, engine = exchange("PATCH", "/v1/topics/reminders", {"perm": 2})
    assert (status, engine.asked[-1]) == (200, ChangeTopic("reminders", 0, TopicSettings(2)))
    status, answer, engine = exchange("DELETE", "/v1/topics/reminders")
    assert (status, answer["result"]) == (200, {"deleted": "reminders", "recalled": 0})
    assert engine.asked == [DeleteTopic("reminders")]
    status, answer, engine = exchange("PATCH", "/v1/topics/reminders", {})
    assert (status, answer["error"]["field"], engine.asked) == (400, "queues", [])
