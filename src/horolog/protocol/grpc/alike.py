"""Messages to consumers that are made like one before them: what is the same in both is compared, and not read again.

A batch of a producer has messages of one size, with the same properties in the same order.  They differ in body, id, due
time, in when and where they were made and stored, and in what the broker says of their place.  Where these stand in a
stored layout is learned from one message (`learn`); of each next one every other byte is compared with it.
"""

from __future__ import annotations

from typing import NamedTuple

from horolog.protocol.rocketmq import layout, properties

_SEPARATOR = b"\x02"
_MAGIC = slice(0, 8)  # and the size
_SYS_FLAG = slice(layout.SYS_FLAG_AT, layout.SYS_FLAG_AT + 4)
_MOMENTS = slice(_SYS_FLAG.stop, layout.RECONSUME_TIMES_AT)
assert _MOMENTS.stop - _MOMENTS.start == 32
_ID, _DUE, _MADE = (
    name.encode() + b"\x01"
    for name in (properties.UNIQ_KEY, properties.TIMER_DELIVER_MS, properties.BORN_TIMESTAMP)
)


class Differing(NamedTuple):
    """What a message has of its own.

    moments  when and where it was made, and when and where it was stored
    due      digits; b"" if it has no due time
    """

    moments: bytes
    id: bytes
    due: bytes
    body: bytes


class Likeness(NamedTuple):
    """Where a stored layout has what may differ, and what the rest of it is.

    same  slices, and the bytes that they have
    made  where the producer's own time of making stands, which nobody is told; an empty slice if there is none
    """

    size: int
    same: tuple[tuple[slice, bytes], ...]
    body: slice
    id: slice
    due: slice
    made: slice

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
        return Differing(stored[_MOMENTS], message_id, due, stored[self.body])


def learn(stored: bytes, body: slice) -> Likeness | None:
    """What messages are like that one, which is a sound layout with a body there; None: of none."""
    topic_at = body.stop
    at = topic_at + 1 + stored[topic_at] + 2
    message_id, due, made = (_value(stored, at, mark) for mark in (_ID, _DUE, _MADE))
    if message_id.start == message_id.stop or (due.start == due.stop and _DUE in stored[at:]):
        return None
    kept = slice(
        _MOMENTS.stop, body.start
    )  # times tried, where a transaction began, size of the body
    spans, start = [_MAGIC, _SYS_FLAG, kept], topic_at
    for value in sorted((message_id, due, made), key=lambda each: each.start):
        if value.stop > value.start:
            spans.append(slice(start, value.start))
            start = value.stop
    spans.append(slice(start, len(stored)))
    same = tuple((span, stored[span]) for span in spans)
    return Likeness(len(stored), same, body, message_id, due, made)


def _value(stored: bytes, at: int, mark: bytes) -> slice:
    """Where the value of the first property of a name stands; an empty slice if it does not end in a separator."""
    found = stored.find(mark, at)
    if found < 0 or (found > at and stored[found - 1 : found] != _SEPARATOR):
        return slice(0, 0)
    start = found + len(mark)
    end = stored.find(_SEPARATOR, start)
    return slice(start, end) if end >= 0 else slice(0, 0)
