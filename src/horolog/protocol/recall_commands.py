"""Commands that recall or reschedule scheduled messages, and their results."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from horolog.protocol.tier_commands import Elsewhere


class RecallStatus(StrEnum):
    """Outcome of a recall, decided by log order (promise P8)."""

    CANCELLED = "CANCELLED"
    ALREADY_DELIVERED = "ALREADY_DELIVERED"
    NOT_FOUND = "NOT_FOUND"


@dataclass(slots=True, frozen=True)
class Recall:
    """Cancel every pending copy of (topic, message id, due time).  Result: `Recalled`.

    The result is `LookElsewhere` instead if a tier may hold copies and was not searched yet; the
    same applies to `RecallByKey`, `RecallMany` and `Reschedule`.
    """

    topic: str
    message_id: str
    due_ms: int
    origin: int = -1  # −1: unknown (a handle of five fields, or a recall by id)
    elsewhere: Elsewhere | None = None  # what the tier holds; None: it was not searched


@dataclass(slots=True)
class Recalled:
    """Outcome of a recall; `detail` is a sentence that begins with the status word."""

    status: RecallStatus
    detail: str
    message_id: str
    due_ms: int = 0  # of the message that the recall named


@dataclass(slots=True, frozen=True)
class RecallByKey:
    """Recall every message of a topic that has a key.  Result: list[Recalled], oldest first.

    Only messages whose records are still in the log are found by key.
    """

    topic: str
    key: str


def without_redundant_not_found(results: list[Recalled]) -> list[Recalled]:
    """Return the results of a recall by key without redundant NOT_FOUND ones.

    A rescheduled or repeated message has one at each former due time; these are dropped if the same
    message id has another result.
    """
    known = {each.message_id for each in results if each.status is not RecallStatus.NOT_FOUND}
    return [
        each
        for each in results
        if each.status is not RecallStatus.NOT_FOUND or each.message_id not in known
    ]


@dataclass(slots=True, frozen=True)
class RecallMany:
    """Cancel all pending messages of a topic that are due in [from_ms, to_ms).

    Result: `RecalledMany`.

    Messages that are sent after the command has arrived are left alone.  The answer comes when all
    messages are cancelled.
    """

    topic: str
    from_ms: int
    to_ms: int
    tag: str = ""  # "": any
    dry_run: bool = False  # only count
    looked: tuple[int, ...] = ()  # offloads whose rows in the tier are already recalled, or counted


@dataclass(slots=True)
class RecalledMany:
    """How many messages matched and how many of them are cancelled: all, or none in a dry run."""

    matched: int
    cancelled: int
    bytes: int  # of the records of the matched messages


class RescheduleStatus(StrEnum):
    """Outcome of a reschedule, decided by log order as for a recall."""

    RESCHEDULED = "RESCHEDULED"
    HANDED_OVER = "HANDED_OVER"  # at once, as the command asked
    DUE_TIME_CHANGED = "DUE_TIME_CHANGED"  # not due when the caller expects
    ALREADY_DELIVERED = "ALREADY_DELIVERED"
    NOT_FOUND = "NOT_FOUND"


@dataclass(slots=True, frozen=True)
class Reschedule:
    """Change the due time of a scheduled message to `new_due_ms`.  Result: `Rescheduled`.

    All pending copies of (topic, message id, due time) with one body become one copy; copies with
    another body are another message, which is rescheduled beside it.  A new due time in the past
    makes the message visible.  With `now` the message is handed over at once, by the clock of the
    step that decides it, and `new_due_ms` is 0.
    """

    topic: str
    message_id: str
    due_ms: int
    new_due_ms: int
    origin: int = -1  # as in `Recall`
    elsewhere: Elsewhere | None = None  # as in `Recall`
    now: bool = False
    # Refuse with DUE_TIME_CHANGED if the message is due at another time; None: move it anyway
    expected_due_ms: int | None = None


@dataclass(slots=True)
class Rescheduled:
    """Outcome of a reschedule; the other fields describe the new copy, if any, as `Sent` does."""

    status: RescheduleStatus
    detail: str  # a sentence that begins with the status word
    message_id: str
    due_ms: int = 0  # with DUE_TIME_CHANGED: when the message is due
    origin: int = -1
    queue_id: int = -1
    queue_offset: int = -1
    copies: int = 0  # pending copies that the new copy replaces


RecallCommand = Recall | RecallByKey | RecallMany | Reschedule
