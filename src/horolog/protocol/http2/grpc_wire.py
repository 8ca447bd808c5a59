"""What gRPC puts on HTTP/2, without any state: framed messages, their compression, statuses, timeouts.

A message travels as one byte (1: compressed), four bytes of length, and its bytes (grpc/doc/PROTOCOL-HTTP2.md).
"""

from __future__ import annotations

import zlib
from urllib.parse import quote

from horolog.limits import REQUEST_BYTES_MAX
from horolog.protocol.http2 import hpack
from horolog.protocol.http2.request_head import RequestHead

OK = 0
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
RESOURCE_EXHAUSTED = 8
UNIMPLEMENTED = 12
INTERNAL = 13
"""gRPC status codes that this server uses."""

PREFIX_BYTES = 5  # in front of a message
_TIMEOUT_MS = {"H": 3_600_000, "M": 60_000, "S": 1_000, "m": 1, "u": 1e-3, "n": 1e-6}
_TIMEOUT_DIGITS = 8


class BrokenRequest(Exception):
    """A request that cannot be read.

    status  of gRPC
    why     a sentence for the caller
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


def framed(message: bytes) -> bytes:
    """A message as it travels, not compressed."""
    return len(message).to_bytes(PREFIX_BYTES, "big") + message


def timeout_ms(head: RequestHead) -> int | None:
    """The milliseconds that the caller would wait when it sent the request; None: it did not say, or nothing readable."""
    text = head.fields.get(b"grpc-timeout", b"").decode("latin-1")
    digits, unit = text[:-1], text[-1:]
    if not digits.isdecimal() or len(digits) > _TIMEOUT_DIGITS or unit not in _TIMEOUT_MS:
        return None
    return int(int(digits) * _TIMEOUT_MS[unit])


def size_of(content: bytes | bytearray) -> int:
    """Bytes of the message whose prefix `content` begins with; it has `PREFIX_BYTES` at least."""
    return int.from_bytes(content[1:PREFIX_BYTES], "big")


def uncompressed(head: RequestHead, message: bytes) -> bytes:
    """A message that is marked as compressed, unpacked; at most `REQUEST_BYTES_MAX` bytes.

    BrokenRequest: UNIMPLEMENTED unless `head` names gzip, INTERNAL if it is none, RESOURCE_EXHAUSTED if it is too long
    or cut.
    """
    encoding = head.fields.get(b"grpc-encoding", b"identity")
    if encoding != b"gzip":
        raise BrokenRequest(
            UNIMPLEMENTED,
            f"grpc-encoding {encoding.decode('latin-1')[:40]!r}; use gzip or identity",
        )
    inflate = zlib.decompressobj(wbits=31)
    try:
        found = inflate.decompress(message, REQUEST_BYTES_MAX)
    except zlib.error as error:
        raise BrokenRequest(INTERNAL, f"the message is no gzip: {error}") from None
    if inflate.unconsumed_tail or not inflate.eof:
        raise BrokenRequest(
            RESOURCE_EXHAUSTED, f"unpacked, the message is cut or above {REQUEST_BYTES_MAX} bytes"
        )
    return found


def status_fields(status: int, why: str) -> list[hpack.Field]:
    """The trailers of a gRPC error; `why` is cut after 300 characters and percent-encoded."""
    text = quote(why[:300], safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")
    return [(b"grpc-status", b"%d" % status), (b"grpc-message", text.encode())]
