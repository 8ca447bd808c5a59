"""Consumer groups in order: of each message group one stretch at a time, whatever fails, ends or restarts."""

from __future__ import annotations

import pytest
from turns import Turns
from work import bytecodes
from worlds import checkpoint

from horolog.broker.broker import Input
from horolog.errors import ErrorCode
from horolog.limits import ORDER_HELD_MAX
from horolog.protocol.commands import (
    Ack,
    CancelReceive,
    ChangeInvisible,
    ClientGone,
    CreateTopic,
    Delivered,
    MessageType,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import CommitOffsets, GroupSettings, PutGroup
from horolog.protocol.retry_commands import ForwardToDeadLetters
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import Answer

MINUTE = 60_000


@pytest.fixture
def broker(world):
    world.broker.ask(CreateTopic("t", TopicType.FIFO, 1))
    world.broker.ask(PutGroup("g", GroupSettings(orderly=True, retry_max=2)))
    return world.broker


def send(world, names: str, topic: str = "t", **more) -> None:
    """Messages "a1 b1 a2": of the message groups a, b and a."""
    made = [
        encode(
            topic=topic,
            body=b"b",
            message_id=name,
            type=MessageType.FIFO if name[0] != "-" else MessageType.NORMAL,
            message_group=name[0] if name[0] != "-" else None,
            **more,
        )
        for name in names.split()
    ]
    assert not world.broker.ask(SendMessages(topic, made)).refused


def receive(limit: int = 32, **more) -> Receive:
    fields = {"filter_expression": "*", "auto_renew": False, "poll_ms": 0, "client_id": "c"} | more
    fields = {"group": "g", "topic": "t", "queue_id": -1, "invisible_ms": MINUTE} | fields
    return Receive(batch=limit, gives_up=True, **fields)


def take(world, limit: int = 32, **more) -> dict[str, Delivered]:
    """What a receive gets, by message id."""
    return {name_of(each): each for each in world.broker.ask(receive(limit, **more)).messages}


def name_of(delivered: Delivered) -> str:
    return properties.value_of(layout.decode(delivered.layout).properties, "UNIQ_KEY") or ""


def names(found: dict[str, Delivered]) -> str:
    return " ".join(found)


def ack(world, *delivered: Delivered, topic: str = "t") -> None:
    handles = [each.receipt_handle for each in delivered]
    assert world.broker.ask(Ack("g", topic, handles)).refused == [None] * len(handles)


def change(world, delivered: Delivered, invisible_ms: int) -> None:
    world.broker.ask(ChangeInvisible("g", "t", delivered.receipt_handle, invisible_ms))


def put(world, command) -> Answer:
    """A command that may have to wait."""
    answer = Answer(command)
    world.broker.step([answer])
    return answer


def after(world, ms: int) -> None:
    world.clock.advance(ms)
    world.broker.settle()


def test_a_blocked_group_blocks_only_itself(world, broker) -> None:
    send(world, "a1 b1 a2 c1 a3 b2")
    first = take(world, 2)
    assert names(first) == "a1 b1"
    rest = take(world)
    assert names(rest) == "c1", "a and b are blocked"
    assert not take(world)
    send(world, "a4 d1")
    assert names(take(world)) == "d1"
    ack(world, first["a1"])
    assert names(take(world)) == "a2 a3 a4", "a goes on, b does not"
    ack(world, first["b1"], rest["c1"])
    assert names(take(world)) == "b2"


def test_a_batch_of_one_group_is_leased_together_in_order(world, broker) -> None:
    send(world, "a1 a2 a3 a4")
    found = take(world, 3)
    assert names(found) == "a1 a2 a3"
    ack(world, found["a2"])
    assert not take(world), "a1 and a3 are not done"
    ack(world, found["a1"])
    assert not take(world)
    ack(world, found["a3"])
    assert names(take(world)) == "a4"


def test_a_lease_that_ends_brings_the_whole_rest_of_its_group_again_in_order(world, broker) -> None:
    send(world, "a1 a2 a3 b1 a4")
    found = take(world, 3)
    ack(world, found["a1"])
    after(world, MINUTE)
    assert names(take(world)) == "a2 a3 b1 a4"


def test_what_waits_for_its_retry_blocks_its_group(world, broker) -> None:
    send(world, "a1 a2 a3 b1")
    found = take(world, 2)
    change(world, found["a1"], 5_000)
    assert names(take(world)) == "b1"
    after(world, 4_999)
    assert not take(world)
    after(world, 1)
    again = take(world, 1)
    assert names(again) == "a1"
    assert again["a1"].attempt == 2
    (refused,) = world.broker.ask(Ack("g", "t", [found["a2"].receipt_handle])).refused
    assert refused.code is ErrorCode.INVALID_RECEIPT_HANDLE, "a2 was taken back: it comes after a1"
    assert not take(world)
    ack(world, again["a1"])
    rest = take(world)
    assert names(rest) == "a2 a3"
    assert [each.attempt for each in rest.values()] == [2, 1]


def test_only_the_first_message_of_a_group_has_tried(world, broker) -> None:
    send(world, "a1 a2 a3")
    for attempt in (1, 2, 3):
        found = take(world)
        assert [each.attempt for each in found.values()] == [attempt, 1, 1]
        after(world, MINUTE)
    found = take(world)
    assert names(found) == "a2 a3", "a1 is a dead letter, and takes nobody with it"
    assert [each.attempt for each in found.values()] == [1, 1]
    assert names(take(world, topic="%DLQ%g", group="clerks")) == "a1"


def test_a_message_that_is_given_up_lets_its_group_go_on(world, broker) -> None:
    send(world, "a1 a2 a3")
    found = take(world, 2)
    for name in ("a1", "a2"):
        assert not take(world)
        handle = found[name].receipt_handle
        world.broker.ask(ForwardToDeadLetters("g", "t", handle))
    assert names(take(world)) == "a3"
    assert names(take(world, topic="%DLQ%g", group="clerks")) == "a1 a2"


def test_messages_without_a_group_are_one_group(world, broker) -> None:
    """As RocketMQ has it: without a message group a queue is in order as a whole."""
    world.broker.ask(CreateTopic("mixed", TopicType.MIXED, 1))
    send(world, "-1 a1 -2 -3", "mixed")
    found = take(world, 1, topic="mixed")
    assert names(found) == "-1"
    assert names(take(world, topic="mixed")) == "a1"
    ack(world, found["-1"], topic="mixed")
    assert names(take(world, topic="mixed")) == "-2 -3"


def test_a_group_that_is_not_in_order_takes_everything(world, broker) -> None:
    send(world, "a1 a2 a3")
    world.broker.ask(PutGroup("free", GroupSettings()))
    assert names(take(world, 1, group="free")) == "a1"
    assert names(take(world, group="free")) == "a2 a3"
    assert names(take(world, 1, group="free2", in_order=True)) == "a1"
    assert not take(world, group="free2", in_order=True), "in order because the receive says so"


def test_a_group_becomes_orderly_and_free_again_as_it_goes(world, broker) -> None:
    send(world, "a1 b1 a2 a3 b2")
    world.broker.ask(PutGroup("g", GroupSettings(orderly=False)))
    first = take(world, 1)
    second = take(world, 1)
    assert names(first | second) == "a1 b1"
    world.broker.ask(PutGroup("g", GroupSettings(orderly=True)))
    assert not take(world)
    ack(world, second["b1"])
    assert names(take(world)) == "b2"
    world.broker.ask(PutGroup("g", GroupSettings(orderly=False)))
    assert names(take(world)) == "a2 a3"
    world.broker.check_invariants(rows=True)


def test_a_poll_is_woken_when_its_group_goes_on(world, broker) -> None:
    send(world, "a1 a2 a3")
    found = take(world, 1)
    waiting = put(world, receive(1, poll_ms=20_000))
    after(world, 1_000)
    assert not waiting.done
    ack(world, found["a1"])
    world.broker.settle()
    (second,) = waiting.result.messages
    assert name_of(second) == "a2"
    waiting = put(world, receive(1, poll_ms=20_000))
    world.broker.settle()
    world.broker.ask(ForwardToDeadLetters("g", "t", second.receipt_handle))
    world.broker.settle()
    (third,) = waiting.result.messages
    assert name_of(third) == "a3"


def test_tags_are_taken_in_order_and_the_rest_is_passed_over(world, broker) -> None:
    made = [
        encode(
            topic="t",
            body=b"b",
            message_id=name,
            type=MessageType.FIFO,
            message_group=name[0],
            tag=name[-1],
        )
        for name in ["a1x", "a2y", "b1y", "a3x", "b2x", "b3y"]
    ]
    world.broker.ask(SendMessages("t", made))
    found = take(world, 1, filter_expression="x")
    assert names(found) == "a1x"
    other = take(world, filter_expression="x")
    assert names(other) == "b2x"
    ack(world, found["a1x"], other["b2x"])
    last = take(world, filter_expression="x")
    assert names(last) == "a3x"
    ack(world, *last.values())
    assert not take(world, filter_expression="x")
    progress = world.broker.shard.ready.progress_of(*place(world))
    assert progress.floor == progress.next == 6, "all of it is consumed"


def place(world) -> tuple[int, int, int]:
    shard = world.broker.shard
    return shard.ready.groups.ids["g"], shard.topics.by_name["t"].id, 0


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_leases_block_after_a_restart_until_their_time_is_over(
    world, broker, with_checkpoint
) -> None:
    send(world, "a1 a2 b1 a3")
    found = take(world, 2)
    assert names(found) == "a1 a2"
    if with_checkpoint:
        checkpoint(world)
    world.reopen()
    assert names(take(world)) == "b1"
    world.reopen()
    assert not take(world)
    ack(world, found["a1"])
    world.reopen()
    assert not take(world), "a2 is not done"
    after(world, MINUTE)
    assert names(take(world)) == "a2 b1 a3"


def test_what_was_taken_back_is_taken_back_after_a_restart(world, broker) -> None:
    send(world, "a1 a2 a3")
    found = take(world, 3)
    change(world, found["a1"], 1_000)
    after(world, 1_000)
    again = take(world, 1)
    assert names(again) == "a1"
    world.reopen()
    (refused,) = world.broker.ask(Ack("g", "t", [found["a2"].receipt_handle])).refused
    assert refused.code is ErrorCode.INVALID_RECEIPT_HANDLE
    assert not take(world)
    ack(world, again["a1"])
    assert names(take(world)) == "a2 a3"


def test_the_leases_of_a_client_that_leaves_come_again_in_order(world, broker) -> None:
    send(world, "a1 a2 b1 a3")
    take(world, 3, auto_renew=True)
    world.broker.ask(ClientGone("c"))
    assert not take(world, client_id="d")
    after(world, 1_000)
    assert names(take(world, client_id="d", auto_renew=True)) == "a1 a2 b1 a3"
    after(world, 5 * MINUTE)
    world.broker.check_invariants(rows=True)


# --- receives that come again ---------------------------------------------------------------------


def test_a_receive_that_comes_again_gets_what_it_was_given(world, broker) -> None:
    send(world, "a1 a2 b1 a3 b2")
    lost = take(world, 3, attempt_id="one")
    assert names(lost) == "a1 a2 b1"
    assert not take(world, attempt_id="other")
    assert not take(world, attempt_id="one", client_id="another"), "it is another client's"
    again = take(world, 3, attempt_id="one")
    assert names(again) == "a1 a2 b1"
    assert [each.attempt for each in again.values()] == [1, 1, 1], "no further attempt"
    (refused,) = world.broker.ask(Ack("g", "t", [lost["a1"].receipt_handle])).refused
    assert refused.code is ErrorCode.INVALID_RECEIPT_HANDLE
    ack(world, *again.values())
    assert names(take(world, attempt_id="one")) == "a3 b2", "all was done: there is only more"


def test_a_receive_that_comes_again_after_a_renewal_gets_what_it_was_given(world, broker) -> None:
    """Or a lost answer would block its message groups for as long as its client lives."""
    send(world, "a1 a2")
    lost = take(world, 1, attempt_id="one", auto_renew=True)
    after(world, 6_000)
    again = take(world, 1, attempt_id="one", auto_renew=True)
    assert names(lost) == names(again) == "a1"
    assert again["a1"].attempt == 1, "no further attempt"
    ack(world, again["a1"])
    assert names(take(world, 1, attempt_id="two", auto_renew=True)) == "a2"


def test_a_receive_that_comes_again_for_less_leaves_the_rest_to_others(world, broker) -> None:
    send(world, "a1 a2 b1 b2")
    take(world, attempt_id="one")
    again = take(world, 1, attempt_id="one")
    assert names(again) == "a1"
    assert names(take(world)) == "b1 b2"
    assert not take(world)
    world.reopen()
    ack(world, again["a1"])
    assert names(take(world)) == "a2"


def test_a_receive_that_comes_again_has_the_rest_of_what_it_was_given(world, broker) -> None:
    send(world, "a1 a2 a3")
    found = take(world, 2, attempt_id="one")
    ack(world, found["a1"])
    assert names(take(world, 2, attempt_id="one")) == "a2 a3"


def test_a_receive_without_an_attempt_id_never_comes_again(world, broker) -> None:
    send(world, "a1 a2")
    take(world, 1)
    assert not take(world, 1)


def test_leases_in_order_are_waited_for(world, broker) -> None:
    """A grant that a crash loses would let another client have what one works on."""
    send(world, "a1 a2")
    world.broker.ask(PutGroup("free", GroupSettings()))
    core, log = world.broker.core, world.broker.shard.log
    for group, waits in (("g", True), ("free", False)):
        effects = core.step(
            [Input("token", receive(1, group=group))],
            wall_ms=world.clock.wall_ms(),
            mono_ms=world.clock.monotonic_ms(),
            commit=log.end,
            durable=log.end,
        )
        (reply,) = effects.replies if waits else effects.prompt
        assert len(reply.result.messages) == 1
        world.broker.writer.write(effects.writes)


# --- bounds -----------------------------------------------------------------------------------------


def test_a_turn_does_no_work_for_what_is_blocked(world, broker) -> None:
    """Whatever waits in a blocked group: it is looked at once, and so much of it at most."""
    send(world, "a1")
    found = take(world)
    for _ in range(20):
        send_many(world, 500)
    assert not take(world)
    for _ in range(100):
        assert not take(world)
    progress = world.broker.shard.ready.progress_of(*place(world))
    assert progress.order is not None
    assert len(progress.order.held) == ORDER_HELD_MAX
    turns = Turns(world)
    few = bytecodes(lambda: turns.turn(receive()))
    assert few < 10_000, few
    world.broker.check_invariants(rows=True)
    send(world, "b1")
    assert not take(world), "after so many of a, the queue waits"
    ack(world, *found.values())
    got = 0
    while found := take(world):
        assert all(name == "b1" or name.startswith("x") for name in found)
        got += len(found)
        ack(world, *found.values())
    assert got == 10_001


def send_many(world, count: int) -> None:
    start = world.broker.shard.topics.by_name["t"].tails[0]
    made = [
        encode(
            topic="t",
            body=b"b",
            message_id=f"x{start + n}",
            type=MessageType.FIFO,
            message_group="a",
        )
        for n in range(count)
    ]
    assert not world.broker.ask(SendMessages("t", made)).refused


def test_offsets_that_are_set_start_again(world, broker) -> None:
    send(world, "a1 a2 b1 a3")
    take(world, 2)
    world.broker.ask(CommitOffsets("g", "t", {0: 1}))
    assert names(take(world, 1)) == "b1"
    world.broker.ask(CommitOffsets("g", "t", {0: 0}))
    assert names(take(world)) == "a1 a2 b1 a3"
    world.broker.check_invariants(rows=True)


def test_a_poll_that_is_cancelled_leaves_nothing(world, broker) -> None:
    waiting = put(world, receive(poll_ms=20_000))
    world.broker.settle()
    world.broker.ask(CancelReceive(waiting))
    send(world, "a1")
    assert names(take(world)) == "a1"


def test_acks_of_grants_that_were_lost_are_taken(make_world) -> None:
    """Without a sync the record of a grant may be lost with its process, and its handle is the proof."""
    world = make_world(flush="os")
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.FIFO, 1))
    world.broker.ask(PutGroup("g", GroupSettings(orderly=True)))
    send(world, "a1 b1 a2 b2")
    checkpoint(world)
    found = take(world, 2)
    world.reopen(power_cut=True)
    progress = world.broker.shard.ready.progress_of(*place(world))
    assert not progress.leases
    progress.put_in_order(in_order=True)
    ack(world, found["a1"], found["b1"])
    assert names(take(world)) == "a2 b2"
    world.broker.check_invariants(rows=True)
