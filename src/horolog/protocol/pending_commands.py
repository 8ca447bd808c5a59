"""Questions for what is scheduled: counts, lists, and what became of a message; and their answers."""

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
    """Exact counts of scheduled messages; gives `PendingCounts`."""

    topic: str = ""
    # An hour number (epoch ms // 3 600 000): count by second of that hour, whatever `by` is
    hour: int | None = None
    by: CountBy = CountBy.HOUR  # SECOND needs `hour`
    # By hour: only hours that begin in [from_ms, to_ms).
    from_ms: int = 0
    to_ms: int = 1 << 62
    # By second, of an hour of which something is in a tier: count the rest (`PendingCounts.in_tier`) in place of IN_TIER.
    partly: bool = False


@dataclass(slots=True)
class PendingCounts:
    """Rows (start of the day, hour or second in epoch ms, count), only those above zero, in order.

    By topic there are `topics` instead: (name, count).
    """

    total: int
    rows: list[tuple[int, int]]
    topics: list[tuple[str, int]] = field(default_factory=list)
    in_tier: int = 0  # of that hour, whose seconds only the tier knows; not in `total`


@dataclass(slots=True, frozen=True)
class ListPending:
    """Messages due in [from_ms, to_ms), in hand-over order; gives list[PendingMessage], at most `limit`."""

    from_ms: int
    to_ms: int
    topic: str = ""
    limit: int = 100


class PendingMessage(NamedTuple):
    """One scheduled message that waits."""

    due_ms: int
    topic: str
    message_id: str
    origin: int
    size: int  # bytes of its record
    layout: bytes


class MessageState(StrEnum):
    """What has become of a message."""

    PENDING = "pending"
    DELIVERED = "delivered"  # visible to consumers since it was sent, or handed over
    RECALLED = "recalled"
    MOVED = "moved"  # rescheduled: a copy with another due time took its place
    ENDED = "ended"  # recalled or expired long ago: the log is too long to be looked at for which
    EXPIRED = "expired"  # it was too late to be handed over: dropped, or a dead letter
    IN_TIER = "lake"  # it waits elsewhere, or was recalled before it went there
    QUARANTINED = "quarantined"  # its record does not verify, and is never handed over


@dataclass(slots=True, frozen=True)
class FindMessages:
    """Messages of a topic by id, or by one word of their keys; gives list[FoundMessage], by origin.

    By key only messages are found whose records the log still holds, and adopted ones that wait.
    """

    topic: str
    message_id: str = ""
    key: str = ""


class FoundMessage(NamedTuple):
    """One message that was found."""

    state: MessageState
    topic: str
    message_id: str
    keys: list[str]
    due_ms: int  # 0: it was never scheduled
    origin: int
    queue_id: int
    queue_offset: int  # −1 unless it is visible
    store_ms: int  # when it became visible; of others, when it was sent
    layout: bytes


PendingCommand = CountPending | ListPending | FindMessages
