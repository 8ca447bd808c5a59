"""Messages to consumers, as bytes: what protobuf would write of their stored layout (see `ready`).

The fields of a message are made by itself (`message_fields`), or like those of another one of the same receive: a mould
is made of one that has the size of the next, and fills in what messages that are alike have of their own (`alike`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from horolog.protocol.commands import Delivered
from horolog.protocol.grpc.alike import Differing, Likeness, learn
from horolog.protocol.grpc.message_fields import (
    DELAY,
    DIGEST_MD5,
    DUE,
    ID,
    IDENTITY,
    Usual,
    any_message,
    began_field,
    digest_of,
    moment,
    place_of,
    read_usual,
    user_fields,
    usual,
)
from horolog.protocol.grpc.ready import TEXT, piece, varint
from horolog.protocol.http2.calls import PREFIX_BYTES

_RESPONSE_MESSAGE = _USER_PROPERTY = _PROPERTY_VALUE = bytes((2 << 3 | TEXT,))
_MESSAGE_SYSTEM, _MESSAGE_BODY = (bytes((field << 3 | TEXT,)) for field in (3, 4))
_MOULDS_MAX = 2  # of a receive: where messages are of one size and not alike, a mould costs more than it gains


class _Mould:
    """The answers for messages that are like one of them."""

    def __init__(self, head: bytes, likeness: Likeness, like: Usual, stored: bytes) -> None:
        self._like = like
        self._likeness = likeness
        shape = like.shape
        self._head = head
        self._between, self._shown = _around(stored, likeness, like)
        inside = b"".join((shape.front, ID, varint(len(like.message_id))))
        body_size = like.body.stop - like.body.start
        body = _MESSAGE_BODY + varint(body_size) if body_size else b""
        self._inside, self._end = inside, shape.back + body
        self._kind = IDENTITY + (DELAY if like.due else shape.kind)
        # Bytes of the system properties but for kind and moments, due time and place
        self._fixed = len(inside) + len(like.message_id) + len(DIGEST_MD5) + 32 + len(shape.back)
        self._rest = len(head) + len(user_fields(shape, like.half)) + len(body) + body_size
        self._fronts: dict[int, tuple[bytes, bytes]] = {}
        self._moments: dict[bytes, bytes] = {}

    def fill(self, delivered: Delivered) -> Sequence[bytes] | None:
        """The pieces of the framed answer; None if it is not like that."""
        own = self._likeness.read(delivered.layout)
        if own is None:
            return None
        moments = self._moments.get(own.moments) or self._moments_of(own, delivered.layout)
        due = DUE + moment(int(own.due)) if own.due else b""
        place = place_of(delivered, self._like.tried)
        size = self._fixed + len(moments) + len(due) + len(place)
        front, inside = self._fronts.get(size) or self._front(size)
        if own.user:
            pairs = zip(self._between, own.user, strict=True)
            front = b"".join((front, *chain.from_iterable(pairs)))
        digest = digest_of(own.body)
        return front, inside, own.id, DIGEST_MD5, digest, moments, due, place, self._end, own.body

    def _moments_of(self, own: Differing, stored: bytes) -> bytes:
        read = read_usual(stored)
        assert read is not None, "it is like one that was read"
        found = self._moments[own.moments] = self._kind + read.moments
        return found

    def _front(self, system: int) -> tuple[bytes, bytes]:
        """What stands before the first property that may differ, and between the last one and the id."""
        system_size = _MESSAGE_SYSTEM + varint(system)
        size = self._rest + len(system_size) + system
        start = _RESPONSE_MESSAGE + varint(size)
        prefix = (len(start) + size).to_bytes(PREFIX_BYTES, "big")
        shown = self._shown + began_field(self._like.half)
        front = prefix + start + self._head, b"".join((shown, system_size, self._inside))
        self._fronts[system] = front
        return front


def _around(stored: bytes, likeness: Likeness, like: Usual) -> tuple[list[bytes], bytes]:
    """The user's properties as fields: what stands before each value that may differ, and after the last one."""
    if not likeness.user:
        return [], like.shape.user
    between, last = [], b""
    for name, value in likeness.shown:
        size = value.stop - value.start
        named = piece(1, name) + _PROPERTY_VALUE + varint(size)
        last += b"".join((_USER_PROPERTY, varint(len(named) + size), named))
        if value in likeness.user:
            between.append(last)
            last = b""
        else:
            last += stored[value]
    return between, last


def _mould(head: bytes, like: bytes, other: bytes) -> _Mould | None:
    """What fills in what messages like that one have of their own, and perhaps of another one of its size."""
    read = read_usual(like)
    likeness = None if read is None else learn(like, read.body, other)
    return None if read is None or likeness is None else _Mould(head, likeness, read, like)


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
            mould = _mould(head, before, delivered.layout)
            filled = None if mould is None else mould.fill(delivered)
            if filled is None:
                mould = None
        before = delivered.layout
        if filled is not None:
            parts += filled
            continue
        user, system, body = usual(delivered) or any_message(delivered)
        system_size = _MESSAGE_SYSTEM + varint(len(system))
        body_size = _MESSAGE_BODY + varint(len(body)) if body else b""
        size = len(head) + len(user) + len(system_size) + len(system) + len(body_size) + len(body)
        start = _RESPONSE_MESSAGE + varint(size)
        prefix = (len(start) + size).to_bytes(PREFIX_BYTES, "big")
        parts += (prefix, start, head, user, system_size, system, body_size, body)
    return b"".join(parts)
