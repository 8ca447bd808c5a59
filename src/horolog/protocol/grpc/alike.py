"""Messages to consumers that are made like one before them: what is the same in both is compared, and not read again.

What a program sends has often messages of one size, with the same properties in the same order.  They differ in body, id,
due time, values of properties that mean nothing to the broker, in when and where they were made and stored, and in what
the broker says of their place.  Where these stand in a stored layout is learned from two messages (`learn`); of each next
one every other byte is compared with the first of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from horolog.protocol.grpc.message_fields import BORN_MARK, DUE_MARK, ID_MARK
from horolog.protocol.rocketmq import layout, properties

_SEPARATOR = b"\x02"
_UNASKED = slice(8, layout.SYS_FLAG_AT)  # after magic and size: what the broker says of the place
_MOMENTS = slice(layout.SYS_FLAG_AT + 4, layout.RECONSUME_TIMES_AT)
assert _MOMENTS.stop - _MOMENTS.start == 32
_ECHOED = {name.encode() for name in properties.ECHOED}  # shown among the user's, if not his
_MOMENTS_PIECE, _BODY_PIECE, _VALUES_PIECE = 3, 5, 7  # of a cut; other values follow the first

# What a message has of its own: when and where it was made, and when and where it was stored; its id; its due time in
# digits, b"" if it has none; its body; and those values of the user's properties that may differ.
Differing: TypeAlias = tuple[bytes, bytes, bytes, bytes, tuple[bytes, ...]]


class Likeness(NamedTuple):
    """Where a stored layout has what may differ, and what the rest of it is.

    cut    cuts a layout of that size into pieces: what is the same, and what may differ, in turns
    same   every other piece, from the first one on
    names  which pieces are id, due time, and the producer's own time of making, which nobody is told
    user   which are those values of the user's properties that may differ
    shown  names of all of the user's properties, where their values stand, and whether they may differ; none if one
           is unclear
    """

    size: int
    cut: Callable[[bytes], tuple[bytes, ...]]
    same: tuple[bytes, ...]
    names: tuple[int, int, int]
    user: tuple[int, ...]
    shown: tuple[tuple[bytes, slice, bool], ...]

    def read(self, stored: bytes) -> Differing | None:
        """What a message has of its own; None if it is not like it."""
        if len(stored) != self.size:
            return None
        pieces = self.cut(stored)
        if pieces[::2] != self.same:
            return None
        id_at, due_at, made_at = self.names
        message_id, due, made = pieces[id_at], pieces[due_at], pieces[made_at]
        if _SEPARATOR in message_id or not message_id.isascii():
            return None
        if (due and not due.isdigit()) or (made and not made.isdigit()):
            return None
        user: tuple[bytes, ...] = ()
        if self.user:
            user = tuple([pieces[at] for at in self.user])
            text = b"".join(user)
            if _SEPARATOR in text or not text.isascii():
                return None
        return pieces[_MOMENTS_PIECE], message_id, due, pieces[_BODY_PIECE], user


def learn(stored: bytes, body: slice, other: bytes) -> Likeness | None:
    """What messages are like that one, and perhaps like another one of its size; None: of none.

    stored  a sound layout, with a body there
    """
    topic_at = body.stop
    at = topic_at + 1 + stored[topic_at] + 2
    message_id, due, made = (_value(stored, at, mark) for mark in (ID_MARK, DUE_MARK, BORN_MARK))
    if message_id.start == message_id.stop or (due.start == due.stop and DUE_MARK in stored[at:]):
        return None
    properties_shown = _user_properties(stored, at)
    shown = tuple(
        [(name, value, stored[value] != other[value]) for name, value in properties_shown]
    )
    differing = [value for _, value, differs in shown if differs]
    values = [value for value in (message_id, due, made) if value.stop > value.start]
    values = sorted((*values, *differing), key=lambda each: each.start)
    cut = _cut(len(stored), [_UNASKED, _MOMENTS, body, *values])
    which = {value.start: _VALUES_PIECE + 2 * i for i, value in enumerate(values)}
    # What is not there is the piece that stands after all of them, which is empty.
    nothing = _VALUES_PIECE + 2 * len(values)
    id_at, due_at, made_at = (which.get(value.start, nothing) for value in (message_id, due, made))
    same = cut(stored)[::2]
    user = tuple([which[value.start] for value in differing])
    return Likeness(len(stored), cut, same, (id_at, due_at, made_at), user, shown)


def _cut(size: int, differing: list[slice]) -> Callable[[bytes], tuple[bytes, ...]]:
    """Cuts so many bytes into what stands before each of these, that itself, what is left at the end, and nothing."""
    widths, start = [], 0
    for each in differing:
        widths += [each.start - start, each.stop - each.start]
        start = each.stop
    widths += [size - start, 0]
    return struct.Struct("".join([f"{width}s" for width in widths])).unpack


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
