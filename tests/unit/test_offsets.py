"""Offsets that groups commit: the same progress as that of leases, durable, forwards and backwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import checkpoint

from horolog.errors import ErrorCode, HorologError
from horolog.log.control_records import decode_offsets
from horolog.log.record import ENVELOPE_BYTES, KIND_AT, Kind
from horolog.protocol.commands import (
    Ack,
    ClientGone,
    CreateTopic,
    DescribeGroup,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import CommitOffsets, GetOffsets
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import Answer


def send(n: int, first: int = 0) -> SendMessages:
    every = range(first, first + n)
    return SendMessages("t", [encode(topic="t", body=b"x", message_id=f"m{i}") for i in every])


def receive(batch: int = 32, poll_ms: int = 0, *, auto_renew: bool = False) -> Receive:
    return Receive("g", "t", 0, "*", batch, 60_000, auto_renew, poll_ms, "c")


def commit(offset: int, queue: int = 0, group: str = "g") -> CommitOffsets:
    return CommitOffsets(group, "t", {queue: offset})


def given(received) -> list[int]:
    return [message.queue_offset for message in received.messages]


@pytest.fixture
def broker(any_world):
    any_world.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    any_world.broker.ask(send(10))
    return any_world.broker


def committed(broker, group: str = "g") -> dict[int, int]:
    return broker.ask(GetOffsets(group, "t"))


def test_offsets_are_kept(any_world, broker) -> None:
    assert committed(broker) == {}
    assert broker.ask(commit(0)) is None
    assert committed(broker) == {0: 0}, "0 is an offset too"
    any_world.reopen()
    assert committed(broker) == {0: 0}
    broker.ask(commit(7))
    broker.ask(commit(3, group="other"))
    any_world.reopen()
    assert (committed(broker), committed(broker, "other")) == ({0: 7}, {0: 3})
    broker.request_checkpoint()
    broker.settle()
    any_world.reopen()
    assert (committed(broker), committed(broker, "other")) == ({0: 7}, {0: 3})
    assert given(broker.ask(receive())) == [7, 8, 9]


def test_what_is_refused_changes_nothing(broker) -> None:
    broker.ask(commit(4))
    for offsets, message in (
        ({0: 11}, "offset: 11; queue 0 of topic 't' takes offsets from 0 to 10"),
        ({0: -1}, "offset: -1; queue 0 of topic 't' takes offsets from 0 to 10"),
        ({0: 5, 1: 0}, "queue: 1; topic 't' has the queues 0 to 0"),
    ):
        with pytest.raises(HorologError, match=message) as refused:
            broker.ask(CommitOffsets("g", "t", offsets))
        assert refused.value.code is ErrorCode.BAD_REQUEST
        assert refused.value.field in ("offset", "queue")
        assert refused.value.limit
    assert committed(broker) == {0: 4}
    for command, code in (
        (CommitOffsets("g", "nope", {0: 0}), ErrorCode.TOPIC_NOT_FOUND),
        (CommitOffsets("g!", "t", {0: 0}), ErrorCode.ILLEGAL_GROUP),
        (GetOffsets("g", "nope"), ErrorCode.TOPIC_NOT_FOUND),
    ):
        with pytest.raises(HorologError) as refused:
            broker.ask(command)
        assert refused.value.code is code


@pytest.mark.parametrize("restart", [False, True])
def test_leases_below_end_and_those_above_go_on(any_world, broker, restart: bool) -> None:
    messages = broker.ask(receive(6)).messages
    broker.ask(Ack("g", "t", [messages[4].receipt_handle]))
    broker.ask(commit(4))
    if restart:
        any_world.reopen()
    (view,) = broker.ask(DescribeGroup("g", "t"))
    assert (view.ack_floor, view.next_offset, view.leased) == (5, 6, 1), "4 was acked before"
    acked = broker.ask(Ack("g", "t", [m.receipt_handle for m in messages])).refused
    assert acked == [None] * 6
    (view,) = broker.ask(DescribeGroup("g", "t"))
    assert (view.ack_floor, view.leased) == (6, 0)


@pytest.mark.parametrize("restart", [False, True])
def test_going_back_gives_messages_out_again(any_world, broker, restart: bool) -> None:
    messages = broker.ask(receive(6)).messages
    broker.ask(Ack("g", "t", [m.receipt_handle for m in (*messages[:3], messages[5])]))
    broker.ask(commit(1))
    if restart:
        any_world.reopen()
    (view,) = broker.ask(DescribeGroup("g", "t"))
    assert (view.ack_floor, view.next_offset, view.leased) == (1, 1, 0)
    again = broker.ask(receive()).messages
    assert [(m.queue_offset, m.attempt) for m in again] == [(i, 1) for i in range(1, 10)]
    (refused,) = broker.ask(Ack("g", "t", [messages[4].receipt_handle])).refused
    assert refused.code is ErrorCode.INVALID_RECEIPT_HANDLE


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("offset", [0, 4, 5, 6, 8, 10])
def test_a_reset_gives_out_what_lies_after_whatever_became_of_it(
    any_world, broker, restart: bool, offset: int
) -> None:
    """Of ten messages 0 to 7 were leased, and 5 and 6 were consumed."""
    messages = broker.ask(receive(8)).messages
    broker.ask(Ack("g", "t", [messages[5].receipt_handle, messages[6].receipt_handle]))
    broker.ask(receive())  # 8 and 9
    waiting = Answer(receive(poll_ms=20_000))
    if not restart:
        broker.step([waiting])
    broker.ask(CommitOffsets("g", "t", {0: offset}, afresh=True))
    assert committed(broker) == {0: offset}
    if restart:
        any_world.reopen()
        broker.step([waiting])
    broker.settle()
    (view,) = broker.ask(DescribeGroup("g", "t"))
    assert (view.ack_floor, view.next_offset) == (offset, 10)
    if offset < 10:
        again = [(m.queue_offset, m.attempt) for m in waiting.result.messages]
        assert again == [(i, 1) for i in range(offset, 10)]
        (refused,) = broker.ask(Ack("g", "t", [messages[7].receipt_handle])).refused
        assert refused is None if offset == 8 else refused.code is ErrorCode.INVALID_RECEIPT_HANDLE


def test_a_waiting_poll_gets_what_is_given_out_again(broker) -> None:
    broker.ask(commit(10))
    waiting = Answer(receive(poll_ms=20_000))
    broker.step([waiting])
    broker.settle()
    assert not waiting.done
    broker.ask(commit(8))
    assert given(waiting.result) == [8, 9]


def test_leases_of_push_consumers_are_not_renewed_when_they_are_gone(any_world, broker) -> None:
    broker.ask(receive(4, auto_renew=True))
    broker.ask(commit(2))
    broker.ask(commit(0))
    assert given(broker.ask(receive(2))) == [0, 1]
    any_world.clock.advance(90_000)
    broker.settle()
    broker.ask(ClientGone("c"))
    assert given(broker.ask(receive())) == list(range(10))


def test_commits_of_a_turn_are_one_record_and_stay_in_order(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 3))
    for i in range(6):
        world.broker.ask(send(3, 3 * i))
    lengths = [queue.length for queue in world.broker.shard.topics.get("t").queues]
    assert sum(lengths) == 18
    assert min(lengths) >= 2
    log = world.broker.shard.log
    commands = [commit(1, queue, group) for queue in range(3) for group in ("a", "b")]
    commands += [commit(2, 0, "a"), receive(1), commit(2, 0), commit(0, 0), commit(2, 0, "a")]
    before = log.end
    world.broker.step([Answer(command) for command in commands])
    world.broker.settle()
    payloads = []
    for _, body in log.intact_frames(before, log.end):
        at = 0
        while at < len(body):
            size = int.from_bytes(body[at : at + 4], "little")
            if body[at + KIND_AT] == Kind.OFFSETS:
                payloads.append(decode_offsets(bytes(body[at + ENVELOPE_BYTES : at + size])))
            at += size
    committed = [(p.group, p.committed.tolist()) for p in payloads]
    assert committed == [
        (1, [(0, 2), (1, 1), (2, 1)]),
        (2, [(0, 1), (1, 1), (2, 1)]),
        (3, [(0, 2)]),
        (3, [(0, 0)]),
    ]
    expected = [world.broker.ask(GetOffsets(group, "t")) for group in ("a", "b", "g")]
    assert expected == [{0: 2, 1: 1, 2: 1}, {0: 1, 1: 1, 2: 1}, {0: 0}]
    (view, *_) = world.broker.ask(DescribeGroup("g", "t"))
    world.reopen()
    assert [world.broker.ask(GetOffsets(group, "t")) for group in ("a", "b", "g")] == expected
    assert world.broker.ask(DescribeGroup("g", "t"))[0] == view


def test_what_changes_nothing_is_not_logged(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    world.broker.ask(send(3))
    world.broker.ask(commit(2))
    before = world.broker.shard.log.end
    world.broker.step([Answer(commit(2))])
    assert world.broker.shard.log.end == before


@pytest.mark.parametrize("dropped", [False, True])
def test_where_a_new_group_begins_that_wants_what_is_new(make_world, dropped) -> None:
    """At the end, unless the queue still has its first message; and it is there after a start."""
    world = make_world()
    world.broker.settings = world.broker.settings._replace(retention_ms=1_000, retention_bytes=1)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    send = SendMessages("t", [encode(topic="t", body=bytes(9_000), message_id="a")])
    for _ in range(20 if dropped else 1):
        world.broker.ask(send)
        world.clock.advance(300_000)
        checkpoint(world)
    queue = world.broker.shard.topics.by_name["t"].queues[0]
    assert (queue.first > 0) is dropped
    length = queue.length
    new = Receive("new", "t", -1, "*", 32, 60_000, False, 0, "c", from_end=True)
    assert len(world.broker.ask(new).messages) == (0 if dropped else 1)
    world.reopen()
    group = world.broker.shard.ready.groups.ids["new"]
    found = world.broker.shard.ready.progress_if_any(group, 1, 0)
    assert found is not None
    assert found.next == length
    world.broker.ask(send)
    world.clock.advance(300_000)
    assert len(world.broker.ask(new).messages) == (1 if dropped else 2)


@pytest.mark.parametrize(
    "bad", [{"queue_id": 7}, {"filter_expression": "a >", "is_sql": True}], ids=["queue", "filter"]
)
def test_p11_a_refused_receive_does_not_begin_a_group(world, bad) -> None:
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    before = world.broker.shard.log.end
    new = Receive("new", "t", -1, "*", 32, 60_000, False, 0, "c", from_end=True)
    with pytest.raises(HorologError):
        world.broker.ask(replace(new, **bad))
    assert "new" not in world.broker.shard.ready.groups.ids
    assert world.broker.shard.log.end == before
