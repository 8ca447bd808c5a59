"""The stored message layout: golden bytes, round trips, any bytes and any flip (`protocol.rocketmq.layout`)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zlib_ng.zlib_ng import crc32

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode_layout, key_hash

GOLDEN = Path(__file__).parents[1] / "golden" / "stored_layout.bin"
BODY = "Boarding, gate 12 – Einsteigen".encode()


def encoded() -> bytes:
    """One message that uses every field, also both of a message group and a due time."""
    stored = {
        "gate": "12",
        "Name": "Zürich",
        properties.PRODUCER_GROUP: "airline",
        properties.UNIQ_KEY: "0102030405060708090A0B0C0D0E0F10",
        properties.TAGS: "UA",
        properties.KEYS: "UA1545 N14228",
        properties.SHARDING_KEY: "EWR",
        properties.TIMER_DELIVER_MS: "1362739207500",
    }
    born_host = (bytes([10, 0, 0, 7]), 51_234)
    return encode_layout(
        "boarding-calls",
        BODY,
        properties.encode(stored),
        layout.COMPRESSED,
        7,
        1_362_736_807_000,
        born_host,
    )


def test_another_store_host_changes_nothing_else() -> None:
    before = encoded()
    after = layout.with_store_host(before, b"\x0a\0\0\x09\0\0\x2a\x9f")
    assert layout.decode(after).store_host == (b"\x0a\0\0\x09", 10_911)
    assert layout.decode(after)._replace(store_host=layout.decode(before).store_host) == (
        layout.decode(before)
    )


def test_golden_bytes() -> None:
    assert encoded() == GOLDEN.read_bytes()


def test_golden_fields() -> None:
    found = layout.decode(GOLDEN.read_bytes())
    assert found == layout.Stored(
        body_crc=crc32(BODY) & 0x7FFFFFFF,
        queue_id=0,
        flag=7,
        queue_offset=0,
        position=0,
        sys_flag=layout.COMPRESSED,
        born_ms=1_362_736_807_000,
        born_host=(bytes([10, 0, 0, 7]), 51_234),
        store_ms=0,
        store_host=(bytes(4), 0),
        reconsume_times=0,
        prepared_offset=0,
        body=BODY,
        topic="boarding-calls",
        properties=found.properties,
    )
    assert properties.decode(found.properties) == {
        "gate": "12",
        "Name": "Zürich",
        "PGROUP": "airline",
        "UNIQ_KEY": "0102030405060708090A0B0C0D0E0F10",
        "TAGS": "UA",
        "KEYS": "UA1545 N14228",
        "__SHARDINGKEY": "EWR",
        "TIMER_DELIVER_MS": "1362739207500",
    }


def test_key_hash_is_kept_for_ever() -> None:
    assert key_hash("boarding-calls", "0102030405060708090A0B0C0D0E0F10") == 0x6344711C1CAD3128


def test_the_fields_that_the_broker_patches() -> None:
    raw = bytearray(GOLDEN.read_bytes())
    struct.pack_into(">i", raw, layout.QUEUE_ID_AT, 3)
    struct.pack_into(">q", raw, layout.QUEUE_OFFSET_AT, 4)
    struct.pack_into(">q", raw, layout.POSITION_AT, 5)
    struct.pack_into(">I", raw, layout.SYS_FLAG_AT, 6)
    struct.pack_into(">q", raw, layout.STORE_MS_AT, 8)
    struct.pack_into(">4sI", raw, layout.STORE_HOST_AT, b"\x7f\0\0\1", 10_911)
    found = layout.decode(bytes(raw))
    assert (found.queue_id, found.queue_offset, found.position) == (3, 4, 5)
    assert (found.sys_flag, found.store_ms) == (6, 8)
    assert found.store_host == (b"\x7f\0\0\1", 10_911)


def build(sys_flag: int, body: bytes, topic: bytes, stored: bytes) -> bytes:
    """A layout of any of the four host classes, packed by hand."""
    born = b"b" * (16 if sys_flag & layout.BORN_HOST_V6 else 4)
    store = b"s" * (16 if sys_flag & layout.STORE_HOST_V6 else 4)
    rest = (
        struct.pack(">IIiIqqIq", layout.MAGIC, 1, 2, 3, 4, 5, sys_flag, 6)
        + born
        + struct.pack(">Iq", 7, 8)
        + store
        + struct.pack(">IIqI", 9, 10, 11, len(body))
        + body
        + bytes([len(topic)])
        + topic
        + struct.pack(">H", len(stored))
        + stored
    )
    return struct.pack(">I", len(rest) + 4) + rest


@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
def test_four_classes_of_hosts(sys_flag: int) -> None:
    found = layout.decode(build(sys_flag, b"body", b"topic", b"a\x01b\x02"))
    assert found == layout.Stored(
        1,
        2,
        3,
        4,
        5,
        sys_flag,
        6,
        (b"b" * (16 if sys_flag & 0x10 else 4), 7),
        8,
        (b"s" * (16 if sys_flag & 0x20 else 4), 9),
        10,
        11,
        b"body",
        "topic",
        b"a\x01b\x02",
    )


def decoded(content: bytes) -> layout.Stored | None:
    """A value, or None for exactly MESSAGE_CORRUPTED; anything else is raised."""
    try:
        return layout.decode(content)
    except HorologError as error:
        assert error.code is ErrorCode.MESSAGE_CORRUPTED
        assert error.field == "message"
        assert not any(word in error.message for word in ("codec", "unpack", "index out"))
        return None


@given(
    sys_flag=st.sampled_from([0, 1, 0x10, 0x20, 0x30]),
    body=st.binary(max_size=200),
    topic=st.text("abcXYZ09_-%|", min_size=1, max_size=127),
    stored=st.binary(max_size=200),
)
def test_round_trip(sys_flag: int, body: bytes, topic: str, stored: bytes) -> None:
    found = layout.decode(build(sys_flag, body, topic.encode(), stored))
    assert (found.body, found.topic, found.properties) == (body, topic, stored)


@given(st.binary(max_size=400))
def test_any_bytes(content: bytes) -> None:
    assert decoded(content) is None


@given(rest=st.binary(max_size=300), flag=st.sampled_from([0, 0x10, 0x20, 0x30]))
def test_any_bytes_after_a_good_front(rest: bytes, flag: int) -> None:
    front = bytearray(GOLDEN.read_bytes()[:48])
    struct.pack_into(">I", front, 0, 48 + len(rest))
    struct.pack_into(">I", front, layout.SYS_FLAG_AT, flag)
    decoded(bytes(front) + rest)


def test_every_bit_flipped() -> None:
    golden = GOLDEN.read_bytes()
    for at in range(len(golden)):
        for bit in range(8):
            flipped = bytearray(golden)
            flipped[at] ^= 1 << bit
            found = decoded(bytes(flipped))
            if at < 8:
                assert found is None, "size and magic are exact"


def test_every_length_but_its_own_is_refused() -> None:
    golden = GOLDEN.read_bytes()
    for length in range(len(golden)):
        assert decoded(golden[:length]) is None
    assert decoded(golden + b"\0") is None


def test_lengths_that_point_outside() -> None:
    content = bytearray(build(0, b"body", b"topic", b"a\x01b\x02"))
    for size in (5, 0x7FFFFFFF, 0xFFFFFFFF):
        struct.pack_into(">I", content, 84, size)
        assert decoded(bytes(content)) is None
    assert decoded(build(0, b"", b"\xff", b"")) is None, "a topic that is not UTF-8"
