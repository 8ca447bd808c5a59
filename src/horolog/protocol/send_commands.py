"""Commands of producers: messages as records, from a front end to the core.

A message is submitted as its record (`log.record`), with a head that says what the producer wants.
The core, which alone knows the time and the queues, turns this head into the one that is logged.
So a request is bytes and sizes for every protocol, without an object per message.  The record
begins with `HEAD_AS_SENT`, little-endian:

======  =====  ==========  =============================================================================
offset  bytes  field       as sent
======  =====  ==========  =============================================================================
0       4      size        of the whole record
4       1      type        `MessageType`; the log has the kind of record here
5       1      flags       1: the message has KEYS
6       2      lane        delay level from 1 on, 0 without one
8       8      due ms      UTC epoch milliseconds, 0: now; below 0: so many ms after it is stored
16      4      group       `group_code` of the message group, 0 without one; the log has the topic id
20      4      tags code   Java hash of the tag, 0 without a tag
24      8      key hash    of (topic, message id)
======  =====  ==========  =============================================================================

The queue id of the stored layout after the head is the queue that the producer chose; −1 leaves the
choice to the broker.
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
    """Type of a message, with the values of the 5.x protocol."""

    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4


class NewMessage(NamedTuple):
    """A checked message, encoded for the log (`protocol.rocketmq.message.encode`)."""

    record: bytes  # a head as sent, then the stored layout
    message_id: str
    due_ms: int  # 0: now; below 0: so many milliseconds after the message is stored
    tags_code: int  # Java hash of the tag, int32; 0 without a tag
    key_hash: int  # u64 of (topic, message id)
    type: MessageType
    has_keys: bool = False  # whether the message has a KEYS property


class NewRecords(NamedTuple):
    """Checked messages as their records only, back to back."""

    records: bytes
    sizes: list[int]  # of each record

    @classmethod
    def of(cls, messages: Sequence[NewMessage]) -> NewRecords:
        """Return the records of messages as columns."""
        records = [message.record for message in messages]
        return cls(b"".join(records), list(map(len, records)))


@dataclass(slots=True, frozen=True)
class SendMessages:
    """Store messages of one topic.  Result: `Sent`.

    Each message is atomic, the request is not.

    parts       counts of messages that are refused together if one of them is; empty: each alone
    reuses_ids  whether the client may give one id to several messages on purpose, as 4.x clients do
                (`broker.send.repeats`)
    any_type    accept messages whatever the type of the topic: 4.x clients know nothing of types
    """

    topic: str
    messages: Sequence[NewMessage] | NewRecords
    parts: Sequence[int] = ()
    reuses_ids: bool = False
    any_type: bool = False

    def columns(self) -> NewRecords:
        """Return the messages as columns of records."""
        given = self.messages
        return given if isinstance(given, NewRecords) else NewRecords.of(given)

    @property
    def size_bytes(self) -> int:
        """Size of all records together."""
        given = self.messages
        if isinstance(given, NewRecords):
            return len(given.records)
        return sum([len(message.record) for message in given])


@dataclass(slots=True, frozen=True)
class DescribeLanes:
    """List the delay levels that were ever used, ascending.  Result: list[LaneView]."""


class LaneView(NamedTuple):
    """How many messages were scheduled by a delay level and are done; the difference waits."""

    level: int
    scheduled: int
    done: int  # handed over, recalled or moved


@dataclass(slots=True)
class Sent:
    """Outcome of a send: for each message its origin, queue and queue offset, or a refusal.

    The origin is the log position; the queue offset is −1 while the message is scheduled.  A
    message that repeats an earlier one has the outcome of the earlier one, and the earlier due time
    in `first_due_ms` too.
    """

    origins: list[int]
    queue_ids: list[int]
    queue_offsets: list[int]
    refused: dict[int, HorologError] = field(default_factory=dict)
    first_due_ms: dict[int, int] = field(default_factory=dict)
    due_ms: list[int] = field(default_factory=list)  # of each message; past or 0: visible at once

    def part(self, start: int, end: int) -> Sent:
        """Return the outcome of the messages from `start` up to `end`."""
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
