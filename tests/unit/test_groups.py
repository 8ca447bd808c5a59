"""Consumer groups: made before they consume, with settings, listed, and deleted for good."""

from __future__ import annotations

import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.limits import GROUP_ATTRIBUTES_MAX, TURN_GROUPS_MAX
from horolog.protocol.commands import (
    Ack,
    CreateTopic,
    DeleteTopic,
    DescribeBroker,
    DescribeGroup,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import (
    CommitOffsets,
    DeleteGroup,
    FindGroup,
    GetOffsets,
    GroupSettings,
    GroupView,
    ListGroups,
    Pull,
    PutGroup,
)
from horolog.protocol.rocketmq.message import encode
from horolog.ready.pop_receipt import serial_of
from horolog.testing.sim_broker import Answer

ORDERLY = GroupSettings(orderly=True, retry_max=3, attributes={"brokerId": 0, "whatever": [1, "x"]})


@pytest.fixture
def broker(any_world):
    for topic in ("t", "u"):
        any_world.broker.ask(CreateTopic(topic, TopicType.NORMAL, 1))
        messages = [encode(topic=topic, body=b"x", message_id=f"{topic}{i}") for i in range(3)]
        any_world.broker.ask(SendMessages(topic, messages))
    return any_world.broker


def receive(group: str, topic: str = "t", poll_ms: int = 0, *, auto_renew: bool = False) -> Receive:
    return Receive(group, topic, 0, "*", 2, 60_000, auto_renew, poll_ms, "c")


def test_a_group_exists_before_it_consumes(any_world, broker) -> None:
    assert broker.ask(PutGroup("g")) == GroupView("g", GroupSettings(), [])
    assert broker.ask(PutGroup("g")) == GroupView("g", GroupSettings(), [])
    assert broker.ask(GetOffsets("g", "t")) == {}
    any_world.reopen()
    assert broker.ask(FindGroup("g")) == GroupView("g", GroupSettings(), [])
    assert [view.ack_floor for view in broker.ask(DescribeGroup("g", "t"))] == [0]
    broker.ask(CommitOffsets("g", "u", {0: 2}))
    broker.ask(receive("g"))
    assert broker.ask(FindGroup("g")).topics == ["t", "u"]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_settings_are_kept(any_world, broker, checkpoint: bool) -> None:
    assert broker.ask(PutGroup("g", ORDERLY)) == GroupView("g", ORDERLY, [])
    broker.ask(PutGroup("h"))
    before = broker.shard.log.end
    assert broker.ask(PutGroup("g")).settings == ORDERLY, "None: as they are"
    broker.ask(PutGroup("g", ORDERLY))
    assert broker.shard.log.end == before, "no change"
    if checkpoint:
        broker.request_checkpoint()
        broker.settle()
    any_world.reopen()
    assert [view.settings for view in broker.ask(ListGroups())] == [ORDERLY, GroupSettings()]
    assert broker.ask(PutGroup("g", GroupSettings())).settings == GroupSettings()
    any_world.reopen()
    assert broker.ask(FindGroup("g")).settings == GroupSettings()


def test_settings_that_nobody_can_keep_to(broker) -> None:
    huge = {"x": "y" * GROUP_ATTRIBUTES_MAX}
    for settings, field in (
        (GroupSettings(retry_queues=-1), "retry_queues"),
        (GroupSettings(retry_queues=1_025), "retry_queues"),
        (GroupSettings(retry_max=-2), "retry_max"),
        (GroupSettings(attributes=huge), "attributes"),
        (GroupSettings(attributes={"x": object()}), "attributes"),
    ):
        with pytest.raises(HorologError) as refused:
            broker.ask(PutGroup("new", settings))
        assert (refused.value.code, refused.value.field) == (ErrorCode.BAD_REQUEST, field)
    assert broker.ask(ListGroups()) == []
    with pytest.raises(HorologError) as refused:
        broker.ask(PutGroup("g g"))
    assert refused.value.code is ErrorCode.ILLEGAL_GROUP


def test_a_group_that_may_not_consume(broker) -> None:
    broker.ask(PutGroup("g", GroupSettings(consume_enable=False)))
    for command in (receive("g"), Pull("t", 0, 0, 1, 1_000, "*", 0, group="g")):
        with pytest.raises(HorologError, match="'g' may not consume") as refused:
            broker.ask(command)
        assert refused.value.code is ErrorCode.FORBIDDEN
    broker.ask(PutGroup("g", GroupSettings()))
    assert len(broker.ask(receive("g")).messages) == 2
    pulled = broker.ask(Pull("t", 0, 0, 1, 1_000, "*", 0, group="nobody"))
    assert len(pulled.layouts) == 1, "what does not exist has no settings"


def test_whoever_waits_for_a_group_hears_that_it_may_not_consume(broker) -> None:
    broker.ask(PutGroup("g"))
    broker.ask(CommitOffsets("g", "t", {0: 3}))
    waiting = [Answer(receive("g", "t", 20_000))]
    waiting += [Answer(Pull("t", 0, 3, 1, 1_000, "*", 20_000, group=name)) for name in ("g", "")]
    broker.step(waiting)
    broker.settle()
    assert not any(answer.done for answer in waiting)
    broker.ask(PutGroup("g", GroupSettings(consume_enable=False)))
    assert [each.result.code for each in waiting[:2]] == [ErrorCode.FORBIDDEN] * 2
    broker.ask(SendMessages("t", [encode(topic="t", body=b"x", message_id="late")]))
    broker.settle()
    assert waiting[2].done, "of no group"
    broker.ask(PutGroup("g", GroupSettings()))
    assert len(broker.ask(receive("g")).messages) == 1


def test_a_pull_of_a_deleted_group_waits_no_more(broker) -> None:
    broker.ask(PutGroup("g"))
    waiting = Answer(Pull("t", 0, 3, 1, 1_000, "*", 20_000, group="g"))
    broker.step([waiting])
    broker.settle()
    broker.ask(DeleteGroup("g"))
    assert waiting.result.code is ErrorCode.GROUP_NOT_FOUND


def test_groups_are_listed_in_pages(world) -> None:
    names = [f"g{i:05d}" for i in range(TURN_GROUPS_MAX + 5)]
    answers = [Answer(PutGroup(name)) for name in reversed(names)]
    world.broker.step(answers)
    world.broker.settle()
    first = world.broker.ask(ListGroups())
    rest = world.broker.ask(ListGroups(first[-1].name))
    assert [view.name for view in (*first, *rest)] == names
    assert len(rest) == 5


@pytest.mark.parametrize("how", ["online", "log", "checkpoint"])
def test_a_deleted_group_leaves_nothing_behind(any_world, broker, how: str) -> None:
    broker.ask(PutGroup("stays"))
    old = broker.ask(receive("g", auto_renew=True)).messages[0].receipt_handle
    broker.ask(CommitOffsets("g", "u", {0: 3}))
    broker.ask(PutGroup("g", ORDERLY))
    waiting = Answer(receive("g", "u", 20_000))
    broker.step([waiting])
    broker.settle()
    assert not waiting.done
    assert broker.ask(DeleteGroup("g")) is None
    assert waiting.result.messages == []
    if how == "checkpoint":
        broker.request_checkpoint()
        broker.settle()
    if how != "online":
        any_world.reopen()
    assert [view.name for view in broker.ask(ListGroups())] == ["stays"]
    assert broker.ask(DescribeBroker()).groups == 1
    for command in (DescribeGroup("g", "t"), FindGroup("g"), DeleteGroup("g")):
        with pytest.raises(HorologError) as refused:
            broker.ask(command)
        assert refused.value.code is ErrorCode.GROUP_NOT_FOUND
    broker.ask(PutGroup("g"))
    assert broker.ask(FindGroup("g")) == GroupView("g", GroupSettings(), [])
    assert broker.ask(GetOffsets("g", "u")) == {}
    (refused,) = broker.ask(Ack("g", "t", [old])).refused
    assert refused.code is ErrorCode.INVALID_RECEIPT_HANDLE, "a number is never given again"
    assert [m.queue_offset for m in broker.ask(receive("g")).messages] == [0, 1]
    any_world.clock.advance(120_000)
    broker.settle()


def test_a_group_that_has_received_nothing_leaves_nothing_behind(broker) -> None:
    broker.ask(CreateTopic("empty", TopicType.NORMAL, 2))
    for group in ("g", "h"):
        assert broker.ask(Receive(group, "empty", -1, "*", 2, 60_000, False, 0, "c")).messages == []
    broker.ask(DeleteGroup("g"))
    assert len(broker.shard.ready._next_queue) == 1
    broker.ask(DeleteTopic("empty"))
    assert not broker.shard.ready._next_queue


@pytest.mark.parametrize(
    ("granted_ms", "epochs_ago", "why"),
    [(1, 0, "expired"), (1 << 50, 0, "unknown"), (1 << 50, 9, "another one may have its place")],
)
def test_a_refused_handle_begins_no_progress(broker, granted_ms, epochs_ago, why: str) -> None:
    broker.ask(PutGroup("g"))
    serial = serial_of(broker.shard.ready.epoch - epochs_ago, 1)
    handle = f"0 {granted_ms} 60000 {serial} 0 broker-a 0 0"
    (refused,) = broker.ask(Ack("g", "t", [handle])).refused
    assert refused.code is ErrorCode.INVALID_RECEIPT_HANDLE
    assert why in refused.message
    assert broker.ask(FindGroup("g")).topics == []
    assert broker.ask(GetOffsets("g", "t")) == {}


def test_a_deletion_with_commits_and_leases_of_the_same_turn(any_world, broker) -> None:
    commands = [receive("g"), CommitOffsets("g", "t", {0: 3}), DeleteGroup("g")]
    commands += [CommitOffsets("g", "t", {0: 1})]
    broker.step([Answer(command) for command in commands])
    broker.settle()
    for _ in range(2):
        assert broker.ask(GetOffsets("g", "t")) == {0: 1}
        any_world.reopen()
