"""The head of a request: checks that a field list is valid (RFC 9113 §8.2, §8.3)."""

from __future__ import annotations

import re
from typing import NamedTuple

from horolog.protocol.http2.hpack import Field

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE = re.compile(rb"[\0\r\n]|\A[ \t]|[ \t]\Z")
_PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
_OF_A_CONNECTION = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
_LENGTH_DIGITS = 18


class Malformed(ValueError):
    """A field list that is not valid for a request, or for trailers; the text says why."""


class RequestHead(NamedTuple):
    """Method, path and fields of a request; the last value of a repeated name counts.

    content_length  bytes of the body as the request states them, −1 if it does not
    """

    method: bytes
    path: bytes
    fields: dict[bytes, bytes]
    content_length: int = -1


def read_head(fields: list[Field]) -> RequestHead:
    """Check a decoded header list; Malformed says what is wrong."""
    pseudo: dict[bytes, bytes] = {}
    found: dict[bytes, bytes] = {}
    for name, value in fields:
        if name[:1] == b":":
            if name not in _PSEUDO or name in pseudo or found:
                raise Malformed(f"pseudo-header {name!r} is unknown, repeated, or after a field")
            pseudo[name] = value
        else:
            _check(name, value)
            found[name] = value
    method = pseudo.get(b":method", b"")
    path = pseudo.get(b":path", b"")
    if method == b"CONNECT" or not method or not path or b":scheme" not in pseudo:
        raise Malformed("a request needs :method, :scheme and a :path, and CONNECT is not served")
    return RequestHead(method, path, found, _content_length(found))


def check_trailers(fields: list[Field]) -> None:
    """Check the fields after a body: no pseudo-headers.  Malformed says what is wrong."""
    for name, value in fields:
        if name[:1] == b":":
            raise Malformed(f"pseudo-header {name!r} in trailers")
        _check(name, value)


def _check(name: bytes, value: bytes) -> None:
    if not _NAME.fullmatch(name):
        raise Malformed(f"field name {name[:40]!r} has capitals or other characters")
    if _BAD_VALUE.search(value):
        raise Malformed(f"field {name[:40]!r} has a line break, a NUL or outer blanks")
    if name in _OF_A_CONNECTION or (name == b"te" and value != b"trailers"):
        raise Malformed(f"field {name!r} belongs to HTTP/1 connections")


def _content_length(fields: dict[bytes, bytes]) -> int:
    value = fields.get(b"content-length")
    if value is None:
        return -1
    if not value.isdigit() or len(value) > _LENGTH_DIGITS:
        raise Malformed(f"content-length {value[:40]!r} is no number of bytes")
    return int(value)
