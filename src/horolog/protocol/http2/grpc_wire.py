"""gRPC's encoding on HTTP/2, without state: framed messages, their compression, statuses, timeouts.

A message is sent as one byte (1: compressed), four bytes of length, and its bytes
(grpc/doc/PROTOCOL-HTTP2.md).
"""

from __future__ import annotations

import zlib
from urllib.parse import quote

from horolog.limits import UNPACKED_BYTES_MAX
from horolog.protocol.http2 import hpack
from horolog.protocol.http2.request_head import RequestHead

# gRPC status codes that this server uses
OK = 0
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
RESOURCE_EXHAUSTED = 8
UNIMPLEMENTED = 12
INTERNAL = 13

PREFIX_BYTES = 5  # before a message
_TIMEOUT_MS = {"H": 3_600_000, "M": 60_000, "S": 1_000, "m": 1, "u": 1e-3, "n": 1e-6}
_TIMEOUT_DIGITS = 8


class BrokenRequest(Exception):
    """A request that cannot be read.

    status  gRPC status code
    why     a sentence for the caller
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


def framed(message: bytes) -> bytes:
    """Frame a message, without compression."""
    return len(message).to_bytes(PREFIX_BYTES, "big") + message


def timeout_ms(head: RequestHead) -> int | None:
    """Return how long the caller waits, in ms from its request; None if missing or unreadable."""
    text = head.fields.get(b"grpc-timeout", b"").decode("latin-1")
    digits, unit = text[:-1], text[-1:]
    if not digits.isdecimal() or len(digits) > _TIMEOUT_DIGITS or unit not in _TIMEOUT_MS:
        return None
    return int(int(digits) * _TIMEOUT_MS[unit])


def size_of(content: bytes | bytearray) -> int:
    """Return the size of the message whose prefix (`PREFIX_BYTES`) begins `content`."""
    return int.from_bytes(content[1:PREFIX_BYTES], "big")


def uncompressed(head: RequestHead, message: bytes, bytes_max: int) -> bytes:
    """Decompress a message that is marked as compressed, to at most `bytes_max` bytes.

    BrokenRequest: UNIMPLEMENTED unless `head` names gzip, INTERNAL if the message is not gzip,
    RESOURCE_EXHAUSTED if it is too long or truncated.
    """
    encoding = head.fields.get(b"grpc-encoding", b"identity")
    if encoding != b"gzip":
        raise BrokenRequest(
            UNIMPLEMENTED,
            f"grpc-encoding {encoding.decode('latin-1')[:40]!r}; use gzip or identity",
        )
    inflate = zlib.decompressobj(wbits=31)
    try:
        found = inflate.decompress(message, max(1, bytes_max))
    except zlib.error as error:
        raise BrokenRequest(INTERNAL, f"the message is no gzip: {error}") from None
    if inflate.unconsumed_tail or not inflate.eof:
        raise BrokenRequest(
            RESOURCE_EXHAUSTED,
            f"unpacked, the message is cut, or requests that came together are above "
            f"{UNPACKED_BYTES_MAX} bytes",
        )
    return found


def status_fields(status: int, why: str) -> list[hpack.Field]:
    """Return the trailers of a gRPC error; `why` is cut at 300 characters and percent-encoded."""
    text = quote(why[:300], safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")
    return [(b"grpc-status", b"%d" % status), (b"grpc-message", text.encode())]
