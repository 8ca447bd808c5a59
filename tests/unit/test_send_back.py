"""What a consumer failed on comes again after a pause, or ends among the dead letters; once, whatever happens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import refused

from horolog.errors import ErrorCode, HorologError
from horolog.limits import GROUP_NAME_MAX
from horolog.protocol.commands import (
    Ack,
    CreateTopic,
    Delivered,
    MessageType,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import GroupSettings, PutGroup
from horolog.protocol.retry_commands import SendBack, SendRetry
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode, key_hash
from horolog.protocol.send_commands import HEAD_AS_SENT
from horolog.testing.sim_broker import Answer, properties_of

RETRY, DEAD = "%RETRY%g", "%DLQ%g"
PAUSES_S = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200]
HOUR = 3_600_000


@pytest.fixture
def broker(world):
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    world.broker.ask(PutGroup("g"))
    return world.broker


def send(world, message_id: str = "a", topic: str = "t", due_ms: int = 0, **more):
    kind = MessageType.DELAY if due_ms else MessageType.NORMAL
    made = encode(
        topic=topic, body=b"x", message_id=message_id, type=kind, due_ms=due_ms, born_ms=5, **more
    )
    return world.broker.ask(SendMessages(topic, [made]))


def take(world, topic: str, group: str = "g") -> list[Delivered]:
    """Everything that can be had of a topic, consumed."""
    if topic not in world.broker.shard.topics.by_name:
        return []
    got: list[Delivered] = []
    command = Receive(group, topic, -1, "*", 32, 60_000, False, 0, "c")
    while messages := world.broker.ask(command).messages:
        got += messages
        world.broker.ask(Ack(group, topic, [each.receipt_handle for each in messages]))
    return got


def stored(message: Delivered) -> layout.Stored:
    return layout.decode(message.layout)


def one(world, topic: str, group: str = "g") -> Delivered:
    (message,) = take(world, topic, group)
    return message


def pass_time(world, ms: int) -> None:
    world.clock.advance(ms)
    world.broker.settle()


def send_back(world, message: Delivered, **how):
    return world.broker.ask(SendBack("g", stored(message).position, **how))


def test_the_whole_ladder_to_the_dead_letters(world, broker) -> None:
    send(world, tag="TagA", keys=["k1", "k2"], user_properties={"colour": "red"})
    first = message = one(world, "t")
    for attempt, pause in enumerate(PAUSES_S, 1):
        send_back(world, message)
        pass_time(world, pause * 1_000 - 1)
        assert take(world, RETRY) == [], attempt
        pass_time(world, 1)
        message = one(world, RETRY)
        assert stored(message).reconsume_times == attempt
        assert properties_of(message)["DELAY"] == str(2 + attempt)
        assert properties_of(message)["RETRY_TOPIC"] == "t"
        assert properties_of(message)["ORIGIN_MESSAGE_ID"] == layout.offset_message_id(first.layout)
    send_back(world, message)
    dead = one(world, DEAD)
    assert take(world, RETRY) == []
    assert stored(dead).reconsume_times == 17
    assert properties_of(dead)["DLQ_ORIGIN_TOPIC"] == "t"
    assert properties_of(dead)["DLQ_ORIGIN_MESSAGE_ID"] == properties_of(dead)["UNIQ_KEY"] == "a"
    assert "DELAY" not in properties_of(dead)
    for name in ("TAGS", "KEYS", "colour", "UNIQ_KEY"):
        assert properties_of(dead)[name] == properties_of(first)[name]
    assert (stored(dead).body, stored(dead).born_ms) == (b"x", 5)


def test_a_level_that_is_asked_for(world, broker) -> None:
    send(world)
    message = one(world, "t")
    send_back(world, message, level=1)
    pass_time(world, 999)
    assert take(world, RETRY) == []
    pass_time(world, 1)
    again = one(world, RETRY)
    assert properties_of(again)["DELAY"] == "1"
    send_back(world, again, level=99)
    pass_time(world, 2 * HOUR - 1)
    assert take(world, RETRY) == [], "clamped to the highest level"
    pass_time(world, 1)
    assert properties_of(one(world, RETRY))["DELAY"] == "18"


def test_straight_to_the_dead_letters(world, broker) -> None:
    send(world)
    send_back(world, one(world, "t"), level=-1)
    assert stored(one(world, DEAD)).reconsume_times == 1


@pytest.mark.parametrize("by", ["request", "group"])
def test_how_many_attempts_there_are(world, broker, by: str) -> None:
    how = {"retry_max": 2} if by == "request" else {}
    if by == "group":
        broker.ask(PutGroup("g", GroupSettings(retry_max=2)))
    send(world)
    message = one(world, "t")
    for _ in range(2):
        send_back(world, message, level=1, **how)
        pass_time(world, 1_000)
        message = one(world, RETRY)
    send_back(world, message, level=1, **how)
    pass_time(world, HOUR)
    assert len(take(world, DEAD)) == 1
    assert take(world, RETRY) == []


def test_a_group_that_keeps_no_retries(world, broker) -> None:
    broker.ask(PutGroup("g", GroupSettings(retry_queues=0)))
    send(world)
    assert send_back(world, one(world, "t")).origins == []
    assert RETRY not in broker.shard.topics.by_name


@pytest.mark.parametrize("level", [0, -1])
@pytest.mark.parametrize("crash", [False, True])
def test_a_request_that_comes_again_makes_no_second_copy(
    world, broker, level: int, crash: bool
) -> None:
    send(world)
    message = one(world, "t")
    first = send_back(world, message, level=level)
    if crash:
        world.disk.crash(power_cut=True)
        world.broker.open()
    again = send_back(world, message, level=level)
    assert again.origins == first.origins
    pass_time(world, 10_000)
    assert send_back(world, message, level=level).origins == first.origins
    assert len(take(world, DEAD if level else RETRY)) == 1
    pass_time(world, HOUR)
    assert take(world, RETRY) == take(world, DEAD) == []


def test_two_requests_of_one_turn_make_one_copy(world, broker) -> None:
    send(world)
    position = stored(one(world, "t")).position
    answers = [Answer(SendBack("g", position)) for _ in range(2)]
    broker.step(answers)
    broker.settle()
    assert answers[0].result.origins == answers[1].result.origins
    pass_time(world, 10_000)
    assert len(take(world, RETRY)) == 1


def test_each_attempt_is_a_copy_of_its_own(world, broker) -> None:
    """Attempts follow each other within the time in which a repeated send is one send."""
    send(world)
    message = one(world, "t")
    for attempt in range(1, 9):
        send_back(world, message, level=1)
        pass_time(world, 1_000)
        message = one(world, RETRY)
        assert stored(message).reconsume_times == attempt


def test_messages_with_one_id_are_two_in_two_topics(world, broker) -> None:
    """A producer may send one message object to two topics; clients keep its id."""
    broker.ask(CreateTopic("u", TopicType.MIXED, 1))
    for topic in ("t", "u"):
        send(world, topic=topic)
        send_back(world, one(world, topic))
    pass_time(world, 10_000)
    assert sorted(properties_of(each)["RETRY_TOPIC"] for each in take(world, RETRY)) == ["t", "u"]


def test_the_same_message_for_two_groups(world, broker) -> None:
    broker.ask(PutGroup("h"))
    send(world)
    position = stored(one(world, "t")).position
    broker.ask(SendBack("g", position))
    broker.ask(SendBack("h", position))
    pass_time(world, 10_000)
    assert len(take(world, RETRY)) == len(take(world, "%RETRY%h", "h")) == 1


def test_a_message_that_was_scheduled(world, broker) -> None:
    """Its own due time is over, and is not that of another attempt."""
    send(world, due_ms=world.clock.wall_ms() + 5_000)
    pass_time(world, 5_000)
    send_back(world, one(world, "t"))
    pass_time(world, 9_999)
    assert take(world, RETRY) == []
    pass_time(world, 1)
    assert "TIMER_DELIVER_MS" not in properties_of(one(world, RETRY))


def test_dead_letters_are_messages_like_any(world, broker) -> None:
    """A group that consumes them, and fails, begins to count from zero, and is not led back to the first topic."""
    broker.ask(PutGroup("h"))
    send(world)
    send_back(world, one(world, "t"), level=-1)
    dead = one(world, DEAD, "h")
    broker.ask(SendBack("h", stored(dead).position))
    pass_time(world, 10_000)
    again = one(world, "%RETRY%h", "h")
    assert properties_of(again)["RETRY_TOPIC"] == DEAD
    assert stored(again).reconsume_times == 1


def test_what_cannot_be_sent_back(world, broker) -> None:
    send(world)
    position = stored(one(world, "t")).position
    waiting = send(world, "b", due_ms=world.clock.wall_ms() + HOUR).origins[0]
    assert refused(broker, SendBack("nobody", position)).code is ErrorCode.GROUP_NOT_FOUND
    for wrong in (0, -1, position + 1, position - 1, waiting, broker.shard.log.end, 1 << 62):
        assert refused(broker, SendBack("g", wrong)).code is ErrorCode.NOT_FOUND, wrong
    pass_time(world, HOUR)
    assert RETRY not in broker.shard.topics.by_name


def test_a_damaged_message_cannot_be_sent_back(world, broker) -> None:
    """Its consumer still has it, and sends the copy itself."""
    send(world)
    message = one(world, "t")
    position = stored(message).position
    world.disk.crash(power_cut=False)
    world.broker.open()
    world.disk.flip(broker.shard.log.segment_path(position), position + 100, 3, 6)
    with pytest.raises(HorologError, match=r"offset: .* is damaged") as error:
        send_back(world, message)
    assert error.value.code is ErrorCode.NOT_FOUND
    broker.ask(sent_by_client(message, 1))
    pass_time(world, 10_000)
    assert stored(one(world, RETRY)).body == b"x"


# --- sent by the client itself --------------------------------------------------------------------


def sent_by_client(
    message: Delivered, attempt: int, *, origin_id: str = "", retry_max: int = -1, is_last=False
) -> SendRetry:
    """As Java consumers do when their send-back has failed, or after an attempt in order."""
    known = properties_of(message)
    known["RETRY_TOPIC"] = known.get("RETRY_TOPIC", "t")
    known["ORIGIN_MESSAGE_ID"] = origin_id or known.get("ORIGIN_MESSAGE_ID", known["UNIQ_KEY"])
    known["RECONSUME_TIME"], known["DELAY"] = str(attempt), str(2 + attempt)
    stored = message.layout
    made = layout.readdressed(stored, RETRY, properties.encode(known), attempt, -1)
    size = HEAD_AS_SENT.size + len(made)
    pause = -1_000 * PAUSES_S[attempt - 1]
    head = HEAD_AS_SENT.pack(
        size, MessageType.DELAY, 0, 2 + attempt, pause, 0, 0, key_hash(RETRY, known["UNIQ_KEY"])
    )
    return SendRetry("g", head + made, retry_max, is_last)


def test_a_client_sends_the_copy_itself(world, broker) -> None:
    send(world)
    message = one(world, "t")
    for attempt, pause in enumerate(PAUSES_S[:4], 1):
        broker.ask(sent_by_client(message, attempt))
        pass_time(world, pause * 1_000 - 1)
        assert take(world, RETRY) == []
        pass_time(world, 1)
        message = one(world, RETRY)
        assert stored(message).reconsume_times == attempt


def test_a_send_back_and_the_copy_of_its_client_in_one_turn(world, broker) -> None:
    """The broker was so slow that it found both at once."""
    send(world)
    message = one(world, "t")
    position = stored(message).position
    asked = [SendBack("g", position), sent_by_client(message, 1), SendBack("g", position)]
    asked.append(sent_by_client(message, 1, origin_id="another"))
    answers = [Answer(each) for each in asked]
    broker.step(answers)
    broker.settle()
    assert len({answer.result.origins[0] for answer in answers[:3]}) == 1
    pass_time(world, 10_000)
    assert len(take(world, RETRY)) == 2, "of another message with the same id"


def test_a_client_sends_what_it_thinks_was_not_sent_back(world, broker) -> None:
    """The broker was slow to answer the send-back; Java consumers send the copy themselves then."""
    send(world)
    message = one(world, "t")
    first = send_back(world, message)
    assert broker.ask(sent_by_client(message, 1)).origins == first.origins
    pass_time(world, 10_000)
    again = one(world, RETRY)
    second = broker.ask(sent_by_client(again, 2))
    assert send_back(world, again).origins == second.origins
    pass_time(world, HOUR)
    assert len(take(world, RETRY)) == 1


@pytest.mark.parametrize("how", [{"retry_max": 2}, {"is_last": True}])
def test_the_last_one_a_client_sends_is_a_dead_letter(world, broker, how) -> None:
    send(world)
    message = one(world, "t")
    if "retry_max" in how:
        broker.ask(sent_by_client(message, 2, **how))
        pass_time(world, 30_000)
        assert stored(one(world, RETRY)).reconsume_times == 2
    broker.ask(sent_by_client(message, 3, **how))
    dead = one(world, DEAD)
    assert stored(dead).reconsume_times == 3
    assert properties_of(dead)["DLQ_ORIGIN_TOPIC"] == "t"
    assert properties_of(dead)["DLQ_ORIGIN_MESSAGE_ID"] == "a"
    assert "DELAY" not in properties_of(dead)
    pass_time(world, 3 * HOUR)
    assert take(world, RETRY) == []


def test_a_client_of_a_group_that_is_not_there(world, broker) -> None:
    send(world)
    command = replace(sent_by_client(one(world, "t"), 1), group="nobody")
    assert refused(broker, command).code is ErrorCode.GROUP_NOT_FOUND


@pytest.mark.parametrize("policy", ["whenever", "drop 1s", "dead-letter 5m"])
def test_a_late_policy_means_nothing_for_another_attempt(world, policy: str) -> None:
    """Nor does one without room in its name for the dead letters."""
    group = "g" * GROUP_NAME_MAX
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    world.broker.ask(PutGroup(group))
    send(world, user_properties={"HOROLOG_LATE": policy})
    position = stored(one(world, "t", group)).position
    assert not world.broker.ask(SendBack(group, position)).refused
    world.disk.crash(power_cut=True)
    world.clock.advance(HOUR)
    world.broker.open()
    world.broker.settle()
    assert properties_of(one(world, "%RETRY%" + group, group))["HOROLOG_LATE"] == policy
