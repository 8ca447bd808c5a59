"""Bounds of large gRPC requests, which are checked before an object is made of each field (P11)."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.message import DecodeError
from grpc_door import ENDPOINTS, HEADERS, Door, message, sending, with_door

from horolog.errors import ErrorCode, HorologError
from horolog.limits import (
    ACKS_PER_REQUEST_MAX,
    BODY_MAX,
    CALL_BYTES_MAX,
    ENDPOINTS_BYTES_MAX,
    MIB,
    SEND_FIELDS_MAX,
    SEND_PROPERTIES_BYTES,
    TELEMETRY_BYTES_MAX,
)
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.large_sends import check_large_send
from horolog.protocol.grpc.ready import encode_field
from horolog.server.grpc_front import SERVICE


def unknown(size: int) -> bytes:
    """A field that no request has."""
    return encode_field(99, bytes(size))


def refusal(raw: bytes) -> HorologError:
    with pytest.raises(HorologError) as caught:
        check_large_send(raw)
    assert (caught.value.code, caught.value.field) == (ErrorCode.BAD_REQUEST, "messages")
    return caught.value


def test_what_clients_send_is_let_through() -> None:
    full = pb.SendMessageRequest(
        messages=[
            pb.Message(
                topic=pb.Resource(name="t"),
                user_properties={f"key{n}": "v" * 100 for n in range(100)},
                body=bytes(BODY_MAX),
            )
            for _ in range(32)
        ]
    )
    check_large_send(full.SerializeToString())
    check_large_send(b"\xff" * 100)  # protobuf refuses it


def test_too_many_fields_are_refused_unread() -> None:
    """A message without a field has two bytes, and protobuf makes more than 80 of it."""
    empty = pb.SendMessageRequest(messages=[pb.Message()]).SerializeToString()
    assert len(empty) == 2
    assert (
        "more than 262144 fields in one request" in refusal(empty * (SEND_FIELDS_MAX + 1)).message
    )
    inside = b"\x0a\0" * (SEND_FIELDS_MAX + 1)  # topics of one message
    large = pb.Message(body=bytes(SEND_PROPERTIES_BYTES)).SerializeToString() + inside
    assert "fields" in refusal(in_request(large)).message


KEYS = pb.SystemProperties(keys=["k"]).SerializeToString()
ONE = b"\x0a\0"


@pytest.mark.parametrize(
    "front",
    [
        b"\x10\x01",  # a number
        b"\xa8\x01\xff\x01",  # with a tag and a value of two bytes
        b"\x11" + bytes(8),
        b"\x15" + bytes(4),
        encode_field(99, b"text"),
        b"\x2b\x2c",  # a group
    ],
)
def test_fields_that_no_client_has_do_not_end_the_count(front: bytes) -> None:
    many = ONE * (SEND_FIELDS_MAX + 1)
    pb.SendMessageRequest.FromString(front + ONE)
    assert "fields" in refusal(front + many).message
    assert "fields" in refusal(in_request(front + many)).message


def test_tags_with_superfluous_bytes_count_too() -> None:
    assert len(pb.SendMessageRequest.FromString(b"\x8a\0\0" * 3).messages) == 3
    assert "fields" in refusal(b"\x8a\0\0" * (SEND_FIELDS_MAX + 1)).message


@pytest.mark.parametrize("key", [KEYS, b"\x92\0\x01k"])
def test_keys_are_counted(key: bytes) -> None:
    assert pb.SystemProperties.FromString(key * 2).keys == ["k", "k"]
    some = encode_field(3, key * (SEND_FIELDS_MAX // 20))
    assert "fields" in refusal(in_request(some) * 21).message


def in_request(one: bytes) -> bytes:
    """A request of a message that is encoded already."""
    return encode_field(1, one)


def test_what_is_no_body_is_bounded() -> None:
    more = unknown(SEND_PROPERTIES_BYTES)
    said = refusal(in_request(pb.Message(body=bytes(MIB)).SerializeToString() + more)).message
    assert f"at most {SEND_PROPERTIES_BYTES} bytes besides bodies are allowed" in said
    assert "besides bodies" in refusal(more).message


@pytest.mark.parametrize("end", [b"\x0a", b"\x0a\xff", b"\x0a\xff\xff\xff\xff\xff\xff"])
def test_what_is_cut_is_no_request(end: bytes) -> None:
    body = pb.Message(body=bytes(SEND_PROPERTIES_BYTES)).SerializeToString()
    with pytest.raises(DecodeError):
        check_large_send(in_request(body) + end)


def test_calls_without_messages_are_smaller(tmp_path) -> None:
    async def story(door: Door) -> None:
        acks = pb.AckMessageRequest().SerializeToString() + unknown(CALL_BYTES_MAX)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await door.call("AckMessage", acks)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert f"at most {CALL_BYTES_MAX} are allowed" in (caught.value.details() or "")
        large = sending(message(body=bytes(2 * CALL_BYTES_MAX)))
        assert (await door.call("SendMessage", large)).status.code == pb.OK
        acks = pb.AckMessageRequest(group=pb.Resource(name="g"), topic=pb.Resource(name="mixed"))
        acks.entries.extend([pb.AckMessageEntry()] * (ACKS_PER_REQUEST_MAX + 1))
        refused = await door.call("AckMessage", acks)
        assert refused.status.code == pb.BAD_REQUEST
        assert not refused.entries
        endpoints = pb.Endpoints(
            scheme=pb.IPv4, addresses=[pb.Address(host="h" * ENDPOINTS_BYTES_MAX)]
        )
        route = pb.QueryRouteRequest(topic=pb.Resource(name="mixed"), endpoints=endpoints)
        assert (await door.call("QueryRoute", route)).status.code == pb.ILLEGAL_ACCESS_POINT
        strange = pb.Resource.FromString(encode_field(2, b"mixed") + unknown(100))
        route = pb.QueryRouteRequest(topic=strange, endpoints=ENDPOINTS)
        answer = await door.call("QueryRoute", route)
        assert {queue.topic.ByteSize() for queue in answer.message_queues} == {len("mixed") + 2}
        many = b"\x0a\0" * (SEND_FIELDS_MAX + 1)
        assert (await door.call("SendMessage", many)).status.code == pb.BAD_REQUEST
        stream = door.channel.stream_stream(f"/{SERVICE}/Telemetry")(metadata=HEADERS)
        await stream.write(unknown(TELEMETRY_BYTES_MAX))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        stream = door.channel.stream_stream(f"/{SERVICE}/Telemetry")(metadata=HEADERS)
        settings = pb.Settings.FromString(unknown(CALL_BYTES_MAX))
        settings.publishing.topics.add(name="mixed")
        await stream.write(pb.TelemetryCommand(settings=settings).SerializeToString())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert f"at most {CALL_BYTES_MAX} are allowed" in (caught.value.details() or "")

    with_door(tmp_path, story)
