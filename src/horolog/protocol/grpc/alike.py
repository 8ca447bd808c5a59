"""Messages to consumers that are like an earlier one: equal parts are compared, not parsed again.

A program often sends messages of one size, with the same properties in the same order.  They differ
in body, id, due time, values of properties that mean nothing to the broker, in when and where they
were made and stored, and in the fields of their place that the broker sets.  `learn` finds the
offsets of these parts in a stored layout by comparing two messages; of each later message every
other byte is compared with the first one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from horolog.protocol.grpc.message_fields import BORN_MARK, DUE_MARK, ID_MARK
from horolog.protocol.rocketmq import layout, properties

_SEPARATOR = b"\x02"
_PLACE = slice(8, layout.SYS_FLAG_AT)  # after size and magic: its place, set by the broker
_MOMENTS = slice(layout.SYS_FLAG_AT + 4, layout.RECONSUME_TIMES_AT)
assert _MOMENTS.stop - _MOMENTS.start == 32
_ECHOED = {name.encode() for name in properties.ECHOED}  # shown even if not the user's
_MOMENTS_PIECE, _BODY_PIECE, _VALUES_PIECE = 3, 5, 7  # indexes; other values follow the first

# The parts in which messages differ: when and where the message was made and stored; its id; its
# due time in digits, b"" without one; its body; and values of user properties that may differ.
Differing: TypeAlias = tuple[bytes, bytes, bytes, bytes, tuple[bytes, ...]]


class Likeness(NamedTuple):
    """Where the differing parts are in a stored layout, and what its other bytes are.

    cut    splits a layout of this size into pieces: equal and differing ones in turns
    same   the equal pieces, that is, every other piece from the first one on
    names  indexes of the pieces with the id, the due time, and the time of making by the producer's
           own clock, which no consumer is shown
    user   indexes of the values of user properties that may differ
    shown  for each user property its name, where the value is, and whether it may differ; empty if
           one is unclear
    """

    size: int
    cut: Callable[[bytes], tuple[bytes, ...]]
    same: tuple[bytes, ...]
    names: tuple[int, int, int]
    user: tuple[int, ...]
    shown: tuple[tuple[bytes, slice, bool], ...]

    def read(self, stored: bytes) -> Differing | None:
        """Return the differing parts of a message; None if it is not like the learned one."""
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
    """Learn what other messages must share to be like `stored`; None if none can be like it.

    stored  a sound layout, with its body at `body`
    other   another layout of the same size: values of user properties that differ in both may
            differ in further messages too
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
    cut = _cut(len(stored), [_PLACE, _MOMENTS, body, *values])
    which = {value.start: _VALUES_PIECE + 2 * i for i, value in enumerate(values)}
    # A missing value is the last piece, which is empty.
    nothing = _VALUES_PIECE + 2 * len(values)
    id_at, due_at, made_at = (which.get(value.start, nothing) for value in (message_id, due, made))
    same = cut(stored)[::2]
    user = tuple([which[value.start] for value in differing])
    return Likeness(len(stored), cut, same, (id_at, due_at, made_at), user, shown)


def _cut(size: int, differing: list[slice]) -> Callable[[bytes], tuple[bytes, ...]]:
    """Return a function that splits bytes into the given slices and the pieces around them.

    An empty piece follows at the end.
    """
    widths, start = [], 0
    for each in differing:
        widths += [each.start - start, each.stop - each.start]
        start = each.stop
    widths += [size - start, 0]
    return struct.Struct("".join([f"{width}s" for width in widths])).unpack


def _user_properties(stored: bytes, at: int) -> tuple[tuple[bytes, slice], ...]:
    """Return name and value slice of the user's properties from `at` on; none if one is unclear."""
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
    """Return the slice of the first property of a name; an empty slice if no separator ends it."""
    found = stored.find(mark, at)
    if found < 0 or (found > at and stored[found - 1 : found] != _SEPARATOR):
        return slice(0, 0)
    start = found + len(mark)
    end = stored.find(_SEPARATOR, start)
    return slice(start, end) if end >= 0 else slice(0, 0)
