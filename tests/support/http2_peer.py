"""The other end of `protocol.http2.connection` in tests: frames to it, and its output."""

from __future__ import annotations

from horolog.protocol.http2 import frames, hpack
from horolog.protocol.http2.connection import Connection
from horolog.protocol.http2.events import Limits
from horolog.protocol.http2.faults import Code
from horolog.protocol.http2.frames import END_HEADERS, PREFACE, STREAM_MASK, Type, frame

REQUEST = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/s/Do"), (b"te", b"trailers")]
BLOCK = hpack.encode(REQUEST)
GREETING = PREFACE + frames.settings({})
HEAD = hpack.encode([(b":status", b"200")])
TRAILERS = hpack.encode([(b"grpc-status", b"0")])


def headers(stream: int, block: bytes = BLOCK, flags: int = END_HEADERS) -> bytes:
    return frame(Type.HEADERS, flags, stream, block)


def body_frame(stream: int, content: bytes = b"", flags: int = 0) -> bytes:
    return frame(Type.DATA, flags, stream, content)


def greeted(limits: Limits = Limits()) -> Connection:
    connection = Connection(limits)
    assert connection.receive(GREETING, 0) == []
    connection.take_output()
    return connection


def owed(connection: Connection) -> list[tuple[int, int, int, bytes]]:
    """Return the frames in the output, as (type, flags, stream, payload)."""
    raw, at, found = connection.take_output(), 0, []
    while at < len(raw):
        length = int.from_bytes(raw[at : at + 3], "big")
        stream = int.from_bytes(raw[at + 5 : at + 9], "big") & STREAM_MASK
        found.append((raw[at + 3], raw[at + 4], stream, raw[at + 9 : at + 9 + length]))
        at += 9 + length
    assert at == len(raw)
    return found


def went_away(connection: Connection) -> Code:
    """Return the code of the GOAWAY that ends the output."""
    kind, _, _, payload = owed(connection)[-1]
    assert kind == Type.GOAWAY
    assert connection.closed
    return Code(int.from_bytes(payload[4:8], "big"))


def resets(connection: Connection) -> list[tuple[int, Code]]:
    return [
        (stream, Code(int.from_bytes(payload, "big")))
        for kind, _, stream, payload in owed(connection)
        if kind == Type.RST_STREAM
    ]


MALFORMED = [(b":method", b"POST"), (b":path", b"/"), (b"X", b"capital")]
