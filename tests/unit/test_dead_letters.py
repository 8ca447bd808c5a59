"""What 5.x consumers fail on is leased again, and is a dead letter when they, or the group, give it up; once."""

from __future__ import annotations

import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    Ack,
    ChangeInvisible,
    CreateTopic,
    DeleteTopic,
    Delivered,
    MessageType,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import (
    CommitOffsets,
    DeleteGroup,
    GroupSettings,
    PutGroup,
)
from horolog.protocol.retry_commands import ForwardToDeadLetters
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import Answer, properties_of

DEAD = "%DLQ%g"
LEASE_MS = 10_000


@pytest.fixture
def broker(world):
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 2))
    world.broker.ask(PutGroup("g", GroupSettings(retry_max=2)))
    return world.broker


def send(world, *ids: str, **user: str) -> None:
    made = [
        encode(topic="t", body=b"x", message_id=each, tag="T", user_properties=user) for each in ids
    ]
    world.broker.ask(SendMessages("t", made))


def receive(world, *, topic: str = "t", gives_up: bool = True, batch: int = 32) -> list[Delivered]:
    command = Receive("g", topic, -1, "*", batch, LEASE_MS, False, 0, "c", gives_up=gives_up)
    return world.broker.ask(command).messages


def ids(messages: list[Delivered]) -> list[str]:
    return sorted(properties_of(each)[properties.UNIQ_KEY] for each in messages)


def fail(world, times: int) -> None:
    for _ in range(times):
        assert receive(world)
        world.clock.advance(LEASE_MS)


def dead(world) -> list[Delivered]:
    if DEAD not in world.broker.shard.topics.by_name:
        return []
    return receive(world, topic=DEAD, gives_up=False)


def test_a_message_is_given_out_once_whatever_its_group_allows(world, broker) -> None:
    broker.ask(PutGroup("g", GroupSettings(retry_max=-1)))
    send(world, "a")
    fail(world, 1)
    assert receive(world) == []
    (letter,) = dead(world)
    assert ids([letter]) == ["a"]


def test_what_was_leased_as_often_as_the_group_allows_is_a_dead_letter(world, broker) -> None:
    send(world, "a", "b")
    for attempt in (1, 2, 3):
        got = receive(world)
        assert [each.attempt for each in got] == [attempt] * 2
        world.broker.ask(Ack("g", "t", [m.receipt_handle for m in got if ids([m]) == ["b"]]))
        world.clock.advance(LEASE_MS)
        if attempt == 1:
            send(world, "b")  # repeats: nothing new
            assert ids(receive(world)) == ["a"]
            world.clock.advance(LEASE_MS)
            break
    assert ids(receive(world)) == ["a"]
    world.clock.advance(LEASE_MS)
    assert receive(world) == []
    (letter,) = dead(world)
    assert ids([letter]) == ["a"]
    assert layout.decode(letter.layout).reconsume_times == 3
    assert properties_of(letter)[properties.DLQ_ORIGIN_TOPIC] == "t"
    assert properties_of(letter)[properties.TAGS] == "T"


def test_others_are_received_in_the_same_request(world, broker) -> None:
    send(world, "a")
    fail(world, 3)
    send(world, "fresh")
    assert ids(receive(world, batch=1)) == ["fresh"]
    assert ids(dead(world)) == ["a"]


def test_a_poll_that_waits_does_not_get_it(world, broker) -> None:
    send(world, "a")
    fail(world, 2)
    receive(world)
    poll = Answer(Receive("g", "t", -1, "*", 1, LEASE_MS, False, 15_000, "c", gives_up=True))
    broker.step([poll])
    world.clock.advance(LEASE_MS)
    broker.settle()
    assert not poll.done
    world.clock.advance(6_000)
    broker.settle()
    assert poll.result.messages == []
    assert ids(dead(world)) == ["a"]


def test_consumers_that_do_not_ask_for_it_go_on(world, broker) -> None:
    send(world, "a")
    for attempt in range(1, 9):
        (message,) = receive(world, gives_up=False)
        assert message.attempt == attempt
        world.clock.advance(LEASE_MS)
    assert dead(world) == []


def test_a_consumer_gives_a_message_up(world, broker) -> None:
    send(world, "a", "b")
    messages = {properties_of(each)[properties.UNIQ_KEY]: each for each in receive(world)}
    command = ForwardToDeadLetters("g", "t", messages["a"].receipt_handle)
    assert len(broker.ask(command).origins) == 1
    assert broker.ask(command).origins == [], "it is consumed: the answer was lost"
    world.clock.advance(LEASE_MS)
    assert ids(receive(world)) == ["b"]
    (letter,) = dead(world)
    assert (ids([letter]), layout.decode(letter.layout).reconsume_times) == (["a"], 1)
    world.reopen()
    world.clock.advance(LEASE_MS)
    assert (ids(receive(world)), ids(dead(world))) == (["b"], ["a"])


def test_only_the_holder_of_a_lease_gives_up(world, broker) -> None:
    send(world, "a")
    (message,) = receive(world)
    void = message.receipt_handle
    changed = broker.ask(ChangeInvisible("g", "t", void, 20_000)).receipt_handle
    for handle in ("", "nonsense", void):
        with pytest.raises(HorologError) as refused:
            broker.ask(ForwardToDeadLetters("g", "t", handle))
        assert refused.value.code is ErrorCode.INVALID_RECEIPT_HANDLE
    world.clock.advance(20_000)
    with pytest.raises(HorologError, match="expired"):
        broker.ask(ForwardToDeadLetters("g", "t", changed))
    assert dead(world) == []


def test_a_message_that_is_given_up_again_after_a_crash_is_one_dead_letter(world, broker) -> None:
    """The copy was stored, and that the message is consumed was not."""
    send(world, "a")
    (message,) = receive(world)
    broker.ask(ForwardToDeadLetters("g", "t", message.receipt_handle))
    progress = broker.shard.ready.progress_of(
        broker.shard.ready.groups.ids["g"],
        broker.shard.topics.by_name["t"].id,
        message.queue_id,
    )
    progress.commit(0)  # as if the log did not say it
    (again,) = receive(world)
    broker.ask(ForwardToDeadLetters("g", "t", again.receipt_handle))
    assert ids(dead(world)) == ["a"]


def test_a_disk_that_is_full_keeps_the_message_where_it_is(world, broker) -> None:
    send(world, "a")
    fail(world, 3)
    world.disk.capacity_bytes = world.disk.used_bytes() + 2_000
    world.clock.advance(60_000)
    (message,) = receive(world)
    assert message.attempt == 4
    with pytest.raises(HorologError) as refused:
        broker.ask(ForwardToDeadLetters("g", "t", message.receipt_handle))
    assert refused.value.code is ErrorCode.DISK_FULL
    world.disk.capacity_bytes = None
    world.clock.advance(60_000)
    assert receive(world) == []
    assert ids(dead(world)) == ["a"]


@pytest.mark.parametrize("type", list(TopicType))
def test_a_dead_letter_is_stored_whatever_the_type_of_its_topic(world, broker, type) -> None:
    broker.ask(CreateTopic(DEAD, type, 1))
    send(world, "a", "b")
    messages = {properties_of(each)[properties.UNIQ_KEY]: each for each in receive(world)}
    broker.ask(ForwardToDeadLetters("g", "t", messages["a"].receipt_handle))
    world.clock.advance(LEASE_MS)
    fail(world, 2)
    assert receive(world) == []
    assert ids(dead(world)) == ["a", "b"]


def test_a_dead_letter_is_stored_although_its_late_policy_cannot_be_read(world, broker) -> None:
    """Nobody has checked it: the message was never scheduled.  Another one is, in the same turn."""
    send(world, "a", HOROLOG_LATE="whenever")
    (message,) = receive(world)
    due_ms = world.clock.wall_ms() + 60_000
    later = encode(topic="t", body=b"x", message_id="b", type=MessageType.DELAY, due_ms=due_ms)
    give_up = ForwardToDeadLetters("g", "t", message.receipt_handle)
    broker.step([Answer(SendMessages("t", [later])), Answer(give_up)])
    broker.settle()
    assert ids(dead(world)) == ["a"]


@pytest.mark.parametrize(
    "command",
    [DeleteTopic("t"), DeleteGroup("g"), CommitOffsets("g", "t", {0: 0, 1: 0}, afresh=True)],
    ids=lambda command: type(command).__name__,
)
def test_its_progress_ends_or_goes_back_in_the_same_turn(world, broker, command) -> None:
    send(world, *"abcd")
    handles = [message.receipt_handle for message in receive(world)]
    answers = [Answer(ForwardToDeadLetters("g", "t", handle)) for handle in handles[:3]]
    broker.step([*answers, Answer(command), Answer(PutGroup("g", GroupSettings()))])
    broker.settle()
    before = progress(broker)
    world.reopen()
    assert progress(broker) == before
    assert len(dead(world)) == 3


def progress(broker) -> dict[object, object]:
    """What each group has consumed of each queue, and what it holds."""
    return {
        (place, queue): (each.floor, each.next, list(each.acked.runs()), sorted(each.leases))
        for place, queues in broker.shard.ready.progress.items()
        for queue, each in queues.items()
    }
