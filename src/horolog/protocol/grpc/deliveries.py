"""Messages to consumers, as bytes: what protobuf would write for their stored layout (see `ready`).

The fields of a message are encoded by themselves (`message_fields`), or with a template.  A
template is made from a message that has the topic and the size of the next one.  It fills in the
parts in which like messages differ (`alike`), and is kept for later receives.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from horolog.protocol.commands import Delivered
from horolog.protocol.grpc.alike import Likeness, learn
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
    moments_of,
    place_of,
    read_usual,
    user_fields,
    usual,
)
from horolog.protocol.grpc.ready import TEXT, encode_field, varint
from horolog.protocol.http2.grpc_wire import PREFIX_BYTES

_RESPONSE_MESSAGE = _USER_PROPERTY = _PROPERTY_VALUE = bytes((2 << 3 | TEXT,))
_MESSAGE_SYSTEM, _MESSAGE_BODY = (bytes((field << 3 | TEXT,)) for field in (3, 4))
_TEMPLATES_MAX = 2  # made per receive: templates do not pay off for messages that are not alike
_KEPT_MAX = 256  # templates that are kept for later receives
_MOMENTS_MAX = 256  # that a template caches


class _Template:
    """Encoder of answers for messages that are like a sample message."""

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
        # Bytes of the system properties without kind and moments, due time and place
        self._fixed = len(inside) + len(like.message_id) + len(DIGEST_MD5) + 32 + len(shape.back)
        self._rest = len(head) + len(user_fields(shape, like.half)) + len(body) + body_size
        self._fronts: dict[int, tuple[bytes, bytes]] = {}
        self._moments: dict[bytes, bytes] = {}

    def fill(self, delivered: Delivered) -> Sequence[bytes] | None:
        """Return the pieces of the framed answer; None if the message is not like the sample."""
        stored = delivered.layout
        own = self._likeness.read(stored)
        if own is None:
            return None
        made, message_id, due, body, user = own
        moments = self._moments.get(made) or self._moments_of(made)
        if due:
            due = DUE + moment(int(due))
        place = place_of(delivered, self._like.tried)
        size = self._fixed + len(moments) + len(due) + len(place)
        front, inside = self._fronts.get(size) or self._front(size)
        if user:
            pairs = zip(self._between, user, strict=True)
            front = b"".join((front, *chain.from_iterable(pairs)))
        digest = digest_of(body)
        return front, inside, message_id, DIGEST_MD5, digest, moments, due, place, self._end, body

    def _moments_of(self, made: bytes) -> bytes:
        if len(self._moments) >= _MOMENTS_MAX:
            self._moments.clear()
        found = self._moments[made] = self._kind + moments_of(made, self._like.shape.host)
        return found

    def _front(self, system: int) -> tuple[bytes, bytes]:
        """Return the bytes before the first differing property, and from the last one to the id."""
        system_size = _MESSAGE_SYSTEM + varint(system)
        size = self._rest + len(system_size) + system
        start = _RESPONSE_MESSAGE + varint(size)
        prefix = (len(start) + size).to_bytes(PREFIX_BYTES, "big")
        shown = self._shown + began_field(self._like.half)
        front = prefix + start + self._head, b"".join((shown, system_size, self._inside))
        self._fronts[system] = front
        return front


def _around(stored: bytes, likeness: Likeness, like: Usual) -> tuple[list[bytes], bytes]:
    """Encode the user's properties: the bytes before each differing value, and after the last."""
    if not likeness.user:
        return [], like.shape.user
    between, last = [], b""
    for name, value, differs in likeness.shown:
        size = value.stop - value.start
        named = encode_field(1, name) + _PROPERTY_VALUE + varint(size)
        last += b"".join((_USER_PROPERTY, varint(len(named) + size), named))
        if differs:
            between.append(last)
            last = b""
        else:
            last += stored[value]
    return between, last


def _template(head: bytes, like: bytes, other: bytes) -> _Template | None:
    """Build a template from a message and another one of its size; None if the first is unusual."""
    read = read_usual(like)
    likeness = None if read is None else learn(like, read.body, other)
    return None if read is None or likeness is None else _Template(head, likeness, read, like)


class Deliveries:
    """Encoder of answers to receives; caches the templates by topic and size."""

    def __init__(self) -> None:
        self._templates: dict[tuple[bytes, int], _Template] = {}

    def all_received(self, topic: bytes, messages: Sequence[Delivered]) -> bytes:
        """Encode a framed ReceiveMessageResponse for each message, as a 5.x consumer sees it.

        topic  the Resource as the client named it, serialised
        """
        head = encode_field(1, topic)
        parts: list[bytes] = []
        made, before = 0, b""
        for delivered in messages:
            stored = delivered.layout
            template = self._templates.get((head, len(stored)))
            filled = None if template is None else template.fill(delivered)
            if filled is None and made < _TEMPLATES_MAX and len(before) == len(stored):
                made += 1
                filled = self._learned(head, before, delivered)
            before = stored
            parts += filled or _pieces(head, delivered)
        return b"".join(parts)

    def _learned(self, head: bytes, like: bytes, other: Delivered) -> Sequence[bytes] | None:
        """Return the answer by a new template, made from another message; None if they differ."""
        template = _template(head, like, other.layout)
        filled = None if template is None else template.fill(other)
        if template is not None and filled is not None:
            if len(self._templates) >= _KEPT_MAX:
                self._templates.clear()
            self._templates[head, len(like)] = template
        return filled


def received(topic: bytes, delivered: Delivered) -> bytes:
    """Encode the framed ReceiveMessageResponse for one message."""
    return b"".join(_pieces(encode_field(1, topic), delivered))


def _pieces(head: bytes, delivered: Delivered) -> Sequence[bytes]:
    """Return the pieces of a framed answer, encoded without a template."""
    user, system, body = usual(delivered) or any_message(delivered)
    system_size = _MESSAGE_SYSTEM + varint(len(system))
    body_size = _MESSAGE_BODY + varint(len(body)) if body else b""
    size = len(head) + len(user) + len(system_size) + len(system) + len(body_size) + len(body)
    start = _RESPONSE_MESSAGE + varint(size)
    prefix = (len(start) + size).to_bytes(PREFIX_BYTES, "big")
    return prefix, start, head, user, system_size, system, body_size, body
