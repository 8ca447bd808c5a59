"""Frames: RFC 9113 §4.1 and §6.

======  =====  ==========  ==========================================================================
offset  bytes  field       meaning
======  =====  ==========  ==========================================================================
0       3      length      bytes of the payload
3       1      type        `Type`; other types are ignored
4       1      flags       END_STREAM, END_HEADERS, PADDED, PRIORITY; ACK for SETTINGS and PING
5       4      stream      stream id, whose highest bit is ignored; 0: the connection
======  =====  ==========  ==========================================================================
"""

from __future__ import annotations

from enum import IntEnum

from horolog.protocol.http2.faults import Code, StreamFault, expect

HEADER_BYTES = 9
TYPE_AT = 3  # offset in a frame
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WINDOW_INITIAL = 65_535
WINDOW_MAX = 0x7FFF_FFFF
FRAME_BYTES_INITIAL = 16_384
FRAME_BYTES_MAX = 0xFF_FFFF
STREAM_MASK = 0x7FFF_FFFF
PRIORITY_BYTES = 5


class Type(IntEnum):
    """Frame types."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20


class Setting(IntEnum):
    """Parameters of SETTINGS."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


def header(length: int, kind: int, flags: int, stream: int) -> bytes:
    """Encode a frame header."""
    return (length << 48 | kind << 40 | flags << 32 | stream).to_bytes(HEADER_BYTES, "big")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Encode a whole frame."""
    return header(len(payload), kind, flags, stream) + payload


def settings(values: dict[Setting, int]) -> bytes:
    """Encode a SETTINGS frame."""
    payload = b"".join(
        int(name).to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in values.items()
    )
    return frame(Type.SETTINGS, 0, 0, payload)


SETTINGS_ACK = frame(Type.SETTINGS, ACK, 0)


def window_update(stream: int, increment: int) -> bytes:
    """Encode a WINDOW_UPDATE frame."""
    return frame(Type.WINDOW_UPDATE, 0, stream, increment.to_bytes(4, "big"))


def reset(stream: int, code: int) -> bytes:
    """Encode a RST_STREAM frame."""
    return frame(Type.RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def go_away(last_stream: int, code: int, why: str) -> bytes:
    """Encode a GOAWAY frame; `why` is for the log of the peer."""
    payload = last_stream.to_bytes(4, "big") + code.to_bytes(4, "big") + why.encode()[:200]
    return frame(Type.GOAWAY, 0, 0, payload)


def unpadded(payload: bytes) -> bytes:
    """Return a padded payload without its padding."""
    expect(bool(payload) and payload[0] < len(payload), "the padding is as long as the frame")
    return payload[1 : len(payload) - payload[0]]


def check_priority(stream: int, payload: bytes) -> None:
    """Raise a StreamFault for a stream that depends on itself."""
    if int.from_bytes(payload[:4], "big") & STREAM_MASK == stream:
        raise StreamFault(stream, Code.PROTOCOL_ERROR, "a stream depends on itself")
