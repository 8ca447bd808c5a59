"""What is read of a request without protobuf's objects is what protobuf reads, or is left to it."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from horolog.errors import HorologError
from horolog.limits import BODY_MAX, PROPERTIES_MAX
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc import quick_acks, quick_sends
from horolog.protocol.grpc.quick_acks import QuickAck, read_ack
from horolog.protocol.grpc.quick_records import gather, to_send_quickly
from horolog.protocol.grpc.quick_sends import QuickSend, read_send
from horolog.protocol.grpc.ready import all_acknowledged
from horolog.protocol.grpc.translate import Peer, name_of, to_send
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import RECORD_HEAD_BYTES
from horolog.ready.receipt import Receipt, encode_receipt

PEER = Peer(b"\x0a\0\0\1", 1234)
ODD = st.sampled_from(["", "a", "b c", "ä", "\x01", "x" * 130, "|", "a\ud7ff"])
STAMPS = st.builds(
    Timestamp,
    seconds=st.sampled_from([0, 1, 1_700_000_000, 253_402_300_799, 253_402_300_800, -1, 1 << 62]),
    nanos=st.sampled_from([0, 1, 5_000_000, 999_999_999, -1, 2_000_000_000]),
)
GOOD = st.builds(Timestamp, seconds=st.just(1_700_000_000), nanos=st.integers(0, 999_999_999))
SYSTEM = st.fixed_dictionaries(
    {
        "message_id": st.one_of(
            st.just("01AB"), st.text("0123456789ABCDEF", min_size=34, max_size=34), ODD
        )
    },
    optional={
        "tag": st.one_of(st.just("tag"), ODD),
        "keys": st.lists(st.one_of(st.just("key"), ODD), max_size=3),
        "message_type": st.integers(0, 7),
        "body_encoding": st.integers(0, 3),
        "born_timestamp": st.one_of(GOOD, STAMPS),
        "born_host": st.one_of(st.just("host"), ODD),
        "delivery_timestamp": st.one_of(GOOD, STAMPS),
        "message_group": ODD,
        "trace_context": ODD,
        "queue_id": st.integers(0, 300),
        "body_digest": st.just(pb.Digest(type=pb.CRC32, checksum="0")),
        "priority": st.integers(0, 3),
        "store_host": ODD,
    },
)
PLAIN = st.text("abc9_-", min_size=1, max_size=40)
GOOD_SYSTEM = st.fixed_dictionaries(
    {"message_id": PLAIN},
    optional={
        "tag": PLAIN,
        "keys": st.lists(PLAIN, max_size=3),
        "message_type": st.sampled_from(
            [pb.MESSAGE_TYPE_UNSPECIFIED, pb.NORMAL, pb.FIFO, pb.DELAY]
        ),
        "body_encoding": st.sampled_from([pb.IDENTITY, pb.GZIP]),
        "born_timestamp": GOOD,
        "born_host": PLAIN,
        "delivery_timestamp": GOOD,
        "message_group": PLAIN,
        "trace_context": PLAIN,
        "queue_id": st.integers(0, 300),
    },
)
GOOD_MESSAGES = st.builds(
    pb.Message,
    topic=st.just(pb.Resource(resource_namespace="n", name="t")),
    user_properties=st.dictionaries(PLAIN, PLAIN, max_size=3),
    system_properties=st.builds(lambda fields: pb.SystemProperties(**fields), GOOD_SYSTEM),
    body=st.binary(min_size=1, max_size=20),
)
MESSAGES = st.builds(
    pb.Message,
    topic=st.sampled_from(
        [pb.Resource(name="t")] * 4
        + [pb.Resource(name="u"), pb.Resource(), pb.Resource(resource_namespace="n", name="t")]
    ),
    user_properties=st.dictionaries(ODD, ODD, max_size=3),
    system_properties=st.builds(lambda fields: pb.SystemProperties(**fields), SYSTEM),
    body=st.sampled_from([b"", b"b", b"x" * 200, b"x" * 20_000]),
)
REQUESTS = st.lists(MESSAGES, max_size=4).map(lambda m: pb.SendMessageRequest(messages=m))


def decided(make, request) -> object:
    """A command with its records taken apart, and refusals in words; or the refusal of the whole request."""
    try:
        command, refused = make(request, PEER)
    except HorologError as error:
        return error.code, error.message, error.field, error.limit
    columns, at, records = command.columns(), 0, []
    for size in columns.sizes:
        record = columns.records[at : at + size]
        at += size
        stored = layout.decode(record[RECORD_HEAD_BYTES:])
        known = properties.decode(stored.properties)
        records.append(
            (
                record[:RECORD_HEAD_BYTES],
                stored._replace(properties=b""),
                known,
                len(stored.properties),
            )
        )
    assert at == len(columns.records)
    fields = {i: (e.code, e.message, e.field, e.limit) for i, e in refused.items()}
    return command.topic, records, fields


def compare(raw: bytes) -> bool:
    """Whether it is read quickly; both ways must decide the same."""
    try:
        whole = pb.SendMessageRequest.FromString(raw)
    except DecodeError:
        with pytest.raises(DecodeError):
            read_send(raw)
        return False
    read = read_send(raw)
    if not isinstance(read, QuickSend):
        assert read == whole
        return False
    assert read.names() == [message.system_properties.message_id for message in whole.messages]
    assert decided(to_send_quickly, read) == decided(to_send, whole)
    return True


ONE = st.one_of(GOOD_MESSAGES, GOOD_MESSAGES, MESSAGES)


@settings(max_examples=200)
@given(st.lists(st.lists(ONE, min_size=1, max_size=4), min_size=1, max_size=20))
def test_sends_that_are_gathered_have_the_records_that_each_has_alone(batches) -> None:
    raws = [pb.SendMessageRequest(messages=each).SerializeToString() for each in batches]
    requests = [each for each in map(read_send, raws) if isinstance(each, QuickSend)]
    peers = [PEER._replace(port=port) for port in range(len(requests))]
    found, alone = gather(requests, peers)
    assert len({gathered.command.topic for gathered in found}) == len(found)
    places = [*alone]
    for command, ids, own, ends in found:
        columns, at, first = command.columns(), 0, 0
        for place, end in zip(own, ends, strict=True):
            single, refused = to_send_quickly(requests[place], peers[place])
            assert not refused
            sizes = columns.sizes[first:end]
            assert single.columns() == (columns.records[at : at + sum(sizes)], sizes)
            assert requests[place].names() == [name.decode() for name in ids[first:end]]
            at, first = at + sum(sizes), end
        assert (at, first) == (len(columns.records), len(ids))
        places += own
    assert sorted(places) == list(range(len(requests)))
    for place in alone:
        try:
            _, refused = to_send_quickly(requests[place], PEER)
        except HorologError:
            continue
        assert refused


@given(REQUESTS)
def test_sends_with_anything_odd(request) -> None:
    compare(request.SerializeToString())


@settings(max_examples=400)
@given(st.lists(GOOD_MESSAGES, min_size=1, max_size=4))
def test_sends_as_clients_make_them(messages) -> None:
    assert compare(pb.SendMessageRequest(messages=messages).SerializeToString())


@settings(max_examples=400)
@given(REQUESTS, st.integers(0, 400), st.integers(0, 8), st.binary(max_size=8))
def test_sends_that_are_broken_anywhere(request, at, cut, junk) -> None:
    raw = request.SerializeToString()
    at %= len(raw) + 1
    compare(raw[:at] + junk + raw[at + cut :])


def usual(**more) -> pb.Message:
    """As official clients make them."""
    system = pb.SystemProperties(
        message_id="01" + "AB" * 16,
        tag="tag",
        keys=["k", "l"],
        body_encoding=pb.IDENTITY,
        message_type=pb.DELAY,
        born_timestamp=Timestamp(seconds=1_700_000_000, nanos=5_000_000),
        born_host="producer-1",
        delivery_timestamp=Timestamp(seconds=1_800_000_000, nanos=123_000_000),
        queue_id=3,
    )
    made = pb.Message(topic=pb.Resource(name="t"), system_properties=system, body=b"body")
    made.user_properties["color"] = "red"
    made.MergeFrom(pb.Message(**more))
    return made


def test_what_official_clients_send_is_read_quickly() -> None:
    request = pb.SendMessageRequest(messages=[usual(), usual(body=b"x" * 300), usual()])
    assert compare(request.SerializeToString())


def test_messages_that_differ_in_their_keys_are_of_one_form() -> None:
    """Each of two batches: keys of one length, as many, and as many bytes with another number of keys."""
    for keys in (
        ["order-17"],
        ["order-18"],
        ["order-1x"],
        ["a", "b-c-d"],
        ["a b-c-de"],
        ["\x01rder-17"],
    ):
        one, other = usual(), usual()
        del one.system_properties.keys[:], other.system_properties.keys[:]
        one.system_properties.keys.append("order-16")
        other.system_properties.keys.extend(keys)
        request = pb.SendMessageRequest(messages=[one, other]).SerializeToString()
        refused = keys[0] in ("a b-c-de", "\x01rder-17")
        assert compare(request) is not refused


def test_a_batch_without_a_look_at_each_field(monkeypatch) -> None:
    """What differs in id, key, times and body alone is cut like the message before it."""
    messages = []
    for i in range(32):
        message = usual(body=b"%04d" % i)
        message.system_properties.message_id = f"01{i:032X}"
        message.system_properties.keys[:] = [f"order-{i:04}"]
        message.system_properties.delivery_timestamp.nanos += i * 1_000_000
        messages.append(message)
    raw = pb.SendMessageRequest(messages=messages).SerializeToString()
    assert compare(raw)
    looked: list[int] = []
    monkeypatch.setattr(quick_sends, "_form_of", lambda _raw, at: looked.append(at))
    assert isinstance(read_send(raw), QuickSend)
    assert not looked


@pytest.mark.parametrize("size", [(1 << 14) - 200, 1 << 14, (1 << 14) + (1 << 7), 1 << 15])
def test_sizes_that_begin_with_the_same_bytes(size) -> None:
    """A length has more bytes than a form is remembered by, from 16 KiB on."""
    messages = [
        usual(body=b"x" * (size - more)) for more in (0, 1, 128, 0, 1 << 14)[: 4 + (size > 1 << 14)]
    ]
    assert compare(pb.SendMessageRequest(messages=messages).SerializeToString())


FIELDS = [
    b"\x1a\x02ID",  # message id
    b"\x3a\x02\x08\x05",  # born
    b"\x5a\x02\x08\x07",  # due
    b"\x28\x01",
    b"\x30\x03",
    b"\x30\x83\x00",  # in more bytes than it needs
    b"\x0a\x01t",
    b"\x12\x01k",
    b"\x42\x01h",
    b"\x8a\x01\x01g",
    b"\x68\x01",
    b"\xfa\x06\x01?",  # of a number that nobody knows yet
    b"\xd3\x06",  # a group that does not end
]


@settings(max_examples=400)
@given(st.lists(st.sampled_from(FIELDS), max_size=7), st.lists(st.sampled_from(FIELDS), max_size=3))
def test_system_properties_in_any_order(fields, more) -> None:
    def message(fields: list[bytes]) -> bytes:
        system = b"".join(fields)
        content = b"\x0a\x03\x12\x01t\x1a" + bytes((len(system),)) + system + b"\x22\x01b"
        return b"\x0a" + bytes((len(content),)) + content

    compare(message(fields) + message([FIELDS[0], *more]))


@pytest.mark.parametrize("size", [0, 1, BODY_MAX, BODY_MAX + 1])
def test_limits_of_a_body(size) -> None:
    message = usual()
    message.body = b"x" * size
    compare(pb.SendMessageRequest(messages=[message, usual()]).SerializeToString())


@pytest.mark.parametrize(
    "size", [PROPERTIES_MAX - 20, PROPERTIES_MAX - 5, PROPERTIES_MAX + 1, 40_000]
)
def test_limits_of_properties(size) -> None:
    message = usual(user_properties={"x": "y" * size})
    compare(pb.SendMessageRequest(messages=[message, usual()]).SerializeToString())


def test_lengths_in_more_bytes_than_they_need() -> None:
    raw = pb.SendMessageRequest(messages=[usual(body=b"x" * 100)]).SerializeToString()
    assert raw[1] >= 0x80
    assert not compare(raw[:2] + bytes((raw[2] | 0x80, 0)) + raw[3:])
    assert not compare(b"\x0a\x83\x00\x1a\x01a")


HANDLE = st.text("aB0_-", min_size=60, max_size=60)
ENTRIES = st.lists(
    st.builds(
        pb.AckMessageEntry,
        message_id=st.one_of(
            st.just("01AB"), st.text("0123456789ABCDEF", min_size=4, max_size=4), ODD
        ),
        receipt_handle=st.one_of(HANDLE, ODD),
    ),
    max_size=4,
)
ACKS = st.builds(
    pb.AckMessageRequest,
    group=st.sampled_from([pb.Resource(name="g"), pb.Resource(resource_namespace="n", name="g")]),
    topic=st.sampled_from([pb.Resource(name="t"), pb.Resource(), pb.Resource(name="ä")]),
    entries=ENTRIES,
)
GOOD_ENTRIES = st.lists(
    st.builds(pb.AckMessageEntry, message_id=st.just("01AB"), receipt_handle=HANDLE),
    min_size=1,
    max_size=4,
)


def compare_ack(raw: bytes) -> bool:
    """The same for a request to acknowledge."""
    try:
        whole = pb.AckMessageRequest.FromString(raw)
    except DecodeError:
        with pytest.raises(DecodeError):
            read_ack(raw)
        return False
    read = read_ack(raw)
    if not isinstance(read, QuickAck):
        assert read == whole
        return False
    assert (read.group, read.topic) == (name_of(whole.group), name_of(whole.topic))
    assert read.receipt_handles == [entry.receipt_handle for entry in whole.entries]
    named = [(entry.message_id, entry.receipt_handle) for entry in whole.entries]
    assert read.acknowledged() == all_acknowledged(named)
    assert read.as_protobuf() == whole
    return True


def test_handles_are_as_long_as_they_are_made() -> None:
    made = encode_receipt(Receipt(1, 2, 3, 4, 5, 6, 7, 8))
    assert len(made) == quick_acks.CHARACTERS


@given(ACKS)
def test_acks_with_anything_odd(request) -> None:
    compare_ack(request.SerializeToString())


@given(GOOD_ENTRIES)
def test_acks_as_clients_make_them(entries) -> None:
    group, topic = pb.Resource(name="g"), pb.Resource(name="t")
    made = pb.AckMessageRequest(group=group, topic=topic, entries=entries)
    assert compare_ack(made.SerializeToString())


@settings(max_examples=400)
@given(GOOD_ENTRIES, st.integers(0, 400), st.integers(0, 3), st.binary(max_size=3))
def test_acks_that_are_broken_anywhere(entries, at, cut, junk) -> None:
    group, topic = pb.Resource(name="g"), pb.Resource(name="t")
    raw = pb.AckMessageRequest(group=group, topic=topic, entries=entries).SerializeToString()
    at %= len(raw) + 1
    compare_ack(raw[:at] + junk + raw[at + cut :])
