"""5.x messages to records and back; any request gives a value or exactly a HorologError."""

from __future__ import annotations

import hashlib

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import Delivered, MessageType, NewMessage
from horolog.protocol.grpc import deliveries
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.translate import (
    Peer,
    duration_ms,
    name_of,
    resource_of,
    timestamp_ms,
    to_record,
    to_send,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import RECORD_HEAD_BYTES, encode_layout

TOPIC = pb.Resource(name="t")
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
STAMPS = st.builds(Timestamp, seconds=INT64, nanos=INT32)
TEXT = st.text(max_size=20)
ODD_SYSTEMS = st.fixed_dictionaries(
    {"message_id": TEXT},
    optional={
        "tag": TEXT,
        "keys": st.lists(TEXT, max_size=3),
        "message_type": st.integers(0, 9),
        "body_encoding": st.integers(0, 4),
        "born_timestamp": STAMPS,
        "born_host": TEXT,
        "delivery_timestamp": STAMPS,
        "message_group": TEXT,
        "trace_context": TEXT,
        "queue_id": INT32,
        "delivery_attempt": INT32,
        "priority": INT32,
        "orphaned_transaction_recovery_duration": st.builds(Duration, seconds=INT64, nanos=INT32),
    },
)
WORDS = st.text("abcdefgh0123456789", min_size=1, max_size=12)
GOOD_SYSTEMS = st.fixed_dictionaries(
    {"message_id": WORDS},
    optional={
        "tag": WORDS,
        "keys": st.lists(WORDS, min_size=1, max_size=3),
        "body_encoding": st.sampled_from([pb.IDENTITY, pb.GZIP]),
        "born_timestamp": st.builds(Timestamp, seconds=st.integers(0, 4_000_000_000)),
        "born_host": WORDS,
        "delivery_timestamp": st.builds(
            Timestamp, seconds=st.integers(1, 4_000_000_000), nanos=st.just(5_000_000)
        ),
        "message_group": WORDS,
        "trace_context": WORDS,
    },
).filter(lambda system: not {"delivery_timestamp", "message_group"} <= system.keys())


def received(new: NewMessage, **more: object) -> pb.Message:
    """What a consumer would see of a record."""
    fields = {"queue_id": 3, "queue_offset": 9, "attempt": 2, "receipt_handle": "r", **more}
    delivered = Delivered(new.record[RECORD_HEAD_BYTES:], **fields)
    raw = deliveries.received(TOPIC.SerializeToString(), delivered)
    return pb.ReceiveMessageResponse.FromString(raw[5:]).message


@given(GOOD_SYSTEMS, st.binary(min_size=1, max_size=50), st.dictionaries(WORDS, TEXT, max_size=3))
def test_what_was_sent_is_what_is_received(system, body, user) -> None:
    user = {key: value for key, value in user.items() if value.isprintable()}
    sent = pb.Message(
        topic=TOPIC,
        body=body,
        user_properties=user,
        system_properties=pb.SystemProperties(**system),
    )
    got = received(to_record("t", sent, Peer(b"\x0a\0\0\x01", 77)))
    there, here = sent.system_properties, got.system_properties
    if there.HasField("message_group"):
        user = {**user, "__SHARDINGKEY": there.message_group}
    if there.HasField("trace_context"):
        user = {**user, "TRACE_CONTEXT": there.trace_context}
    assert (got.topic, got.body, dict(got.user_properties)) == (TOPIC, body, user)
    assert here.message_id == there.message_id
    assert (here.HasField("tag"), here.tag) == (there.HasField("tag"), there.tag)
    assert list(here.keys) == list(there.keys)
    assert here.message_group == there.message_group
    assert here.trace_context == there.trace_context
    assert here.HasField("delivery_timestamp") == there.HasField("delivery_timestamp")
    assert here.delivery_timestamp == there.delivery_timestamp
    assert here.born_timestamp.seconds == there.born_timestamp.seconds
    assert here.born_host == (there.born_host or "10.0.0.1:77")
    assert here.body_encoding == (there.body_encoding or pb.IDENTITY)
    assert here.body_digest == pb.Digest(
        type=pb.MD5, checksum=hashlib.md5(body).hexdigest().upper()
    )
    assert (here.queue_id, here.queue_offset, here.delivery_attempt) == (3, 9, 2)
    assert here.receipt_handle == "r"
    wanted = (
        pb.DELAY
        if there.HasField("delivery_timestamp")
        else pb.FIFO
        if there.HasField("message_group")
        else pb.NORMAL
    )
    assert here.message_type == wanted
    assert not here.HasField("invisible_duration")


@given(ODD_SYSTEMS, st.binary(max_size=5), st.dictionaries(TEXT, TEXT, max_size=3), TEXT)
def test_any_request_is_a_command_or_a_refusal(system, body, user, topic) -> None:
    message = pb.Message(
        topic=pb.Resource(name=topic),
        body=body,
        user_properties=user,
        system_properties=pb.SystemProperties(**system),
    )
    try:
        to_send(pb.SendMessageRequest(messages=[message, message]), Peer())
    except HorologError as error:
        assert error.message
    try:
        received(to_record("t", message, Peer()))
    except HorologError as error:
        assert error.field


@given(st.binary(max_size=200))
def test_any_bytes_that_are_a_message_at_all(content) -> None:
    try:
        message = pb.Message.FromString(content)
    except DecodeError:
        return
    try:
        to_record("t", message, Peer())
    except HorologError as error:
        assert error.message


@given(st.binary(max_size=120), st.integers(0, 1 << 62), st.integers(0, (1 << 31) - 1))
def test_any_stored_properties_can_be_shown(stored, born_ms, sys_flag) -> None:
    """Messages of other protocols come with properties that no 5.x client would send."""
    record = bytes(RECORD_HEAD_BYTES) + encode_layout(
        "t", b"x", stored, sys_flag & ~0x30, 0, born_ms, (b"\0\0\0\0", 0)
    )
    got = received(NewMessage(record, "", 0, 0, 0, MessageType.NORMAL))
    assert got.system_properties.message_type != 0
    assert not set(got.user_properties) & properties.HIDDEN


@pytest.mark.parametrize("due", ["soon", "-5", "9" * 40, "1e9", "١٢"])
def test_an_odd_due_time_of_another_protocol_is_tolerated(due) -> None:
    record = bytes(RECORD_HEAD_BYTES) + encode_layout(
        "t",
        b"x",
        properties.encode({properties.UNIQ_KEY: "id", properties.TIMER_DELIVER_MS: due}),
        0,
        0,
        0,
        (b"\0\0\0\0", 0),
    )
    got = received(NewMessage(record, "id", 0, 0, 0, MessageType.DELAY)).system_properties
    assert got.message_type == pb.DELAY


def test_a_broken_layout_is_a_refusal() -> None:
    with pytest.raises(HorologError) as caught:
        deliveries.received(b"", Delivered(b"\0" * 100, 0, 0, 1, "r"))
    assert caught.value.code is ErrorCode.MESSAGE_CORRUPTED


@given(STAMPS)
def test_timestamps_become_milliseconds_that_are_never_early(stamp) -> None:
    try:
        found = timestamp_ms(stamp, "delivery_timestamp", ErrorCode.ILLEGAL_DELIVERY_TIME)
    except HorologError as error:
        assert error.code is ErrorCode.ILLEGAL_DELIVERY_TIME
        assert error.field == "delivery_timestamp"
        return
    nanos = stamp.seconds * 1_000_000_000 + stamp.nanos
    assert nanos <= found * 1_000_000 < nanos + 1_000_000


@pytest.mark.parametrize(
    ("stamp", "ms"),
    [
        (Timestamp(), 0),
        (Timestamp(nanos=1), 1),
        (Timestamp(seconds=1, nanos=999_999_999), 2_000),
        (Timestamp(seconds=253_402_300_799), 253_402_300_799_000),
    ],
)
def test_rounding_and_ends_of_timestamps(stamp, ms) -> None:
    assert timestamp_ms(stamp, "f", ErrorCode.BAD_REQUEST) == ms


@given(st.builds(Duration, seconds=INT64, nanos=INT32))
def test_durations_become_milliseconds_or_a_refusal(duration) -> None:
    try:
        found = duration_ms(duration, "f", ErrorCode.ILLEGAL_INVISIBLE_TIME)
    except HorologError as error:
        assert error.code is ErrorCode.ILLEGAL_INVISIBLE_TIME
        return
    limit = 253_402_300_800_000
    exact = duration.seconds * 1000 + duration.nanos // 1_000_000
    assert found == max(-limit, min(exact, limit))


def test_a_namespace_goes_in_front_of_the_name() -> None:
    assert name_of(pb.Resource(resource_namespace="ns", name="t")) == "ns%t"
    assert name_of(pb.Resource(name="t")) == "t"


@pytest.mark.parametrize("prefix", ["%DLQ%", "%RETRY%", "%LATE%"])
def test_a_namespace_follows_what_a_topic_of_another_name_begins_with(prefix: str) -> None:
    """As in RocketMQ's 4.x clients; the dead letters of group `ns%g` are in `%DLQ%ns%g`."""
    assert name_of(pb.Resource(resource_namespace="ns", name=f"{prefix}g")) == f"{prefix}ns%g"
    assert name_of(pb.Resource(name=f"{prefix}g")) == f"{prefix}g"


@pytest.mark.parametrize("prefix", ["", "%DLQ%", "%RETRY%", "%LATE%"])
@pytest.mark.parametrize("namespace", ["", "ns", "ns%ns"])
@pytest.mark.parametrize("name", ["t", "ns%t"])
def test_a_name_is_taken_apart_as_it_was_put_together(
    prefix: str, namespace: str, name: str
) -> None:
    named = pb.Resource(resource_namespace=namespace, name=prefix + name)
    assert resource_of(name_of(named), namespace) == named


@pytest.mark.parametrize(
    ("system", "wanted"),
    [
        ({}, MessageType.NORMAL),
        ({"message_group": "g"}, MessageType.FIFO),
        ({"message_type": pb.FIFO, "message_group": "g"}, MessageType.FIFO),
        ({"delivery_timestamp": Timestamp(seconds=9)}, MessageType.DELAY),
        (
            {"message_type": pb.NORMAL, "delivery_timestamp": Timestamp(seconds=9)},
            MessageType.DELAY,
        ),
        ({"message_type": pb.TRANSACTION, "message_group": "g"}, MessageType.TRANSACTION),
    ],
)
def test_the_type_follows_from_the_fields(system, wanted) -> None:
    message = pb.Message(
        topic=TOPIC, body=b"x", system_properties=pb.SystemProperties(message_id="m", **system)
    )
    assert to_record("t", message, Peer()).type is wanted


@pytest.mark.parametrize(
    ("system", "field"),
    [
        ({"message_type": pb.FIFO, "delivery_timestamp": Timestamp(seconds=9)}, "message_type"),
        ({"message_type": pb.DELAY}, "message_type"),
    ],
)
def test_a_type_that_the_fields_contradict_is_refused(system, field) -> None:
    message = pb.Message(
        topic=TOPIC, body=b"x", system_properties=pb.SystemProperties(message_id="m", **system)
    )
    with pytest.raises(HorologError) as caught:
        to_record("t", message, Peer())
    assert (caught.value.code, caught.value.field) == (ErrorCode.TYPE_CONFLICT, field)
    assert caught.value.message.startswith(f"{field}: ")


def test_a_compressed_body_is_stored_and_returned_as_it_is() -> None:
    system = pb.SystemProperties(message_id="m", body_encoding=pb.GZIP)
    record = to_record(
        "t", pb.Message(topic=TOPIC, body=b"\x1f\x8b", system_properties=system), Peer()
    )
    stored = layout.decode(record.record[RECORD_HEAD_BYTES:])
    assert stored.sys_flag & layout.COMPRESSED
    got = received(record)
    assert (got.body, got.system_properties.body_encoding) == (b"\x1f\x8b", pb.GZIP)
