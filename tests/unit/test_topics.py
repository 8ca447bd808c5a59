"""Topics: which can be made, which messages they take."""

from __future__ import annotations

import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.log.record import encode_topic
from horolog.protocol.accepted import ACCEPTED
from horolog.protocol.commands import (
    ChangeTopic,
    CreateTopic,
    DescribeTopic,
    ListTopics,
    MessageType,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode

UNUSABLE = (TopicType.FIFO, TopicType.TRANSACTION)


def made(topic: str, type: MessageType = MessageType.NORMAL, **more):
    return encode(topic=topic, body=b"b", message_id="m", type=type, **more)


def refused(world, command) -> HorologError:
    with pytest.raises(HorologError) as caught:
        world.broker.ask(command)
    return caught.value


def older_topic(world, number: int, type: TopicType) -> None:
    """As an older horolog made it: its record in the log."""
    record = encode_topic(number, type.value, type.value, 2)
    world.broker.shard.log.append(record, 1, world.clock.wall_ms())
    world.broker.settle()


@pytest.mark.parametrize("type", UNUSABLE)
def test_a_topic_that_takes_nothing_is_not_made(world, type) -> None:
    error = refused(world, CreateTopic("t", type, 2))
    assert error.code is ErrorCode.NOT_IMPLEMENTED
    assert error.field == "type"
    assert f"{type.value} topics are not supported yet" in error.message
    assert "normal, delay, mixed" in error.limit
    assert world.broker.ask(ListTopics()) == []


def test_unusable_topics_of_older_directories_open_and_are_listed(world) -> None:
    for number, type in enumerate(UNUSABLE, 1):
        older_topic(world, number, type)
    for _ in range(2):  # from the log, then from a checkpoint
        world.reopen()
        views = world.broker.ask(ListTopics())
        assert [(view.name, view.type) for view in views] == [
            ("fifo", TopicType.FIFO),
            ("transaction", TopicType.TRANSACTION),
        ]
        assert world.broker.ask(CreateTopic("fifo", TopicType.FIFO, 2)).queues == 2, "the same"
        sent = world.broker.ask(SendMessages("fifo", [made("fifo")]))
        assert sent.refused[0].code is ErrorCode.TYPE_CONFLICT
        assert "it takes no messages" in sent.refused[0].message
        receive = Receive("g", "fifo", -1, "*", 1, 30_000, False, 0, "c")
        assert world.broker.ask(receive).messages == []
        world.broker.want_checkpoint()
        world.broker.settle()


@pytest.mark.parametrize("type", TopicType)
@pytest.mark.parametrize("kind", MessageType)
def test_a_topic_takes_what_its_type_says_and_nothing_else(world, type, kind) -> None:
    if ACCEPTED[type]:
        world.broker.ask(CreateTopic(type.value, type, 2))
    else:
        older_topic(world, 1, type)
        world.reopen()
    assert world.broker.ask(DescribeTopic(type.value)).type is type
    due_ms = world.clock.wall_ms() + 60_000 if kind is MessageType.DELAY else 0
    sent = world.broker.ask(SendMessages(type.value, [made(type.value, kind, due_ms=due_ms)]))
    assert (0 not in sent.refused) == (kind in ACCEPTED[type])
    if kind in (MessageType.FIFO, MessageType.TRANSACTION):
        assert sent.refused[0].code is ErrorCode.NOT_IMPLEMENTED


def test_what_exists_is_created_again_only_just_so(world) -> None:
    world.broker.ask(CreateTopic("temps", TopicType.DELAY, 2))
    end = world.broker.shard.log.end
    assert world.broker.ask(CreateTopic("temps", TopicType.DELAY, 2)).queues == 2
    for command, field, difference in (
        (CreateTopic("temps", TopicType.DELAY, 8), "queues", "exists with 2 queues, not 8"),
        (CreateTopic("temps", TopicType.DELAY, 1), "queues", "exists with 2 queues, not 1"),
        (CreateTopic("temps", TopicType.MIXED, 2), "type", "exists with type delay"),
        (CreateTopic("temps", TopicType.FIFO, 2), "type", "exists with type delay"),
    ):
        error = refused(world, command)
        assert (error.code, error.field) == (ErrorCode.TOPIC_EXISTS, field)
        assert difference in error.message
    assert world.broker.shard.log.end == end, "nothing was written"
    assert world.broker.ask(DescribeTopic("temps")).queues == 2


def test_a_topic_is_changed_to_have_more_queues_and_never_fewer(world) -> None:
    world.broker.ask(CreateTopic("temps", TopicType.MIXED, 2))
    assert world.broker.ask(ChangeTopic("temps", 8)).queues == 8
    assert world.broker.ask(ChangeTopic("temps", 8)).queues == 8, "as it is: no change"
    for queues, limit in ((7, "8 to 1024"), (0, "1 to 1024"), (1_025, "1 to 1024")):
        error = refused(world, ChangeTopic("temps", queues))
        assert (error.code, error.field, error.limit) == (ErrorCode.BAD_REQUEST, "queues", limit)
    assert refused(world, ChangeTopic("no", 1)).code is ErrorCode.TOPIC_NOT_FOUND
    for _ in range(2):
        world.reopen()
        assert world.broker.ask(DescribeTopic("temps")).queues == 8
        world.broker.want_checkpoint()
        world.broker.settle()
    sent = world.broker.ask(SendMessages("temps", [made("temps")] * 2))
    assert not sent.refused
