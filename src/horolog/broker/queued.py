"""Messages by their queue offset: a unit of a consume queue → the record of that message, or a hole.

A consume queue is rebuilt and has no check sums, so a unit is only a pointer: what it points to must be a message
of this topic and queue that bears this offset, else it is not served.  Holes are named once each, those of one
step that follow each other in one sentence, however many groups come by.
"""

from __future__ import annotations

from typing import NamedTuple

from horolog.errors import Problem
from horolog.limits import HOLES_TOLD_MAX
from horolog.log.commit_log import CommitLog
from horolog.log.frame_reader import Hole
from horolog.log.record import HEAD_BYTES, KIND_AT, TOPIC_AT, Kind
from horolog.protocol.rocketmq import layout

_QUEUE_AT = HEAD_BYTES + layout.QUEUE_ID_AT
_OFFSET_AT = HEAD_BYTES + layout.QUEUE_OFFSET_AT
_VISIBLE = frozenset({int(Kind.MESSAGE), int(Kind.HANDED)})


class _Lost(NamedTuple):
    name: str  # of the topic
    queue: int
    offset: int
    why: str
    position: int


class QueuedMessages:
    """Reads what consume queues point to."""

    def __init__(self, log: CommitLog) -> None:
        self.holes = 0  # met since the start
        self._log = log
        self._told: set[tuple[int, int, int]] = set()
        self._new: list[_Lost] = []
        self._unreadable: list[Problem] = []

    def record(
        self, topic: int, name: str, queue: int, offset: int, position: int, size: int
    ) -> bytes | None:
        """The record of the message at a queue offset, by its unit; None: a hole.

        topic, name  number and name of the topic
        """
        if not size:
            return None  # its log was damaged when the queue was mended, which was told then
        found = self._log.message(position, size)
        if not isinstance(found, Hole):
            if (
                int.from_bytes(found[_OFFSET_AT : _OFFSET_AT + 8], "big") == offset
                and int.from_bytes(found[_QUEUE_AT : _QUEUE_AT + 4], "big") == queue
                and int.from_bytes(found[TOPIC_AT : TOPIC_AT + 4], "little") == topic
                and found[KIND_AT] in _VISIBLE
            ):
                return found
            why = f"log position {position} holds another message"
            self._hole(topic, _Lost(name, queue, offset, why, position))
        elif not found.dropped:
            self._hole(topic, _Lost(name, queue, offset, found.why, position))
        return None

    def _hole(self, topic: int, lost: _Lost) -> None:
        if self._is_new((topic, lost.queue, lost.offset)):
            self.holes += 1
            self._new.append(lost)

    def _is_new(self, told: tuple[int, int, int]) -> bool:
        if told in self._told or len(self._told) >= HOLES_TOLD_MAX:
            return False
        self._told.add(told)
        return True

    def unreadable(self, topic: int, name: str, queue: int, why: str) -> None:
        """A queue itself cannot be read until the next start, which makes it anew; told once."""
        if self._is_new((topic, queue, -1)):
            text = f"topic {name}: queue {queue} cannot be read: {why}"
            self._unreadable.append(Problem(text, key=unreadable_key(topic, queue)))

    def take_problems(self) -> list[Problem]:
        """The holes met since the last call."""
        found, self._unreadable = self._unreadable, []
        if not self._new:
            return found
        new, self._new = sorted(self._new), []
        first = new[0]
        for i, lost in enumerate(new):
            following = new[i + 1] if i + 1 < len(new) else None
            if following is None or following[:3] != (lost.name, lost.queue, lost.offset + 1):
                many = f"offsets {first.offset} to {lost.offset}"
                which = many if lost.offset > first.offset else f"offset {lost.offset}"
                text = f"topic {lost.name}: queue {lost.queue} {which} cannot be read: {first.why}"
                found.append(Problem(text, self._log.segment_path(first.position)))
                first = following or first
        return found


def unreadable_key(topic: int, queue: int) -> str:
    """Key of the problem that a queue cannot be read."""
    return f"queue {queue} of topic number {topic} cannot be read"
