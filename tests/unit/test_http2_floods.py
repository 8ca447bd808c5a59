"""Floods and mutated frames at an HTTP/2 connection: its own error for each, sound state, bounded memory (P11)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from http2_peer import (
    BLOCK,
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

from horolog.protocol.http2 import frames, hpack
from horolog.protocol.http2.events import Body, Head, Limits
from horolog.protocol.http2.faults import Code
from horolog.protocol.http2.frames import ACK, END_HEADERS, END_STREAM, Setting, Type, frame
from horolog.protocol.http2.heads import CACHED_BYTES_MAX, Heads
from horolog.protocol.http2.outgoing import Outgoing
from horolog.protocol.http2.streams import Stream

SMALL = Limits(resets_burst=50, frames_burst=50, resets_per_second=10, frames_per_second=10)
# A literal of 3 000 bytes that goes into the table, and eight fields of a byte that mean the same again.
BOMB = b"".join((b"\x40\x01a", hpack.encode_integer(3_000, 7, 0), b"v" * 3_000, b"\xbe" * 8))
FLOODS = {
    "rapid reset": lambda i: headers(2 * i + 1) + frame(Type.RST_STREAM, 0, 2 * i + 1, bytes(4)),
    "streams that we must reset": lambda i: headers(2 * i + 1, hpack.encode(MALFORMED)),
    "header lists": lambda i: headers(2 * i + 1, BOMB),
    "PING": lambda i: frame(Type.PING, 0, 0, bytes(8)),
    "SETTINGS": lambda i: frames.settings({}),
    "PRIORITY": lambda i: frame(Type.PRIORITY, 0, 3, bytes(5)),
    "empty DATA": lambda i: headers(1) if i == 0 else body_frame(1),
    "WINDOW_UPDATE": lambda i: frames.window_update(0, 1),
    "unknown frames": lambda i: frame(77, 0, 0, b"?"),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_the_connection(name) -> None:
    connection = greeted(SMALL)
    for i in range(1_000):
        connection.receive(FLOODS[name](i), 0)
        connection.check_invariants()
        if connection.closed:
            break
    assert went_away(connection) is Code.ENHANCE_YOUR_CALM
    assert i < 60


@pytest.mark.parametrize("name", FLOODS)
def test_the_same_at_a_modest_pace_is_fine(name) -> None:
    connection = greeted(SMALL)
    for i in range(1_000):
        connection.receive(FLOODS[name](i), i * 200)
        connection.take_output()
    assert not connection.closed


def test_whoever_gets_answers_may_reset_now_and_then() -> None:
    connection = greeted(SMALL)
    for i in range(0, 2_000, 2):
        first, second = 2 * i + 1, 2 * i + 3
        connection.receive(headers(first, flags=END_HEADERS | END_STREAM), 0)
        connection.out.respond(first, HEAD, b"x", TRAILERS)
        connection.receive(headers(second) + frame(Type.RST_STREAM, 0, second, bytes(4)), 0)
    assert not connection.closed


def test_whoever_answers_our_pings_may_update_windows_too() -> None:
    connection = greeted(SMALL)
    for i in range(1_000):
        stream = 2 * i + 1
        connection.receive(headers(stream, flags=END_HEADERS | END_STREAM), 0)
        connection.out.respond(stream, HEAD, b"x", TRAILERS)
        connection.ping(bytes(8))
        connection.receive(frames.window_update(0, 1) + frame(Type.PING, ACK, 0, bytes(8)), 0)
    assert not connection.closed


def test_a_client_on_grpcs_c_core_may_call_as_often_as_it_likes() -> None:
    """It updates two windows for each call, however short, and pings now and then."""
    connection = greeted(SMALL)
    for i in range(2_000):
        stream = 2 * i + 1
        updates = frames.window_update(stream, 5) + frames.window_update(0, 15)
        ping = b"" if i % 3 else frame(Type.PING, 0, 0, bytes(8))
        connection.receive(headers(stream, flags=END_HEADERS | END_STREAM) + updates + ping, 0)
        connection.out.respond(stream, HEAD, b"x", TRAILERS)
    assert connection.fault is None


def test_a_client_with_small_windows_may_read_as_fast_as_it_likes() -> None:
    """It updates both windows whenever half of 64 KiB is used up, as Node's clients do."""
    connection = greeted(SMALL)
    for stream in range(1, 41, 2):
        connection.receive(headers(stream, flags=END_HEADERS | END_STREAM), 0)
        connection.out.respond(stream, HEAD, bytes(4 << 20), TRAILERS)
        connection.take_output()
        while connection.is_open(stream):
            update = frames.window_update(stream, 1 << 15) + frames.window_update(0, 1 << 15)
            connection.receive(update, 0)
            connection.take_output()
            assert connection.fault is None


def test_a_client_that_takes_its_answer_byte_by_byte_is_a_flood() -> None:
    connection = greeted(SMALL)
    connection.receive(frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 0}), 0)
    connection.receive(headers(1, flags=END_HEADERS | END_STREAM), 0)
    connection.out.respond(1, HEAD, bytes(1 << 20), TRAILERS)
    connection.receive(frames.window_update(1, 1) * 60, 0)
    assert went_away(connection) is Code.ENHANCE_YOUR_CALM


class Counted(dict[int, Stream]):
    """Streams that count how often all of them are looked at."""

    passes = 0

    def values(self) -> Any:
        self.passes += 1
        return super().values()


def test_a_cheap_frame_takes_no_more_than_one_pass_over_all_streams() -> None:
    """A chunk may have thousands of them, and a connection a thousand streams."""
    streams = Counted({1: Stream(1, 0, 0, -1)})
    out = Outgoing(streams, frames.FRAME_BYTES_INITIAL)
    out.respond(1, HEAD, bytes(1_000), TRAILERS)
    for _ in range(100):
        out.grow_connection(1)
    assert streams.passes == 0, "the window of the stream is what has no room"
    sizes = [Setting.INITIAL_WINDOW_SIZE.to_bytes(2, "big") + bytes((0, 1, n, 0)) for n in range(9)]
    out.apply_settings(b"".join(sizes))
    assert streams.passes == 2, "one to change the windows, one to use them"
    assert out.new_window == 0x10800


def test_a_block_in_many_pieces_ends_the_connection() -> None:
    connection = greeted()
    connection.receive(headers(1, BLOCK, 0), 0)
    for _ in range(100):
        connection.receive(frame(Type.CONTINUATION, 0, 1, b""), 0)
    assert went_away(connection) is Code.ENHANCE_YOUR_CALM


def test_heads_of_many_bytes_are_not_all_kept() -> None:
    """Otherwise an idle connection could hold two megabytes of them."""
    heads = Heads(Limits().header_bytes)
    for i in range(64):
        block = hpack.encode([*REQUEST, (b"x", b"%d" % i + bytes(1_000).replace(b"\0", b"y"))])
        assert heads.read(1, block).fields[b"x"].startswith(b"%d" % i)
        heads.check_invariants()
        if 2 * (i + 1) * 1_200 < CACHED_BYTES_MAX:
            assert heads.cached(block) is not None
    assert heads.cached(block) is None


def test_a_header_list_that_is_too_long_costs_its_stream() -> None:
    connection = greeted()
    connection.receive(headers(1, BOMB) + headers(3), 0)
    assert resets(connection) == [(1, Code.ENHANCE_YOUR_CALM)]
    assert [each for each in (1, 3) if connection.is_open(each)] == [3]
    connection.check_invariants()


def test_streams_beyond_the_limit_are_refused() -> None:
    connection = greeted(Limits(streams=3))
    for stream in (1, 3, 5, 7):
        connection.receive(headers(stream), 0)
    assert resets(connection) == [(7, Code.REFUSED_STREAM)]
    assert [each for each in (1, 3, 5, 7) if connection.is_open(each)] == [1, 3, 5]
    connection.check_invariants()


def mutated(random: Random, story: bytes) -> bytes:
    raw = bytearray(story)
    for _ in range(random.randrange(1, 6)):
        at = random.randrange(len(raw))
        match random.randrange(4):
            case 0:
                raw[at] ^= 1 << random.randrange(8)
            case 1:
                raw[at : at + 1] = random.randbytes(random.randrange(4))
            case 2:
                del raw[at : at + random.randrange(1, 12)]
            case _:
                raw[at:at] = raw[at : at + random.randrange(1, 40)]
        if not raw:
            raw += b"\0"
    return bytes(raw)


@pytest.mark.parametrize("seed", range(20))
def test_mutated_frames_end_in_events_or_a_fault(seed) -> None:
    """Any bytes: events, or the end of the connection with a code; state stays sound, and memory bounded."""
    random = Random(seed)
    story = b"".join(
        headers(stream) + body_frame(stream, b"x" * 20, END_STREAM) + frames.window_update(0, 5)
        for stream in range(1, 20, 2)
    )
    for _ in range(60):
        connection = greeted()
        raw = mutated(random, story)
        at = 0
        while at < len(raw) and not connection.closed:
            size = random.randrange(1, 60)
            for event in connection.receive(raw[at : at + size], 0):
                if isinstance(event, Head | Body) and event.ended:
                    connection.out.respond(event.stream, HEAD, b"ok", TRAILERS)
            connection.check_invariants()
            at += size
        owed(connection)
