"""Commands that cancel scheduled messages, or let them be due at another time; and their results."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from horolog.protocol.tier_commands import Elsewhere


class RecallStatus(StrEnum):
    """The truth about a recall (P8), decided by log order."""

    CANCELLED = "CANCELLED"
    ALREADY_DELIVERED = "ALREADY_DELIVERED"
    NOT_FOUND = "NOT_FOUND"


@dataclass(slots=True, frozen=True)
class Recall:
    """Cancel every pending copy of (topic, message id, due time); gives `Recalled`.

    Or `LookElsewhere`, if copies may be there and nobody has looked: so do the three below.
    """

    topic: str
    message_id: str
    due_ms: int
    origin: int = -1  # −1: unknown (handle of five fields, or by id)
    elsewhere: Elsewhere | None = None  # what was found there; None: nobody has looked


@dataclass(slots=True)
class Recalled:
    """What became of it; `detail` is a sentence that begins with the status word."""

    status: RecallStatus
    detail: str
    message_id: str
    due_ms: int = 0  # of the message that was meant


@dataclass(slots=True, frozen=True)
class RecallByKey:
    """`Recall` of every message of the topic that has this key; gives list[Recalled], oldest first.

    Only messages whose records the log still holds are found by key.
    """

    topic: str
    key: str


def worth_telling(results: list[Recalled]) -> list[Recalled]:
    """Results of a recall by key, without the former due times of what was rescheduled or sent again."""
    known = {each.message_id for each in results if each.status is not RecallStatus.NOT_FOUND}
    return [
        each
        for each in results
        if each.status is not RecallStatus.NOT_FOUND or each.message_id not in known
    ]


@dataclass(slots=True, frozen=True)
class RecallMany:
    """Cancel all messages of a topic that wait and are due in [from_ms, to_ms); gives `RecalledMany`.

    What is sent after the command has come is left alone.  The answer comes when all is done.
    """

    topic: str
    from_ms: int
    to_ms: int
    tag: str = ""  # "": any
    dry_run: bool = False  # only count
    looked: tuple[int, ...] = ()  # offloads whose rows elsewhere are recalled, or counted


@dataclass(slots=True)
class RecalledMany:
    """How many messages were meant, and how many of them are cancelled: all, or none in a dry run."""

    matched: int
    cancelled: int
    bytes: int  # of the records of those that were meant


class RescheduleStatus(StrEnum):
    """The truth about a reschedule, decided by log order as for a recall."""

    RESCHEDULED = "RESCHEDULED"
    HANDED_OVER = "HANDED_OVER"  # as it was asked for, now
    DUE_TIME_CHANGED = "DUE_TIME_CHANGED"  # it is due at another time than the caller expects
    ALREADY_DELIVERED = "ALREADY_DELIVERED"
    NOT_FOUND = "NOT_FOUND"


@dataclass(slots=True, frozen=True)
class Reschedule:
    """Let a scheduled message be due at `new_due_ms` instead; gives `Rescheduled`.

    All waiting copies of (topic, message id, due time) with one body go on as one; those of another body are another
    message, which goes on beside it.  A time that has come makes it visible.
    With `now` it is handed over now, by the clock of the step that decides it, and `new_due_ms` is 0.
    """

    topic: str
    message_id: str
    due_ms: int
    new_due_ms: int
    origin: int = -1  # as of `Recall`
    elsewhere: Elsewhere | None = None  # likewise
    now: bool = False
    # Refuse with DUE_TIME_CHANGED if it is due at another time; None: move it anyway
    expected_due_ms: int | None = None


@dataclass(slots=True)
class Rescheduled:
    """What became of it; the rest describes the new copy, if there is one, as `Sent` does."""

    status: RescheduleStatus
    detail: str  # a sentence that begins with the status word
    message_id: str
    due_ms: int = 0  # also of one whose due time has changed
    origin: int = -1
    queue_id: int = -1
    queue_offset: int = -1
    copies: int = 0  # waiting copies that it replaces


RecallCommand = Recall | RecallByKey | RecallMany | Reschedule
