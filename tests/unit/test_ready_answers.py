"""Answers made as bytes are what protobuf would have made."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from itertools import pairwise

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import HorologError
from horolog.limits import BODY_MAX
from horolog.protocol.commands import Delivered
from horolog.protocol.grpc import deliveries, message_fields
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.deliveries import Deliveries
from horolog.protocol.grpc.ready import all_acknowledged, all_stored, each_stored, varint
from horolog.protocol.grpc.status import OK
from horolog.protocol.http2.grpc_wire import framed
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import RECORD_HEAD_BYTES, encode_layout


def stamp(ms: int) -> Timestamp:
    return Timestamp(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def host_text(host: tuple[bytes, int]) -> str:
    ip, port = host
    text = ".".join(map(str, ip)) if len(ip) == 4 else ip.hex(":", 2)
    return f"{text}:{port}"


def by_protobuf(topic: pb.Resource, delivered: Delivered) -> pb.Message:
    """The message as a 5.x consumer sees it; `topic` is echoed as the client named it."""
    stored = layout.decode(delivered.layout)
    known = properties.decode(stored.properties)
    system = pb.SystemProperties(
        message_id=known.get(properties.UNIQ_KEY, ""),
        body_digest=pb.Digest(
            type=pb.MD5,
            checksum=hashlib.md5(stored.body, usedforsecurity=False).hexdigest().upper(),
        ),
        body_encoding=pb.GZIP if stored.sys_flag & layout.COMPRESSED else pb.IDENTITY,
        message_type=pb.NORMAL,
        born_timestamp=stamp(stored.born_ms),
        born_host=known.get(properties.BORN_HOST) or host_text(stored.born_host),
        store_timestamp=stamp(stored.store_ms),
        store_host=host_text(stored.store_host),
        receipt_handle=delivered.receipt_handle,
        queue_id=delivered.queue_id,
        queue_offset=delivered.queue_offset,
        delivery_attempt=delivered.attempt + stored.reconsume_times,
    )
    if known.get(properties.DLQ_ORIGIN_TOPIC):
        system.dead_letter_queue.topic = known[properties.DLQ_ORIGIN_TOPIC]
        system.dead_letter_queue.message_id = known.get(properties.DLQ_ORIGIN_MESSAGE_ID, "")
    if known.get(properties.TAGS):
        system.tag = known[properties.TAGS]
    system.keys.extend(key for key in known.get(properties.KEYS, "").split(" ") if key)
    if known.get(properties.SHARDING_KEY):
        system.message_type = pb.FIFO
        system.message_group = known[properties.SHARDING_KEY]
    due = known.get(properties.TIMER_DELIVER_MS, "")
    if due:
        system.message_type = pb.DELAY
        if due.isdecimal() and len(due) <= 15:
            system.delivery_timestamp.CopyFrom(stamp(int(due)))
    if properties.DELAYS & (known.keys() - {properties.TIMER_DELIVER_MS}):
        system.message_type = pb.DELAY
    if known.get(properties.TRACE_CONTEXT):
        system.trace_context = known[properties.TRACE_CONTEXT]
    shown = {properties.SHARDING_KEY, properties.TRACE_CONTEXT}
    user = {
        name: value
        for name, value in known.items()
        if name in shown or not properties.is_hidden(name)
    }
    return pb.Message(topic=topic, user_properties=user, system_properties=system, body=stored.body)


def received(topic: pb.Resource, *delivered: Delivered) -> list[pb.Message]:
    """What a client reads of an answer."""
    raw, found = Deliveries().all_received(topic.SerializeToString(), delivered), []
    while raw:
        end = 5 + int.from_bytes(raw[:5], "big")
        found.append(pb.ReceiveMessageResponse.FromString(raw[5:end]).message)
        raw = raw[end:]
    return found


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)


@given(
    st.lists(st.tuples(TEXT, st.integers(0, 2**62), st.text("aZ09_=", max_size=300)), max_size=5)
)
def test_stored_messages(entries) -> None:
    wanted = pb.SendMessageResponse(
        status=OK,
        entries=[
            pb.SendResultEntry(
                status=OK,
                message_id=name,
                transaction_id=name,
                offset=offset,
                recall_handle=handle,
            )
            for name, offset, handle in entries
        ],
    )
    given = [(name, offset, handle.encode()) for name, offset, handle in entries]
    assert all_stored(given) == framed(wanted.SerializeToString())
    assert each_stored(given, range(1, len(given) + 1)) == [all_stored([entry]) for entry in given]
    ends = [end for end in range(1, len(given)) if end % 3] + [len(given)] * bool(given)
    parts = [given[start:end] for start, end in pairwise([0, *ends])]
    assert each_stored(given, ends) == list(map(all_stored, parts))


@given(st.lists(st.tuples(st.one_of(st.just(""), TEXT), TEXT), max_size=5))
def test_acknowledged_messages(entries) -> None:
    wanted = pb.AckMessageResponse(
        status=OK,
        entries=[
            pb.AckMessageResultEntry(message_id=name, receipt_handle=handle, status=OK)
            for name, handle in entries
        ],
    )
    assert all_acknowledged(entries) == framed(wanted.SerializeToString())


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=20)
STORED = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        (
            "UNIQ_KEY",
            "TAGS",
            "KEYS",
            "__SHARDINGKEY",
            "TRACE_CONTEXT",
            "__BORNHOST",
            "mine",
            "WAIT",
        ),
        WORD,
    )
    | {"DELAY": st.just("3"), "TIMER_DELAY_SEC": st.just("3"), "__STARTDELIVERTIME": st.just("3")}
    | {"TIMER_DELIVER_MS": st.one_of(WORD, st.integers(0, 10**17).map(str))},
)


@given(
    STORED,
    st.binary(max_size=300),
    st.integers(-(2**40), 2**45),
    st.sampled_from([0, layout.COMPRESSED]),
    st.tuples(st.binary(min_size=4, max_size=4), st.integers(0, 65_535)),
    st.tuples(st.integers(0, 300), st.integers(0, 2**40), st.integers(1, 40)),
)
def test_received_messages(stored, body, born_ms, flag, host, place) -> None:
    record = bytes(RECORD_HEAD_BYTES) + encode_layout(
        "t", body, properties.encode(stored), flag, 0, born_ms, host
    )
    queue_id, offset, attempt = place
    delivered = Delivered(record[RECORD_HEAD_BYTES:], queue_id, offset, attempt, "handle")
    topic = pb.Resource(resource_namespace="n", name="t")
    assert received(topic, delivered, delivered) == [by_protobuf(topic, delivered)] * 2


NAMES = ("UNIQ_KEY", "TIMER_DELIVER_MS", "BORN_TIMESTAMP", "TAGS", "KEYS", "mine", "MYUNIQ_KEY", "")
PIECES = st.one_of(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(["", "1", "1700000000123", "ä", "x\x01UNIQ_KEY\x01y"]),
    ).map("\x01".join),
    st.sampled_from(["", "UNIQ_KEY", "TIMER_DELIVER_MS", "\x01"]),
)
CUT = st.tuples(st.lists(PIECES, max_size=7).map("\x02".join), st.sampled_from(["", "\x02"])).map(
    "".join
)


@given(CUT.map(str.encode), st.binary(max_size=3), st.integers(0, 20), st.integers(0, 255))
def test_properties_in_any_disorder(stored, junk, at, low) -> None:
    stored = stored[:at] + junk + stored[at:]
    made = encode_layout("t", b"body", stored, 0, 0, 1_700_000_000_123, (bytes(4), low))
    delivered = Delivered(made, 1, 2, 3, "handle")
    assert received(pb.Resource(name="t"), delivered) == [
        by_protobuf(pb.Resource(name="t"), delivered)
    ]


def test_tags_keys_and_groups_that_4x_clients_send_empty_are_none() -> None:
    stored = properties.encode(
        {"UNIQ_KEY": "a", "TAGS": "", "KEYS": "k1  k2 ", "__SHARDINGKEY": "", "mine": ""}
    )
    made = encode_layout("t", b"body", stored, 0, 0, 0, (bytes(4), 0))
    (message,) = received(pb.Resource(name="t"), Delivered(made, 0, 0, 1, "handle"))
    system = message.system_properties
    assert not (system.HasField("tag") or system.HasField("message_group"))
    assert (system.keys[:], system.message_type) == (["k1", "k2"], pb.NORMAL)
    assert message.user_properties["mine"] == "", "a producer's own"


def test_messages_as_5x_producers_send_them_are_encoded_quickly() -> None:
    known = {
        "mine": "1",
        "PGROUP": "t",
        "BORN_TIMESTAMP": "1700000000123",
        "__BORNHOST": "p",
        "UNIQ_KEY": "01",
        "TAGS": "a",
        "KEYS": "k l",
        "TIMER_DELIVER_MS": "1700000000999",
    }
    made = encode_layout("t", b"body", properties.encode(known), 0, 0, 1, (bytes(4), 1))
    delivered = Delivered(made, 1, 2, 3, "handle")
    assert message_fields.usual(delivered) == message_fields.any_message(delivered)


def test_a_dead_letter_says_whose_it_is_and_how_often_it_was_tried() -> None:
    known = {"UNIQ_KEY": "01", "DLQ_ORIGIN_TOPIC": "t", "DLQ_ORIGIN_MESSAGE_ID": "01"}
    made = encode_layout("t", b"body", b"UNIQ_KEY\x0101\x02", 0, 0, 1, (bytes(4), 1))
    made = layout.readdressed(made, "%DLQ%g", properties.encode(known), 17, 0)
    delivered = Delivered(made, 0, 2, 1, "handle")
    assert message_fields.usual(delivered) == message_fields.any_message(delivered)
    topic = pb.Resource(name="%DLQ%g")
    got = pb.ReceiveMessageResponse.FromString(
        deliveries.received(topic.SerializeToString(), delivered)[5:]
    ).message
    assert got == by_protobuf(topic, delivered)
    assert got.system_properties.delivery_attempt == 18
    assert got.system_properties.dead_letter_queue == pb.DeadLetterQueue(topic="t", message_id="01")


@given(st.integers(0, 120), st.binary(min_size=1, max_size=4))
def test_a_broken_layout_is_never_taken_for_another(at, junk) -> None:
    made = encode_layout("t", b"body", b"UNIQ_KEY\x0101\x02", 0, 0, 1, (bytes(4), 1))
    delivered = Delivered(made[:at] + junk + made[at + len(junk) :], 1, 2, 3, "handle")
    quick = message_fields.usual(delivered)
    assert quick is None or quick == message_fields.any_message(delivered)


@pytest.mark.parametrize(
    ("flag", "stored", "shown", "encoding"),
    [
        (0x001, zlib.compress(b"plain", 5), b"plain", pb.IDENTITY),
        (0x301, zlib.compress(b"plain"), b"plain", pb.IDENTITY),
        (0x000, zlib.compress(b"plain"), zlib.compress(b"plain"), pb.IDENTITY),
        (0x001, gzip.compress(b"plain", mtime=0), gzip.compress(b"plain", mtime=0), pb.GZIP),
        (0x201, b"zstd", b"zstd", pb.GZIP),
        (0x001, zlib.compress(b"plain")[:-1], zlib.compress(b"plain")[:-1], pb.GZIP),
        (0x001, zlib.compress(bytes(BODY_MAX)), bytes(BODY_MAX), pb.IDENTITY),
        (0x001, zlib.compress(bytes(BODY_MAX + 1)), zlib.compress(bytes(BODY_MAX + 1)), pb.GZIP),
    ],
)
def test_a_body_that_4x_clients_compress_is_shown_as_it_was(flag, stored, shown, encoding) -> None:
    made = encode_layout("t", stored, b"", flag, 0, 0, (bytes(4), 0))
    delivered = Delivered(made, 0, 0, 1, "handle")
    (message,) = received(pb.Resource(), delivered)
    assert message.body == shown
    system = message.system_properties
    assert system.body_encoding == encoding
    assert system.body_digest.checksum == hashlib.md5(shown).hexdigest().upper()


def test_numbers() -> None:
    assert varint(0) == b"\0"
    assert varint(127) == b"\x7f"
    assert varint(300) == b"\xac\x02"
    assert varint(-1) == b"\xff" * 9 + b"\x01"


def answer(messages: list[Delivered], made: Deliveries | None = None) -> bytes | str:
    """The answer to a receive, or why there is none; `made` has answered others before."""
    try:
        return (made or Deliveries()).all_received(b"", messages)
    except HorologError as error:
        return error.message


@given(
    st.permutations(
        ["UNIQ_KEY", "TIMER_DELIVER_MS", "BORN_TIMESTAMP", "TAGS", "mine", "DELAY", "__SHARDINGKEY"]
    ),
    st.integers(0, 7),
    st.sampled_from([0, 7]),
    st.lists(
        st.tuples(
            st.sampled_from(["0A0B", "0A0C", "0A\x020", "\x01\x01\x01\x01", "ÄÄ"]),
            st.sampled_from(["1700000000999", "1700000000000", "1700000\x020999"]),
            st.sampled_from(["1700000000123", "17000\x0200123"]),
            st.sampled_from([b"body", b"what"]),
            st.integers(0, 2**41),
            st.sampled_from(["12", "34", "\x025", "\x01\x01", "ä"]),
        ),
        min_size=2,
        max_size=6,
    ),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=2),
)
def test_a_message_among_others_is_what_it_is_alone(names, count, half, own, flips) -> None:
    """Those that are made like one before them are read by what differs, and mean the same."""
    messages = []
    for number, (name, due, made, body, born_ms, mine) in enumerate(own):
        values = {"UNIQ_KEY": name, "TIMER_DELIVER_MS": due, "BORN_TIMESTAMP": made}
        values["mine"] = mine
        known = {each: values.get(each, "1") for each in names[:count]}
        stored = bytearray(
            encode_layout("t", body, properties.encode(known), 0, 0, born_ms, (bytes(4), 1))
        )
        stored[76:84] = half.to_bytes(8, "big")
        for at, value in flips if number == len(own) - 1 else ():
            if at < len(stored):
                stored[at] = value
        messages.append(Delivered(bytes(stored), 1, 2**number, 1, "handle"))
    alone = [answer([message]) for message in messages]
    kept = Deliveries()
    for order in (1, -1):  # and the second time by what was learned the first time
        wrong = [why for why in alone[::order] if isinstance(why, str)]
        found = wrong[0] if wrong else b"".join(map(bytes, alone[::order]))
        assert answer(messages[::order], kept) == found


def test_messages_of_a_batch_are_read_by_what_differs(monkeypatch) -> None:
    made = [
        encode_layout(
            "t", b"body", b"mine\x01%d\x02UNIQ_KEY\x010%d\x02" % (i, i), 0, 0, i, (bytes(4), 1)
        )
        for i in range(4)
    ]
    messages = [Delivered(stored, 1, i, 1, "handle") for i, stored in enumerate(made)]
    read = []
    monkeypatch.setattr(
        deliveries, "usual", lambda one: read.append(one) or message_fields.any_message(one)
    )
    assert answer(messages) == b"".join(bytes(answer([message])) for message in messages)
    assert read[:1] == messages[:1], "the others are like the first one"
    assert read[1:] == messages


def test_messages_of_one_size_that_are_not_alike_are_soon_read_one_by_one(monkeypatch) -> None:
    made = [
        encode_layout(
            "t", b"body", b"TAGS\x01%d\x02UNIQ_KEY\x010%d\x02" % (i, i), 0, 0, 1, (bytes(4), 1)
        )
        for i in range(9)
    ]
    messages = [Delivered(stored, 1, i, 1, "handle") for i, stored in enumerate(made)]
    templates, template = [], deliveries._template
    monkeypatch.setattr(
        deliveries, "_template", lambda *like: templates.append(like) or template(*like)
    )
    assert answer(messages) == b"".join(bytes(answer([message])) for message in messages)
    assert len(templates) == 2


def test_what_was_learned_for_one_receive_serves_the_next_ones(monkeypatch) -> None:
    templates, template = [], deliveries._template
    monkeypatch.setattr(
        deliveries, "_template", lambda *like: templates.append(like) or template(*like)
    )
    monkeypatch.setattr(deliveries, "_KEPT_MAX", 4)
    kept = Deliveries()
    for size in (1, 2, 1, 2, 3, 4, 5, 1):
        made = [
            encode_layout("t", b"b" * size, b"UNIQ_KEY\x010%d\x02" % i, 0, 0, 1, (bytes(4), 1))
            for i in range(3)
        ]
        messages = [Delivered(stored, 1, i, 1, "handle") for i, stored in enumerate(made)]
        assert answer(messages, kept) == b"".join(bytes(answer([each])) for each in messages)
        assert len(kept._templates) <= 4
    assert len(templates) == 6, "the fifth size makes room, and the first one is learned again"


VALUE = st.sampled_from(["12", "34", "\x025", "5\x02", "\x01\x01", "ä"])


@given(
    st.permutations(["UNIQ_KEY", "mine", "TAGS", "yours", "__SHARDINGKEY"]),
    st.integers(3, 5),
    st.lists(st.tuples(VALUE, VALUE, VALUE), min_size=3, max_size=8),
    st.sampled_from([0, 7]),
)
def test_values_of_user_properties_are_those_of_each_message(names, count, own, half) -> None:
    messages = []
    for number, (mine, yours, group) in enumerate(own):
        values = {"UNIQ_KEY": f"0{number}", "mine": mine, "yours": yours, "TAGS": "a"}
        known = {each: values.get(each, group) for each in names[:count]}
        text = properties.encode(known)
        stored = bytearray(encode_layout("t", b"body", text, 0, 0, 1, (bytes(4), 1)))
        stored[76:84] = half.to_bytes(8, "big")
        messages.append(Delivered(bytes(stored), 1, 2**number, 1, "handle"))
    kept = Deliveries()
    for each in (messages, messages[::-1]):
        assert answer(each, kept) == b"".join(bytes(answer([message])) for message in each)
