"""Deleting a topic: refused while messages wait, and nothing of it is seen by one of the same name made later."""

from __future__ import annotations

import orjson
import pytest
from worlds import refused

from horolog.errors import ErrorCode
from horolog.protocol.commands import (
    Ack,
    CreateTopic,
    DeleteTopic,
    DescribeBroker,
    DescribeGroup,
    DescribeTopic,
    FindMessages,
    ListTopics,
    MessageType,
    Recall,
    RecallStatus,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import (
    CommitOffsets,
    FindGroup,
    GetOffsets,
    Pull,
    PullStatus,
    ReadMessage,
)
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.message import encode
from horolog.storage.disk import Disk
from horolog.testing.plain_disk import PlainDisk
from horolog.testing.sim_broker import Answer
from horolog.verify.directory import verify_directory


@pytest.fixture
def broker(any_world):
    for topic in ("t", "other"):
        any_world.broker.ask(CreateTopic(topic, TopicType.MIXED, 2))
    return any_world.broker


def send(*names: str, topic: str = "t", due_ms: int = 0) -> SendMessages:
    kind = MessageType.DELAY if due_ms else MessageType.NORMAL
    messages = [
        encode(topic=topic, body=b"x", message_id=name, due_ms=due_ms, type=kind, keys=["k"])
        for name in names
    ]
    return SendMessages(topic, messages)


def receive(poll_ms: int = 0, *, auto_renew: bool = False) -> Receive:
    return Receive("g", "t", -1, "*", 32, 60_000, auto_renew, poll_ms, "c")


def used(broker) -> tuple[str, int]:
    """Some life in the topic; a handle and a log position of it."""
    broker.ask(send("a", "b", "c"))
    broker.ask(send("x", topic="other"))
    message = broker.ask(receive(auto_renew=True)).messages[0]
    broker.ask(CommitOffsets("reader", "t", {0: 1}))
    broker.ask(CommitOffsets("reader", "other", {0: 0}))
    return message.receipt_handle, layout.decode(message.layout).position


@pytest.mark.parametrize("how", ["online", "log", "checkpoint", "older checkpoint"])
def test_nothing_of_it_is_seen_again(any_world, broker, how: str) -> None:
    handle, position = used(broker)
    if how == "older checkpoint":
        broker.request_checkpoint()
        broker.settle()
    end = broker.ask(DescribeTopic("t")).queue_offsets[0]
    waiting = [Answer(receive(20_000)), Answer(Pull("t", 0, end, 9, 999, "*", 20_000))]
    broker.step(waiting)
    broker.settle()
    assert broker.ask(DeleteTopic("t")) is None
    assert [each.result.code for each in waiting] == [ErrorCode.TOPIC_NOT_FOUND] * 2
    if how == "checkpoint":
        broker.request_checkpoint()
        broker.settle()
    if how != "online":
        any_world.reopen()
    for command in (
        DeleteTopic("t"),
        DescribeTopic("t"),
        send("d"),
        receive(),
        GetOffsets("g", "t"),
    ):
        assert refused(broker, command).code is ErrorCode.TOPIC_NOT_FOUND
    assert refused(broker, ReadMessage(position)).code is ErrorCode.NOT_FOUND
    assert [view.name for view in broker.ask(ListTopics())] == ["other"]
    assert broker.ask(FindGroup("reader")).topics == ["other"]

    broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    assert broker.ask(DescribeTopic("t")).queue_offsets == [0]
    assert broker.ask(FindMessages("t", message_id="a")) == []
    assert broker.ask(FindMessages("t", key="k")) == []
    assert broker.ask(Recall("t", "a", 0)).status is RecallStatus.NOT_FOUND
    assert broker.ask(GetOffsets("reader", "t")) == {}
    assert [view.ack_floor for view in broker.ask(DescribeGroup("g", "t"))] == [0]
    assert broker.ask(Pull("t", 0, 0, 9, 999, "*", 0)).status is PullStatus.NOTHING
    (ack,) = broker.ask(Ack("g", "t", [handle])).refused
    assert ack.code is ErrorCode.INVALID_RECEIPT_HANDLE
    sent = broker.ask(send("a"))
    assert sent.queue_offsets == [0], "not taken for a repeat of the old one"
    (message,) = broker.ask(receive()).messages
    assert (message.queue_offset, message.attempt) == (0, 1)
    any_world.reopen()
    assert broker.ask(DescribeTopic("t")).queue_offsets == [1]
    any_world.clock.advance(120_000)
    broker.settle()


def test_what_waits_is_not_lost(any_world, broker) -> None:
    due = any_world.clock.wall_ms() + 60_000
    broker.ask(send("later", "never", due_ms=due))
    error = refused(broker, DeleteTopic("t"))
    assert (error.code, error.field) == (ErrorCode.FORBIDDEN, "pending")
    assert "wait to be handed over (2)" in error.message
    assert broker.ask(Recall("t", "never", due)).status is RecallStatus.CANCELLED
    any_world.clock.advance(60_000)
    broker.settle()
    assert sum(broker.ask(DescribeTopic("t")).queue_offsets) == 1
    broker.ask(DeleteTopic("t"))
    broker.ask(CreateTopic("t", TopicType.MIXED, 2))
    assert broker.ask(Recall("t", "later", due)).status is RecallStatus.NOT_FOUND
    any_world.reopen()
    assert broker.ask(DescribeBroker()).problems == []


def test_a_deletion_waits_for_what_is_under_way(world) -> None:
    broker = world.broker
    broker.ask(CreateTopic("t", TopicType.MIXED, 2))
    sends = [Answer(send(f"m{i}")) for i in range(3)]
    gone, late = Answer(DeleteTopic("t")), Answer(send("late"))
    broker.step([*sends, gone, late])
    broker.settle()
    assert [len(each.result.origins) for each in (*sends, late)] == [1] * 4, "in the same turn"
    assert gone.result is None
    assert broker.ask(ListTopics()) == []
    world.reopen()
    assert broker.ask(ListTopics()) == []
    due = Answer(send("due", due_ms=world.clock.wall_ms() + 1))
    broker.ask(CreateTopic("t", TopicType.MIXED, 2))
    again = Answer(DeleteTopic("t"))
    broker.step([due, again])
    broker.settle()
    assert again.result.code is ErrorCode.FORBIDDEN


def test_no_turn_follows_the_other_while_messages_cannot_be_filed(world) -> None:
    broker = world.broker
    broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    broker.ask(CreateTopic("other", TopicType.MIXED, 1))
    broker.settle()
    used = world.disk.used_bytes()
    late = Answer(send("late", due_ms=world.clock.wall_ms() + 4_000))
    broker.step([late])
    world.disk.capacity_bytes = used
    broker.settle()
    assert broker.shard.delay.stalled
    broker.request_checkpoint()
    for topic in ("t", "other"):
        gone = Answer(DeleteTopic(topic))
        broker.step([gone])
        broker.settle()
        assert gone.result.code is ErrorCode.DISK_FULL
        assert gone.result.retriable
        assert not broker.core._has_more()
    world.disk.capacity_bytes = None
    world.clock.advance(1_001)
    broker.settle()
    assert broker.ask(DeleteTopic("other")) is None
    assert refused(broker, DeleteTopic("t")).code is ErrorCode.FORBIDDEN


def test_files_go_when_no_checkpoint_needs_them(tmp_path, make_world) -> None:
    world = make_world(root=tmp_path)
    world.broker.open()
    broker = world.broker
    assert isinstance(world.disk, PlainDisk)
    for topic in ("t", "other"):
        broker.ask(CreateTopic(topic, TopicType.MIXED, 1))
    used(broker)

    def checkpoint() -> list[str]:
        broker.ask(send(f"m{broker.shard.log.end}", topic="other"))
        broker.request_checkpoint()
        broker.settle()
        return sorted(path.name for path in (tmp_path / "shard-00" / "queues").iterdir())

    assert checkpoint() == ["00001-00000", "00002-00000"]
    broker.ask(DeleteTopic("t"))
    assert checkpoint() == ["00001-00000", "00002-00000"], "the older checkpoint names it"
    world.reopen()
    checkpoint()
    assert checkpoint() == ["00002-00000"]
    meta = {"format": 1, "log_id": f"{broker.meta.log_id:016x}", "shards": 1}
    meta |= {"clock": "simulated", "segment_bytes": broker.meta.segment_bytes}
    (tmp_path / "meta").write_bytes(orjson.dumps(meta))
    verdict = verify_directory(Disk(tmp_path, read_only=True))
    assert verdict.findings.kept == []
    broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    broker.ask(send("a"))
    assert checkpoint() == ["00002-00000", "00003-00000"]
