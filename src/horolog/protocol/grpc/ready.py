"""Answers that are made thousands of times a second, as bytes: what protobuf would write, without its objects.

Messages to consumers are made from their stored layout.  A field is its tag (number << 3 | type), for text and messages followed by the length and the bytes; a field with its
default value is left out.  `tests/unit/test_ready_answers.py` holds every answer against protobuf's.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import md5

from horolog.protocol.commands import Delivered
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.status import OK
from horolog.protocol.http2.calls import framed
from horolog.protocol.rocketmq import layout, properties

_U64 = (1 << 64) - 1
_SMALL = [bytes((value,)) for value in range(0x80)]
_DUE_DIGITS = 15  # of milliseconds up to the year 9999
_TEXT = 2  # wire type of text, bytes and messages
_NUMBER = 0


def varint(value: int) -> bytes:
    """A number, seven bits a byte, the lowest first; a negative one as 64 bits of its two's complement."""
    if 0 <= value < 0x80:
        return _SMALL[value]
    value &= _U64
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _piece(field: int, content: bytes) -> bytes:
    return b"".join((varint(field << 3 | _TEXT), varint(len(content)), content))


_OK = OK.SerializeToString()
_OK_AT_1 = _piece(1, _OK)
_OK_AT_3 = _piece(3, _OK)
_ID_AT_1, _ID_AT_2, _ENTRY_AT_2, _HANDLE_AT_2, _HANDLE_AT_5 = (
    bytes((field << 3 | _TEXT,)) for field in (1, 2, 2, 2, 5)
)
_OFFSET_AT_4 = bytes((4 << 3 | _NUMBER,))


def all_stored(entries: Iterable[tuple[str, int, str]]) -> bytes:
    """The framed SendMessageResponse in which every message is stored.

    entries  message id, queue offset (0 if it is scheduled), and recall handle ("" if it is not)
    """
    parts = [_OK_AT_1]
    for message_id, offset, handle in entries:
        name = message_id.encode()
        entry = [_OK_AT_1, _ID_AT_2, varint(len(name)), name]
        if offset:
            entry += (_OFFSET_AT_4, varint(offset))
        if handle:
            text = handle.encode()
            entry += (_HANDLE_AT_5, varint(len(text)), text)
        content = b"".join(entry)
        parts += (_ENTRY_AT_2, varint(len(content)), content)
    return framed(b"".join(parts))


def all_acknowledged(entries: Iterable[tuple[str, str]]) -> bytes:
    """The framed AckMessageResponse in which every message is consumed; entries are message ids and handles."""
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


# --- received messages ----------------------------------------------------------------------------

_RESPONSE_MESSAGE = bytes((2 << 3 | _TEXT,))
_MESSAGE_TOPIC, _MESSAGE_USER, _MESSAGE_SYSTEM, _MESSAGE_BODY = (
    bytes((field << 3 | _TEXT,)) for field in (1, 2, 3, 4)
)
_MAP_KEY, _MAP_VALUE = bytes((1 << 3 | _TEXT,)), bytes((2 << 3 | _TEXT,))
_TAG, _KEYS, _ID, _DIGEST = (bytes((field << 3 | _TEXT,)) for field in (1, 2, 3, 4))
_MD5 = bytes((1 << 3 | _NUMBER, pb.MD5, 2 << 3 | _TEXT, 32))  # and 32 hexadecimal digits
_IDENTITY = bytes((5 << 3 | _NUMBER, pb.IDENTITY))
_GZIP = bytes((5 << 3 | _NUMBER, pb.GZIP))
_KIND = bytes((6 << 3 | _NUMBER,))
_BORN, _BORN_HOST, _STORED, _STORE_HOST, _DUE, _HANDLE = (
    varint(field << 3 | _TEXT) for field in (7, 8, 9, 10, 11, 12)
)
_QUEUE, _OFFSET, _ATTEMPT = (varint(field << 3 | _NUMBER) for field in (13, 14, 16))
_GROUP, _TRACE = (varint(field << 3 | _TEXT) for field in (17, 18))


def _text(tag: bytes, text: str) -> bytes:
    content = text.encode()
    return b"".join((tag, varint(len(content)), content))


def _moment(tag: bytes, ms: int) -> bytes:
    """A Timestamp."""
    content = b"\x08" + varint(ms // 1000) if ms // 1000 else b""
    if nanos := ms % 1000 * 1_000_000:
        content += b"\x10" + varint(nanos)
    return b"".join((tag, varint(len(content)), content))


@lru_cache(maxsize=4_096)
def _host_text(host: tuple[bytes, int]) -> str:
    ip, port = host
    text = ".".join(map(str, ip)) if len(ip) == 4 else ip.hex(":", 2)
    return f"{text}:{port}"


def _system(stored: layout.Stored, known: dict[str, str], delivered: Delivered) -> bytes:
    kind = pb.NORMAL
    group = known.get(properties.SHARDING_KEY)
    if group is not None:
        kind = pb.FIFO
    due = known.get(properties.TIMER_DELIVER_MS, "")
    if due:
        kind = pb.DELAY
    parts = []
    if properties.TAGS in known:
        parts.append(_text(_TAG, known[properties.TAGS]))
    if properties.KEYS in known:
        parts += [_text(_KEYS, key) for key in known[properties.KEYS].split(" ")]
    if message_id := known.get(properties.UNIQ_KEY, ""):
        parts.append(_text(_ID, message_id))
    digest = md5(stored.body, usedforsecurity=False).hexdigest().upper().encode()
    parts += (
        _DIGEST,
        varint(len(_MD5) + len(digest)),
        _MD5,
        digest,
        _GZIP if stored.sys_flag & layout.COMPRESSED else _IDENTITY,
        _KIND,
        varint(kind),
        _moment(_BORN, stored.born_ms),
        _text(_BORN_HOST, known.get(properties.BORN_HOST) or _host_text(stored.born_host)),
        _moment(_STORED, stored.store_ms),
        _text(_STORE_HOST, _host_text(stored.store_host)),
    )
    if due.isdecimal() and len(due) <= _DUE_DIGITS:
        parts.append(_moment(_DUE, int(due)))
    parts.append(_text(_HANDLE, delivered.receipt_handle))
    if delivered.queue_id:
        parts += (_QUEUE, varint(delivered.queue_id))
    parts += (_OFFSET, varint(delivered.queue_offset), _ATTEMPT, varint(delivered.attempt))
    if group is not None:
        parts.append(_text(_GROUP, group))
    if properties.TRACE_CONTEXT in known:
        parts.append(_text(_TRACE, known[properties.TRACE_CONTEXT]))
    return b"".join(parts)


def received(topic: bytes, delivered: Delivered) -> bytes:
    """The ReceiveMessageResponse with a message as a 5.x consumer sees it (§1.12), not framed.

    topic  the Resource as the client named it, serialised
    """
    stored = layout.decode(delivered.layout)
    known = properties.decode(stored.properties)
    parts = [_MESSAGE_TOPIC, varint(len(topic)), topic]
    for name, value in known.items():
        if not properties.is_hidden(name):
            entry = _text(_MAP_KEY, name) + _text(_MAP_VALUE, value)
            parts += (_MESSAGE_USER, varint(len(entry)), entry)
    system = _system(stored, known, delivered)
    parts += (_MESSAGE_SYSTEM, varint(len(system)), system)
    if stored.body:
        parts += (_MESSAGE_BODY, varint(len(stored.body)), stored.body)
    message = b"".join(parts)
    return b"".join((_RESPONSE_MESSAGE, varint(len(message)), message))
