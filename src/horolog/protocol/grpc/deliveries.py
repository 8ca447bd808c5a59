"""Messages to consumers, as bytes: what protobuf would write of their stored layout (see `ready`).

There are three ways to the same bytes.  `_whole` decodes layout and properties and asks for every one.  `_quick` is for
messages that differ from others before in no property but their id, due time and the time when they were made: what
the rest of the properties means is looked up (`_shape`).  It takes IPv4 hosts, bodies as they are, and properties in
which none of the three stands twice; everything else it leaves to `_whole`.  And of messages that are made like one of
the same receive (`alike`) the answers are like its answer (`_Mould`).
"""

from __future__ import annotations

import struct
from binascii import hexlify
from collections.abc import Sequence
from functools import lru_cache
from hashlib import md5
from typing import NamedTuple

from horolog.protocol.commands import Delivered
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.alike import Differing, Likeness, learn
from horolog.protocol.grpc.ready import NUMBER, TEXT, piece, varint
from horolog.protocol.http2.calls import PREFIX_BYTES
from horolog.protocol.rocketmq import bodies, layout, properties

_HOST_CACHED_MAX = 64  # bytes of a name that a producer gives itself; longer ones are not kept
_DUE_DIGITS = 15  # of milliseconds up to the year 9999
_RESPONSE_MESSAGE = bytes((2 << 3 | TEXT,))
_MESSAGE_SYSTEM, _MESSAGE_BODY = (bytes((field << 3 | TEXT,)) for field in (3, 4))
_ID, _DIGEST = (bytes((field << 3 | TEXT,)) for field in (3, 4))
_MD5 = bytes((1 << 3 | NUMBER, pb.MD5, 2 << 3 | TEXT, 32))  # and 32 hexadecimal digits
_DIGEST_MD5 = _DIGEST + varint(len(_MD5) + 32) + _MD5
_IDENTITY = bytes((5 << 3 | NUMBER, pb.IDENTITY))
_GZIP = bytes((5 << 3 | NUMBER, pb.GZIP))
_NORMAL, _FIFO, _DELAY = (bytes((6 << 3 | NUMBER, kind)) for kind in (pb.NORMAL, pb.FIFO, pb.DELAY))
_BORN, _BORN_HOST, _STORED, _STORE_HOST, _DUE, _HANDLE = (
    varint(field << 3 | TEXT) for field in (7, 8, 9, 10, 11, 12)
)
_QUEUE, _OFFSET, _ATTEMPT = (varint(field << 3 | NUMBER) for field in (13, 14, 16))
_DELAYS = frozenset(name.encode() for name in properties.DELAYS - {properties.TIMER_DELIVER_MS})
_TRANSACTION_ID = properties.TRANSACTION_ID.encode()  # shown of what the layout says
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


_FRONT = struct.Struct(">II28xIq8sq8sIqI")
assert _FRONT.size == layout.HEAD.size
_UNUSUAL = layout.COMPRESSED | layout.BORN_HOST_V6 | layout.STORE_HOST_V6
_SEPARATOR = 2
_MOULDS_MAX = 2  # of a receive: where messages are of one size and not alike, a mould costs more than it gains
_SHAPED_MAX = 512  # bytes of properties whose meaning is remembered
_ID_MARK, _DUE_MARK, _BORN_MARK = (
    name.encode() + b"\x01"
    for name in (properties.UNIQ_KEY, properties.TIMER_DELIVER_MS, properties.BORN_TIMESTAMP)
)


@lru_cache(maxsize=4_096)
def _seconds(seconds: int) -> bytes:
    return b"\x08" + varint(seconds) if seconds else b""


def _moment(ms: int) -> bytes:
    """A Timestamp, after its length."""
    content = _seconds(ms // 1_000) + _NANOS[ms % 1_000]
    return varint(len(content)) + content


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


@lru_cache(maxsize=1_024)
def _born_quickly(ms: int, text: bytes | None, packed: bytes) -> bytes:
    host = packed[:4], int.from_bytes(packed[4:], "big")
    return _born.__wrapped__(ms, text, host)


@lru_cache(maxsize=1_024)
def _stored_quickly(ms: int, packed: bytes) -> bytes:
    return _stored.__wrapped__(ms, (packed[:4], int.from_bytes(packed[4:], "big")))


def _split(stored: bytes) -> dict[bytes, bytes]:
    """Stored properties as `properties.decode` reads them, still as bytes."""
    if not stored.isascii():
        stored = stored.decode("utf-8", "replace").encode()
    pieces = [piece.split(b"\x01", 1) for piece in stored.split(b"\x02") if b"\x01" in piece]
    return dict(pieces)


def _digest(body: bytes) -> bytes:
    return hexlify(md5(body, usedforsecurity=False).digest()).upper()


@lru_cache(maxsize=256)
def _queue(queue: int) -> bytes:
    return (_QUEUE + varint(queue) if queue else b"") + _OFFSET


@lru_cache(maxsize=256)
def _attempt(attempt: int) -> bytes:
    return _ATTEMPT + varint(attempt)


def _place(delivered: Delivered, tried: int) -> bytes:
    """Receipt handle, queue, queue offset and attempt, of a message that was `tried` so often as another one."""
    _, queue, offset, attempt, text = delivered
    attempt += tried
    handle = text.encode()
    at = varint(offset)
    return b"".join((_HANDLE, varint(len(handle)), handle, _queue(queue), at, _attempt(attempt)))


class _Shape(NamedTuple):
    """What properties say of a message, but for its id, and when it was made and is due.

    user   those that its producer gave it, as fields of the message
    front  tag and keys, as fields of the system properties
    kind   the message type, if there is no due time
    host   where it was made, as its producer names itself
    back   group, trace, and whose dead letter it is, as fields of the system properties
    """

    user: bytes
    front: bytes
    kind: bytes
    host: bytes | None
    back: bytes


def _shape_of(known: dict[bytes, bytes]) -> _Shape:
    get = known.get
    user = []
    for name, value in known.items():
        if name not in _HIDDEN and not name.startswith(_HIDDEN_PREFIX):
            user.append(piece(2, piece(1, name) + piece(2, value)))
    front = []
    if (tag := get(_P_TAGS)) is not None:
        front.append(piece(1, tag))
    if (keys := get(_P_KEYS)) is not None:
        front += [piece(2, key) for key in keys.split(b" ")]
    group, trace = get(_P_GROUP), get(_P_TRACE)
    kind = _NORMAL if group is None else _FIFO
    if not _DELAYS.isdisjoint(known):
        kind = _DELAY
    back = piece(17, group) if group is not None else b""
    if trace is not None:
        back += piece(18, trace)
    if (of := get(_P_DEAD_TOPIC)) is not None:
        back += piece(20, piece(1, of) + piece(2, get(_P_DEAD_ID, b"")))
    return _Shape(b"".join(user), b"".join(front), kind, get(_P_BORN_HOST), back)


@lru_cache(maxsize=1_024)
def _shape(stored: bytes) -> _Shape | None:
    """What properties say, without id, due time, and the time when it was made; None if one of these is left."""
    known = _split(stored)
    return None if _P_ID in known or _P_DUE in known else _shape_of(known)


def _user(shape: _Shape, half: int) -> bytes:
    """Properties that consumers are shown, as fields; `half` is where a transaction began, 0: there was none."""
    if not half:
        return shape.user
    shown = piece(1, _TRANSACTION_ID) + piece(2, transaction_id(half).encode())
    return shape.user + piece(2, shown)


def transaction_id(position: int) -> str:
    """What a producer is told, and tells again: where its half message stands."""
    return f"{position:016X}"


def _cut(stored: bytes, mark: bytes) -> tuple[bytes, bytes]:
    """Properties without the first one of a name, and its value; b"" if it is not there as it should be."""
    before, found, after = stored.partition(mark)
    if not found or (before and before[-1] != _SEPARATOR):
        return stored, b""
    value, ends, after = after.partition(b"\x02")
    return (before + after, value) if ends else (stored, b"")


class _Quick(NamedTuple):
    """What was read of a message of the usual kind.

    moments  when and where it was made and stored, as fields
    tried    how often it was tried as another message
    half     where a transaction began; 0: there was none
    """

    shape: _Shape
    message_id: bytes
    moments: bytes
    due: bytes
    body: slice
    tried: int
    half: int


def _read(stored: bytes) -> _Quick | None:
    """Read a message of the usual kind; None if it is another."""
    if len(stored) < layout.HEAD.size:
        return None
    size, magic, flag, born_ms, born_host, store_ms, store_host, tried, half, body_size = (
        _FRONT.unpack_from(stored)
    )
    end = layout.HEAD.size + body_size
    if flag & _UNUSUAL or magic != layout.MAGIC or size != len(stored) or size < end + 3:
        return None
    at = end + 3 + stored[end]
    if int.from_bytes(stored[at - 2 : at], "big") != size - at or at > size:
        return None
    rest, message_id = _cut(stored[at:], _ID_MARK)
    rest, due = _cut(rest, _DUE_MARK)
    rest, _ = _cut(rest, _BORN_MARK)
    if not message_id or not message_id.isascii() or len(rest) > _SHAPED_MAX:
        return None
    if due and not (due.isdigit() and len(due) <= _DUE_DIGITS):
        return None
    shape = _shape(rest)
    if shape is None:
        return None
    moments = _born_quickly(born_ms, shape.host, born_host) + _stored_quickly(store_ms, store_host)
    return _Quick(shape, message_id, moments, due, slice(layout.HEAD.size, end), tried, half)


def _quick(delivered: Delivered) -> tuple[bytes, bytes, bytes] | None:
    """User properties as fields, system properties, and body of a message of the usual kind; None if it is another."""
    stored = delivered.layout
    read = _read(stored)
    if read is None:
        return None
    shape, message_id, moments, due, at, tried, half = read
    body = stored[at]
    system = (
        shape.front, _ID, varint(len(message_id)), message_id,
        _DIGEST_MD5, _digest(body), _IDENTITY, _DELAY if due else shape.kind, moments,
        _DUE + _moment(int(due)) if due else b"", _place(delivered, tried), shape.back,
    )  # fmt: skip
    return _user(shape, half), b"".join(system), body


class _Mould:
    """The answers for messages that are like one of them."""

    def __init__(self, head: bytes, likeness: Likeness, like: _Quick) -> None:
        self._like = like
        self._likeness = likeness
        shape = like.shape
        self._outside = head + _user(shape, like.half)
        named = varint(len(like.message_id))
        self._inside = b"".join((shape.front, _ID, named))
        body_size = like.body.stop - like.body.start
        self._body = _MESSAGE_BODY + varint(body_size) if body_size else b""
        self._end = shape.back + self._body
        self._kind = _IDENTITY + (_DELAY if like.due else shape.kind)
        # Bytes of the system properties but for kind and moments, due time and place
        self._fixed = (
            len(self._inside) + len(like.message_id) + len(_DIGEST_MD5) + 32 + len(shape.back)
        )
        self._rest = len(self._outside) + len(self._body) + body_size
        self._fronts: dict[int, bytes] = {}
        self._moments: dict[bytes, bytes] = {}

    def fill(self, delivered: Delivered) -> tuple[bytes, ...] | None:
        """The pieces of the framed answer; None if it is not like that."""
        own = self._likeness.read(delivered.layout)
        if own is None:
            return None
        moments = self._moments.get(own.moments) or self._moments_of(own, delivered.layout)
        due = _DUE + _moment(int(own.due)) if own.due else b""
        place = _place(delivered, self._like.tried)
        size = self._fixed + len(moments) + len(due) + len(place)
        front = self._fronts.get(size) or self._front(size)
        digest = _digest(own.body)
        return front, own.id, _DIGEST_MD5, digest, moments, due, place, self._end, own.body

    def _moments_of(self, own: Differing, stored: bytes) -> bytes:
        read = _read(stored)
        assert read is not None, "it is like one that was read"
        found = self._moments[own.moments] = self._kind + read.moments
        return found

    def _front(self, system: int) -> bytes:
        system_size = _MESSAGE_SYSTEM + varint(system)
        size = self._rest + len(system_size) + system
        start = _RESPONSE_MESSAGE + varint(size)
        prefix = (len(start) + size).to_bytes(PREFIX_BYTES, "big")
        front = self._fronts[system] = b"".join(
            (prefix, start, self._outside, system_size, self._inside)
        )
        return front


def _mould(head: bytes, like: bytes) -> _Mould | None:
    read = _read(like)
    likeness = None if read is None else learn(like, read.body)
    return None if read is None or likeness is None else _Mould(head, likeness, read)


def _whole(delivered: Delivered) -> tuple[bytes, bytes, bytes]:
    """The same of any message; MESSAGE_CORRUPTED if it is no layout."""
    stored = layout.decode(delivered.layout)
    known = _split(stored.properties)
    shape = _shape_of(known)
    due, text, message_id = known.get(_P_DUE), shape.host, known.get(_P_ID)
    born = _born if text is None or len(text) <= _HOST_CACHED_MAX else _born.__wrapped__
    body, gzip = bodies.for_5x(stored.body, stored.sys_flag)
    system = (
        shape.front,
        piece(3, message_id) if message_id else b"",
        _DIGEST_MD5,
        _digest(body),
        _GZIP if gzip else _IDENTITY,
        _DELAY if due else shape.kind,
        born(stored.born_ms, text, stored.born_host),
        _stored(stored.store_ms, stored.store_host),
        _DUE + _moment(int(due)) if due and len(due) <= _DUE_DIGITS and due.isdigit() else b"",
        _place(delivered, stored.reconsume_times),
        shape.back,
    )
    return _user(shape, stored.prepared_offset), b"".join(system), body


def all_received(topic: bytes, messages: Sequence[Delivered]) -> bytes:
    """A framed ReceiveMessageResponse for each message, as a 5.x consumer sees it.

    topic  the Resource as the client named it, serialised
    """
    head = piece(1, topic)
    parts: list[bytes] = []
    mould: _Mould | None = None
    made, before = 0, b""
    for delivered in messages:
        filled = None if mould is None else mould.fill(delivered)
        if filled is None and made < _MOULDS_MAX and len(before) == len(delivered.layout):
            made += 1
            mould = _mould(head, before)
            filled = None if mould is None else mould.fill(delivered)
            if filled is None:
                mould = None
        before = delivered.layout
        if filled is not None:
            parts += filled
            continue
        user, system, body = _quick(delivered) or _whole(delivered)
        system_size = _MESSAGE_SYSTEM + varint(len(system))
        body_size = _MESSAGE_BODY + varint(len(body)) if body else b""
        size = len(head) + len(user) + len(system_size) + len(system) + len(body_size) + len(body)
        start = _RESPONSE_MESSAGE + varint(size)
        prefix = (len(start) + size).to_bytes(PREFIX_BYTES, "big")
        parts += (prefix, start, head, user, system_size, system, body_size, body)
    return b"".join(parts)
