"""Topics over remoting, as admin tools make, change and look at them."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import remoting_door
from tests.support.sent import send

from horolog.errors import HorologError
from horolog.protocol.commands import DescribeTopic, TopicType
from horolog.protocol.remoting import object_keys
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.topic_bodies import attributes_wanted


def put(client: RemotingClient, topic: str, **fields: object) -> None:
    client.done(
        Code.UPDATE_AND_CREATE_TOPIC,
        {
            "topic": topic,
            "defaultTopic": "DefaultCluster",
            "readQueueNums": 8,
            "writeQueueNums": 8,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            **fields,
        },
    )


def test_a_topic_is_made_and_gets_more_queues(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        put(client, "orders", readQueueNums=2, writeQueueNums=2)
        put(client, "orders", readQueueNums=2, writeQueueNums=2)  # as e2e suites do: no change
        put(client, "orders", readQueueNums=4, writeQueueNums=4)
        assert client.json(Code.GET_TOPIC_CONFIG, {"topic": "orders"}) == {
            "attributes": {"message.type": "MIXED"},
            "order": False,
            "perm": 6,
            "readQueueNums": 4,
            "topicFilterType": "SINGLE_TAG",
            "topicName": "orders",
            "topicSysFlag": 0,
            "writeQueueNums": 4,
        }


def test_attributes_say_which_messages_a_topic_takes(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        put(client, "later", attributes="+message.type=DELAY,+cleanup.policy=DELETE")
        assert door.submit(DescribeTopic("later")).type is TopicType.DELAY
        put(client, "later")  # says nothing of its type
        config = client.json(Code.GET_TOPIC_CONFIG, {"topic": "later"})
        assert config["attributes"] == {"message.type": "DELAY", "cleanup.policy": "DELETE"}
        put(client, "later", attributes="-cleanup.policy")
        config = client.json(Code.GET_TOPIC_CONFIG, {"topic": "later"})
        assert config["attributes"] == {"message.type": "DELAY"}
        put(client, "later", attributes="+message.type=DELAY")


def test_a_topic_that_made_itself_is_given_a_type(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        put(client, "orders", attributes="+cleanup.policy=DELETE")
        put(client, "orders", attributes="+message.type=DELAY")
        config = client.json(Code.GET_TOPIC_CONFIG, {"topic": "orders"})
        assert config["attributes"] == {"message.type": "DELAY", "cleanup.policy": "DELETE"}


def test_an_attribute_says_what_becomes_of_late_messages(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        put(client, "offers", attributes="+message.type=DELAY,+horolog.late=drop 5m")
        settings = door.submit(DescribeTopic("offers")).settings
        assert (settings.late, settings.late_after_ms, settings.attributes) == ("drop", 300_000, {})
        put(client, "offers")  # says nothing of it
        config = client.json(Code.GET_TOPIC_CONFIG, {"topic": "offers"})
        assert config["attributes"] == {"message.type": "DELAY", "horolog.late": "drop 5m"}
        answer = client.call(
            Code.UPDATE_AND_CREATE_TOPIC,
            {"topic": "offers", "perm": 6, "attributes": "+horolog.late=drop soon"},
        )
        assert answer.code != Status.SUCCESS
        assert "horolog.late: 'soon' is not a duration" in answer.remark
        put(client, "offers", attributes="-horolog.late")
        assert door.submit(DescribeTopic("offers")).settings.late == "hand-over"


@pytest.mark.parametrize(
    ("attributes", "type"),
    [
        ("", None),
        ("-message.type", TopicType.MIXED),
        ("+cleanup.policy=COMPACTION", None),
        ("+message.type=UNSPECIFIED", TopicType.MIXED),
        ("+message.type=Normal", TopicType.NORMAL),
        ("+queue.type=BatchCQ, +message.type=MIXED", TopicType.MIXED),
    ],
)
def test_a_type_is_read_from_attributes(attributes: str, type: TopicType | None) -> None:
    assert attributes_wanted(attributes)[0] is type


def test_other_attributes_are_set_and_removed() -> None:
    assert attributes_wanted("+queue.type=BatchCQ, -c,+message.type=FIFO") == (
        TopicType.FIFO,
        {"queue.type": "BatchCQ", "c": None},
    )


@pytest.mark.parametrize("name", ["mesage.type", "horolog.lat", "Message.Type", "x" * 50])
def test_an_attribute_that_nobody_knows_is_refused(name: str) -> None:
    known = (
        "cleanup.policy, horolog.late, lite.topic.expiration, message.type, multi.tag, queue.type"
    )
    with pytest.raises(HorologError) as refused:
        attributes_wanted(f"+message.type=DELAY,+{name}=DELAY")
    assert refused.value.message == (
        f"attributes: {name[:40]!r} is not known; there are {known}, reserve.time"
    )


@pytest.mark.parametrize(
    "attributes", ["message.type=DELAY", "+", "-", "+=x", "+message.type", "-message.type=DELAY"]
)
def test_attributes_without_a_sign_or_value_are_refused(attributes: str) -> None:
    with pytest.raises(HorologError, match=r"attributes: .* is neither") as refused:
        attributes_wanted(attributes)
    assert refused.value.field == "attributes"


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"topic": ""}, Status.INVALID_PARAMETER, "topic is blank"),
        ({"topic": "no topic"}, Status.INVALID_PARAMETER, "topic 'no topic' has characters"),
        ({"topic": "t" * 128}, Status.INVALID_PARAMETER, "topic has 128 characters"),
        ({"topic": "TBW102"}, Status.INVALID_PARAMETER, "topic 'TBW102' is a system topic"),
        ({"writeQueueNums": 0}, Status.INVALID_PARAMETER, "writeQueueNums: 0; 1 to 1024"),
        ({"writeQueueNums": 1025}, Status.INVALID_PARAMETER, "writeQueueNums: 1025; 1 to 1024"),
        ({"writeQueueNums": "many"}, Status.INVALID_PARAMETER, "writeQueueNums: 'many' is no"),
        ({"perm": 1}, Status.INVALID_PARAMETER, "perm: 1; 2 (write), 4 (read)"),
        ({"perm": 0}, Status.INVALID_PARAMETER, "perm: 0; "),
        ({"perm": 9}, Status.INVALID_PARAMETER, "perm: 9; "),
        ({"topic": "eight", "readQueueNums": 4}, 29, "read_queues: topic 'eight' has 8, and their"),
        ({"perm": 99}, Status.INVALID_PARAMETER, "perm: 99; 0 to 15"),
        (
            {"attributes": "+message.type=LATE"},
            Status.INVALID_PARAMETER,
            "attributes: message.type 'LATE'; there are NORMAL",
        ),
        ({"topic": "eight", "writeQueueNums": 4, "readQueueNums": 4}, 29, "queues: topic 'eight'"),
        (
            {"topic": "later", "attributes": "+message.type=FIFO"},
            Status.TOPIC_EXIST_ALREADY,
            "topic 'later' exists with type delay; a type cannot be changed to fifo",
        ),
    ],
)
def test_what_is_wrong_with_a_topic_is_named_and_changes_nothing(
    tmp_path: Path, fields: dict[str, object], status: int, message: str
) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        put(client, "eight")
        put(client, "later", attributes="+message.type=DELAY")
        before = client.json(Code.GET_ALL_TOPIC_CONFIG)
        asked = {"topic": "new", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6, **fields}
        if "writeQueueNums" in fields and "readQueueNums" not in fields:
            asked["readQueueNums"] = fields["writeQueueNums"]
        answer = client.call(Code.UPDATE_AND_CREATE_TOPIC, asked)
        assert (answer.code, answer.remark[: len(message)]) == (status, message)
        assert client.json(Code.GET_ALL_TOPIC_CONFIG) == before


def test_stats_have_an_entry_for_every_queue_even_before_the_first_message(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=2)
        empty = {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
        answer = client.done(Code.GET_TOPIC_STATS_INFO, {"topic": "orders"})
        assert answer.body.startswith(
            b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:{'
        )
        assert _stats(answer.body) == [empty, empty]
        send(door, "orders", b"one")
        now_ms = door.engine.clock.wall_ms()
        full = {"lastUpdateTimestamp": now_ms, "maxOffset": 1, "minOffset": 0}
        found = _stats(client.done(Code.GET_TOPIC_STATS_INFO, {"topic": "orders"}).body)
        assert sorted(found, key=str) == sorted([empty, full], key=str)


def _stats(body: bytes) -> list[object]:
    rows = object_keys.rows(object_keys.read(body)["offsetTable"])
    assert [key["queueId"] for key, _ in rows] == list(range(len(rows)))
    return [value for _, value in rows]


@pytest.mark.parametrize("code", [Code.GET_TOPIC_CONFIG, Code.GET_TOPIC_STATS_INFO])
def test_an_unknown_topic_is_distinguished_from_an_illegal_one(tmp_path: Path, code: Code) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        unknown = client.call(code, {"topic": "nothing"})
        assert (unknown.code, unknown.remark) == (
            Status.TOPIC_NOT_EXIST,
            "topic 'nothing' does not exist",
        )
        assert client.call(code, {"topic": "a b"}).code == Status.INVALID_PARAMETER
        assert client.call(code).remark == "topic: missing"


def test_several_topics_are_made_at_once(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        java = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": False}
        wanted = [
            {**java, "topicName": "a", "attributes": {"+message.type": "DELAY"}},
            {**java, "topicName": "b", "attributes": {}},
        ]
        code = Code.UPDATE_AND_CREATE_TOPIC_LIST
        client.done(code, body={"topicConfigList": wanted})
        found = client.json(Code.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]
        types = {name: config["attributes"]["message.type"] for name, config in found.items()}
        assert types == {"a": "DELAY", "b": "MIXED"}
        for body, message in (
            ({}, "topicConfigList: a list of JSON objects is needed"),
            ({"topicConfigList": ["c"]}, "topicConfigList: a list of JSON objects is needed"),
            ({"topicConfigList": [{"topicName": "c"}, {}]}, "topic: missing"),
            (
                {"topicConfigList": [{"topicName": "c"}, {"topicName": "d", "perm": "x"}]},
                "perm: 'x'",
            ),
        ):
            answer = client.call(code, body=body)
            assert (answer.code, answer.remark[: len(message)]) == (
                Status.INVALID_PARAMETER,
                message,
            )
        assert client.json(Code.GET_ALL_TOPIC_CONFIG)["topicConfigTable"] == found


def test_a_deleted_topic_is_gone_unless_messages_of_it_wait(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders")
        door.create("later")
        send(door, "later", b"1", due_ms=door.engine.clock.wall_ms() + 60_000)
        for _ in range(2):
            client.done(Code.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})  # then it is gone already
            client.done(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "orders"})
        answer = client.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": "later"})
        assert answer.code == Status.NO_PERMISSION
        assert answer.remark.startswith(
            "topic 'later' cannot be deleted: messages of it wait to be handed over (1);"
        )
        for code in (Code.DELETE_TOPIC_IN_BROKER, Code.DELETE_TOPIC_IN_NAMESRV):
            assert client.call(code, {"topic": "a b"}).code == Status.INVALID_PARAMETER
        assert client.json(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {"topicList": ["later"]}


def test_a_topic_that_is_deleted_in_the_name_server_keeps_its_messages(tmp_path: Path) -> None:
    """Tools delete in the broker first; a producer may have made the topic again when they come to the name server."""
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=1)
        send(door, "orders", b"acknowledged")
        answer = client.done(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "orders"})
        assert answer.remark == (
            "topic 'orders' is there, and so is its route; delete it in the broker"
        )
        found = client.done(Code.GET_MAX_OFFSET, {"topic": "orders", "queueId": 0})
        assert found.fields["offset"] == "1"


def test_who_may_use_a_topic_and_which_queues_stands_in_its_route(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        put(client, "orders", perm=4, readQueueNums=8, writeQueueNums=4, order=True)
        config = client.json(Code.GET_TOPIC_CONFIG, {"topic": "orders"})
        assert (config["perm"], config["readQueueNums"], config["writeQueueNums"]) == (4, 8, 4)
        assert config["order"] is True
        route = client.json(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})["queueDatas"][0]
        assert (route["perm"], route["readQueueNums"], route["writeQueueNums"]) == (4, 8, 4)


@pytest.mark.parametrize(("asked", "kept"), [(7, 6), (5, 4), (3, 2)])
def test_a_permission_is_taken_without_the_bit_that_hands_it_on(
    tmp_path: Path, asked: int, kept: int
) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        put(client, "orders", perm=asked)
        assert client.json(Code.GET_TOPIC_CONFIG, {"topic": "orders"})["perm"] == kept


def test_sends_are_stopped_and_allowed_everywhere(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        put(client, "both")
        put(client, "sent", perm=2)
        asked = {"brokerName": "broker-a"}

        def perms() -> list[int]:
            table = client.json(Code.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]
            return [config["perm"] for config in table.values()]

        wiped = client.done(Code.WIPE_WRITE_PERM_OF_BROKER, asked)
        assert (wiped.fields["wipeTopicCount"], perms()) == ("1", [4, 2])
        added = client.done(Code.ADD_WRITE_PERM_OF_BROKER, asked)
        assert (added.fields["addTopicCount"], perms()) == ("1", [6, 2])
        other = client.call(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-b"})
        assert other.remark == "brokerName: 'broker-b' is not known here; this is 'broker-a'"


def test_delay_levels_are_queues_of_a_topic_for_tools(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=1)
        asked = {"topic": "SCHEDULE_TOPIC_XXXX"}
        route = client.json(Code.GET_ROUTEINFO_BY_TOPIC, asked)["queueDatas"][0]
        assert (route["readQueueNums"], route["perm"]) == (18, 4)
        config = client.json(Code.GET_TOPIC_CONFIG, asked)
        assert (config["readQueueNums"], config["perm"]) == (18, 4)
        nothing = {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
        assert _stats(client.done(Code.GET_TOPIC_STATS_INFO, asked).body) == [nothing] * 18
        send_levels(client, 1, 3, 3)
        found = _stats(client.done(Code.GET_TOPIC_STATS_INFO, asked).body)
        assert (found[0], found[2]) == (nothing | {"maxOffset": 1}, nothing | {"maxOffset": 2})
        door.advance(5_000)
        found = _stats(client.done(Code.GET_TOPIC_STATS_INFO, asked).body)
        assert found[0] == nothing | {"maxOffset": 1, "minOffset": 1}
        offsets = client.json(Code.GET_ALL_DELAY_OFFSET)["offsetTable"]
        assert offsets == {"1": 1, "3": 0}


def test_the_rate_of_delayed_messages_is_that_of_the_topic_of_the_levels(tmp_path: Path) -> None:
    """`mqadmin exportMetrics` takes its `scheduleInTps` from there."""
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=1)
        client.json(Code.GET_BROKER_RUNTIME_INFO)
        send_levels(client, 1, 3, 3)
        client.json(Code.GET_BROKER_RUNTIME_INFO)
        asked = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "SCHEDULE_TOPIC_XXXX"}
        found = client.json(Code.VIEW_BROKER_STATS_DATA, asked)
        assert (found["statsMinute"]["sum"], found["statsDay"]["sum"]) == (3, 3)
        stats = client.done(Code.GET_TOPIC_STATS_INFO, {"topic": "SCHEDULE_TOPIC_XXXX"})
        assert b'"topicPutTps":0.05' in stats.body


def send_levels(client: RemotingClient, *levels: int) -> None:
    """A message with each of these delay levels."""
    for level in levels:
        client.done(
            Code.SEND_MESSAGE,
            {
                "producerGroup": "senders",
                "topic": "orders",
                "queueId": 0,
                "sysFlag": 0,
                "bornTimestamp": 0,
                "flag": 0,
                "properties": f"DELAY\x01{level}\x02",
            },
            b"later",
        )


def test_topics_are_listed_in_pages_too(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        for name in ("c", "a", "b"):
            door.create(name, queues=1)
        answer = client.done(Code.GET_ALL_TOPIC_CONFIG, {"topicSeq": 1, "maxTopicNum": 1})
        assert answer.fields["totalTopicNum"] == "3"
        assert list(orjson.loads(answer.body)["topicConfigTable"]) == ["b"]
        everything = client.json(Code.GET_ALL_TOPIC_CONFIG)
        assert list(everything["topicConfigTable"]) == ["a", "b", "c"]
        assert everything["dataVersion"] == {"counter": 0, "stateVersion": 0, "timestamp": 0}
        for code, fields in (
            (Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
            (Code.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"}),
        ):
            assert client.json(code, fields) == {"topicList": ["a", "b", "c"]}
        other = client.call(Code.GET_TOPICS_BY_CLUSTER, {"cluster": "Other"})
        assert other.remark.startswith("cluster: 'Other' is not known here")


def test_system_topics_are_listed_with_the_brokers_address(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        for code in (Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER):
            found = client.json(code)
            assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a"} <= set(found["topicList"])
            assert found["brokerAddr"] == f"127.0.0.1:{door.broker[1]}"
