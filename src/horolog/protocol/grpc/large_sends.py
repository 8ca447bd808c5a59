"""Bounds of a large SendMessage request, checked before protobuf makes an object of each field.

Two bytes are a field, of which protobuf makes 80: a request of 130 MiB would take 5 GB.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from horolog.errors import refused
from horolog.limits import SEND_FIELDS_MAX, SEND_PROPERTIES_BYTES

_MESSAGES, _SYSTEM, _BODY = 0x0A, 0x1A, 0x22  # tags of SendMessageRequest and of Message
# First bytes of the tag of SystemProperties.keys: as clients write it, and with superfluous bytes
_KEYS = b"\x12", b"\x92"
_VARINT, _FIXED_64, _LENGTH_DELIMITED, _FIXED_32 = 0, 1, 2, 5  # wire types
_WIRE_TYPE = 7
_SMALL = 2 * SEND_FIELDS_MAX  # bytes in which there cannot be too many fields
_MORE = 0x80  # bit of a byte of a varint that is not its last one


def check_large_send(raw: bytes) -> None:
    """Check a request without reading it: BAD_REQUEST if it has too many fields besides bodies.

    The fields of requests and messages are counted, also those that clients do not have, and keys,
    at least as many as there are.  DecodeError if the bytes are no request.
    """
    if len(raw) <= _SMALL:
        return
    at = fields = bodies = 0
    try:
        while at < len(raw) and fields <= SEND_FIELDS_MAX:
            fields += 1
            tag, begin, at = _field(raw, at)
            while tag == _MESSAGES and begin < at and fields <= SEND_FIELDS_MAX:
                fields += 1
                inner, start, begin = _field(raw, begin)
                if inner == _BODY:
                    bodies += begin - start
                elif inner == _SYSTEM:
                    fields += sum([raw.count(mark, start, begin) for mark in _KEYS])
    except IndexError:
        raise DecodeError("the request is cut short") from None
    if fields > SEND_FIELDS_MAX:
        _refuse(f"more than {SEND_FIELDS_MAX} fields", f"{SEND_FIELDS_MAX} fields")
    if len(raw) - bodies > SEND_PROPERTIES_BYTES:
        limit = f"{SEND_PROPERTIES_BYTES} bytes besides bodies"
        _refuse(f"{len(raw) - bodies} bytes besides bodies", limit)


def _refuse(what: str, limit: str) -> None:
    raise refused("messages", f"{what} in one request; at most {limit} are allowed", limit)


def _field(raw: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of a field, where its content begins, and where it ends."""
    tag, size = raw[at], raw[at + 1]
    if tag < _MORE and size < _MORE and tag & _WIRE_TYPE == _LENGTH_DELIMITED:
        return tag, at + 2, at + 2 + size
    tag, at = _varint(raw, at)
    kind = tag & _WIRE_TYPE
    if kind == _LENGTH_DELIMITED:
        size, at = _varint(raw, at)
        return tag, at, at + size
    begin = at
    if kind == _VARINT:
        while raw[at] >= _MORE:
            at += 1
        at += 1
    elif kind in (_FIXED_64, _FIXED_32):
        at += 8 if kind == _FIXED_64 else 4
    return tag, begin, at  # groups: their fields follow, and count


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return a varint of at most 32 bits, and where it ends."""
    found = 0
    for shift in range(0, 35, 7):
        byte = raw[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < _MORE:
            return found, at
    raise DecodeError("a length of more than 32 bits")
