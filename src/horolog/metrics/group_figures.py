"""Lag of consumer groups: how many messages wait for them, and for how long.

The age of a message is that of the log at its position: the log end is noted at every look
(`Marks`), so an age is as exact as looks are frequent, and never too high.  No message is read for
it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from horolog.broker.shard import Shard
from horolog.broker.topics import Topic
from horolog.errors import HorologError
from horolog.log.consume_queue import ConsumeQueue
from horolog.ready.progress import QueueProgress

_MARKS_MAX = 1_024
_QUEUES_MAX = 8_192  # queues that one look takes into account: some 20 ms


class GroupFigures(NamedTuple):
    """The figures of a group in one topic.

    lag        messages that the group has not consumed, leased ones among them
    oldest_ms  how long the oldest of these messages has been visible, at least
    """

    group: str
    topic: str
    lag: int
    leased: int
    oldest_ms: int


class Marks:
    """Log ends over time, which tell how old a log position is."""

    def __init__(self) -> None:
        self._ends: list[int] = []  # ascending log positions
        self._walls: list[int] = []  # wall ms of each

    def note(self, wall_ms: int, end: int) -> None:
        """Note the current end of the log."""
        if self._ends and self._ends[-1] == end:
            return
        self._ends.append(end)
        self._walls.append(wall_ms)
        if len(self._ends) > _MARKS_MAX:  # thin out the older half: keep every second mark
            half = _MARKS_MAX // 2
            self._ends[:half] = self._ends[1:half:2]
            self._walls[:half] = self._walls[1:half:2]

    def age_ms(self, position: int, wall_ms: int) -> int:
        """Return how long ago, at least, a log position was appended."""
        place = bisect_right(self._ends, position)
        return max(0, wall_ms - self._walls[place]) if place < len(self._walls) else 0


def group_figures(
    shard: Shard, marks: Marks, most: int, wall_ms: int, mono_ms: int
) -> tuple[list[GroupFigures], int]:
    """Return figures of the first `most` pairs of group and topic, and how many are left out."""
    found: list[GroupFigures] = []
    left = _QUEUES_MAX
    for (group_id, topic_id), queues in shard.ready.progress.items():
        topic = shard.topics.by_id.get(topic_id)
        name = shard.ready.groups.names.get(group_id)
        if topic is None or name is None:
            continue
        left -= len(topic.queues)
        if len(found) >= most or left < 0:
            break
        found.append(_figures(shard, marks, name, topic, queues, wall_ms, mono_ms))
    return found, max(0, len(shard.ready.progress) - len(found))


def _figures(
    shard: Shard,
    marks: Marks,
    group: str,
    topic: Topic,
    queues: dict[int, QueueProgress],
    wall_ms: int,
    mono_ms: int,
) -> GroupFigures:
    lag = leased = 0
    oldest: int | None = None
    for queue_id, queue in enumerate(topic.queues):
        progress = queues.get(queue_id)
        floor = queue.first if progress is None else max(progress.floor, queue.first)
        leased += 0 if progress is None else progress.ends.count_after(mono_ms)
        if floor < queue.length:
            lag += queue.length - floor if progress is None else progress.waiting(queue.length)
            position = _position(queue, floor)
            oldest = position if oldest is None else min(oldest, position)
    age_ms = 0
    if oldest is not None:
        segment = oldest - oldest % shard.log.segment_bytes
        newest_ms = shard.log.newest_ms.get(segment, wall_ms)
        age_ms = max(marks.age_ms(oldest, wall_ms), wall_ms - newest_ms)
    return GroupFigures(group, topic.name, lag, leased, age_ms)


def _position(queue: ConsumeQueue, offset: int) -> int:
    """Return the log position of a queue's message; 2⁶² if it cannot be read, as if it were new."""
    try:
        units = queue.read(offset, 1)
    except (HorologError, OSError):
        return 1 << 62
    return int(units[0]["position"]) if len(units) else 1 << 62
