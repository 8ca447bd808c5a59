"""What the log still says about a message that the delay store may have forgotten.

Hours and runs go when their time has passed; the commit log stays for as long as retention lets it, and the key
index knows which of its records belong to a message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from horolog.broker.shard import Shard
from horolog.broker.topics import Topic
from horolog.log.frame_reader import Hole
from horolog.log.record import (
    ENVELOPE,
    HEAD_BYTES,
    IS_MOVED,
    TOPIC_AT,
    Kind,
)
from horolog.protocol.rocketmq import layout, properties

VISIBLE = frozenset({Kind.MESSAGE, Kind.HANDED})


class Copy(NamedTuple):
    """One record of a message in the commit log."""

    position: int
    kind: Kind
    due_ms: int
    message_id: str
    keys: list[str]


def copies(shard: Shard, key: int, topic: Topic) -> list[Copy]:
    """Readable records of that topic under a key of the key index, in log order.

    What lies below the start of the log, or is damaged, is as if it were not there.  The caller compares what the
    key stands for, since hashes may collide.
    """
    return at_positions(shard, shard.key_index.find(key), topic)


def at_positions(shard: Shard, positions: Iterable[int], topic: Topic) -> list[Copy]:
    """The same for log positions that the key index gave."""
    found = []
    for position in positions:
        record = shard.log.message(position)
        if isinstance(record, Hole):
            continue
        _, kind, _, _, due_ms = ENVELOPE.unpack_from(record)
        number = int.from_bytes(record[TOPIC_AT : TOPIC_AT + 4], "little")
        if number == topic.number:  # one that was deleted may have had the same name
            stored = layout.properties_of(memoryview(record)[HEAD_BYTES:])
            told = properties.decode(stored)
            message_id = told.get(properties.UNIQ_KEY, "")
            keys = told.get(properties.KEYS, "").split()
            found.append(Copy(position, Kind(kind), due_ms, message_id, keys))
    return found


def was_delivered(found: Iterable[Copy], due_ms: int) -> bool:
    """Whether one that was due then became visible."""
    return any(copy.kind in VISIBLE and copy.due_ms == due_ms for copy in found)


def moved_to(shard: Shard, found: Iterable[Copy], due_ms: int) -> int | None:
    """When the message that was due then is due now, if it was rescheduled; all copies are of one message."""
    now_due_ms = due_ms
    for copy in found:
        if copy.kind is not Kind.HANDED and moved_from(shard, copy.position) == now_due_ms:
            now_due_ms = copy.due_ms
    return now_due_ms if now_due_ms != due_ms else None


def moved_from(shard: Shard, position: int) -> int | None:
    """The former due time, if a RECALL with the flag *moved* begins the frame of this record."""
    frame = shard.log.frame(position)
    if isinstance(frame, Hole) or frame.count not in (2, 3):
        return None
    _, kind, flags, _, due_ms = ENVELOPE.unpack_from(frame.body)
    return due_ms if kind == Kind.RECALL and flags & IS_MOVED else None
