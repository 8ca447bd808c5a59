"""Commands of producers: messages as records, from a front end to the core.

A message comes as its record (`log.record`), with a head that says what its sender wants; the core, which alone knows
the time and the queues, turns it into what is logged.  So a request is bytes and sizes, whatever protocol it came by:
no object a message.  `HEAD_AS_SENT` of the record, little-endian:

======  =====  ==========  =============================================================================
offset  bytes  field       as sent
======  =====  ==========  =============================================================================
0       4      size        of the whole record
4       1      type        `MessageType`; the log has the kind of record here
5       1      flags       1: it has KEYS
6       2      lane        its delay level from 1 on, 0 without one
8       8      due ms      UTC epoch milliseconds, 0: now; below 0: so many milliseconds after it is stored
16      4      group       `group_code` of its message group, 0 without one; the log has the id of the topic here
20      4      tags code   Java hash of the tag, 0 without a tag
24      8      key hash    of (topic, message id)
======  =====  ==========  =============================================================================

The queue id of the stored layout after it is the queue that the sender chose; −1 leaves it to the broker.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeVar

from horolog.errors import HorologError

HEAD_AS_SENT = struct.Struct("<IBBHqIiQ")
assert HEAD_AS_SENT.size == 32
ANY_QUEUE = -1


class MessageType(IntEnum):
    """What a message is; the numbers are those of the 5.x protocol."""

    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4


class NewMessage(NamedTuple):
    """A checked message, encoded for the log (`protocol.rocketmq.message.encode`)."""

    record: bytes  # its head as sent, then the stored layout
    message_id: str
    due_ms: int  # 0: now; below 0: so many milliseconds after it is stored
    tags_code: int  # Java hash of the tag, int32; 0 without a tag
    key_hash: int  # u64 of (topic, message id)
    type: MessageType
    has_keys: bool = False  # whether it has a KEYS property


class NewRecords(NamedTuple):
    """Checked messages as nothing but their records, back to back."""

    records: bytes
    sizes: list[int]  # of each record

    @classmethod
    def of(cls, messages: Sequence[NewMessage]) -> NewRecords:
        """The same messages, as columns."""
        records = [message.record for message in messages]
        return cls(b"".join(records), list(map(len, records)))


@dataclass(slots=True, frozen=True)
class SendMessages:
    """Store messages of one topic; gives `Sent`.  Each message is atomic, the request is not.

    parts       so many messages at a time are refused together if one of them is; none: each is for itself
    reuses_ids  its client may give one id to several messages on purpose, as 4.x clients do (`broker.send.repeats`)
    any_type    whatever the type of the topic: its client knows nothing of types, as 4.x clients do not
    """

    topic: str
    messages: Sequence[NewMessage] | NewRecords
    parts: Sequence[int] = ()
    reuses_ids: bool = False
    any_type: bool = False

    def columns(self) -> NewRecords:
        """The messages as records."""
        given = self.messages
        return given if isinstance(given, NewRecords) else NewRecords.of(given)

    @property
    def size_bytes(self) -> int:
        """Size of the records."""
        given = self.messages
        if isinstance(given, NewRecords):
            return len(given.records)
        return sum([len(message.record) for message in given])


@dataclass(slots=True, frozen=True)
class DescribeLanes:
    """Gives list[LaneView]: the delay levels that were ever used, by number."""


class LaneView(NamedTuple):
    """What was scheduled by a delay level; the difference waits."""

    level: int
    scheduled: int
    done: int  # handed over, recalled or moved


@dataclass(slots=True)
class Sent:
    """Per message: its origin (log position), queue, queue offset (−1 while it is scheduled), or a refusal.

    A message that repeats an earlier one has the result of that one, and its due time in `first_due_ms` too.
    """

    origins: list[int]
    queue_ids: list[int]
    queue_offsets: list[int]
    refused: dict[int, HorologError] = field(default_factory=dict)
    first_due_ms: dict[int, int] = field(default_factory=dict)
    due_ms: list[int] = field(default_factory=list)  # when each is due; past or 0: visible at once

    def part(self, start: int, end: int) -> Sent:
        """What became of some of the messages, those from `start` up to `end`."""
        return Sent(
            self.origins[start:end],
            self.queue_ids[start:end],
            self.queue_offsets[start:end],
            _part(self.refused, start, end),
            _part(self.first_due_ms, start, end),
            self.due_ms[start:end],
        )


_Value = TypeVar("_Value")


def _part(rows: dict[int, _Value], start: int, end: int) -> dict[int, _Value]:
    return {row - start: value for row, value in rows.items() if start <= row < end}
