"""Messages to consumers that are made like one before them: what is the same in both is compared, and not read again.

What a program sends has often messages of one size, with the same properties in the same order.  They differ in body, id,
due time, values of properties that mean nothing to the broker, in when and where they were made and stored, and in what
the broker says of their place.  Where these stand in a stored layout is learned from two messages (`learn`); of each next
one every other byte is compared with the first of them.
"""

from __future__ import annotations

from typing import NamedTuple

from horolog.protocol.grpc.message_fields import BORN_MARK, DUE_MARK, ID_MARK
from horolog.protocol.rocketmq import layout, properties

_SEPARATOR = b"\x02"
_MAGIC = slice(0, 8)  # and the size
_SYS_FLAG = slice(layout.SYS_FLAG_AT, layout.SYS_FLAG_AT + 4)
_MOMENTS = slice(_SYS_FLAG.stop, layout.RECONSUME_TIMES_AT)
assert _MOMENTS.stop - _MOMENTS.start == 32
_ECHOED = {name.encode() for name in properties.ECHOED}  # shown among the user's, if not his


class Differing(NamedTuple):
    """What a message has of its own.

    moments  when and where it was made, and when and where it was stored
    due      digits; b"" if it has no due time
    user     values of the user's properties that may differ
    """

    moments: bytes
    id: bytes
    due: bytes
    body: bytes
    user: tuple[bytes, ...]


class Likeness(NamedTuple):
    """Where a stored layout has what may differ, and what the rest of it is.

    same   slices, and the bytes that they have
    made   where the producer's own time of making stands, which nobody is told; an empty slice if there is none
    user   where values of the user's properties stand that may differ
    shown  names of all of the user's properties, and where their values stand; none if one is unclear
    """

    size: int
    same: tuple[tuple[slice, bytes], ...]
    body: slice
    id: slice
    due: slice
    made: slice
    user: tuple[slice, ...]
    shown: tuple[tuple[bytes, slice], ...]

    def read(self, stored: bytes) -> Differing | None:
        """What a message has of its own; None if it is not like it."""
        if len(stored) != self.size:
            return None
        for part, content in self.same:
            if stored[part] != content:
                return None
        message_id, due, made = stored[self.id], stored[self.due], stored[self.made]
        if _SEPARATOR in message_id or not message_id.isascii():
            return None
        if (due and not due.isdigit()) or (made and not made.isdigit()):
            return None
        user: tuple[bytes, ...] = ()
        if self.user:
            user = tuple([stored[value] for value in self.user])
            text = b"".join(user)
            if _SEPARATOR in text or not text.isascii():
                return None
        return Differing(stored[_MOMENTS], message_id, due, stored[self.body], user)


def learn(stored: bytes, body: slice, other: bytes) -> Likeness | None:
    """What messages are like that one, and perhaps like another one of its size; None: of none.

    stored  a sound layout, with a body there
    """
    topic_at = body.stop
    at = topic_at + 1 + stored[topic_at] + 2
    message_id, due, made = (_value(stored, at, mark) for mark in (ID_MARK, DUE_MARK, BORN_MARK))
    if message_id.start == message_id.stop or (due.start == due.stop and DUE_MARK in stored[at:]):
        return None
    kept = slice(_MOMENTS.stop, body.start)  # attempts, where a transaction began, size of body
    shown = _user_properties(stored, at)
    user = tuple([value for _, value in shown if stored[value] != other[value]])
    values = [message_id, due, made, *user]
    spans, start = [_MAGIC, _SYS_FLAG, kept], topic_at
    for value in sorted(values, key=lambda each: each.start):
        if value.stop > value.start:
            spans.append(slice(start, value.start))
            start = value.stop
    spans.append(slice(start, len(stored)))
    same = tuple((span, stored[span]) for span in spans)
    return Likeness(len(stored), same, body, message_id, due, made, user, shown)


def _user_properties(stored: bytes, at: int) -> tuple[tuple[bytes, slice], ...]:
    """The user's of the properties that begin there: names, and where their values stand; none if one is unclear."""
    text = stored[at:]
    if not text.isascii() or not text.endswith(_SEPARATOR):
        return ()
    found: dict[bytes, slice] = {}
    for piece in text[:-1].split(_SEPARATOR):
        name, ends, _ = piece.partition(b"\x01")
        if name in found or name in _ECHOED:
            return ()
        if ends and not properties.is_hidden(name.decode()):
            found[name] = slice(at + len(name) + 1, at + len(piece))
        at += len(piece) + 1
    return tuple(found.items())


def _value(stored: bytes, at: int, mark: bytes) -> slice:
    """Where the value of the first property of a name stands; an empty slice if it does not end in a separator."""
    found = stored.find(mark, at)
    if found < 0 or (found > at and stored[found - 1 : found] != _SEPARATOR):
        return slice(0, 0)
    start = found + len(mark)
    end = stored.find(_SEPARATOR, start)
    return slice(start, end) if end >= 0 else slice(0, 0)
