"""Frequent answers (thousands a second) as bytes: what protobuf would write, without its objects.

`deliveries` encodes messages to consumers.  A field is its tag (number << 3 | type), for text and
messages followed by the length and the bytes; a field with its default value is left out.
`tests/unit/test_ready_answers.py` compares every answer with protobuf's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from horolog.protocol.grpc.status import OK
from horolog.protocol.http2.grpc_wire import PREFIX_BYTES, framed

_U64 = (1 << 64) - 1
TEXT = 2  # wire type of text, bytes and messages
NUMBER = 0  # wire type of numbers


def _varint(value: int) -> bytes:
    value &= _U64
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL_COUNT = 2_048
_SMALL = [_varint(value) for value in range(_SMALL_COUNT)]


def varint(value: int) -> bytes:
    """Encode an integer, seven bits a byte, lowest first; negative: 64-bit two's complement."""
    if 0 <= value < _SMALL_COUNT:
        return _SMALL[value]
    if 0 <= value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if 0 <= value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if 0 <= value < 1 << 28:
        low, middle = value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80
        return bytes((low, middle, value >> 14 & 0x7F | 0x80, value >> 21))
    return _varint(value)


def encode_field(field: int, content: bytes) -> bytes:
    """Encode a field of text, bytes, or a message."""
    return b"".join((varint(field << 3 | TEXT), varint(len(content)), content))


_OK = OK.SerializeToString()
_OK_AT_1 = encode_field(1, _OK)
_OK_AT_3 = encode_field(3, _OK)
_ID_AT_1, _ID_AT_2, _ENTRY_AT_2, _HANDLE_AT_2, _TRANSACTION_AT_3, _HANDLE_AT_5 = (
    bytes((field << 3 | TEXT,)) for field in (1, 2, 2, 2, 3, 5)
)
_OFFSET_AT_4 = bytes((4 << 3 | NUMBER,))


def all_stored(entries: Iterable[tuple[str, int, bytes]]) -> bytes:
    """Encode the framed SendMessageResponse in which every message is stored.

    The message id is also given as the transaction id, as by RocketMQ, whose clients show it.

    entries  message id, queue offset (0 if scheduled), and recall handle (b"" if not scheduled)
    """
    parts = [_OK_AT_1]
    for message_id, offset, handle in entries:
        name = message_id.encode()
        if handle and not offset:
            front, between, after = _scheduled_entry(len(name), len(handle))
            parts += (front, name, between, name, after, handle)
            continue
        front, between = _stored_front(len(name))
        after = _OFFSET_AT_4 + varint(offset) if offset else b""
        if handle:
            after = b"".join((after, _HANDLE_AT_5, varint(len(handle))))
        size = len(front) + len(between) + 2 * len(name) + len(after) + len(handle)
        parts += (_ENTRY_AT_2, varint(size), front, name, between, name, after, handle)
    return framed(b"".join(parts))


def each_stored(entries: Sequence[tuple[str, int, bytes]], ends: Sequence[int]) -> list[bytes]:
    """Encode the framed SendMessageResponse of each request, which ends in `entries` at `ends`."""
    found = []
    start = 0
    for end in ends:
        message_id, offset, handle = entries[start]
        if end > start + 1 or offset or not handle:
            found.append(all_stored(entries[start:end]))
        else:
            name = message_id.encode()
            front, between, after = _scheduled_front(len(name), len(handle))
            found.append(b"".join((front, name, between, name, after, handle)))
        start = end
    return found


@lru_cache(maxsize=256)
def _scheduled_front(name_bytes: int, handle_bytes: int) -> tuple[bytes, bytes, bytes]:
    """Return a framed answer to a scheduled message: bytes before id, repeated id and handle."""
    front, between, after = _scheduled_entry(name_bytes, handle_bytes)
    front = _OK_AT_1 + front
    whole = len(front) + len(between) + 2 * name_bytes + len(after) + handle_bytes
    return whole.to_bytes(PREFIX_BYTES, "big") + front, between, after


@lru_cache(maxsize=256)
def _scheduled_entry(name_bytes: int, handle_bytes: int) -> tuple[bytes, bytes, bytes]:
    """Return an entry of a scheduled message: the bytes before id, repeated id and handle."""
    front, between = _stored_front(name_bytes)
    after = _HANDLE_AT_5 + varint(handle_bytes)
    size = len(front) + len(between) + 2 * name_bytes + len(after) + handle_bytes
    return b"".join((_ENTRY_AT_2, varint(size), front)), between, after


@lru_cache(maxsize=256)
def _stored_front(name_bytes: int) -> tuple[bytes, bytes]:
    """Return an entry of a stored message: the bytes before id and repeated id."""
    size = varint(name_bytes)
    return b"".join((_OK_AT_1, _ID_AT_2, size)), _TRANSACTION_AT_3 + size


def all_acknowledged(entries: Iterable[tuple[str, str]]) -> bytes:
    """Encode the framed AckMessageResponse in which every message is consumed.

    entries  message ids and handles
    """
    parts = [_OK_AT_1]
    for message_id, handle in entries:
        content = b""
        if message_id:
            name = message_id.encode()
            content = b"".join((_ID_AT_1, varint(len(name)), name))
        text = handle.encode()
        content = b"".join((content, _HANDLE_AT_2, varint(len(text)), text, _OK_AT_3))
        parts += (_ENTRY_AT_2, varint(len(content)), content)
    return framed(b"".join(parts))


def all_acknowledged_as(entries: Sequence[bytes]) -> bytes:
    """Encode `all_acknowledged` from the entries of the request, which all have one size."""
    start = _ENTRY_AT_2 + varint(len(entries[0]) + len(_OK_AT_3))
    return framed(b"".join((_OK_AT_1, start, (_OK_AT_3 + start).join(entries), _OK_AT_3)))
