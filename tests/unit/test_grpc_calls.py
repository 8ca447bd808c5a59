"""gRPC framing over HTTP/2: messages in any number of pieces, refusals, bounds (P11)."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.limits import UNPACKED_BYTES_MAX
from horolog.protocol.http2 import frames, hpack
from horolog.protocol.http2.calls import Calls, Dropped, Message, MessagesEnded, Opened, UnaryCall
from horolog.protocol.http2.events import Limits
from horolog.protocol.http2.frames import END_HEADERS, END_STREAM, PREFACE, Type, frame
from horolog.protocol.http2.grpc_wire import framed, timeout_ms
from horolog.protocol.http2.request_head import RequestHead

STREAMING = b"/s/Talk"
UNARY = b"/s/Do"


def head(path: bytes = UNARY, *more: hpack.Field, method: bytes = b"POST") -> bytes:
    return hpack.encode(
        [
            (b":method", method),
            (b":scheme", b"http"),
            (b":path", path),
            (b"content-type", b"application/grpc+proto"),
            *more,
        ]
    )


def request(
    content: bytes, *more: hpack.Field, path: bytes = UNARY, pieces: int = 1, stream: int = 1
) -> bytes:
    size = -(-len(content) // pieces) or 1
    parts = [content[at : at + size] for at in range(0, len(content), size)]
    bodies = [frame(Type.DATA, 0, stream, part) for part in parts]
    bodies.append(frame(Type.DATA, END_STREAM, stream))
    return frame(Type.HEADERS, END_HEADERS, stream, head(path, *more)) + b"".join(bodies)


def greeted(limits: Limits = Limits()) -> Calls:
    calls = Calls(frozenset({STREAMING}), limits)
    assert calls.receive(PREFACE + frames.settings({}), 0) == []
    calls.http.take_output()
    return calls


def answers(calls: Calls) -> list[list[hpack.Field] | bytes]:
    """Header lists and bodies in the output."""
    decoder, found = hpack.Decoder(1 << 20), []
    raw, at = calls.http.take_output(), 0
    while at < len(raw):
        length = int.from_bytes(raw[at : at + 3], "big")
        payload = raw[at + 9 : at + 9 + length]
        if raw[at + 3] == Type.HEADERS:
            found.append(decoder.decode(payload))
        elif raw[at + 3] == Type.DATA:
            found.append(payload)
        at += 9 + length
    return found


@pytest.mark.parametrize("pieces", [1, 2, 7, 300])
def test_one_message_in_any_number_of_frames(pieces) -> None:
    calls = greeted()
    message = bytes(range(256)) * 3
    events = calls.receive(request(framed(message), pieces=pieces), 0)
    assert [type(event) for event in events] == [UnaryCall]
    assert events[0].message == message
    calls.answer(1, framed(b"yes"))
    assert answers(calls) == [
        [(b":status", b"200"), (b"content-type", b"application/grpc")],
        framed(b"yes"),
        [(b"grpc-status", b"0")],
    ]
    calls.check_invariants()


@given(st.lists(st.binary(max_size=30), max_size=6), st.integers(1, 50))
def test_a_stream_says_what_was_sent(messages, size) -> None:
    calls = greeted()
    events = list(calls.receive(frame(Type.HEADERS, END_HEADERS, 1, head(STREAMING)), 0))
    content = b"".join(map(framed, messages))
    for at in range(0, len(content), size):
        events += calls.receive(frame(Type.DATA, 0, 1, content[at : at + size]), 0)
        calls.check_invariants()
    events += calls.receive(frame(Type.DATA, END_STREAM, 1), 0)
    assert type(events[0]) is Opened
    assert events[1:-1] == [Message(1, message) for message in messages]
    assert events[-1] == MessagesEnded(1)


def test_a_conversation() -> None:
    calls = greeted()
    calls.receive(frame(Type.HEADERS, END_HEADERS, 1, head(STREAMING)), 0)
    calls.begin(1)
    calls.send(1, framed(b"a"))
    calls.send(1, framed(b"b"))
    calls.finish(1)
    assert answers(calls)[1:] == [framed(b"a"), framed(b"b"), [(b"grpc-status", b"0")]]
    calls.check_invariants()


def test_a_conversation_with_a_broken_message_ends_with_trailers() -> None:
    calls = greeted()
    calls.receive(frame(Type.HEADERS, END_HEADERS, 1, head(STREAMING)), 0)
    calls.begin(1)
    events = calls.receive(frame(Type.DATA, END_STREAM, 1, framed(b"abc")[:-1]), 0)
    assert events == [Dropped(1)]
    begun, trailers = answers(calls)
    assert begun[0] == (b":status", b"200")
    assert trailers[0] == (b"grpc-status", b"13")
    calls.check_invariants()


def test_a_flood_of_messages_ends_its_stream() -> None:
    """One read of 250 KB had 15,000 settings, which took seconds, and filled the queue of commands."""
    calls = greeted(Limits(messages_burst=5, messages_per_second=10))
    calls.receive(frame(Type.HEADERS, END_HEADERS, 1, head(STREAMING)), 0)
    calls.receive(frame(Type.HEADERS, END_HEADERS, 3, head(STREAMING)), 0)
    calls.begin(1)
    flood = framed(b"a") * 8
    assert calls.receive(frame(Type.DATA, 0, 1, flood), 0) == [Message(1, b"a")] * 5 + [Dropped(1)]
    assert dict(answers(calls)[-1])[b"grpc-status"] == b"8"
    assert calls.receive(frame(Type.DATA, 0, 1, flood), 0) == []
    calls.check_invariants()
    for at_ms in range(200, 3_000, 200):
        assert calls.receive(frame(Type.DATA, 0, 3, framed(b"b")), at_ms) == [Message(3, b"b")]
    assert not calls.http.closed


def test_gzip_is_unpacked_and_nothing_else() -> None:
    calls = greeted()
    packed = gzip.compress(b"much " * 1_000)
    content = b"\1" + framed(packed)[1:]
    encoding = (b"grpc-encoding", b"gzip")
    assert calls.receive(request(content, encoding), 0)[0].message == b"much " * 1_000
    assert calls.receive(request(content, stream=3), 0) == []
    assert dict(answers(calls)[-1])[b"grpc-status"] == b"12"
    bomb = gzip.compress(bytes(UNPACKED_BYTES_MAX + 1), 9)
    assert calls.receive(request(b"\1" + framed(bomb)[1:], encoding, stream=5, pieces=20), 0) == []
    assert dict(answers(calls)[-1])[b"grpc-status"] == b"8"
    assert calls.receive(request(b"\1" + framed(b"junk")[1:], encoding, stream=7), 0) == []
    assert dict(answers(calls)[-1])[b"grpc-status"] == b"13"


def test_what_is_unpacked_in_one_turn_is_bounded() -> None:
    """Each packed request of 130 KB could take a third of a second, and came in one read."""
    calls = greeted()
    packed = gzip.compress(bytes(UNPACKED_BYTES_MAX * 2 // 3), 9)
    content, encoding = b"\1" + framed(packed)[1:], (b"grpc-encoding", b"gzip")
    both = request(content, encoding) + request(content, encoding, stream=3)
    found = calls.receive(both, 0)
    assert [event.stream for event in found] == [1]
    assert dict(answers(calls)[-1])[b"grpc-status"] == b"8"
    assert len(calls.receive(request(content, encoding, stream=5), 0)) == 1


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", b"13"),
        (b"\0\0\0\0", b"13"),
        (framed(b"abc")[:-1], b"13"),
        (framed(b"abc") + b"d", b"13"),
        (framed(b"abc") * 2, b"13"),
        (b"\0\xff\xff\xff\xff" + bytes(10), b"8"),
    ],
)
def test_a_body_that_is_not_one_message(content, status) -> None:
    calls = greeted()
    assert calls.receive(request(content), 0) == []
    fields = dict(answers(calls)[0])
    assert fields[b":status"] == b"200"
    assert fields[b"grpc-status"] == status
    assert fields[b"grpc-message"]
    calls.check_invariants()


def test_what_is_not_grpc_gets_an_http_status() -> None:
    calls = greeted()
    block = hpack.encode([(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/")])
    calls.receive(frame(Type.HEADERS, END_HEADERS | END_STREAM, 1, block), 0)
    assert answers(calls) == [[(b":status", b"405"), (b"allow", b"POST")]]
    block = hpack.encode([(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/")])
    calls.receive(frame(Type.HEADERS, END_HEADERS | END_STREAM, 3, block), 0)
    assert answers(calls) == [[(b":status", b"415")]]


def test_a_caller_that_leaves_is_reported() -> None:
    calls = greeted()
    calls.receive(request(framed(b"x")), 0)
    assert calls.receive(frame(Type.RST_STREAM, 0, 1, bytes(4)), 0) == [Dropped(1)]
    calls.answer(1, framed(b"late"))
    assert answers(calls) == []
    half = frame(Type.HEADERS, END_HEADERS, 3, head()) + frame(Type.DATA, 0, 3, b"\0\0\0\0\x09abc")
    assert calls.receive(half + frame(Type.RST_STREAM, 0, 3, bytes(4)), 0) == [Dropped(3)]
    calls.check_invariants()
    assert calls.receive(frame(Type.PING, 0, 0, b"short"), 0) == []
    assert calls.http.closed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"5S", 5_000),
        (b"1H", 3_600_000),
        (b"2M", 120_000),
        (b"250m", 250),
        (b"4999999u", 4_999),
        (b"99999999n", 99),
        (b"", None),
        (b"S", None),
        (b"123456789S", None),
        (b"-1S", None),
        (b"5s", None),
    ],
)
def test_timeouts(text, expected) -> None:
    assert timeout_ms(RequestHead(b"POST", b"/", {b"grpc-timeout": text})) == expected


def test_a_reason_survives_its_way() -> None:
    calls = greeted()
    calls.receive(request(framed(b"x")), 0)
    calls.fail(1, 3, "körper: 100 % wrong\n" + "x" * 5_000)
    message = dict(answers(calls)[0])[b"grpc-message"]
    assert message.startswith(b"k%C3%B6rper: 100 %25 wrong%0A")
    assert len(message) < 1_024
