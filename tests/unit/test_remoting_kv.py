"""The name server's table of values: durable, bounded, and told in routes."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from tests.support.remoting_door import remoting_door

from horolog.protocol.commands import CreateTopic, TopicType
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.topic_commands import TopicSettings

ONE = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "broker-a:4"}


def test_values_are_kept(tmp_path: Path) -> None:
    """Also over a start."""
    with remoting_door(tmp_path) as door, door.client() as client:
        assert client.call(Code.GET_KV_CONFIG, ONE).code == Status.QUERY_NOT_FOUND
        client.done(Code.PUT_KV_CONFIG, ONE)
        client.done(Code.PUT_KV_CONFIG, ONE | {"key": "other"})
        assert client.done(Code.GET_KV_CONFIG, ONE).fields == {"value": "broker-a:4"}
    with remoting_door(tmp_path) as door, door.client() as client:
        answer = client.json(Code.GET_KVLIST_BY_NAMESPACE, ONE)
        assert answer == {"table": {"orders": "broker-a:4", "other": "broker-a:4"}}
        for key in ("orders", "other", "other"):
            client.done(Code.DELETE_KV_CONFIG, ONE | {"key": key})
        assert client.json(Code.GET_KVLIST_BY_NAMESPACE, ONE) == {"table": {}}
        assert orjson.loads((tmp_path / "data" / "namesrv-kv.json").read_bytes()) == {}


@pytest.mark.parametrize("content", [b"", b"\0\xff", b"[]", b'{"a": {"b": 1}}'])
def test_a_damaged_table_is_set_aside(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It refused the start of a broker with intact messages."""
    with remoting_door(tmp_path):
        pass
    path = tmp_path / "data" / "namesrv-kv.json"
    path.write_bytes(content)
    with remoting_door(tmp_path) as door, door.client() as client:
        assert client.json(Code.GET_KVLIST_BY_NAMESPACE, ONE) == {"table": {}}
        client.done(Code.PUT_KV_CONFIG, ONE)
    assert path.with_name("namesrv-kv.json.damaged").read_bytes() == content
    assert "namesrv-kv.json is no table" in caplog.text
    with remoting_door(tmp_path) as door, door.client() as client:
        assert client.done(Code.GET_KV_CONFIG, ONE).fields == {"value": "broker-a:4"}


def test_a_table_too_large_changes_nothing(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        client.done(Code.PUT_KV_CONFIG, ONE)
        answer = client.call(Code.PUT_KV_CONFIG, ONE | {"value": "x" * (1 << 20)})
        assert answer.code == Status.INVALID_PARAMETER
        assert answer.remark.startswith("value: the table would have ")
        assert client.done(Code.GET_KV_CONFIG, ONE).fields == {"value": "broker-a:4"}


def test_a_route_has_the_permission_and_the_queues_of_its_topic(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        settings = TopicSettings(perm=4, read_queues=3, write_queues=2)
        door.submit(CreateTopic("orders", TopicType.MIXED, 4, settings))
        (answer,) = client.json(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})["queueDatas"]
        assert (answer["perm"], answer["readQueueNums"], answer["writeQueueNums"]) == (4, 3, 2)


def test_a_route_has_the_order_of_its_topic(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders")
        assert "orderTopicConf" not in client.json(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        client.done(Code.PUT_KV_CONFIG, ONE)
        route = client.json(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        assert route["orderTopicConf"] == "broker-a:4"
