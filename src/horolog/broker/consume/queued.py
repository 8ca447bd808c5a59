"""Read messages by queue offset, through the units of consume queues.

A unit is only a pointer: it must lead to a message of this topic and queue that bears this offset,
else the message is not served, and the offset is a hole.  A unit that does not pass its check, but
leads to its message, is written again.  Where units lead nowhere the log between their sound
neighbours is searched, once, since it may have the messages: queue offsets ascend with log
positions.  Units of found messages are written back, tags code and all.  Both kinds are counted as
repaired.

Every hole is reported once, however many groups read it; adjacent holes of one step share a
sentence.
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
from horolog.log.queue_runs import QUEUE_AT, QueueRun
from horolog.log.queue_unit import ROTTEN_CODE, units_of
from horolog.log.record import (
    IS_VISIBLE,
    KIND_AT,
    TOPIC_AT,
    VISIBLE_KINDS,
    heads_of,
    kinds_of,
    offsets_of,
)

_FRAMES_REMEMBERED = 4_096  # one for each queue
_REPAIRED_MAX = 64  # units at a time: the next reader repairs the others
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
    """Reads the messages that consume queues point to."""

    def __init__(self, log: CommitLog) -> None:
        self.holes = 0  # met since the start
        self._log = log
        self._place = -1, -1  # topic and queue of the message read last
        self._run: QueueRun | None = None  # messages of that queue in its frame
        # (Topic id, queue id) → log position of the frame from which its messages were read last
        self._frames: dict[tuple[int, int], int] = {}
        # Units that were searched for, as (position, size); size 0: not found
        self._found: dict[_Place, tuple[int, int]] = {}
        self._reported: set[_Place] = set()
        self._new: list[_Lost] = []
        self._unreadable: list[Problem] = []
        self.repairs: list[Repair] = []  # units rebuilt; the reader of this list clears it

    def units(self, topic: Topic, queue: int, offset: int, count: int) -> npt.NDArray[Any]:
        """Read units as `ConsumeQueue.read` does; report a failure (DAMAGED) once."""
        try:
            found = topic.queues[queue].read(offset, count)
        except HorologError as error:
            if error.code is ErrorCode.DAMAGED:
                self.report_unreadable(topic, queue, error.message)
            raise
        if topic.queues[queue].rotten:
            self._repair(topic, queue)
        return found

    def record_at(self, topic: Topic, queue: int, offset: int) -> bytes | None:
        """Read the record at a queue offset; None for a hole; raise DAMAGED as `units` does."""
        position, size, _ = self.units(topic, queue, offset, 1)[0].tolist()
        return self.record(topic, queue, offset, position, size)

    def epoch_at(self, topic: Topic, queue: int, offset: int) -> int | None:
        """Return the epoch in which a queue offset was assigned; None for a hole.

        Raise DAMAGED as `units` does.
        """
        position = int(self.units(topic, queue, offset, 1)["position"][0])
        frame = self._log.frame(position)
        return None if isinstance(frame, Hole) else frame.epoch

    def record(
        self, topic: Topic, queue: int, offset: int, position: int, size: int
    ) -> bytes | None:
        """Read the record of the message at a queue offset, by its unit; return None for a hole."""
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
        again = self._record_by_search(topic, queue, offset)
        if again is not None:
            return again
        if not found.dropped:
            self._hole(topic, _Lost(topic.name, queue, offset, found.why, position))
        return None

    # --- messages that follow each other ----------------------------------------------------------

    def run_at(self, place: tuple[int, int], offset: int) -> tuple[QueueRun, int] | None:
        """Return the run read last of a queue and the index of `offset` in it; None: read the unit.

        place  topic id and queue id
        """
        base = self._frames.get(place, -1)
        run = None if base < 0 else self._log.run_in(base, *place)
        i = -1 if run is None else run.find(offset)
        return None if run is None or i < 0 else (run, i)

    def read_from(self, place: tuple[int, int], run: QueueRun) -> None:
        """Remember the frame of a run: a reader that goes on in this queue needs no unit."""
        if len(self._frames) >= _FRAMES_REMEMBERED:
            self._frames.clear()
        self._frames[place] = run.base - HEADER_BYTES

    def following(self, topic: Topic, queue: int, offset: int, most: int) -> list[bytes]:
        """Return records from a queue offset on that are known without units.

        If there are none, the first unit has to be read.
        """
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
        is_message = found[KIND_AT] in VISIBLE_KINDS
        if is_message and _place_of(found, 0) == (topic.id, queue, offset):
            return found
        return Hole(position, f"log position {position} holds another message")

    # --- units that lead nowhere ------------------------------------------------------------------

    def _record_by_search(self, topic: Topic, queue: int, offset: int) -> bytes | None:
        """Return the message at an offset whose unit leads nowhere.

        It must be in the log between the sound neighbours; if not, return None.
        """
        place = topic.id, queue, offset
        if place not in self._found:
            self._search(topic, queue, offset)
        position, size = self._found.get(place, (0, 0))
        found = self._read(topic, queue, offset, position, size)
        return None if isinstance(found, Hole) else found

    def _search(self, topic: Topic, queue: int, offset: int) -> None:
        """Search the log for messages around an offset whose units lead nowhere.

        The search covers all offsets up to the next sound units on both sides.
        """
        units = topic.queues[queue]
        if len(self._found) > HOLES_REPORTED_MAX:
            self._found.clear()
        first, stop = offset, offset + 1
        start, end = self._log.start, self._log.commit_position
        while first > units.first and offset - first < QUEUE_SEARCH_UNITS:
            if sound := self._intact_position(topic, queue, first - 1):
                start = sound
                break
            first -= 1
        while stop < units.length and stop - offset < QUEUE_SEARCH_UNITS:
            if sound := self._intact_position(topic, queue, stop):
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
            for at in offsets[IS_VISIBLE[kinds_of(body, offsets)]].tolist():
                of_topic, of_queue, of_offset = _place_of(body, at)
                if of_topic == topic.id and of_queue == queue and first <= of_offset < stop:
                    position = header.base + HEADER_BYTES + at
                    unit = _unit_of(body, at, position)
                    self._found[of_topic, of_queue, of_offset] = position, int(unit["size"][0])
                    rebuilt += units.replace(of_offset, unit)
        if rebuilt:
            text = (
                f"topic {topic.name}: {rebuilt} units of queue {queue} from offset {first} on: "
                "rebuilt from the log"
            )
            self.repairs.append(Repair(text, rebuilt))

    def _intact_position(self, topic: Topic, queue: int, offset: int) -> int:
        """Return the log position of the message at an offset, if its unit leads to it; else 0."""
        try:
            position, size, _ = topic.queues[queue].read(offset, 1)[0].tolist()
        except HorologError:
            return 0
        found = self._read(topic, queue, offset, position, size)
        return 0 if isinstance(found, Hole) else position

    # --- units that do not pass their check -------------------------------------------------------

    def _repair(self, topic: Topic, queue: int) -> None:
        """Write damaged units again that lead to their messages.

        Readers of the other damaged units search the log.
        """
        units, repaired = topic.queues[queue], 0
        rotten, units.rotten = sorted(units.rotten), set()
        for offset in rotten[:_REPAIRED_MAX]:
            try:
                position, size, code = units.read(offset, 1)[0].tolist()
            except HorologError:
                continue  # dropped by retention, or cut: a reader reports it
            if code == ROTTEN_CODE:
                found = self._read(topic, queue, offset, position, size)
                if not isinstance(found, Hole):
                    repaired += units.replace(offset, _unit_of(found, 0, position))
        units.rotten.clear()
        if repaired:
            text = (
                f"topic {topic.name}: {repaired} units of queue {queue} from offset {rotten[0]} "
                "on: written again"
            )
            self.repairs.append(Repair(text, repaired))

    # --- problems ---------------------------------------------------------------------------------

    def _hole(self, topic: Topic, lost: _Lost) -> None:
        if self._is_new((topic.id, lost.queue, lost.offset)):
            self.holes += 1
            self._new.append(lost)

    def _is_new(self, place: _Place) -> bool:
        if place in self._reported or len(self._reported) >= HOLES_REPORTED_MAX:
            return False
        self._reported.add(place)
        return True

    def report_unreadable(self, topic: Topic, queue: int, why: str) -> None:
        """Report once that a queue cannot be read until the next start, which rebuilds it."""
        if self._is_new((topic.id, queue, -1)):
            text = f"topic {topic.name}: queue {queue} cannot be read: {why}"
            self._unreadable.append(Problem(text, key=unreadable_key(topic.id, queue)))

    def take_problems(self) -> list[Problem]:
        """Return the unreadable queues and the holes met since the last call, as problems."""
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
    """Return (topic id, queue id, queue offset) of the message record at `at`."""
    (topic,) = _SIZE.unpack_from(body, at + TOPIC_AT)
    queue, offset = _QUEUE_AND_OFFSET.unpack_from(body, at + QUEUE_AT)
    return topic, queue, offset


def _unit_of(body: bytes, at: int, position: int) -> npt.NDArray[Any]:
    """Build the UNIT row of the message record at `at`, which has the log position `position`."""
    return units_of(heads_of(body, np.array([at])), position)


def unreadable_key(topic: int, queue: int) -> str:
    """Return the key of the problem that a queue cannot be read."""
    return f"queue {queue} of topic id {topic} cannot be read"
