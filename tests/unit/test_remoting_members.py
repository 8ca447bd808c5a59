"""Connected clients over remoting, as admin tools see them, and what is passed on to them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import RemotingDoor, remoting_door
from tests.support.sent import send

from horolog.protocol.commands import Receive
from horolog.protocol.queue_commands import CommitOffsets
from horolog.protocol.remoting import object_keys
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Frame

QUEUE = {"brokerName": "broker-a", "queueId": 0, "topic": "orders"}


def join(client: RemotingClient, client_id: str, group: str = "workers", **frame: Any) -> None:
    """Say what a push consumer says; and wait until it is known."""
    heartbeat = {
        "clientID": client_id,
        "producerDataSet": [{"groupName": "senders"}],
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [
                    {"topic": "orders", "subString": "TagA || TagB", "subVersion": 7}
                ],
            }
        ],
    }
    answer = client.call(Code.HEART_BEAT, body=heartbeat, **frame)
    assert answer.code == Status.SUCCESS, answer.remark


def of(client: RemotingClient, code: Code) -> Frame:
    """The next request of the broker with that code."""
    while (shown := client.push()).code != code:
        pass
    return shown


def test_consumers_and_what_they_want(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        asked = {"consumerGroup": "workers"}
        nobody = client.call(Code.GET_CONSUMER_CONNECTION_LIST, asked)
        assert (nobody.code, nobody.remark) == (
            Status.CONSUMER_NOT_ONLINE,
            "consumerGroup: 'workers' has no client just now",
        )
        join(client, "c1")
        found = client.json(Code.GET_CONSUMER_CONNECTION_LIST, asked)
        [connection] = found.pop("connectionSet")
        assert connection.pop("clientAddr").startswith("127.0.0.1:")
        assert connection == {"clientId": "c1", "language": "JAVA", "version": 401}
        wanted = {
            "classFilterMode": False,
            "codeSet": [2598919, 2598920],
            "expressionType": "TAG",
            "subString": "TagA || TagB",
            "subVersion": 7,
            "tagsSet": ["TagA", "TagB"],
            "topic": "orders",
        }
        assert found == {
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "subscriptionTable": {"orders": wanted},
        }
        asked = {"group": "workers", "topic": "orders"}
        assert client.json(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, asked) == {
            **asked,
            "subscriptionData": wanted,
        }
        asked = {"group": "workers", "topic": "others"}
        assert client.json(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, asked)["subscriptionData"] is None
        door.create("orders")
        who = client.json(Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"})
        assert who == {"groupList": ["workers"]}


def test_producers(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        asked = {"producerGroup": "senders"}
        nobody = client.call(Code.GET_PRODUCER_CONNECTION_LIST, asked)
        assert nobody.remark == "producerGroup: 'senders' has no client just now"
        join(client, "c1")
        [connection] = client.json(Code.GET_PRODUCER_CONNECTION_LIST, asked)["connectionSet"]
        assert connection["clientId"] == "c1"
        [producer] = client.json(Code.GET_ALL_PRODUCER_INFO)["data"]["senders"]
        assert producer["remoteIP"] == connection["clientAddr"]
        assert producer["lastUpdateTimestamp"] > 1_700_000_000_000


def _orders(door: RemotingDoor) -> None:
    door.create("orders", queues=1)
    send(door, "orders", b"one", b"two")
    door.submit(CommitOffsets("workers", "orders", {0: 2}))


def test_a_reset_gives_out_what_is_leased_too(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=1)
        send(door, "orders", b"one", b"two", b"three")
        receive = Receive("workers", "orders", -1, "*", 32, 60_000, False, 0, "c")
        assert len(door.submit(receive).messages) == 3
        asked = {"topic": "orders", "group": "workers", "queueId": 0, "offset": 1, "timestamp": -1}
        asked["isForce"] = False  # as tools have it
        client.done(Code.INVOKE_BROKER_TO_RESET_OFFSET, asked)
        assert [each.queue_offset for each in door.submit(receive).messages] == [1, 2]


def test_clients_are_notified_of_a_reset_each_in_its_own_way(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as java, door.client() as cpp:
        _orders(door)
        join(java, "java")
        join(cpp, "cpp", language="CPP")
        asked = {"topic": "orders", "group": "workers", "timestamp": -1, "isForce": True}
        answer = java.done(Code.INVOKE_BROKER_TO_RESET_OFFSET, asked)
        shown = of(java, Code.RESET_CONSUMER_CLIENT_OFFSET)
        assert shown.is_one_way
        assert shown.fields == {
            "topic": "orders",
            "group": "workers",
            "timestamp": "-1",
            "isForce": "true",
        }
        assert shown.body == answer.body
        assert object_keys.rows(object_keys.read(shown.body)["offsetTable"]) == [(QUEUE, 2)]
        shown = of(cpp, Code.RESET_CONSUMER_CLIENT_OFFSET)
        assert orjson.loads(shown.body) == {"offsetTable": [{**QUEUE, "offset": 2}]}


def test_clients_are_asked_where_they_are(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client, door.client() as tool:
        asked = {"topic": "orders", "group": "workers", "clientAddr": ""}
        code = Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        assert tool.call(code, asked).code == Status.CONSUMER_NOT_ONLINE
        join(client, "c1")
        number = tool.ask(code, asked)
        request = of(client, Code.GET_CONSUMER_STATUS_FROM_CLIENT)
        assert request.fields == {"topic": "orders", "group": "workers"}
        table = object_keys.table([(QUEUE, 2)])
        client.reply(request, body=orjson.dumps({"messageQueueTable": table}))
        shown = object_keys.read(tool.answer(number).body)
        assert object_keys.rows(shown["consumerTable"]["c1"]) == [(QUEUE, 2)]
        number = tool.ask(code, asked | {"clientAddr": "c2"})
        assert tool.answer(number).remark == "clientAddr: 'c2' has no client just now"


ASKED = {"topic": "orders", "group": "workers", "clientAddr": ""}


def report(client: RemotingClient, queues: int) -> None:
    """Answer the next question of the broker with offsets of so many queues."""
    request = of(client, Code.GET_CONSUMER_STATUS_FROM_CLIENT)
    table = object_keys.table([({**QUEUE, "queueId": each}, each) for each in range(queues)])
    client.reply(request, body=orjson.dumps({"messageQueueTable": table}))


def test_a_few_clients_at_a_time_are_asked_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Because all of their answers may come at once, each as large as a frame."""
    monkeypatch.setattr("horolog.server.remoting.members._ASKED_AT_ONCE", 1)
    with (
        remoting_door(tmp_path) as door,
        door.client() as tool,
        door.client() as one,
        door.client() as two,
    ):
        join(one, "c1")
        join(two, "c2")
        number = tool.ask(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ASKED)
        request = of(one, Code.GET_CONSUMER_STATUS_FROM_CLIENT)
        two.call(Code.GET_KV_CONFIG)
        assert request.code not in [each.code for each in two.pushed]
        one.pushed.append(request)
        report(one, 1)
        report(two, 2)
        shown = object_keys.read(tool.answer(number).body)["consumerTable"]
        assert {name: len(object_keys.rows(table)) for name, table in shown.items()} == {
            "c1": 1,
            "c2": 2,
        }


def test_offsets_that_are_too_much_for_an_answer_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horolog.server.remoting.members.ANSWER_BYTES_MAX", 100)
    with remoting_door(tmp_path) as door, door.client() as client, door.client() as tool:
        join(client, "c1")
        number = tool.ask(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ASKED)
        report(client, 10)
        assert tool.answer(number).remark == (
            "clientAddr: the offsets of 1 client take more than 100 bytes; name one client"
        )


@pytest.mark.parametrize(
    ("code", "fields", "remark"),
    [
        (Code.GET_ALL_PRODUCER_INFO, {}, "producerGroup: clients take"),
        (Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "senders"}, "producerGroup: its"),
        (Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "workers"}, "consumerGroup: its"),
    ],
    ids=["all producers", "producers", "consumers"],
)
def test_clients_that_are_too_many_for_an_answer_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: Code, fields: Any, remark: str
) -> None:
    """And others are served while they are listed."""
    monkeypatch.setattr("horolog.server.listing._CLIENTS", 1)
    with remoting_door(tmp_path) as door, door.client() as client:
        for number in range(5):
            join(client, f"c{number}")
        turns = door.run(_turns_of(door.front.handler(code), code, fields))
        assert turns >= 5
        monkeypatch.setattr("horolog.server.remoting.members.ANSWER_BYTES_MAX", 300)
        refused = client.call(code, fields)
        assert refused.code == Status.INVALID_PARAMETER
        assert refused.remark.startswith(remark)
        assert "take more than 300 bytes; " in refused.remark


async def _turns_of(handle: Any, code: Code, fields: Any) -> int:
    """Turns of the loop until a request is answered."""
    request: Any = SimpleNamespace(frame=Frame(code, fields=fields))
    listing = asyncio.ensure_future(handle(request))
    turns = 0
    while not listing.done():
        await asyncio.sleep(0)
        turns += 1
    assert b"c4" in listing.result().body
    return turns


def test_others_are_served_while_members_hear_of_a_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notifications of a wide topic to many members are not all written in one turn."""
    monkeypatch.setattr("horolog.server.remoting.resets._TURN_BYTES", 0)
    with remoting_door(tmp_path) as door, door.client() as client:
        for number in range(10):
            join(client, f"c{number}")

        async def turns_of_a_reset() -> int:
            reset = asyncio.ensure_future(door.front.notify_reset("workers", "orders", {0: 1}))
            turns = 0
            while not reset.done():
                await asyncio.sleep(0)
                turns += 1
            return turns

        assert door.run(turns_of_a_reset()) >= 10
        for _ in range(10):
            of(client, Code.RESET_CONSUMER_CLIENT_OFFSET)


def test_what_only_a_client_knows_is_passed_on(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client, door.client() as tool:
        asked = {"consumerGroup": "workers", "clientId": "c1", "jstackEnable": "false"}
        nobody = tool.call(Code.GET_CONSUMER_RUNNING_INFO, asked)
        assert nobody.code == Status.CONSUMER_NOT_ONLINE
        assert nobody.remark == "clientId: 'c1' is no client of 'workers' just now"
        join(client, "c1")
        number = tool.ask(Code.GET_CONSUMER_RUNNING_INFO, asked)
        request = of(client, Code.GET_CONSUMER_RUNNING_INFO)
        assert request.fields == asked
        client.reply(request, body=b'{"properties":{}}')
        assert tool.answer(number).body == b'{"properties":{}}'
        number = tool.ask(Code.GET_CONSUMER_RUNNING_INFO, asked)
        of(client, Code.GET_CONSUMER_RUNNING_INFO)
        client.close()
        gone = tool.answer(number)
        assert (gone.code, gone.remark) == (Status.CONSUMER_NOT_ONLINE, "clientId: 'c1' has gone")


def test_a_client_is_given_a_message_at_once(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client, door.client() as tool:
        _orders(door)
        join(client, "c1")
        units = tool.json(Code.QUERY_CONSUME_QUEUE, {"topic": "orders", "queueId": 0})["queueData"]
        position = units[1]["physicOffset"]
        asked = {"consumerGroup": "workers", "clientId": "c1"}
        number = tool.ask(
            Code.CONSUME_MESSAGE_DIRECTLY, asked | {"msgId": f"7F00000100002A9F{position:016X}"}
        )
        request = of(client, Code.CONSUME_MESSAGE_DIRECTLY)
        assert b"two" in request.body
        client.reply(request, body=b'{"consumeResult":"CR_SUCCESS"}')
        assert tool.answer(number).body == b'{"consumeResult":"CR_SUCCESS"}'
        for wrong in ("", "XX", "7F00000100002A9FFFFFFFFFFFFFFFFF"):
            answer = tool.call(Code.CONSUME_MESSAGE_DIRECTLY, asked | {"msgId": wrong})
            assert answer.code == Status.INVALID_PARAMETER
            assert answer.remark == f"msgId: {wrong!r} is no id that names a place in the log"
        nothing = tool.call(Code.CONSUME_MESSAGE_DIRECTLY, asked | {"msgId": "0" * 30 + "77"})
        assert nothing.code == Status.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    "code", [Code.GET_CONSUMER_CONNECTION_LIST, Code.GET_PRODUCER_CONNECTION_LIST]
)
def test_a_group_must_be_named(tmp_path: Path, code: Code) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        answer = client.call(code)
        assert (answer.code, answer.remark[-9:]) == (Status.INVALID_PARAMETER, ": missing")
