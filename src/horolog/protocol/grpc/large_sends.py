"""Bounds of a large SendMessage request, checked before protobuf makes an object of each field.

Two bytes are a field, of which protobuf makes 80: a request of 130 MiB would take 5 GB.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from horolog.errors import refused
from horolog.limits import SEND_FIELDS_MAX, SEND_PROPERTIES_BYTES

_MESSAGES, _BODY = 0x0A, 0x22  # tags of SendMessageRequest.messages and of Message.body
_LENGTH_DELIMITED, _WIRE_TYPE = 2, 7
_SMALL = 2 * SEND_FIELDS_MAX  # bytes in which there cannot be too many fields
_MORE = 0x80  # bit of a byte of a varint that is not its last one


def check_large_send(raw: bytes) -> None:
    """Check a request without reading it: BAD_REQUEST if it has too many fields besides bodies.

    DecodeError if the bytes are no request.
    """
    if len(raw) <= _SMALL:
        return
    at = fields = bodies = 0
    try:
        while at < len(raw) and raw[at] == _MESSAGES:
            size, at = _varint(raw, at + 1)
            stop = at + size
            fields += 1
            while at < stop and fields <= SEND_FIELDS_MAX:
                fields += 1
                tag = raw[at]
                if tag >= _MORE or tag & _WIRE_TYPE != _LENGTH_DELIMITED:
                    break  # a field that no client has; it counts with all that follow
                size, at = _varint(raw, at + 1)
                at += size
                if tag == _BODY:
                    bodies += size
            at = stop
    except IndexError:
        raise DecodeError("the request is cut short") from None
    if fields > SEND_FIELDS_MAX:
        _refuse(f"more than {SEND_FIELDS_MAX} fields", f"{SEND_FIELDS_MAX} fields")
    if len(raw) - bodies > SEND_PROPERTIES_BYTES:
        limit = f"{SEND_PROPERTIES_BYTES} bytes besides bodies"
        _refuse(f"{len(raw) - bodies} bytes besides bodies", limit)


def _refuse(what: str, limit: str) -> None:
    raise refused("messages", f"{what} in one request; at most {limit} are allowed", limit)


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
