"""Queries about scheduled messages: counts, lists, and what became of a message."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class CountBy(StrEnum):
    """What a row of `PendingCounts` stands for; days are UTC days."""

    DAY = "day"
    HOUR = "hour"
    SECOND = "second"
    TOPIC = "topic"


@dataclass(slots=True, frozen=True)
class CountPending:
    """Count scheduled messages exactly.  Result: `PendingCounts`."""

    topic: str = ""
    # An hour (epoch ms // 3 600 000): count by second of this hour, whatever `by` is
    hour: int | None = None
    by: CountBy = CountBy.HOUR  # SECOND needs `hour`
    # By hour: only hours that begin in [from_ms, to_ms).
    from_ms: int = 0
    to_ms: int = 1 << 62
    # By second, for an hour of which a tier holds messages: count the other messages, and report
    # the tier's as `PendingCounts.in_tier`, instead of refusing with IN_TIER.
    partly: bool = False


@dataclass(slots=True)
class PendingCounts:
    """Rows (start of the day, hour or second in epoch ms, count), in order, without zero counts.

    By topic, `topics` has (name, count) instead of `rows`.
    """

    total: int
    rows: list[tuple[int, int]]
    topics: list[tuple[str, int]] = field(default_factory=list)
    in_tier: int = 0  # messages of the hour whose seconds only the tier knows; not in `total`


@dataclass(slots=True, frozen=True)
class ListPending:
    """List messages due in [from_ms, to_ms), in hand-over order.

    Result: list[PendingMessage], at most `limit`.

    The list is read over several turns if a turn's worth is not enough; it may lack messages that
    are handed over, recalled or rescheduled meanwhile.
    """

    from_ms: int
    to_ms: int
    topic: str = ""
    limit: int = 100


class PendingMessage(NamedTuple):
    """A pending message."""

    due_ms: int
    topic: str
    message_id: str
    origin: int
    size: int  # bytes of its record
    layout: bytes


class MessageState(StrEnum):
    """State of a message, as look-ups report it."""

    PENDING = "pending"
    DELIVERED = "delivered"  # visible to consumers: never scheduled, or handed over
    RECALLED = "recalled"
    MOVED = "moved"  # rescheduled: a copy with another due time took its place
    ENDED = "ended"  # recalled or expired long ago; too much log to search for which
    EXPIRED = "expired"  # too late to be handed over: dropped, or made a dead letter
    IN_TIER = "lake"  # waits elsewhere, or was recalled before it went there
    QUARANTINED = "quarantined"  # its record fails verification, and is never handed over


@dataclass(slots=True, frozen=True)
class FindMessages:
    """Find messages of a topic by id, or by one word of their keys.

    Result: list[FoundMessage], by origin.  It is looked up over several turns if there are many.

    A search by key finds only messages whose records the log still has, and pending adopted ones.
    """

    topic: str
    message_id: str = ""
    key: str = ""


class FoundMessage(NamedTuple):
    """A message that a look-up found."""

    state: MessageState
    topic: str
    message_id: str
    keys: list[str]
    due_ms: int  # 0: never scheduled
    origin: int
    queue_id: int
    queue_offset: int  # −1 unless it is visible
    store_ms: int  # when the message became visible; if it is not visible, when it was sent
    layout: bytes


PendingCommand = CountPending | ListPending | FindMessages
