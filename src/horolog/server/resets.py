"""Reset where a consumer group goes on in a topic.

A reset leads to the beginning, the end, a time, or an offset of one queue.  It is a commit of
offsets: all of them or none, and messages leased or consumed after them come again.  4.x consumers
keep offsets of their own, so connected ones are notified (`KnowsClients.notify_reset`).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from horolog.errors import HorologError, refused
from horolog.protocol.commands import DescribeTopic, TopicView
from horolog.protocol.queue_commands import CommitOffsets, FindGroup, GetOffsets, SearchOffset
from horolog.server.running import RunningEngine


class End(Enum):
    """An end of a queue."""

    EARLIEST = "earliest"  # the oldest message that is kept
    LATEST = "latest"  # after the newest message


class QueueOffset(NamedTuple):
    """An offset of one queue."""

    queue_id: int
    offset: int


class ResetRow(NamedTuple):
    """The offset of a group in a queue, before and after a reset."""

    queue_id: int
    from_offset: int
    to_offset: int


async def plan_reset(
    engine: RunningEngine,
    group: str,
    topic: str,
    to: End | QueueOffset | int,
    queue_id: int | None,
) -> list[ResetRow]:
    """Plan a reset to an end, an offset, or a time (epoch ms), of all queues or of one.

    Raise GROUP_NOT_FOUND, TOPIC_NOT_FOUND; BAD_REQUEST for an offset that the queue does not have.
    """
    await engine.submit(FindGroup(group))
    view: TopicView = await engine.submit(DescribeTopic(topic, with_pending=False))
    stored: dict[int, int] = await engine.submit(GetOffsets(group, topic))
    wanted = await offsets_of(engine, view, to, queue_id)
    return [
        ResetRow(queue, stored.get(queue, view.min_offsets[queue]), offset)
        for queue, offset in sorted(wanted.items())
    ]


async def offsets_of(
    engine: RunningEngine, topic: TopicView, to: End | QueueOffset | int, queue_id: int | None
) -> dict[int, int]:
    """Return the offsets by queue to which a reset leads.

    to  an end, an offset of one queue, or a time (epoch ms): the first message stored then or later

    Raise BAD_REQUEST for a queue, or an offset, that the topic does not have.
    """
    only = to.queue_id if isinstance(to, QueueOffset) else queue_id
    if only is not None and not 0 <= only < topic.queues:
        raise _refused("queue", only, 0, topic.queues - 1, topic.name)
    queues = range(topic.queues) if only is None else [only]
    match to:
        case End.EARLIEST:
            return {queue: topic.min_offsets[queue] for queue in queues}
        case End.LATEST:
            return {queue: topic.queue_offsets[queue] for queue in queues}
        case QueueOffset(queue, offset):
            low, high = topic.min_offsets[queue], topic.queue_offsets[queue]
            if not low <= offset <= high:
                raise _refused("offset", offset, low, high, topic.name)
            return {queue: offset}
    # Each search may read thirty messages, so a topic of a thousand queues would fill many turns.
    return {queue: await engine.submit(SearchOffset(topic.name, queue, to)) for queue in queues}


async def reset(engine: RunningEngine, group: str, topic: str, rows: list[ResetRow]) -> None:
    """Commit the offsets of a planned reset."""
    offsets = {row.queue_id: row.to_offset for row in rows}
    await engine.submit(CommitOffsets(group, topic, offsets, afresh=True))


def _refused(field: str, value: int, low: int, high: int, topic: str) -> HorologError:
    return refused(field, f"{value}; topic {topic!r} has {low} to {high} there", f"{low} to {high}")
