"""Find messages of a queue by store time, and read one message by its log position.

Store times never go back in the log, and so not in a queue: the search is binary, and each step
reads one message.  A hole has no time, so the next message that can be read is used instead.  Where
there are too many holes in a row for one turn, the newest frame of their segment gives the time for
the rest of them.  An answer is then too low rather than too high, so a consumer that starts there
gets more than was asked for, and misses nothing.
"""

from __future__ import annotations

from horolog.broker.shard import Shard
from horolog.broker.topics import Topic, queue_of
from horolog.errors import ErrorCode, refused
from horolog.limits import HOLES_READ_MAX
from horolog.log.frame_reader import Hole
from horolog.log.record import HEAD_BYTES, IS_VISIBLE, KIND_AT, TOPIC_AT
from horolog.protocol.queue_commands import EarliestStoreTime, ReadMessage, SearchOffset
from horolog.protocol.rocketmq import layout


def search_offset(shard: Shard, command: SearchOffset) -> int:
    """Return the queue offset that the docstring of the command names."""
    topic = shard.topics.get(command.topic)
    queue = queue_of(topic, command.queue_id)
    wanted = command.store_ms + command.upper  # with `upper`, the last that is not later
    low, high = queue.first, queue.length
    looks = _Looks(shard, topic, command.queue_id)
    while low < high:
        middle = (low + high) // 2
        found = looks.stored(middle, high)
        if found is None:
            high = middle  # nothing but holes up to the end
        elif found[1] < wanted:
            low = found[0] + 1
        else:
            high = middle
    return max(low - 1, queue.first) if command.upper else low


def earliest_store_time(shard: Shard, command: EarliestStoreTime) -> int:
    """Return the store time of the first message in a queue, in epoch ms; −1 if none is left."""
    topic = shard.topics.get(command.topic)
    queue = queue_of(topic, command.queue_id)
    found = _Looks(shard, topic, command.queue_id).stored(queue.first, queue.length)
    return -1 if found is None else found[1]


class _Looks:
    """Reads the messages that one search of a queue compares."""

    def __init__(self, shard: Shard, topic: Topic, queue_id: int) -> None:
        self._shard = shard
        self._topic = topic
        self._queue_id = queue_id
        self._left = HOLES_READ_MAX

    def stored(self, first: int, stop: int) -> tuple[int, int] | None:
        """Return (offset, store ms) of the first readable message in [first, stop).

        After too many holes, the offset of a hole and the newest store time in its segment.  None
        if there is neither.
        """
        topic, queued = self._topic, self._shard.queued
        for offset in range(first, stop):
            position, size, _ = queued.units(topic, self._queue_id, offset, 1)[0].tolist()
            record = queued.record(topic, self._queue_id, offset, position, size)
            if record is not None:
                return offset, layout.store_ms_of(memoryview(record)[HEAD_BYTES:])
            self._left -= 1
            if self._left <= 0:
                log = self._shard.log
                newest_ms = log.newest_ms.get(position - position % log.segment_bytes)
                return None if newest_ms is None else (offset, newest_ms)
        return None


def read_message(shard: Shard, command: ReadMessage) -> bytes:
    """Return the stored layout of a visible message."""
    return read_visible(shard, command.position)


def read_visible(shard: Shard, position: int) -> bytes:
    """Return the stored layout of the visible message at a log position.

    Clients name the position.  Raise NOT_FOUND if no visible message begins there.
    """
    found = shard.log.record(position) if position >= 0 else Hole(position, "")
    if not isinstance(found, Hole) and IS_VISIBLE[found[KIND_AT]]:
        topic = int.from_bytes(found[TOPIC_AT : TOPIC_AT + 4], "little")
        if topic in shard.topics.by_id:
            return found[HEAD_BYTES:]
    why = f"; {found.why}" if isinstance(found, Hole) and found.why else ""
    raise refused(
        "offset",
        f"no message that consumers can see begins at log position {position}{why}",
        code=ErrorCode.NOT_FOUND,
    )
