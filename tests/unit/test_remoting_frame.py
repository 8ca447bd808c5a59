"""Frames of the remoting protocol: any chunking, both serializers, and any bytes are frames or a fault (P11)."""

from __future__ import annotations

import struct
from random import Random

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.limits import REMOTING_FIELDS_MAX
from horolog.protocol.remoting.codes import SHORTENED_CODES, Code
from horolog.protocol.remoting.frame import (
    FRAME_BYTES_MAX,
    LANGUAGES,
    Flag,
    Frame,
    FrameFault,
    Serializer,
)
from horolog.protocol.remoting.frame_reader import Reader
from horolog.protocol.remoting.frame_writer import encode

INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
FRAMES = st.builds(
    Frame,
    code=st.integers(0, 2**15 - 1),
    opaque=INT32,
    flag=st.integers(0, 3),
    fields=st.dictionaries(TEXT, TEXT, max_size=6),
    body=st.binary(max_size=200),
    remark=TEXT,
    language=st.sampled_from(LANGUAGES),
    version=st.integers(0, 500),
    serializer=st.sampled_from(Serializer),
).filter(lambda frame: frame.code not in SHORTENED_CODES)


def raw(header: object, body: bytes = b"", serializer: int = 0) -> bytes:
    """A frame around any header."""
    text = header if isinstance(header, bytes) else orjson.dumps(header)
    length = struct.pack(">I", 4 + len(text) + len(body))
    return length + struct.pack(">I", serializer << 24 | len(text)) + text + body


@given(st.lists(FRAMES, max_size=5), st.lists(st.integers(1, 90), max_size=40))
def test_what_is_written_is_read_in_any_chunks(frames, sizes) -> None:
    content = b"".join(map(encode, frames))
    reader = Reader()
    found, at = [], 0
    for size in [*sizes, len(content) + 1]:
        found += reader.receive(content[at : at + size])
        reader.check_invariants()
        at += size
    assert found == frames


def test_a_request_of_the_cpp_client() -> None:
    """Bare numbers among the fields, a numeric language, a line break at the end."""
    header = (
        b'{"code":11,"extFields":{"commitOffset":"-1","maxMsgNums":32,"queueId":0,"sysFlag":6,"topic":"t",'
        b'"batch":true,"none":null},"flag":0,"language":1,"opaque":-7,"version":63}\n'
    )
    (frame,) = Reader().receive(raw(header, b"{}\n"))
    assert frame.code == 11
    assert frame.opaque == -7
    assert frame.language == "CPP"
    assert frame.fields == {
        "commitOffset": "-1",
        "maxMsgNums": "32",
        "queueId": "0",
        "sysFlag": "6",
        "topic": "t",
        "batch": "true",
    }
    assert frame.body == b"{}\n"


def test_a_request_of_the_java_client_in_binary() -> None:
    fields = b"\0\x01b" + struct.pack(">I", 1) + b"t"
    header = struct.pack(">hBhiiI", 310, 0, 399, 5, 2, 0) + struct.pack(">I", len(fields)) + fields
    (frame,) = Reader().receive(raw(header, b"body", 1))
    assert (frame.code, frame.language, frame.version, frame.opaque) == (310, "JAVA", 399, 5)
    assert frame.fields == {"b": "t"}
    assert frame.is_one_way
    assert not frame.is_answer
    assert encode(frame) == raw(header, b"body", 1)


@pytest.mark.parametrize("code", [code for code in Code if code > 0x7FFF])
def test_a_code_too_great_for_a_binary_header_is_known_by_its_low_bits(code: Code) -> None:
    """As Java writes it, with a Short; answers have no such codes."""
    for flag, wanted in (0, code), (Flag.ONE_WAY, code), (Flag.ANSWER, code & 0xFFFF):
        header = struct.pack(">HBhiiI", code & 0xFFFF, 0, 399, 5, flag, 0) + struct.pack(">I", 0)
        (frame,) = Reader().receive(raw(header, serializer=1))
        assert frame.code == wanted
    assert code & 0xFFFF not in frozenset(Code)


def test_json_is_compact_and_its_values_are_text() -> None:
    frame = Frame(0, 9, Flag.ANSWER, {"offset": "5"}, b"", "fine", "JAVA", 479)
    assert encode(frame)[8:] == (
        b'{"code":0,"language":"JAVA","version":479,"opaque":9,"flag":1,"serializeTypeCurrentRPC":"JSON",'
        b'"remark":"fine","extFields":{"offset":"5"}}'
    )


def binary_of(fields: bytes) -> bytes:
    """A header of the ROCKETMQ form with these fields."""
    return struct.pack(">hBhiiII", 1, 0, 0, 0, 0, 0, len(fields)) + fields


def test_a_header_may_have_many_fields() -> None:
    few = b"\0\1a\0\0\0\0" * (REMOTING_FIELDS_MAX - 1) + b"\0\1b\0\0\0\1c"
    assert Reader().receive(raw(binary_of(few), serializer=1))[0].fields == {"a": "", "b": "c"}
    fields = {str(number): "" for number in range(REMOTING_FIELDS_MAX)}
    assert Reader().receive(raw({"code": 1, "extFields": fields}))[0].fields == fields


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (struct.pack(">II", 3, 0), "a frame of 3 bytes"),
        (struct.pack(">II", FRAME_BYTES_MAX + 1, 0), "at most|allowed"),
        (struct.pack(">II", 8, 5) + b"1234", "longer than its frame"),
        (raw({"code": 1}, serializer=2), "unknown serializer 2"),
        (raw(b"{"), "no JSON"),
        (raw([1]), "no JSON object"),
        (raw({}), "code"),
        (raw({"code": "x"}), "code"),
        (raw({"code": True}), "code"),
        (raw({"code": 1.5}), "code"),
        (raw({"code": 2**31}), "code"),
        (raw({"code": 1, "opaque": -(2**31) - 1}), "opaque"),
        (raw({"code": 1, "extFields": []}), "extFields"),
        (raw({"code": 1, "extFields": {"a": {}}}), "extFields"),
        (raw(b"short", serializer=1), "cut short"),
        (raw(struct.pack(">hBhiiI", 1, 0, 0, 0, 0, 99), serializer=1), "cut short"),
        (raw(struct.pack(">hBhiiI", 1, 0, 0, 0, 0, 0) + b"\0\0\0\x05", serializer=1), "do not end"),
        (raw(b'{"code":1,"x":[' + b"1," * 40_000 + b"1]}"), "a header of too many fields"),
        (raw(binary_of(b"\0\1a\0\0\0\0" * 40_000), serializer=1), "a header of too many fields"),
        (raw(b'{"code":1,"extFields":{"a":' + b"[" * 200_000 + b'"\xff'), "no JSON"),
        (raw(b'{"code":1,"extFields":{"a":"' + b"x" * 300_000 + b'\xff"}}'), "no JSON"),
    ],
)
def test_what_is_no_frame_says_why(content, why) -> None:
    with pytest.raises(FrameFault, match=why):
        Reader().receive(content)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (
            "订单".encode("gbk"),
            "\ufffd\ufffd\ufffd\ufffd",
        ),  # as C++ clients of such a system send it
        (b"a\x01b\t", "a\x01b\t"),
        (b"\\ud83d.", "?."),
        (b"\\ud83d\\ude00", "\U0001f600"),
    ],
)
def test_a_header_in_json_is_read_as_java_reads_it(text: bytes, read: str) -> None:
    header = b'{"code":310,"opaque":7,"remark":"' + text + b'","extFields":{"i":"' + text + b'"}}'
    (frame,) = Reader().receive(raw(header))
    assert (frame.code, frame.opaque, frame.fields, frame.remark) == (310, 7, {"i": read}, read)


def test_a_binary_header_may_have_text_that_is_no_utf_8() -> None:
    header = struct.pack(">hBhiiI", 1, 0, 0, 0, 0, 1) + b"\xff\0\0\0\0"
    (frame,) = Reader().receive(raw(header, serializer=1))
    assert frame.remark == "\ufffd"


def test_numbers_as_text_are_numbers() -> None:
    (frame,) = Reader().receive(raw({"code": "105", "opaque": "-3"}))
    assert (frame.code, frame.opaque) == (105, -3)


@given(st.binary(max_size=300))
def test_any_bytes_are_frames_or_a_fault(content) -> None:
    reader = Reader(1_000)
    try:
        reader.receive(content)
    except FrameFault:
        return
    reader.check_invariants()


@pytest.mark.parametrize("seed", range(10))
def test_mutated_frames_are_frames_or_a_fault(seed) -> None:
    random = Random(seed)
    fields = {"topic": "t", "queueId": "0", "properties": "KEYS\x01a\x02"}
    samples = [
        encode(Frame(code, 5, 0, fields, b"body", "", "JAVA", 399, serializer))
        for code in (10, 310, 11, 34)
        for serializer in Serializer
    ]
    for _ in range(400):
        content = bytearray(b"".join(random.choices(samples, k=3)))
        for _ in range(random.randrange(1, 5)):
            at = random.randrange(len(content))
            content[at : at + random.randrange(3)] = random.randbytes(random.randrange(3))
        reader = Reader()
        at = 0
        try:
            while at < len(content):
                size = random.randrange(1, 200)
                for frame in reader.receive(bytes(content[at : at + size])):
                    assert all(isinstance(value, str) for value in frame.fields.values())
                at += size
        except FrameFault as fault:
            assert str(fault)
        reader.check_invariants()
