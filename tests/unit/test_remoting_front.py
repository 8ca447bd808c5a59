"""The remoting doors: connections, dispatch, routes, heartbeats and who is told of changes."""

from __future__ import annotations

import struct
from pathlib import Path

import orjson
import pytest
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import RemotingDoor, remoting_door

from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Serializer


def heartbeat(client_id: str, group: str = "g", topic: str = "orders", **more: object) -> object:
    """What Java says."""
    subscription = {"topic": topic, "subString": "*", "subVersion": 1, **more}
    return {
        "clientID": client_id,
        "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [subscription],
            }
        ],
    }


def changes(client: RemotingClient) -> list[str]:
    """Groups that the broker has told to have changed; whatever it says before the next answer is there then."""
    client.call(Code.GET_BROKER_CLUSTER_INFO)
    pushed, client.pushed = client.pushed, []
    assert all(frame.code == Code.NOTIFY_CONSUMER_IDS_CHANGED for frame in pushed)
    assert all(frame.is_one_way for frame in pushed)
    return [frame.fields["consumerGroup"] for frame in pushed]


# --- dispatch ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("serializer", Serializer)
def test_an_unknown_code_is_answered_in_the_serializer_of_the_request(
    tmp_path: Path, serializer: Serializer
) -> None:
    with remoting_door(tmp_path) as door, door.client(serializer=serializer) as client:
        answer = client.call(4_711 if serializer else 999_999, opaque=1, language="GO")
        assert answer.code == Status.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark.startswith("code: ")
        assert "is not supported" in answer.remark
        assert (answer.serializer, answer.language, answer.version) == (serializer, "GO", 479)


def test_both_ports_answer_all_codes(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door:
        for port in (door.namesrv, door.broker):
            with RemotingClient(port) as client:
                client.done(Code.GET_BROKER_CLUSTER_INFO)
                client.done(Code.HEART_BEAT, body=heartbeat("c"))


def test_nothing_is_answered_to_a_one_way_request(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        client.ask(999_999, one_way=True)
        client.ask(Code.GET_BROKER_CLUSTER_INFO, one_way=True)
        assert client.call(Code.GET_BROKER_CLUSTER_INFO).opaque == 3
        assert not client._answers
        assert door.within(lambda: [link.is_idle for link in links(door)]) == [True]


def links(door: RemotingDoor) -> list[object]:
    """Connections of the broker's door."""
    return list(door.front.doors["broker"]._links)


def test_answers_have_the_opaque_of_their_requests(tmp_path: Path) -> None:
    """Also negative ones, and many requests in one write."""
    with remoting_door(tmp_path) as door, door.client() as client:
        opaques = [-7, 2**31 - 1, -(2**31), 5]
        client.send(*[client.request(Code.GET_BROKER_CLUSTER_INFO, opaque=o) for o in opaques])
        assert [client.answer(o).code for o in opaques] == [0] * 4


@pytest.mark.parametrize("what", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">II", 2, 0)])
def test_what_is_no_frame_ends_the_connection(tmp_path: Path, what: bytes) -> None:
    with remoting_door(tmp_path) as door, door.client() as other:
        with door.client() as client:
            client.socket.sendall(what)
            assert client.is_closed()
        other.done(Code.GET_BROKER_CLUSTER_INFO)


def test_a_quiet_connection_is_closed(tmp_path: Path) -> None:
    with remoting_door(tmp_path, idle_ms=50) as door, door.client() as client:
        assert client.is_closed()


# --- routes -----------------------------------------------------------------------------------------


def test_a_route_is_compact_json_with_the_address_that_was_dialled(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=3)
        answer = client.done(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        assert answer.body == (
            b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:%d"},"brokerName":"broker-a",'
            b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},'
            b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":3,"topicSysFlag":0,'
            b'"writeQueueNums":3}]}' % door.broker[1]
        )


def test_an_advertised_name_is_in_routes(tmp_path: Path) -> None:
    with remoting_door(tmp_path, advertised="broker.internal") as door, door.client() as client:
        answer = client.json(Code.GET_BROKER_CLUSTER_INFO)
        assert answer == {
            "brokerAddrTable": {
                "broker-a": {
                    "brokerAddrs": {"0": f"broker.internal:{door.broker[1]}"},
                    "brokerName": "broker-a",
                    "cluster": "DefaultCluster",
                    "enableActingMaster": False,
                }
            },
            "clusterAddrTable": {"DefaultCluster": ["broker-a"]},
        }


def test_routes_of_topics_that_are_not_there(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        answer = client.call(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "nobody"})
        assert (answer.code, answer.remark) == (17, "topic: 'nobody' does not exist")
        missing = client.call(Code.GET_ROUTEINFO_BY_TOPIC)
        assert (missing.code, missing.remark) == (29, "topic: missing")


@pytest.mark.parametrize(
    ("topic", "queues", "perm"),
    [
        ("TBW102", 8, 7),
        ("DefaultCluster", 16, 7),
        ("broker-a", 1, 7),
        ("SELF_TEST_TOPIC", 1, 6),
        ("RMQ_SYS_TRACE_TOPIC", 1, 6),
        ("rmq_sys_TRACE_DATA_DefaultRegion", 1, 6),
        ("DefaultCluster_REPLY_TOPIC", 1, 6),
    ],
)
def test_routes_that_clients_expect(tmp_path: Path, topic: str, queues: int, perm: int) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        (answer,) = client.json(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})["queueDatas"]
        assert (answer["readQueueNums"], answer["perm"]) == (queues, perm)


def test_without_auto_creation_there_is_no_topic_to_make_others_after(tmp_path: Path) -> None:
    with remoting_door(tmp_path, auto_create=False) as door, door.client() as client:
        assert client.call(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}).code == 17


# --- heartbeats -------------------------------------------------------------------------------------


def test_members_of_a_group_are_notified_of_changes(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as one:
        assert one.call(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}).code == 1
        one.done(Code.HEART_BEAT, body=heartbeat("one"))
        assert one.push().fields == {"consumerGroup": "g"}
        one.done(Code.HEART_BEAT, body=heartbeat("one"))
        assert changes(one) == []
        with door.client() as two:
            two.done(Code.HEART_BEAT, body=heartbeat("two"))
            assert one.push().fields == {"consumerGroup": "g"}
            answer = two.json(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
            assert sorted(answer["consumerIdList"]) == ["one", "two"]
        assert one.push().fields == {"consumerGroup": "g"}  # the connection of the other has ended
        answer = one.json(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
        assert answer == {"consumerIdList": ["one"]}
        one.done(
            Code.UNREGISTER_CLIENT,
            {"clientID": "one", "producerGroup": "", "consumerGroup": "g"},
        )
        assert changes(one) == []
        assert one.call(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}).code == 1
        door.within(door.front.node.registry.check_invariants)


def test_a_client_that_says_nothing_any_more_is_forgotten(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        client.done(Code.HEART_BEAT, body=heartbeat("c"))
        registry = door.front.node.registry
        (member,) = door.within(lambda: registry.members("g"))
        assert door.within(lambda: registry.expire(member.seen_ms + 120_000)) == set()
        assert door.within(lambda: registry.expire(member.seen_ms + 120_001)) == {"g"}
        assert door.within(lambda: list(registry.connected())) == []


def test_a_heartbeat_of_the_cpp_client(tmp_path: Path) -> None:
    """Ordinals, a version as text, wrong hashes of tags, and a line's end after the JSON."""
    body = (
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"g",'
        b'"messageModel":1,"subscriptionDataSet":[{"codeSet":[0,0],"subString":"TagA||TagB",'
        b'"subVersion":"1700000000000","tagsSet":["TagA","TagB"],"topic":"orders"}]}],'
        b'"producerDataSet":[]}\n'
    )
    with remoting_door(tmp_path) as door, door.client() as client:
        client.done(Code.HEART_BEAT, body=body)
        subscription = door.within(lambda: door.front.node.registry.subscription("g", "orders"))
        assert subscription == ("orders", "TagA||TagB", "TAG", 1_700_000_000_000)


def test_a_heartbeat_in_another_encoding(tmp_path: Path) -> None:
    """From a C++ client on a system in GBK: read with U+FFFD, as its pulls are."""
    body = (
        '{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        '[{"subString":"TagA||订单","subVersion":"1","tagsSet":["订单"],"topic":"orders"}]}]}\n'
    )
    with remoting_door(tmp_path) as door, door.client() as client:
        client.done(Code.HEART_BEAT, body=body.encode("gbk"))
        subscription = door.within(lambda: door.front.node.registry.subscription("g", "orders"))
        assert subscription == ("orders", "TagA||\ufffd\ufffd\ufffd\ufffd", "TAG", 1)


def test_a_tool_may_say_that_it_is_there(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        client.done(Code.HEART_BEAT, body=heartbeat("c", "TOOLS_CONSUMER"))
        answer = client.json(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "TOOLS_CONSUMER"})
        assert answer == {"consumerIdList": ["c"]}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "body: no JSON object"),
        (b"[]", "body: no JSON object"),
        (b"{}", "clientID: missing or blank"),
        (b'{"clientID":"c","consumerDataSet":{}}', "consumerDataSet: no list"),
        (b'{"clientID":"c","consumerDataSet":[1]}', "consumerDataSet: an entry is no JSON object"),
        (b'{"clientID":"c","consumerDataSet":[{}]}', "groupName: missing or blank"),
        (
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","messageModel":7}]}',
            "messageModel: '7' is none of BROADCASTING, CLUSTERING",
        ),
    ],
)
def test_a_heartbeat_that_is_none_changes_nothing(tmp_path: Path, body: bytes, why: str) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        answer = client.call(Code.HEART_BEAT, body=body)
        assert (answer.code, answer.remark) == (29, why)
        assert door.within(lambda: list(door.front.node.registry.connected())) == []


def test_a_filter_that_the_broker_has_not_is_refused_beforehand(tmp_path: Path) -> None:
    wanted = {"topic": "orders", "subString": "a > 1", "expressionType": "XPATH"}
    with remoting_door(tmp_path) as door, door.client() as client:
        answer = client.call(Code.CHECK_CLIENT_CONFIG, body={"subscriptionData": wanted})
        assert answer.code == Status.SUBSCRIPTION_PARSE_FAILED
        assert answer.remark == "expressionType: 'XPATH' is not supported; use TAG or SQL92"
        client.done(Code.CHECK_CLIENT_CONFIG, body={"subscriptionData": {"topic": "orders"}})


def test_the_broker_asks_a_client(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        client.done(Code.HEART_BEAT, body=heartbeat("c"))

        async def ask(timeout_s: float) -> object:
            (member,) = door.front.node.registry.members("g")
            fields = {"consumerGroup": "g"}
            return await member.link.ask(Code.GET_CONSUMER_RUNNING_INFO, fields, b"", timeout_s)

        assert client.push().code == Code.NOTIFY_CONSUMER_IDS_CHANGED
        with pytest.raises(TimeoutError):
            door.run(ask(0.01))
        asked = client.push()
        assert (asked.code, asked.fields) == (307, {"consumerGroup": "g"})
        client.reply(asked)  # too late, and nobody minds
        client.done(Code.GET_BROKER_CLUSTER_INFO)

        async def answered() -> object:
            (member,) = door.front.node.registry.members("g")
            answer = member.link.ask(Code.GET_CONSUMER_RUNNING_INFO, {}, b"", 10)
            door.loop.call_soon(lambda: None)
            return answer

        waiting = door.run(answered())
        client.reply(client.push(), body=orjson.dumps({"jstack": ""}))

        async def result() -> bytes:
            return bytes((await waiting).body)

        assert door.run(result()) == b'{"jstack":""}'
