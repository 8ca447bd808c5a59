"""The remoting doors under clients that would have the broker keep much, or work long, for little."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.remoting_client import DEADLINE_S
from tests.support.remoting_door import remoting_door
from tests.support.remoting_requests import popping, pulling
from tests.unit.test_remoting_groups import JAVA
from tests.unit.test_remoting_hostile import gathered, sends
from tests.unit.test_remoting_members import join, of

from horolog.config_sources import load
from horolog.errors import ErrorCode, HorologError
from horolog.limits import MIB
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.frame_reader import Reader
from horolog.protocol.remoting.frame_writer import encode
from horolog.protocol.rocketmq.delays import without
from horolog.server.remoting.link import size_of
from horolog.server.remoting.node import Node


def test_a_property_given_a_million_times_is_refused_at_once() -> None:
    found, [(_, error)] = gathered(_with("POP_CK\x01x\x02" * 1_000_000))
    assert (found, error.code) == ([], ErrorCode.PROPERTIES_TOO_LARGE)


def _with(properties: str) -> Frame:
    frame = sends()
    return frame._replace(fields=frame.fields | {"i": properties})


@pytest.mark.parametrize(
    "text", ["", "A 1", "A 1|", "P 1", "P 1|A 1", "A 1|P 1|P 2|B|P 3", "P|P P", "P |P |"]
)
def test_a_property_is_taken_out_wherever_it_stands(text: str) -> None:
    stored = b"\x02" + text.encode().replace(b" ", b"\x01").replace(b"|", b"\x02")
    kept = [piece for piece in stored.split(b"\x02") if not piece.startswith(b"P\x01")]
    left = without(stored, b"\x02P\x01")
    assert b"\x02P\x01" not in left
    assert [piece for piece in left.split(b"\x02") if piece] == [piece for piece in kept if piece]


def test_long_headers_count_as_what_is_under_way() -> None:
    frame = Frame(Code.PULL_MESSAGE, 1, fields={"x": "y" * MIB}, body=b"b")
    [read] = Reader().receive(encode(frame))
    assert read == frame
    assert size_of(read) > MIB
    [small] = Reader().receive(encode(frame._replace(fields={"x": "y"})))
    assert size_of(small) < 1_024


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (Code.PULL_MESSAGE, pulling(sysFlag=6)),
        (Code.POP_MESSAGE, popping(pollTime=15_000)),
    ],
)
def test_a_request_that_waits_keeps_nothing_that_it_came_with(
    tmp_path: Path, code: Code, fields: dict[str, Any]
) -> None:
    """Else a few of them would be all that may be under way, and nothing would be read from anybody."""
    with remoting_door(tmp_path) as door, door.client() as client, door.client() as other:
        door.create("orders")
        for _ in range(8):
            client.ask(code, fields | {"x": "x" * 4 * MIB}, bytes(10 * MIB))
        deadline = time.monotonic() + DEADLINE_S
        while (
            door.within(lambda: sum(link.parked for link in door.front.doors["broker"]._links)) < 8
        ):
            other.done(Code.GET_BROKER_CLUSTER_INFO)
            assert time.monotonic() < deadline, "they do not wait"
        assert door.within(lambda: door.front._intake._under_way) < 64 * 1_024


def test_attributes_are_not_too_deep_to_be_answered(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        refused = 0
        for depth in range(240, 260):
            deep = orjson.loads(b"[" * depth + b"]" * depth)
            answer = client.call(
                Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                body=orjson.dumps(JAVA)[:-1] + b',"x":' + b"[" * depth + b"]" * depth + b"}",
            )
            refused += answer.code == Status.INVALID_PARAMETER
            assert deep
            client.done(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert refused


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"messageQueueTable":[]}', b'{"messageQueueTable":null}', b"{{"]
)
def test_one_client_that_talks_nonsense_is_left_out(tmp_path: Path, body: bytes) -> None:
    with remoting_door(tmp_path) as door, door.client() as client, door.client() as tool:
        join(client, "c1")
        asked = {"topic": "orders", "group": "workers"}
        number = tool.ask(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, asked)
        client.reply(of(client, Code.GET_CONSUMER_STATUS_FROM_CLIENT), body=body)
        answer = tool.answer(number)
        assert answer.code == Status.SUCCESS
        assert orjson.loads(answer.body)["consumerTable"] in ({}, {"c1": {}})


def test_a_time_that_is_none_is_not_passed_on(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders")
        join(client, "c1")
        asked = {"topic": "orders", "group": "workers", "queueId": 0, "offset": 0, "timestamp": "x"}
        answer = client.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, asked)
        assert (answer.code, answer.remark) == (29, "timestamp: 'x' is no number")


@pytest.mark.parametrize("topic", ["", "a b", "x" * 128])
def test_a_mode_is_of_a_topic(tmp_path: Path, topic: str) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        body = {"topic": topic, "consumerGroup": "g", "mode": "POP"}
        assert client.call(Code.SET_MESSAGE_REQUEST_MODE, body=body).code == 29


@pytest.mark.parametrize("offset", [-1, -5, 1 << 62, (1 << 63) - 1])
def test_no_message_is_anywhere_else(tmp_path: Path, offset: int) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        client.done(
            Code.HEART_BEAT, body={"clientID": "c", "consumerDataSet": [{"groupName": "g"}]}
        )
        back = client.call(Code.CONSUMER_SEND_MSG_BACK, {"group": "g", "offset": offset})
        view = client.call(Code.VIEW_MESSAGE_BY_ID, {"offset": offset})
        assert back.code and view.code
        assert "unexpected" not in back.remark + view.remark


@pytest.mark.parametrize("host", ["a b", "host:10911", "http://host", "[::1]", "a,b", "host/"])
def test_an_advertised_host_is_a_name_or_an_address(host: str) -> None:
    with pytest.raises(HorologError, match="--advertised-host") as refused:
        load({"advertised_host": host}, environment={})
    assert refused.value.code is ErrorCode.CONFIG


@pytest.mark.parametrize(
    ("host", "message"),
    [("broker.internal", "broker.internal:1"), ("10.0.0.1", "10.0.0.1:1"), ("::1", "[::1]:1")],
)
def test_an_advertised_host_is_in_routes_with_the_port(host: str, message: str) -> None:
    settings = load({"advertised_host": host}, environment={})
    engine: Any = None
    asked: Any = None
    node = Node(engine, advertised=settings.advertised_host, broker_port=1)
    assert node.address(asked) == message
