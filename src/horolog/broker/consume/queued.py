"""Messages by their queue offset: a unit of a consume queue → the record of that message, or a hole.

A unit is only a pointer: what it points to must be a message of this topic and queue that bears this offset, else it is
not served.  A unit that does not pass its check, but leads to its message, is written again.  Where units lead nowhere
the log between their sound neighbours is searched, once, for it may have the messages: queue offsets ascend with log
positions.  What is found is written back, tags code and all.  Both are counted as repaired.

Holes are named once each, those of one step that follow each other in one sentence, however many groups come by.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from horolog.broker.topics import Topic
from horolog.errors import ErrorCode, HorologError, Problem, Repair
from horolog.limits import HOLES_REPORTED_MAX, QUEUE_SEARCH_BYTES, QUEUE_SEARCH_UNITS
from horolog.log.commit_log import CommitLog
from horolog.log.frame import HEADER_BYTES
from horolog.log.frame_reader import Hole
from horolog.log.queue_runs import QueueRun
from horolog.log.queue_unit import ROTTEN_CODE, units_of
from horolog.log.record import HEAD_BYTES, KIND_AT, TOPIC_AT, Kind, heads_of, kinds_of, offsets_of
from horolog.protocol.rocketmq import layout

_QUEUE_AT = HEAD_BYTES + layout.QUEUE_ID_AT
_FRAMES_REMEMBERED = 4_096  # one for each queue
_REPAIRED_MAX = 64  # units at a time: the next reader finds the others
_VISIBLE = frozenset({int(Kind.MESSAGE), int(Kind.HANDED)})
_VISIBLE_KINDS = np.zeros(256, np.bool_)
_VISIBLE_KINDS[list(_VISIBLE)] = True
_SIZE = struct.Struct("<I")
_QUEUE_AND_OFFSET = struct.Struct(">i4xq")
_Place: TypeAlias = tuple[int, int, int]  # topic id, queue id, queue offset


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
        self._place = -1, -1  # topic and queue of the message that was read last
        self._run: QueueRun | None = None  # its frame's messages of that queue
        # (Topic id, queue id) → log position of the frame that its messages were read from last
        self._frames: dict[tuple[int, int], int] = {}
        # Units that were searched for, as (position, size); size 0: lost
        self._found: dict[_Place, tuple[int, int]] = {}
        self._reported: set[_Place] = set()
        self._new: list[_Lost] = []
        self._unreadable: list[Problem] = []
        self.repairs: list[Repair] = []  # units rebuilt; whoever reads them clears the list

    def units(self, topic: Topic, queue: int, offset: int, count: int) -> npt.NDArray[Any]:
        """`ConsumeQueue.read`; that the queue's own files cannot be read there (DAMAGED) is told once."""
        try:
            found = topic.queues[queue].read(offset, count)
        except HorologError as error:
            if error.code is ErrorCode.DAMAGED:
                self.unreadable(topic, queue, error.message)
            raise
        if topic.queues[queue].rotten:
            self._repair(topic, queue)
        return found

    def record_at(self, topic: Topic, queue: int, offset: int) -> bytes | None:
        """The record of the message at a queue offset; None: a hole.  DAMAGED as `units`."""
        position, size, _ = self.units(topic, queue, offset, 1)[0].tolist()
        return self.record(topic, queue, offset, position, size)

    def epoch_at(self, topic: Topic, queue: int, offset: int) -> int | None:
        """In which epoch the message at a queue offset got it; None: a hole.  DAMAGED as `units`."""
        position = int(self.units(topic, queue, offset, 1)["position"][0])
        frame = self._log.frame(position)
        return None if isinstance(frame, Hole) else frame.epoch

    def record(
        self, topic: Topic, queue: int, offset: int, position: int, size: int
    ) -> bytes | None:
        """The record of the message at a queue offset, by its unit; None: a hole."""
        if topic.queues[queue].rotten:
            self._repair(topic, queue)
        if self._place == (topic.id, queue) and self._run is not None:
            i = self._run.at(offset, position)
            if i >= 0 and self._run.size(i) == size and position >= self._log.start:
                return self._run.record(i)
        return self._record(topic, queue, offset, position, size)

    def _record(
        self, topic: Topic, queue: int, offset: int, position: int, size: int
    ) -> bytes | None:
        found = self._read(topic, queue, offset, position, size)
        if isinstance(found, bytes):
            self._place = topic.id, queue
            self._run = self._log.run(position, topic.id, queue)
            if self._run is not None:
                self.read_from(self._place, self._run)
            return found
        again = self._searched(topic, queue, offset)
        if again is not None:
            return again
        if not found.dropped:
            self._hole(topic, _Lost(topic.name, queue, offset, found.why, position))
        return None

    # --- messages that follow each other ----------------------------------------------------------

    def run_at(self, place: tuple[int, int], offset: int) -> tuple[QueueRun, int] | None:
        """The run that was read last of a queue, and which of its messages has that offset; None: ask for its unit.

        place  topic id and queue id
        """
        base = self._frames.get(place, -1)
        run = None if base < 0 else self._log.run_in(base, *place)
        i = -1 if run is None else run.find(offset)
        return None if run is None or i < 0 else (run, i)

    def read_from(self, place: tuple[int, int], run: QueueRun) -> None:
        """Remember the frame: whoever reads on in the queue need not ask for a unit."""
        if len(self._frames) >= _FRAMES_REMEMBERED:
            self._frames.clear()
        self._frames[place] = run.base - HEADER_BYTES

    def following(self, topic: Topic, queue: int, offset: int, most: int) -> list[bytes]:
        """Records from a queue offset on, as many as are known without a unit; none: ask for the first one's."""
        found = self.run_at((topic.id, queue), offset)
        return [] if found is None else found[0].records(found[1], most)

    # --- by unit ----------------------------------------------------------------------------------

    def _read(
        self, topic: Topic, queue: int, offset: int, position: int, size: int
    ) -> bytes | Hole:
        if not size:
            return Hole(position, "the unit of the consume queue is empty")
        found = self._log.record(position, size)
        if isinstance(found, Hole):
            return found
        is_message = found[KIND_AT] in _VISIBLE
        if is_message and _place_of(found, 0) == (topic.id, queue, offset):
            return found
        return Hole(position, f"log position {position} holds another message")

    # --- units that lead nowhere ------------------------------------------------------------------

    def _searched(self, topic: Topic, queue: int, offset: int) -> bytes | None:
        """The message at an offset whose unit leads nowhere, if the log has it between the neighbours."""
        place = topic.id, queue, offset
        if place not in self._found:
            self._search(topic, queue, offset)
        position, size = self._found.get(place, (0, 0))
        found = self._read(topic, queue, offset, position, size)
        return None if isinstance(found, Hole) else found

    def _search(self, topic: Topic, queue: int, offset: int) -> None:
        """Search for all messages whose units lead nowhere, from that one on to the next sound ones."""
        units = topic.queues[queue]
        if len(self._found) > HOLES_REPORTED_MAX:
            self._found.clear()
        first, stop = offset, offset + 1
        start, end = self._log.start, self._log.commit_position
        while first > units.first and offset - first < QUEUE_SEARCH_UNITS:
            if sound := self._sound(topic, queue, first - 1):
                start = sound
                break
            first -= 1
        while stop < units.length and stop - offset < QUEUE_SEARCH_UNITS:
            if sound := self._sound(topic, queue, stop):
                end = sound
                break
            stop += 1
        for lost in range(first, stop):
            self._found[topic.id, queue, lost] = (0, 0)
        if end - start > QUEUE_SEARCH_BYTES:
            return
        rebuilt = 0
        for header, body in self._log.frames_around(start, end):
            offsets = offsets_of(body, header.count)
            for at in offsets[_VISIBLE_KINDS[kinds_of(body, offsets)]].tolist():
                of_topic, of_queue, of_offset = _place_of(body, at)
                if of_topic == topic.id and of_queue == queue and first <= of_offset < stop:
                    position = header.base + HEADER_BYTES + at
                    unit = _unit_of(body, at, position)
                    self._found[of_topic, of_queue, of_offset] = position, int(unit["size"][0])
                    rebuilt += units.replace(of_offset, unit)
        if rebuilt:
            text = f"topic {topic.name}: {rebuilt} units of queue {queue} from offset {first} on: rebuilt from the log"
            self.repairs.append(Repair(text, rebuilt))

    def _sound(self, topic: Topic, queue: int, offset: int) -> int:
        """Log position of the message at an offset, if its unit leads to it; else 0."""
        try:
            position, size, _ = topic.queues[queue].read(offset, 1)[0].tolist()
        except HorologError:
            return 0
        found = self._read(topic, queue, offset, position, size)
        return 0 if isinstance(found, Hole) else position

    # --- units that do not pass their check -------------------------------------------------------

    def _repair(self, topic: Topic, queue: int) -> None:
        """Write those again that lead to their messages; if they do not, whoever reads them searches."""
        units, repaired = topic.queues[queue], 0
        rotten, units.rotten = sorted(units.rotten), set()
        for offset in rotten[:_REPAIRED_MAX]:
            try:
                position, size, code = units.read(offset, 1)[0].tolist()
            except HorologError:
                continue  # dropped by retention, or cut: whoever reads it tells
            if code == ROTTEN_CODE:
                found = self._read(topic, queue, offset, position, size)
                if not isinstance(found, Hole):
                    repaired += units.replace(offset, _unit_of(found, 0, position))
        units.rotten.clear()
        if repaired:
            text = f"topic {topic.name}: {repaired} units of queue {queue} from offset {rotten[0]} on: written again"
            self.repairs.append(Repair(text, repaired))

    # --- what is said -----------------------------------------------------------------------------

    def _hole(self, topic: Topic, lost: _Lost) -> None:
        if self._is_new((topic.id, lost.queue, lost.offset)):
            self.holes += 1
            self._new.append(lost)

    def _is_new(self, place: _Place) -> bool:
        if place in self._reported or len(self._reported) >= HOLES_REPORTED_MAX:
            return False
        self._reported.add(place)
        return True

    def unreadable(self, topic: Topic, queue: int, why: str) -> None:
        """A queue itself cannot be read until the next start, which rebuilds it; told once."""
        if self._is_new((topic.id, queue, -1)):
            text = f"topic {topic.name}: queue {queue} cannot be read: {why}"
            self._unreadable.append(Problem(text, key=unreadable_key(topic.id, queue)))

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


def _place_of(body: bytes, at: int) -> _Place:
    """(Number of the topic, queue id, queue offset) of a message record at `at`."""
    (topic,) = _SIZE.unpack_from(body, at + TOPIC_AT)
    queue, offset = _QUEUE_AND_OFFSET.unpack_from(body, at + _QUEUE_AT)
    return topic, queue, offset


def _unit_of(body: bytes, at: int, position: int) -> npt.NDArray[Any]:
    """The UNIT row of a message record at `at`, whose log position is told."""
    return units_of(heads_of(body, np.array([at])), position)


def unreadable_key(topic: int, queue: int) -> str:
    """Key of the problem that a queue cannot be read."""
    return f"queue {queue} of topic id {topic} cannot be read"
