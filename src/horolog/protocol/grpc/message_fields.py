"""Messages to consumers: the fields that protobuf would write for a stored layout, as bytes.

There are two ways to the same bytes.  `any_message` decodes layout and properties and looks up each
property.  `usual` is for messages whose properties differ from those of earlier messages only in
id, due time and the time of making: the meaning of all other properties is cached (`_shape`).  It
accepts IPv4 hosts, bodies that are not compressed, and properties in which none of the three occurs
twice; all other messages are for `any_message`.
"""

from __future__ import annotations

import struct
from binascii import hexlify
from functools import lru_cache
from hashlib import md5
from typing import NamedTuple

from horolog.protocol.commands import Delivered
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.ready import NUMBER, TEXT, encode_field, varint
from horolog.protocol.rocketmq import bodies, layout, properties

_HOST_CACHED_MAX = 64  # bytes of a host name given by the producer; longer ones are not cached
_DUE_DIGITS = 15  # of milliseconds up to the year 9999
ID, _DIGEST = (bytes((field << 3 | TEXT,)) for field in (3, 4))
_MD5 = bytes((1 << 3 | NUMBER, pb.MD5, 2 << 3 | TEXT, 32))  # and 32 hexadecimal digits
DIGEST_MD5 = _DIGEST + varint(len(_MD5) + 32) + _MD5
IDENTITY = bytes((5 << 3 | NUMBER, pb.IDENTITY))
_GZIP = bytes((5 << 3 | NUMBER, pb.GZIP))
_NORMAL, _FIFO, DELAY = (bytes((6 << 3 | NUMBER, kind)) for kind in (pb.NORMAL, pb.FIFO, pb.DELAY))
_BORN, _BORN_HOST, _STORED, _STORE_HOST, DUE, _HANDLE = (
    varint(field << 3 | TEXT) for field in (7, 8, 9, 10, 11, 12)
)
_QUEUE, _OFFSET, _ATTEMPT = (varint(field << 3 | NUMBER) for field in (13, 14, 16))
_DELAYS = frozenset(name.encode() for name in properties.DELAYS - {properties.TIMER_DELIVER_MS})
_TRANSACTION_ID = properties.TRANSACTION_ID.encode()  # shown with the value from the layout
_HIDDEN = frozenset(name.encode() for name in properties.HIDDEN - properties.ECHOED) | {
    _TRANSACTION_ID
}
_HIDDEN_PREFIX = properties.HIDDEN_PREFIX.encode()
_P_ID, _P_TAGS, _P_KEYS, _P_DUE, _P_GROUP, _P_TRACE, _P_BORN_HOST, _P_DEAD_TOPIC, _P_DEAD_ID = (
    name.encode()
    for name in (
        properties.UNIQ_KEY,
        properties.TAGS,
        properties.KEYS,
        properties.TIMER_DELIVER_MS,
        properties.SHARDING_KEY,
        properties.TRACE_CONTEXT,
        properties.BORN_HOST,
        properties.DLQ_ORIGIN_TOPIC,
        properties.DLQ_ORIGIN_MESSAGE_ID,
    )
)
_NANOS = [b"\x10" + varint(ms * 1_000_000) if ms else b"" for ms in range(1_000)]


_FRONT = struct.Struct(">II28xI32sIqI")
assert _FRONT.size == layout.HEAD.size
_MOMENTS = struct.Struct(">q8sq8s")
_UNUSUAL = layout.COMPRESSED | layout.BORN_HOST_V6 | layout.STORE_HOST_V6
_SEPARATOR = 2
_SHAPED_MAX = 512  # bytes of properties whose meaning is cached
ID_MARK, DUE_MARK, BORN_MARK = (
    name.encode() + b"\x01"
    for name in (properties.UNIQ_KEY, properties.TIMER_DELIVER_MS, properties.BORN_TIMESTAMP)
)


@lru_cache(maxsize=4_096)
def _seconds(seconds: int) -> bytes:
    return b"\x08" + varint(seconds) if seconds else b""


def moment(ms: int) -> bytes:
    """Encode a Timestamp, after its length."""
    content = _seconds(ms // 1_000) + _NANOS[ms % 1_000]
    return varint(len(content)) + content


def _host_text(host: tuple[bytes, int]) -> bytes:
    ip, port = host
    text = ".".join(map(str, ip)) if len(ip) == 4 else ip.hex(":", 2)
    return f"{text}:{port}".encode()


@lru_cache(maxsize=4_096)
def _born(ms: int, text: bytes | None, host: tuple[bytes, int]) -> bytes:
    """Encode when and where a message was made, which is mostly the same in a batch."""
    text = text or _host_text(host)
    return b"".join((_BORN, moment(ms), _BORN_HOST, varint(len(text)), text))


@lru_cache(maxsize=4_096)
def _stored(ms: int, host: tuple[bytes, int]) -> bytes:
    """Encode when and where a message was stored, which is the same for all messages of a turn."""
    text = _host_text(host)
    return b"".join((_STORED, moment(ms), _STORE_HOST, varint(len(text)), text))


@lru_cache(maxsize=1_024)
def _born_quickly(ms: int, text: bytes | None, packed: bytes) -> bytes:
    host = packed[:4], int.from_bytes(packed[4:], "big")
    return _born.__wrapped__(ms, text, host)


@lru_cache(maxsize=1_024)
def _stored_quickly(ms: int, packed: bytes) -> bytes:
    return _stored.__wrapped__(ms, (packed[:4], int.from_bytes(packed[4:], "big")))


def moments_of(packed: bytes, host: bytes | None) -> bytes:
    """Encode when and where a message was made and stored, from the bytes of a layout (IPv4).

    host  where it was made, as its producer names itself; None: the producer does not say
    """
    born_ms, born_host, store_ms, store_host = _MOMENTS.unpack(packed)
    return _born_quickly(born_ms, host, born_host) + _stored_quickly(store_ms, store_host)


def _split(stored: bytes) -> dict[bytes, bytes]:
    """Split stored properties as `properties.decode` does, but into bytes."""
    if not stored.isascii():
        stored = stored.decode("utf-8", "replace").encode()
    pieces = [piece.split(b"\x01", 1) for piece in stored.split(b"\x02") if b"\x01" in piece]
    return dict(pieces)


def digest_of(body: bytes) -> bytes:
    """Return the MD5 of a body, as consumers compare it."""
    return hexlify(md5(body, usedforsecurity=False).digest()).upper()


@lru_cache(maxsize=256)
def _queue(queue: int) -> bytes:
    return (_QUEUE + varint(queue) if queue else b"") + _OFFSET


@lru_cache(maxsize=256)
def _attempt(attempt: int) -> bytes:
    return _ATTEMPT + varint(attempt)


def place_of(delivered: Delivered, tried: int) -> bytes:
    """Encode receipt handle, queue, queue offset and attempt.

    tried  attempts that the message had as earlier copies
    """
    _, queue, offset, attempt, text, _ = delivered
    attempt += tried
    handle = text.encode()
    at = varint(offset)
    return b"".join((_HANDLE, varint(len(handle)), handle, _queue(queue), at, _attempt(attempt)))


class _Shape(NamedTuple):
    """What properties say of a message, without its id, its due time and the time of making.

    user   the user's properties, as fields of the message
    front  tag and keys, as fields of the system properties
    kind   the message type, if there is no due time
    host   where the message was made, as its producer names itself
    back   message group, trace context and dead letter origin, as fields of the system properties
    """

    user: bytes
    front: bytes
    kind: bytes
    host: bytes | None
    back: bytes


def _shape_of(known: dict[bytes, bytes]) -> _Shape:
    """Read properties; of the system's, an empty one counts as missing, as for RocketMQ.

    Some clients of 4.x send empty tags and keys.
    """
    get = known.get
    user = []
    for name, value in known.items():
        if name not in _HIDDEN and not name.startswith(_HIDDEN_PREFIX):
            user.append(encode_field(2, encode_field(1, name) + encode_field(2, value)))
    front = []
    if tag := get(_P_TAGS):
        front.append(encode_field(1, tag))
    front += [encode_field(2, key) for key in get(_P_KEYS, b"").split(b" ") if key]
    group, trace = get(_P_GROUP), get(_P_TRACE)
    kind = _FIFO if group else _NORMAL
    if not _DELAYS.isdisjoint(known):
        kind = DELAY
    back = encode_field(17, group) if group else b""
    if trace:
        back += encode_field(18, trace)
    if of := get(_P_DEAD_TOPIC):
        back += encode_field(20, encode_field(1, of) + encode_field(2, get(_P_DEAD_ID, b"")))
    return _Shape(b"".join(user), b"".join(front), kind, get(_P_BORN_HOST), back)


@lru_cache(maxsize=1_024)
def _shape(stored: bytes) -> _Shape | None:
    """Read properties without id, due time and time of making; None if id or due time remains."""
    known = _split(stored)
    return None if _P_ID in known or _P_DUE in known else _shape_of(known)


def user_fields(shape: _Shape, half: int) -> bytes:
    """Encode the properties that consumers see.

    half  log position of the half message of the transaction; 0: no transaction
    """
    return shape.user + began_field(half)


def began_field(half: int) -> bytes:
    """Encode the property with the id of the transaction; b"" without a transaction."""
    if not half:
        return b""
    return encode_field(
        2, encode_field(1, _TRANSACTION_ID) + encode_field(2, transaction_id(half).encode())
    )


def transaction_id(position: int) -> str:
    """Return the id of a transaction for its producer: the log position of the half message."""
    return f"{position:016X}"


def _cut(stored: bytes, mark: bytes) -> tuple[bytes, bytes]:
    """Remove the first property of a name; return rest and value, b"" if missing or malformed."""
    before, found, after = stored.partition(mark)
    if not found or (before and before[-1] != _SEPARATOR):
        return stored, b""
    value, ends, after = after.partition(b"\x02")
    return (before + after, value) if ends else (stored, b"")


class Usual(NamedTuple):
    """What was read of a usual message.

    moments  when and where it was made and stored, as fields
    tried    attempts that the message had as earlier copies
    half     log position of the half message of its transaction; 0: no transaction
    """

    shape: _Shape
    message_id: bytes
    moments: bytes
    due: bytes
    body: slice
    tried: int
    half: int


def read_usual(stored: bytes) -> Usual | None:
    """Read a usual message; None if the message is not usual."""
    if len(stored) < layout.HEAD.size:
        return None
    size, magic, flag, made, tried, half, body_size = _FRONT.unpack_from(stored)
    end = layout.HEAD.size + body_size
    if flag & _UNUSUAL or magic != layout.MAGIC or size != len(stored) or size < end + 3:
        return None
    at = end + 3 + stored[end]
    if int.from_bytes(stored[at - 2 : at], "big") != size - at or at > size:
        return None
    rest, message_id = _cut(stored[at:], ID_MARK)
    rest, due = _cut(rest, DUE_MARK)
    rest, _ = _cut(rest, BORN_MARK)
    if not message_id or not message_id.isascii() or len(rest) > _SHAPED_MAX:
        return None
    if due and not (due.isdigit() and len(due) <= _DUE_DIGITS):
        return None
    shape = _shape(rest)
    if shape is None:
        return None
    moments = moments_of(made, shape.host)
    return Usual(shape, message_id, moments, due, slice(layout.HEAD.size, end), tried, half)


def usual(delivered: Delivered) -> tuple[bytes, bytes, bytes] | None:
    """Return fields of user properties, system properties, and body; None if unusual."""
    stored = delivered.layout
    read = read_usual(stored)
    if read is None:
        return None
    shape, message_id, moments, due, at, tried, half = read
    body = stored[at]
    system = (
        shape.front, ID, varint(len(message_id)), message_id,
        DIGEST_MD5, digest_of(body), IDENTITY, DELAY if due else shape.kind, moments,
        DUE + moment(int(due)) if due else b"", place_of(delivered, tried), shape.back,
    )  # fmt: skip
    return user_fields(shape, half), b"".join(system), body


def any_message(delivered: Delivered) -> tuple[bytes, bytes, bytes]:
    """Return fields of user properties, system properties, and body of any message.

    MESSAGE_CORRUPTED if the message is no stored layout.
    """
    stored = layout.decode(delivered.layout)
    known = _split(stored.properties)
    shape = _shape_of(known)
    due, text, message_id = known.get(_P_DUE), shape.host, known.get(_P_ID)
    born = _born if text is None or len(text) <= _HOST_CACHED_MAX else _born.__wrapped__
    body, gzip = bodies.for_5x(stored.body, stored.sys_flag)
    system = (
        shape.front,
        encode_field(3, message_id) if message_id else b"",
        DIGEST_MD5,
        digest_of(body),
        _GZIP if gzip else IDENTITY,
        DELAY if due else shape.kind,
        born(stored.born_ms, text, stored.born_host),
        _stored(stored.store_ms, stored.store_host),
        DUE + moment(int(due)) if due and len(due) <= _DUE_DIGITS and due.isdigit() else b"",
        place_of(delivered, stored.reconsume_times),
        shape.back,
    )
    return user_fields(shape, stored.prepared_offset), b"".join(system), body
