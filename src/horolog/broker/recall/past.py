"""Read from the log what became of messages that the delay store may have forgotten.

Hours and runs are removed when their time has passed; the commit log stays for as long as retention
lets it, and the key index knows which of its records belong to a message.  Recalls and look-ups, by
id or key, use this module.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from horolog.broker.shard import Shard
from horolog.broker.topics import Topic
from horolog.delay.tier import Promotion
from horolog.limits import FIND_MAX
from horolog.log.control_records import IS_MOVED
from horolog.log.controls import read_control
from horolog.log.frame_reader import Hole, OpenFrame
from horolog.log.record import (
    ENVELOPE,
    HEAD_BYTES,
    KIND_AT,
    MESSAGE_KINDS,
    TOPIC_AT,
    VISIBLE_KINDS,
    Kind,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import key_hash, user_key_hash


class Copy(NamedTuple):
    """One record of a message in the commit log."""

    position: int
    kind: Kind
    due_ms: int
    values: dict[str, str]  # of its properties
    layout: bytes

    @property
    def message_id(self) -> str:
        """The message id, which the message keeps for its whole life."""
        return self.values.get(properties.UNIQ_KEY, "")

    @property
    def keys(self) -> list[str]:
        """The user keys."""
        return self.values.get(properties.KEYS, "").split()


def with_id(shard: Shard, topic: Topic, message_id: str) -> list[Copy]:
    """Return readable records of the messages with that id, in log order.

    Records below the start of the log, and damaged ones, are left out.  Only the newest FIND_MAX
    are read: a 4.x client that sends one message object again and again sends them all with one id.
    """
    positions = shard.key_index.find(key_hash(topic.name, message_id))[-FIND_MAX:]
    found = copies_at(shard, topic, positions)
    return [copy for copy in found if copy.message_id == message_id]  # hashes may collide


def has_older(shard: Shard, topic: Topic, message_id: str) -> bool:
    """Return whether the log has records of an id, or of its hash, that `with_id` does not read."""
    return len(shard.key_index.find(key_hash(topic.name, message_id))) > FIND_MAX


def with_key(shard: Shard, topic: Topic, key: str, check: Callable[[int], None]) -> list[Copy]:
    """Return readable records of the messages with that user key, in log order.

    check  is called with the count of records that will be read, and may refuse
    """
    positions = shard.key_index.find(user_key_hash(topic.name, key))
    check(len(positions))
    return [copy for copy in copies_at(shard, topic, positions) if key in copy.keys]


def copies_at(shard: Shard, topic: Topic, positions: Iterable[int]) -> Iterator[Copy]:
    """Yield the readable records of a topic's messages at these log positions."""
    for position in positions:
        record = shard.log.message(position)
        if isinstance(record, Hole):
            continue
        _, kind, _, _, due_ms = ENVELOPE.unpack_from(record)
        topic_id = int.from_bytes(record[TOPIC_AT : TOPIC_AT + 4], "little")
        if topic_id == topic.id:  # a deleted topic may have had the same name
            stored = record[HEAD_BYTES:]
            decoded = properties.decode(layout.properties_of(memoryview(stored)))
            yield Copy(position, Kind(kind), due_ms, decoded, stored)


def was_delivered(found: Iterable[Copy], due_ms: int) -> bool:
    """Return whether a copy with that due time became visible."""
    return any(copy.kind in VISIBLE_KINDS and copy.due_ms == due_ms for copy in found)


def moved_to(shard: Shard, found: Iterable[Copy], due_ms: int) -> int | None:
    """Follow the reschedules of a message from `due_ms` to its present due time.

    None if it was not moved.  All copies are of one message.
    """
    now_due_ms = due_ms
    for copy in found:
        if copy.kind is not Kind.HANDED and moved_from(shard, copy.position) == now_due_ms:
            now_due_ms = copy.due_ms
    return now_due_ms if now_due_ms != due_ms else None


def moved_from(shard: Shard, position: int) -> int | None:
    """Return the due time before a move, if a RECALL with the flag *moved* precedes it.

    A frame of moves begins with such a record.
    """
    frame = shard.log.frame(position)
    if isinstance(frame, Hole) or not _is_move(frame.body, 0):
        return None
    for control in controls_before(frame, position):
        if _is_move(frame.body, control):
            return int(ENVELOPE.unpack_from(frame.body, control)[4])
    return None


def is_promoted(shard: Shard, position: int) -> bool:
    """Return whether a message came back from a tier.

    Its origin then follows, or is, an adoption that promotes.
    """
    frame = shard.log.frame(position)
    if isinstance(frame, Hole):
        return False
    at = position - frame.start
    own = frame.body[at + KIND_AT] == Kind.ADOPT
    for control in [at] if own else controls_before(frame, position):
        if frame.body[control + KIND_AT] == Kind.ADOPT:
            content = read_control(frame.body, control, frame.start + control).content
            return Promotion.of(content["app"], content["version"]) is not None
    return False


def _is_move(body: bytes | bytearray, at: int) -> bool:
    _, kind, flags, _, _ = ENVELOPE.unpack_from(body, at)
    return bool(kind == Kind.RECALL and flags & IS_MOVED)


def controls_before(frame: OpenFrame, position: int) -> list[int]:
    """Return where in a frame the control records are that belong to the message at a log position.

    These are the ones before the message, with only other messages of theirs in between.
    """
    starts = list(frame.ends())
    row = bisect_left(starts, position - frame.start) - 1
    while row >= 0 and frame.body[starts[row] + KIND_AT] in MESSAGE_KINDS:
        row -= 1
    last = row
    while row >= 0 and frame.body[starts[row] + KIND_AT] not in MESSAGE_KINDS:
        row -= 1
    return starts[row + 1 : last + 1]
