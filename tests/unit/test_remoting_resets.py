"""Resets of groups whose 4.x pull consumers keep offsets of their own, and offsets that are not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import RemotingDoor, remoting_door
from tests.support.remoting_requests import bodies, pulling
from tests.support.sent import send
from tests.unit.test_admin_resets import ask

from horolog.protocol.queue_commands import CommitOffsets, GetOffsets
from horolog.protocol.remoting import object_keys
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Frame
from horolog.server.remoting.unseen_resets import UnseenResets

RESET = {"topic": "orders", "group": "g", "timestamp": 0, "isForce": True}
COMMITS = 4 + 1  # with a subscription; and with what is consumed


@pytest.fixture
def door(tmp_path: Path) -> Iterator[RemotingDoor]:
    """Three messages in queue 0, which the group has consumed."""
    with remoting_door(tmp_path) as door:
        door.create("orders", queues=1)
        send(door, "orders", b"one", b"two", b"three")
        door.submit(CommitOffsets("g", "orders", {0: 3}))
        yield door


def join(client: RemotingClient, consume_type: str) -> None:
    consumer = {
        "groupName": "g",
        "consumeType": consume_type,
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [{"topic": "orders", "subString": "*", "subVersion": 1}],
    }
    client.done(Code.HEART_BEAT, body={"clientID": "c", "consumerDataSet": [consumer]})


def commit(client: RemotingClient, offset: int) -> Frame:
    asked = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": offset}
    return client.call(Code.UPDATE_CONSUMER_OFFSET, asked)


def committed(door: RemotingDoor) -> int:
    offsets: dict[int, int] = door.submit(GetOffsets("g", "orders"))
    return offsets[0]


def test_a_pull_consumer_is_notified_by_its_next_pull(door: RemotingDoor) -> None:
    with door.client() as client:
        join(client, "CONSUME_ACTIVELY")
        client.done(Code.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
        ignored = commit(client, 3)
        assert (ignored.code, ignored.remark) == (
            Status.SUCCESS,
            "group 'g' was reset: its next pull tells",
        )
        at_end = pulling(queueOffset=3, commitOffset=3, sysFlag=COMMITS)
        answer = client.call(Code.PULL_MESSAGE, at_end)
        assert (answer.code, answer.body) == (Status.PULL_OFFSET_MOVED, b"")
        assert answer.fields["nextBeginOffset"] == "0"
        assert (answer.fields["minOffset"], answer.fields["maxOffset"]) == ("0", "3")
        assert committed(door) == 0
        found = client.call(Code.PULL_MESSAGE, pulling(queueOffset=0))
        assert bodies(found) == [b"one", b"two", b"three"]
        assert commit(client, 2).remark == ""
        assert committed(door) == 2, "what it commits counts again"


def test_one_that_waits_is_notified_at_once(door: RemotingDoor) -> None:
    with door.client() as client, door.client() as tool:
        join(client, "CONSUME_ACTIVELY")
        waits = client.ask(Code.LITE_PULL_MESSAGE, pulling(queueOffset=3, sysFlag=4 + 2))
        tool.done(Code.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
        answer = client.answer(waits)
        assert (answer.code, answer.fields["nextBeginOffset"]) == (Status.PULL_OFFSET_MOVED, "0")


def test_one_that_pulls_from_there_already_gets_its_messages(door: RemotingDoor) -> None:
    with door.client() as client:
        join(client, "CONSUME_ACTIVELY")
        client.done(Code.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
        for _ in range(2):
            assert client.call(Code.PULL_MESSAGE, pulling(queueOffset=0)).code == Status.SUCCESS


def test_push_consumers_are_notified_by_the_broker_alone(door: RemotingDoor) -> None:
    with door.client() as client:
        join(client, "CONSUME_PASSIVELY")
        client.done(Code.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
        assert client.call(Code.PULL_MESSAGE, pulling(queueOffset=1)).code == Status.SUCCESS
        assert commit(client, 2).remark == ""
        assert committed(door) == 2


def test_who_commits_from_elsewhere_decides_after_a_reset(door: RemotingDoor) -> None:
    with door.client() as client, door.client() as other:
        join(client, "CONSUME_ACTIVELY")
        client.done(Code.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
        assert commit(other, 2).remark == ""
        assert committed(door) == 2
        assert client.call(Code.PULL_MESSAGE, pulling(queueOffset=2)).code == Status.SUCCESS


@pytest.mark.parametrize("how", ["topic", "group", "topic over HTTP", "group over HTTP"])
def test_a_reset_does_not_outlive_its_topic_or_group(door: RemotingDoor, how: str) -> None:
    """A consumer of the new topic was sent past messages that the group has never had."""
    latest = RESET | {"timestamp": -1}
    with door.client() as client:
        join(client, "CONSUME_ACTIVELY")
        client.done(Code.PULL_MESSAGE, pulling(queueOffset=0))
        client.done(Code.INVOKE_BROKER_TO_RESET_OFFSET, latest)
    with door.client() as client:
        match how:
            case "topic":
                client.done(Code.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
            case "group":
                deleted = {"groupName": "g", "cleanOffset": True}
                client.done(Code.DELETE_SUBSCRIPTIONGROUP, deleted)
            case _:
                path = "topics/orders" if how.startswith("topic") else "groups/g?force=true"
                assert ask(door, "DELETE", f"/v1/{path}")[0] == 200
        if how.startswith("topic"):
            door.create("orders", queues=1)
            send(door, "orders", b"four", b"five", b"six")
        join(client, "CONSUME_ACTIVELY")
        found = client.call(Code.PULL_MESSAGE, pulling(queueOffset=0))
        assert (found.code, len(bodies(found))) == (Status.SUCCESS, 3)


@pytest.mark.parametrize("over", ["remoting", "HTTP"])
def test_what_was_pulled_of_a_deleted_topic_is_not_in_flight(door: RemotingDoor, over: str) -> None:
    with door.client() as client:
        client.done(Code.PULL_MESSAGE, pulling(queueOffset=0))
        if over == "HTTP":
            assert ask(door, "DELETE", "/v1/topics/orders")[0] == 200
        else:
            client.done(Code.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
        door.create("orders", queues=1)
        send(door, "orders", b"four", b"five", b"six")
        door.submit(CommitOffsets("g", "orders", {0: 1}))
        found = object_keys.read(client.done(Code.GET_BROKER_CONSUME_STATS).body)
        assert (found["totalDiff"], found["totalInflightDiff"]) == (2, 0)


def test_of_too_many_resets_the_first_are_forgotten() -> None:
    moved = UnseenResets(2)
    moved.record("g", "t", {0: 5, 1: 6})
    moved.record("g", "t", {0: 7})
    moved.record("h", "t", {2: 8})
    assert [moved.take("g", "t", queue) for queue in (0, 1)] == [7, None]
    moved.forget("h")
    assert not moved.has("h", "t", 2)


def test_a_topic_that_is_not_there_has_no_offsets(tmp_path: Path) -> None:
    """Consumers ask for the topic of their retries before it is made, and take any other answer for a failure."""
    with remoting_door(tmp_path) as door, door.client() as client:
        asked = {"consumerGroup": "g", "topic": "nothing", "queueId": 0}
        answer = client.call(Code.QUERY_CONSUMER_OFFSET, asked)
        assert answer.code == Status.QUERY_NOT_FOUND
        assert answer.remark == "topic 'nothing' does not exist"
