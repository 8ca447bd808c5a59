"""An HTTP/2 connection from its bytes: events, answers, flow control and faults (P11, RFC 9113)."""

from __future__ import annotations

from random import Random

import pytest
from http2_peer import (
    BLOCK,
    GREETING,
    HEAD,
    MALFORMED,
    REQUEST,
    TRAILERS,
    body_frame,
    greeted,
    headers,
    owed,
    resets,
    went_away,
)
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.http2 import frames, hpack
from horolog.protocol.http2.connection import Connection
from horolog.protocol.http2.events import Body, Head, LateReset, Limits, Pong, StreamAborted
from horolog.protocol.http2.faults import Code, StreamFault
from horolog.protocol.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PREFACE,
    PRIORITY,
    STREAM_MASK,
    Setting,
    Type,
    frame,
)
from horolog.protocol.http2.streams import TABLE, State, Step, Stream

# --- requests and answers -----------------------------------------------------------------------


def test_a_request_and_its_answer() -> None:
    connection = greeted()
    events = connection.receive(headers(1) + body_frame(1, b"hello", END_STREAM), 0)
    assert [type(event) for event in events] == [Head, Body]
    assert events[0].head.path == b"/s/Do"
    assert events[1] == Body(1, b"hello", True)
    connection.out.respond(1, HEAD, b"world", TRAILERS)
    assert owed(connection) == [
        (Type.HEADERS, END_HEADERS, 1, HEAD),
        (Type.DATA, 0, 1, b"world"),
        (Type.HEADERS, END_HEADERS | END_STREAM, 1, TRAILERS),
    ]
    assert not connection.is_open(1)
    connection.check_invariants()


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_any_chunking_means_the_same(sizes) -> None:
    story = (
        GREETING
        + headers(1)
        + body_frame(1, b"a" * 50)
        + headers(3, flags=END_HEADERS | END_STREAM)
    )
    story += frame(Type.PING, ACK, 0, b"12345678") + body_frame(1, b"b", END_STREAM)
    story += frame(Type.RST_STREAM, 0, 3, (8).to_bytes(4, "big"))
    whole = Connection()
    expected = whole.receive(story, 0)
    pieces = Connection()
    found = []
    at = 0
    for size in [*sizes, len(story)]:
        found += pieces.receive(story[at : at + size], 0)
        pieces.check_invariants()
        at += size
    assert found == expected
    assert pieces.take_output() == whole.take_output()


def test_continuation_padding_and_priority_belong_to_the_block() -> None:
    connection = greeted()
    priority = (0).to_bytes(4, "big") + b"\x10"
    start = bytes((3,)) + priority + BLOCK[:4] + bytes(3)
    events = connection.receive(
        frame(Type.HEADERS, PADDED | PRIORITY, 1, start)
        + frame(Type.CONTINUATION, 0, 1, BLOCK[4:6])
        + frame(Type.CONTINUATION, END_HEADERS, 1, BLOCK[6:])
        + body_frame(1, bytes((2,)) + b"xyz" + bytes(2), PADDED | END_STREAM),
        0,
    )
    assert events[0].head.path == b"/s/Do"
    assert events[1] == Body(1, b"xyz", True)


def test_a_fault_of_one_block_is_not_that_of_the_next() -> None:
    """A stream that depends on itself, with a head that is malformed as well: both end that stream alone."""
    connection = greeted()
    on_itself = (1).to_bytes(4, "big") + b"\x10"
    connection.receive(
        frame(Type.HEADERS, END_HEADERS | PRIORITY, 1, on_itself + hpack.encode(MALFORMED)), 0
    )
    assert resets(connection) == [(1, Code.PROTOCOL_ERROR)]
    [event] = connection.receive(headers(3), 0)
    assert isinstance(event, Head)


def test_equal_blocks_mean_the_same_until_the_table_changes() -> None:
    connection = greeted()
    added = bytes.fromhex("400a637573746f6d2d6b65790d637573746f6d2d686561646572")
    first = connection.receive(headers(1, BLOCK + added), 0)[0].head
    again = connection.receive(headers(3, BLOCK + b"\xbe"), 0)[0].head
    assert first.fields == again.fields
    assert connection.receive(headers(5, BLOCK + b"\xbe"), 0)[0].head is again
    other = bytes.fromhex("400161016240016301640082")[:10]
    connection.receive(headers(7, BLOCK + other), 0)
    changed = connection.receive(headers(9, BLOCK + b"\xbe"), 0)[0].head
    assert changed.fields != again.fields


def test_frames_after_an_early_answer_are_passed_over() -> None:
    connection = greeted()
    connection.receive(headers(1), 0)
    connection.out.end(1, HEAD)
    assert resets(connection) == []
    assert not connection.is_open(1)
    assert connection.receive(body_frame(1, b"late") + body_frame(1, b"later", END_STREAM), 0) == []
    assert not connection.closed
    connection.check_invariants()


def test_a_reset_by_the_peer_drops_what_waits() -> None:
    connection = greeted()
    connection.receive(headers(1, flags=END_HEADERS | END_STREAM), 0)
    connection.out.send_body(1, bytes(100_000))
    assert connection.out.queued > 0
    assert connection.receive(frame(Type.RST_STREAM, 0, 1, bytes(4)), 0) == [StreamAborted(1)]
    assert connection.out.queued == 0
    connection.out.respond(1, HEAD, b"nobody waits", TRAILERS)
    connection.check_invariants()


def test_a_reset_that_crosses_the_answer_is_told() -> None:
    connection = greeted()
    connection.receive(headers(1, flags=END_HEADERS | END_STREAM), 0)
    connection.out.respond(1, HEAD, b"an answer", TRAILERS)
    assert connection.receive(frame(Type.RST_STREAM, 0, 1, bytes(4)), 0) == [LateReset(1)]
    assert not connection.closed
    connection.check_invariants()


def test_leaving_answers_what_is_under_way_and_refuses_the_rest() -> None:
    connection = greeted()
    connection.receive(headers(1, flags=END_HEADERS | END_STREAM), 0)
    connection.announce_shutdown()
    connection.take_output()
    assert connection.receive(headers(3), 0) == []
    assert resets(connection) == [(3, Code.REFUSED_STREAM)]
    connection.out.respond(1, HEAD, b"x", TRAILERS)
    assert len(owed(connection)) == 3
    connection.abort()
    kind, _, _, payload = owed(connection)[-1]
    assert (kind, payload[:4]) == (Type.GOAWAY, bytes((0, 0, 0, 1))), "not the refused one"


def test_pings_are_answered_and_asked() -> None:
    connection = greeted()
    connection.ping(b"horolog\0")
    assert owed(connection) == [(Type.PING, 0, 0, b"horolog\0")]
    assert connection.receive(frame(Type.PING, ACK, 0, b"horolog\0"), 0) == [Pong(b"horolog\0")]
    connection.receive(frame(Type.PING, 0, 0, b"87654321"), 0)
    assert owed(connection) == [(Type.PING, ACK, 0, b"87654321")]


def test_a_lowered_table_is_acknowledged_in_the_next_block() -> None:
    connection = greeted()
    connection.receive(frames.settings({Setting.HEADER_TABLE_SIZE: 0}), 0)
    connection.receive(headers(1, flags=END_HEADERS | END_STREAM), 0)
    connection.take_output()
    connection.out.respond(1, HEAD, b"", TRAILERS)
    blocks = [payload for kind, _, _, payload in owed(connection) if kind == Type.HEADERS]
    assert blocks == [hpack.LOWERED + HEAD, TRAILERS]


# --- flow control ---------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 70_000), max_size=12), st.integers(0, 2**32))
def test_an_answer_flows_as_the_windows_allow(grants, seed) -> None:
    """Whatever the windows: nothing beyond them, in order, whole in the end."""
    random = Random(seed)
    connection = greeted()
    connection.receive(
        frames.settings({Setting.INITIAL_WINDOW_SIZE: random.choice([0, 10, 65_535, 1 << 20])}), 0
    )
    window = [65_535, connection.out.new_window]
    connection.receive(headers(1, flags=END_HEADERS | END_STREAM), 0)
    connection.take_output()
    content = random.randbytes(150_000)
    connection.out.respond(1, HEAD, content, TRAILERS)
    got = bytearray()

    def take() -> None:
        for kind, _, _, payload in owed(connection):
            if kind == Type.DATA:
                assert len(payload) <= frames.FRAME_BYTES_INITIAL
                got.extend(payload)
        assert len(got) <= min(window)
        connection.check_invariants()

    take()
    for grant in [*grants, 1 << 20]:
        for stream in (0, 1):
            if grant and (stream == 0 or connection.is_open(1)):
                connection.receive(frames.window_update(stream, grant), 0)
                window[stream] += grant
                take()
    assert bytes(got) == content
    assert not connection.is_open(1)


def test_a_larger_window_is_used_after_its_acknowledgement() -> None:
    """gRPC's C core fails a call whose answer is beyond its old window before."""
    connection = greeted()
    connection.receive(headers(1, flags=END_HEADERS | END_STREAM), 0)
    connection.receive(frames.window_update(0, 1 << 20), 0)
    connection.out.respond(1, HEAD, bytes(100_000), TRAILERS)
    assert sum(len(payload) for kind, *_, payload in owed(connection) if kind == Type.DATA) == 65535
    connection.receive(frames.settings({Setting.INITIAL_WINDOW_SIZE: 1 << 20}), 0)
    kinds = [kind for kind, *_ in owed(connection)]
    assert kinds == [Type.SETTINGS, Type.DATA, Type.DATA, Type.DATA, Type.HEADERS]


def test_what_comes_is_credited() -> None:
    limits = Limits(window_bytes=100_000)
    connection = greeted(limits)
    connection.receive(headers(1), 0)
    sent = 0
    granted = {0: 400_000, 1: 100_000}
    while sent < 2_000_000:
        size = min(16_384, *granted.values())
        assert size > 0, "the peer would wait for ever"
        connection.receive(body_frame(1, bytes(size)), 0)
        sent += size
        granted = {stream: left - size for stream, left in granted.items()}
        for kind, _, stream, payload in owed(connection):
            assert kind == Type.WINDOW_UPDATE
            granted[stream] += int.from_bytes(payload, "big")
        connection.check_invariants()


def test_a_peer_that_ignores_the_windows_gets_an_error() -> None:
    connection = greeted(Limits(window_bytes=20_000))
    connection.receive(headers(1), 0)
    connection.receive(body_frame(1, bytes(9_000)), 0)
    connection.receive(body_frame(1, bytes(16_000)), 0)
    assert resets(connection) == [(1, Code.FLOW_CONTROL_ERROR)]
    flood = b"".join(
        headers(stream) + body_frame(stream, bytes(9_000)) for stream in range(3, 60, 2)
    )
    connection = Connection(Limits(window_bytes=20_000))
    connection._credit = -1 << 40  # as if nothing were ever given back
    connection.receive(GREETING + flood, 0)
    assert went_away(connection) is Code.FLOW_CONTROL_ERROR


# --- faults of the connection -----------------------------------------------------------------------

FAULTS = {
    "no preface": (b"GET / HTTP/1.1\r\n\r\n", Code.PROTOCOL_ERROR),
    "no SETTINGS first": (PREFACE + frame(Type.PING, 0, 0, bytes(8)), Code.PROTOCOL_ERROR),
    "large frame": (GREETING + frame(Type.DATA, 0, 1, bytes(16_385)), Code.FRAME_SIZE_ERROR),
    "DATA on 0": (GREETING + body_frame(0, b"x"), Code.PROTOCOL_ERROR),
    "DATA on idle": (GREETING + body_frame(5, b"x"), Code.PROTOCOL_ERROR),
    "DATA after the end of both": (
        GREETING + headers(1, flags=END_HEADERS | END_STREAM) + frame(Type.RST_STREAM, 0, 1, bytes(4))
        + body_frame(1, b"x"),
        Code.STREAM_CLOSED,
    ),
    "HEADERS on an even stream": (GREETING + headers(2), Code.PROTOCOL_ERROR),
    "HEADERS on a skipped stream": (GREETING + headers(5) + headers(3), Code.PROTOCOL_ERROR),
    "a block that cannot be read": (GREETING + headers(1, b"\xff\xff\xff\xff\xff"), Code.COMPRESSION_ERROR),
    "an interrupted block": (GREETING + headers(1, flags=0) + body_frame(1), Code.PROTOCOL_ERROR),
    "CONTINUATION alone": (GREETING + frame(Type.CONTINUATION, END_HEADERS, 1), Code.PROTOCOL_ERROR),
    "padding": (GREETING + headers(1) + body_frame(1, b"\x05abc", PADDED), Code.PROTOCOL_ERROR),
    "HEADERS shorter than its priority": (
        GREETING + headers(1, b"\0\0", END_HEADERS | PRIORITY),
        Code.FRAME_SIZE_ERROR,
    ),
    "RST_STREAM on idle": (GREETING + frame(Type.RST_STREAM, 0, 1, bytes(4)), Code.PROTOCOL_ERROR),
    "RST_STREAM of 3 bytes": (GREETING + headers(1) + frame(Type.RST_STREAM, 0, 1, bytes(3)), Code.FRAME_SIZE_ERROR),
    "SETTINGS on a stream": (GREETING + frame(Type.SETTINGS, 0, 1), Code.PROTOCOL_ERROR),
    "SETTINGS of 5 bytes": (GREETING + frame(Type.SETTINGS, 0, 0, bytes(5)), Code.FRAME_SIZE_ERROR),
    "SETTINGS with ACK and bytes": (GREETING + frame(Type.SETTINGS, ACK, 0, bytes(6)), Code.FRAME_SIZE_ERROR),
    "ENABLE_PUSH 2": (GREETING + frames.settings({Setting.ENABLE_PUSH: 2}), Code.PROTOCOL_ERROR),
    "a window above the limit": (
        GREETING + frames.settings({Setting.INITIAL_WINDOW_SIZE: 1 << 31}),
        Code.FLOW_CONTROL_ERROR,
    ),
    "a window that overflows by settings": (
        GREETING + headers(1) + frames.window_update(1, STREAM_MASK - 65_535)
        + frames.settings({Setting.INITIAL_WINDOW_SIZE: 65_536}),
        Code.FLOW_CONTROL_ERROR,
    ),
    "MAX_FRAME_SIZE 1": (GREETING + frames.settings({Setting.MAX_FRAME_SIZE: 1}), Code.PROTOCOL_ERROR),
    "PUSH_PROMISE": (GREETING + frame(Type.PUSH_PROMISE, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
    "PING of 7 bytes": (GREETING + frame(Type.PING, 0, 0, bytes(7)), Code.FRAME_SIZE_ERROR),
    "PING on a stream": (GREETING + frame(Type.PING, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
    "GOAWAY on a stream": (GREETING + frame(Type.GOAWAY, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
    "PRIORITY on 0": (GREETING + frame(Type.PRIORITY, 0, 0, bytes(5)), Code.PROTOCOL_ERROR),
    "WINDOW_UPDATE of 0": (GREETING + frames.window_update(0, 0), Code.PROTOCOL_ERROR),
    "WINDOW_UPDATE of 3 bytes": (GREETING + frame(Type.WINDOW_UPDATE, 0, 0, bytes(3)), Code.FRAME_SIZE_ERROR),
    "WINDOW_UPDATE that overflows": (GREETING + frames.window_update(0, STREAM_MASK), Code.FLOW_CONTROL_ERROR),
    "WINDOW_UPDATE on idle": (GREETING + frames.window_update(1, 1), Code.PROTOCOL_ERROR),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_the_connection_with_its_code(name) -> None:
    story, code = FAULTS[name]
    connection = Connection()
    connection.receive(story, 0)
    assert went_away(connection) is code
    assert connection.fault is not None
    assert connection.fault.why
    assert connection.receive(headers(99), 0) == []
    connection.check_invariants()


STREAM_FAULTS = {
    "malformed": (headers(1, hpack.encode(MALFORMED)), Code.PROTOCOL_ERROR),
    "no path": (headers(1, hpack.encode(REQUEST[:2])), Code.PROTOCOL_ERROR),
    "a field of HTTP/1": (
        headers(1, hpack.encode([*REQUEST, (b"connection", b"close")])),
        Code.PROTOCOL_ERROR,
    ),
    "a pseudo-header twice": (
        headers(1, hpack.encode([*REQUEST, REQUEST[0]])),
        Code.PROTOCOL_ERROR,
    ),
    "a line break": (headers(1, hpack.encode([*REQUEST, (b"a", b"b\nc")])), Code.PROTOCOL_ERROR),
    "too many fields": (
        headers(1, hpack.encode([*REQUEST, (b"a", b"a" * 16_300)])),
        Code.ENHANCE_YOUR_CALM,
    ),
    "it depends on itself": (
        headers(1, (1).to_bytes(4, "big") + b"\0" + BLOCK, END_HEADERS | PRIORITY),
        Code.PROTOCOL_ERROR,
    ),
    "DATA after its end": (
        headers(1, flags=END_HEADERS | END_STREAM) + body_frame(1, b"x"),
        Code.STREAM_CLOSED,
    ),
    "trailers that end nothing": (headers(1) + headers(1), Code.PROTOCOL_ERROR),
    "pseudo-headers in trailers": (
        headers(1) + headers(1, flags=END_HEADERS | END_STREAM),
        Code.PROTOCOL_ERROR,
    ),
    "a length that is no number": (
        headers(1, hpack.encode([*REQUEST, (b"content-length", b"-1")])),
        Code.PROTOCOL_ERROR,
    ),
    "more than its length": (
        headers(1, hpack.encode([*REQUEST, (b"content-length", b"2")])) + body_frame(1, b"abc"),
        Code.PROTOCOL_ERROR,
    ),
    "less than its length": (
        headers(1, hpack.encode([*REQUEST, (b"content-length", b"2")]))
        + body_frame(1, b"a", END_STREAM),
        Code.PROTOCOL_ERROR,
    ),
    "a window of 0 more": (headers(1) + frames.window_update(1, 0), Code.PROTOCOL_ERROR),
    "a window that overflows": (
        headers(1) + frames.window_update(1, STREAM_MASK),
        Code.FLOW_CONTROL_ERROR,
    ),
    "PRIORITY of 4 bytes": (frame(Type.PRIORITY, 0, 1, bytes(4)), Code.FRAME_SIZE_ERROR),
}


@pytest.mark.parametrize("name", STREAM_FAULTS)
def test_a_fault_of_a_stream_leaves_the_others(name) -> None:
    story, code = STREAM_FAULTS[name]
    connection = greeted()
    connection.receive(story, 0)
    assert resets(connection) == [(1, code)]
    assert connection.receive(headers(3, flags=END_HEADERS | END_STREAM), 0)[-1].stream == 3
    connection.check_invariants()


# --- the table of states --------------------------------------------------------------


@pytest.mark.parametrize("state", [State.OPEN, State.HALF_CLOSED])
@pytest.mark.parametrize("step", list(Step))
def test_the_table_of_states(state, step) -> None:
    stream = Stream(1, 0, 0, -1)
    stream.state = state
    to = TABLE[state][step]
    if to is None:
        with pytest.raises(StreamFault):
            stream.move(step)
        assert stream.state is state
    else:
        stream.move(step)
        assert stream.state is to
