"""Sessions of 4.x consumers that fail: pauses, dead letters, consumers in order, both doors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import RemotingDoor, remoting_door
from tests.support.remoting_requests import batch, layouts, sending

from horolog.protocol.commands import CreateTopic, Receive, TopicSettings, TopicType
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.topic_commands import PERM_READ

RETRY, DEAD = "%RETRY%g", "%DLQ%g"
JAVA = 479


@pytest.fixture
def door(tmp_path: Path) -> Iterator[RemotingDoor]:
    with remoting_door(tmp_path) as made:
        made.create("orders", queues=1)
        yield made


@pytest.fixture
def client(door: RemotingDoor) -> Iterator[RemotingClient]:
    with door.client() as made:
        beat(made)
        yield made


def beat(client: RemotingClient, group: str = "g") -> None:
    subscription = {"topic": "orders", "subString": "*", "subVersion": 1}
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription],
    }  # fmt: skip
    body = {"clientID": "c1", "producerDataSet": [], "consumerDataSet": [consumer]}
    client.done(Code.HEART_BEAT, body=body)


def send(client: RemotingClient, message_id: str = "A1", **fields: Any) -> Frame:
    known = {"UNIQ_KEY": message_id, "TAGS": "TagA"}
    return client.done(Code.SEND_MESSAGE_V2, sending(properties=known, **fields), b"order 1")


def pull(client: RemotingClient, topic: str, first: int = 0) -> list[layout.Stored]:
    answer = client.call(
        Code.PULL_MESSAGE,
        {
            "consumerGroup": "g", "topic": topic, "queueId": 0, "queueOffset": first,
            "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
            "subscription": "*", "subVersion": 0,
        },
    )  # fmt: skip
    return layouts(answer.body) if answer.code == Status.SUCCESS else []


def properties_of(message: layout.Stored) -> dict[str, str]:
    return properties.decode(message.properties)


def send_back(
    client: RemotingClient, message: layout.Stored, *, version: int = 63, **fields: Any
) -> Frame:
    """As the C++ client: nothing but group, position and level."""
    asked = {"group": "g", "offset": message.position, "delayLevel": 0, **fields}
    return client.call(Code.CONSUMER_SEND_MSG_BACK, asked, version=version)


def test_two_attempts_and_a_dead_letter(door, client) -> None:
    send(client)
    (message,) = pull(client, "orders")
    for attempt, pause_s in ((1, 10), (2, 30)):
        fields = {"maxReconsumeTimes": 2, "originTopic": "orders", "originMsgId": "A1"}
        assert send_back(client, message, version=JAVA, **fields).code == Status.SUCCESS
        door.advance(pause_s * 1_000 - 1)
        assert pull(client, RETRY, attempt - 1) == []
        door.advance(1)
        (message,) = pull(client, RETRY, attempt - 1)
        assert message.reconsume_times == attempt
        assert properties_of(message)["RETRY_TOPIC"] == "orders"
        assert properties_of(message)["DELAY"] == str(2 + attempt)
    send_back(client, message, version=JAVA, maxReconsumeTimes=2)
    (dead,) = pull(client, DEAD)
    assert dead.body == b"order 1"
    assert properties_of(dead)["DLQ_ORIGIN_TOPIC"] == "orders"


def test_a_client_that_is_too_old_to_say_how_often(door, client) -> None:
    send(client)
    (message,) = pull(client, "orders")
    send_back(client, message, version=120, maxReconsumeTimes=0)
    door.advance(10_000)
    assert len(pull(client, RETRY)) == 1
    assert pull(client, DEAD) == []


def test_a_send_back_that_comes_again_makes_no_second_copy(door, client) -> None:
    send(client)
    (message,) = pull(client, "orders")
    for _ in range(3):
        assert send_back(client, message).code == Status.SUCCESS
    door.advance(60_000)
    assert len(pull(client, RETRY)) == 1


def test_what_is_refused(door, client) -> None:
    send(client)
    (message,) = pull(client, "orders")
    assert send_back(client, message, group="nobody").code == Status.SUBSCRIPTION_GROUP_NOT_EXIST
    gone = send_back(client, message, offset=message.position + 1)
    assert (gone.code, "offset" in gone.remark) == (Status.QUERY_NOT_FOUND, True)
    assert send_back(client, message, offset="x").code == Status.INVALID_PARAMETER
    batched = client.call(
        Code.SEND_BATCH_MESSAGE,
        sending(RETRY, m=True),
        batch((b"1", "UNIQ_KEY\x01B1\x02"), (b"2", "UNIQ_KEY\x01B2\x02")),
    )
    assert (batched.code, batched.remark[:6]) == (Status.INVALID_PARAMETER, "batch:")
    unknown = client.call(Code.SEND_MESSAGE_V2, sending("%RETRY%nobody"), b"x")
    assert unknown.code == Status.SUBSCRIPTION_GROUP_NOT_EXIST


def test_a_copy_that_is_refused_is_not_said_to_be_there(door: RemotingDoor) -> None:
    door.submit(CreateTopic(RETRY, TopicType.NORMAL, 1, TopicSettings(perm=PERM_READ)))
    with door.client() as client:
        beat(client)
        send(client)
        (message,) = pull(client, "orders")
        answer = send_back(client, message)
        assert answer.code != Status.SUCCESS
        assert RETRY in answer.remark
        door.advance(60_000)
        assert pull(client, RETRY) == []
        assert send_back(client, message, delayLevel=-1).code == Status.SUCCESS
        assert len(pull(client, DEAD)) == 1


@pytest.mark.parametrize("type", list(TopicType))
def test_a_copy_is_stored_whatever_the_type_of_its_topic(door, type: TopicType) -> None:
    door.submit(CreateTopic(RETRY, type, 1))
    with door.client() as client:
        beat(client)
        send(client)
        (message,) = pull(client, "orders")
        assert send_back(client, message).code == Status.SUCCESS
        door.advance(60_000)
        assert len(pull(client, RETRY)) == 1


# --- copies that clients send themselves ------------------------------------------------------------


def send_retry(
    client: RemotingClient, message: layout.Stored, attempt: int, code: int = Code.SEND_MESSAGE_V2,
    **fields: Any,
) -> Frame:  # fmt: skip
    """As Java consumers do when a send-back has failed, and consumers in order after their last attempt."""
    known = properties_of(message)
    known |= {
        "RETRY_TOPIC": known.get("RETRY_TOPIC", "orders"), "DELAY": str(2 + attempt),
        "RECONSUME_TIME": str(attempt), "MAX_RECONSUME_TIMES": "16",
        "ORIGIN_MESSAGE_ID": known.get("ORIGIN_MESSAGE_ID", known["UNIQ_KEY"]),
    }  # fmt: skip
    asked = sending(RETRY, properties=known, **{"j": attempt, "l": 16, **fields})
    return client.call(code, asked, message.body, version=JAVA)


def test_a_copy_that_a_client_sends(door, client) -> None:
    send(client)
    (message,) = pull(client, "orders")
    assert send_retry(client, message, 1).code == Status.SUCCESS
    assert send_back(client, message).code == Status.SUCCESS, "it comes too late, and is done"
    door.advance(9_999)
    assert pull(client, RETRY) == []
    door.advance(1)
    (again,) = pull(client, RETRY)
    assert (again.reconsume_times, properties_of(again)["RETRY_TOPIC"]) == (1, "orders")
    send_retry(client, again, 3, l=2)
    (dead,) = pull(client, DEAD)
    assert (dead.reconsume_times, properties_of(dead)["UNIQ_KEY"]) == (3, "A1")


def test_consumers_in_order_have_tried_already(door, client) -> None:
    queue = {"topic": "orders", "brokerName": "broker-a", "queueId": 0}
    locks = {"consumerGroup": "g", "clientId": "c1", "mqSet": [queue]}
    send(client)
    (message,) = pull(client, "orders")
    assert client.done(Code.LOCK_BATCH_MQ, body=locks).body
    sent = send_retry(client, message, 3)
    assert sent.code == Status.SUCCESS
    (dead,) = pull(client, DEAD)
    assert (dead.reconsume_times, properties_of(dead)["DLQ_ORIGIN_TOPIC"]) == (3, "orders")
    client.done(Code.UNLOCK_BATCH_MQ, body=locks)
    send(client, "A2")
    send_retry(client, pull(client, "orders", 1)[0], 1)
    door.advance(10_000)
    assert len(pull(client, RETRY)) == 1


# --- both doors -------------------------------------------------------------------------------------


def test_dead_letters_are_for_5x_consumers_too(door, client) -> None:
    send(client)
    (message,) = pull(client, "orders")
    send_back(client, message, delayLevel=-1)
    command = Receive("any", DEAD, -1, "TagA", 32, 60_000, False, 0, "5.x")
    (dead,) = door.submit(command).messages
    assert layout.decode(dead.layout).body == b"order 1"
