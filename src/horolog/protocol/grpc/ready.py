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
from horolog.protocol.rocketmq import bodies, layout, properties

_U64 = (1 << 64) - 1
_HOST_CACHED_MAX = 64  # bytes of a name that a producer gives itself; longer ones are not kept
_DUE_DIGITS = 15  # of milliseconds up to the year 9999
_TEXT = 2  # wire type of text, bytes and messages
_NUMBER = 0


def _varint(value: int) -> bytes:
    value &= _U64
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [_varint(value) for value in range(2_048)]


def varint(value: int) -> bytes:
    """A number, seven bits a byte, the lowest first; a negative one as 64 bits of its two's complement."""
    return _SMALL[value] if 0 <= value < len(_SMALL) else _varint(value)


def _piece(field: int, content: bytes) -> bytes:
    return b"".join((varint(field << 3 | _TEXT), varint(len(content)), content))


_OK = OK.SerializeToString()
_OK_AT_1 = _piece(1, _OK)
_OK_AT_3 = _piece(3, _OK)
_ID_AT_1, _ID_AT_2, _ENTRY_AT_2, _HANDLE_AT_2, _HANDLE_AT_5 = (
    bytes((field << 3 | _TEXT,)) for field in (1, 2, 2, 2, 5)
)
_OFFSET_AT_4 = bytes((4 << 3 | _NUMBER,))


def all_stored(entries: Iterable[tuple[str, int, bytes]]) -> bytes:
    """The framed SendMessageResponse in which every message is stored.

    entries  message id, queue offset (0 if it is scheduled), and recall handle (b"" if it is not)
    """
    parts = [_OK_AT_1]
    for message_id, offset, handle in entries:
        name = message_id.encode()
        content = b"".join((_OK_AT_1, _ID_AT_2, varint(len(name)), name))
        if offset:
            content = b"".join((content, _OFFSET_AT_4, varint(offset)))
        if handle:
            content = b"".join((content, _HANDLE_AT_5, varint(len(handle)), handle))
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
_TAG, _KEYS, _ID, _DIGEST = (bytes((field << 3 | _TEXT,)) for field in (1, 2, 3, 4))
_MD5 = bytes((1 << 3 | _NUMBER, pb.MD5, 2 << 3 | _TEXT, 32))  # and 32 hexadecimal digits
_DIGEST_MD5 = _DIGEST + varint(len(_MD5) + 32) + _MD5
_IDENTITY = bytes((5 << 3 | _NUMBER, pb.IDENTITY))
_GZIP = bytes((5 << 3 | _NUMBER, pb.GZIP))
_NORMAL, _FIFO, _DELAY = (
    bytes((6 << 3 | _NUMBER, kind)) for kind in (pb.NORMAL, pb.FIFO, pb.DELAY)
)
_BORN, _BORN_HOST, _STORED, _STORE_HOST, _DUE, _HANDLE = (
    varint(field << 3 | _TEXT) for field in (7, 8, 9, 10, 11, 12)
)
_QUEUE, _OFFSET, _ATTEMPT = (varint(field << 3 | _NUMBER) for field in (13, 14, 16))
_GROUP, _TRACE = (varint(field << 3 | _TEXT) for field in (17, 18))
_DELAYS = frozenset(name.encode() for name in properties.DELAYS - {properties.TIMER_DELIVER_MS})
_HIDDEN = frozenset(name.encode() for name in properties.HIDDEN)
_HIDDEN_PREFIX = properties.HIDDEN_PREFIX.encode()
_P_ID, _P_TAGS, _P_KEYS, _P_DUE, _P_GROUP, _P_TRACE, _P_BORN_HOST = (
    name.encode()
    for name in (
        properties.UNIQ_KEY,
        properties.TAGS,
        properties.KEYS,
        properties.TIMER_DELIVER_MS,
        properties.SHARDING_KEY,
        properties.TRACE_CONTEXT,
        properties.BORN_HOST,
    )
)
_NANOS = [b"\x10" + varint(ms * 1_000_000) if ms else b"" for ms in range(1_000)]


@lru_cache(maxsize=4_096)
def _seconds(seconds: int) -> bytes:
    return b"\x08" + varint(seconds) if seconds else b""


def _moment(ms: int) -> bytes:
    """A Timestamp, behind its length."""
    content = _seconds(ms // 1_000) + _NANOS[ms % 1_000]
    return _SMALL[len(content)] + content


def _host_text(host: tuple[bytes, int]) -> bytes:
    ip, port = host
    text = ".".join(map(str, ip)) if len(ip) == 4 else ip.hex(":", 2)
    return f"{text}:{port}".encode()


@lru_cache(maxsize=4_096)
def _born(ms: int, text: bytes | None, host: tuple[bytes, int]) -> bytes:
    """When and where it was made: of a batch mostly the same."""
    text = text or _host_text(host)
    return b"".join((_BORN, _moment(ms), _BORN_HOST, varint(len(text)), text))


@lru_cache(maxsize=4_096)
def _stored(ms: int, host: tuple[bytes, int]) -> bytes:
    """When and where it was stored: the same for all that were in one turn."""
    text = _host_text(host)
    return b"".join((_STORED, _moment(ms), _STORE_HOST, varint(len(text)), text))


def _split(stored: bytes) -> dict[bytes, bytes]:
    """Stored properties as `properties.decode` reads them, still as bytes."""
    if not stored.isascii():
        stored = stored.decode("utf-8", "replace").encode()
    pieces = [piece.split(b"\x01", 1) for piece in stored.split(b"\x02") if b"\x01" in piece]
    return dict(pieces)


def _system(
    stored: layout.Stored, known: dict[bytes, bytes], delivered: Delivered, body: bytes, gzip: bool
) -> bytes:
    get = known.get
    group, due, text = get(_P_GROUP), get(_P_DUE), get(_P_BORN_HOST)
    born = _born if text is None or len(text) <= _HOST_CACHED_MAX else _born.__wrapped__
    handle = delivered.receipt_handle.encode()
    parts: list[bytes] = []
    if (tag := get(_P_TAGS)) is not None:
        parts += (_TAG, varint(len(tag)), tag)
    if (keys := get(_P_KEYS)) is not None:
        for key in keys.split(b" "):
            parts += (_KEYS, varint(len(key)), key)
    if message_id := get(_P_ID):
        parts += (_ID, varint(len(message_id)), message_id)
    parts += (
        _DIGEST_MD5, md5(body, usedforsecurity=False).hexdigest().upper().encode(),
        _GZIP if gzip else _IDENTITY,
        _DELAY if due or not _DELAYS.isdisjoint(known) else _NORMAL if group is None else _FIFO,
        born(stored.born_ms, text, stored.born_host),
        _stored(stored.store_ms, stored.store_host),
    )  # fmt: skip
    if due and len(due) <= _DUE_DIGITS and due.isdigit():
        parts += (_DUE, _moment(int(due)))
    parts += (_HANDLE, varint(len(handle)), handle)
    if delivered.queue_id:
        parts += (_QUEUE, varint(delivered.queue_id))
    parts += (_OFFSET, varint(delivered.queue_offset), _ATTEMPT, varint(delivered.attempt))
    if group is not None:
        parts += (_GROUP, varint(len(group)), group)
    if (trace := get(_P_TRACE)) is not None:
        parts += (_TRACE, varint(len(trace)), trace)
    return b"".join(parts)


def received(topic: bytes, delivered: Delivered) -> bytes:
    """The ReceiveMessageResponse with a message as a 5.x consumer sees it (§1.12), not framed.

    topic  the Resource as the client named it, serialised
    """
    stored = layout.decode(delivered.layout)
    known = _split(stored.properties)
    parts = [_MESSAGE_TOPIC, varint(len(topic)), topic]
    for name, value in known.items():
        if name not in _HIDDEN and not name.startswith(_HIDDEN_PREFIX):
            entry = _piece(1, name) + _piece(2, value)
            parts += (_MESSAGE_USER, varint(len(entry)), entry)
    body, gzip = bodies.for_5x(stored.body, stored.sys_flag)
    system = _system(stored, known, delivered, body, gzip)
    parts += (_MESSAGE_SYSTEM, varint(len(system)), system)
    if body:
        parts += (_MESSAGE_BODY, varint(len(body)), body)
    message = b"".join(parts)
    return b"".join((_RESPONSE_MESSAGE, varint(len(message)), message))
