"""Limits of a connection, and the events that its bytes mean."""

from __future__ import annotations

from typing import NamedTuple

from horolog.protocol.http2.request_head import RequestHead


class Limits(NamedTuple):
    """Limits of one connection.

    streams          open at a time; more are refused
    frame_bytes      of one frame's payload
    window_bytes     of one stream; the connection has four times as much
    header_bytes     of one header block, compressed; and of the list when decoded
    header_pieces    frames of one header block
    resets_burst …   unanswered streams that the peer may reset at once, and a second
    frames_burst …   frames without content at once, and a second
    messages_burst … messages on streams of many messages at once, and a second
    queued_bytes     answers that wait for the peer's windows, before only small ones are given
    """

    streams: int = 1_024
    frame_bytes: int = 16_384
    window_bytes: int = 1 << 20
    header_bytes: int = 16_384
    header_pieces: int = 32
    resets_burst: int = 1_000
    resets_per_second: int = 100
    frames_burst: int = 10_000
    frames_per_second: int = 2_000
    messages_burst: int = 2_000
    messages_per_second: int = 200
    queued_bytes: int = 8 << 20


class Head(NamedTuple):
    """A request has begun; with `ended` it has no body."""

    stream: int
    head: RequestHead
    ended: bool


class Body(NamedTuple):
    """The next bytes of a request's body; with `ended` the last ones."""

    stream: int
    content: bytes
    ended: bool


class WholeRequest(NamedTuple):
    """A request with its whole body, in place of `Head` and one `Body`."""

    stream: int
    head: RequestHead
    content: bytes


class StreamAborted(NamedTuple):
    """A stream has ended before its answer: it was reset, or its connection ended."""

    stream: int


class LateReset(NamedTuple):
    """The peer has reset a stream that had ended; the reset may have crossed the answer."""

    stream: int


class Pong(NamedTuple):
    """The answer to a ping."""

    opaque: bytes


class AnswerSent(NamedTuple):
    """An answer that waited for the peer's windows is sent completely."""

    stream: int


Event = Head | Body | WholeRequest | StreamAborted | LateReset | Pong | AnswerSent
