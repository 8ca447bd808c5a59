"""Commands that reschedule many messages at once, and that describe bulk operations under way.

Part of the vocabulary of `protocol.commands`: `Engine.submit(command)` returns a future of the
result that the docstring of the command names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


@dataclass(slots=True, frozen=True)
class MoveMany:
    """Reschedule all pending messages of a topic that are due in [from_ms, to_ms).

    Result: `MovedMany`.

    Exactly one of `new_due_ms`, `shift_ms` and `now` says what their new due times are.  Messages
    that are sent, or moved into the window, after the command has arrived are left alone.  The
    answer comes when all messages are moved.  Repeating the command after a crash completes it:
    messages that are already due at `new_due_ms`, or were handed over, no longer match, and each
    message that a shift has moved remembers its `operation`.
    """

    topic: str
    from_ms: int
    to_ms: int
    tag: str = ""  # "": any
    new_due_ms: int | None = None  # due time of all of the messages
    shift_ms: int | None = None  # added to each due time; negative: earlier
    now: bool = False  # hand the messages over now, the earliest first
    operation: str = ""  # name of a shift; no message is shifted twice under one name
    dry_run: bool = False  # only count


@dataclass(slots=True)
class MovedMany:
    """How many messages matched and how many of them were moved: all, or none in a dry run.

    left  matched messages without room for the property of a new due time; they wait as before
    """

    matched: int
    moved: int
    bytes: int  # of the records of the matched messages
    left: int = 0


class BulkAct(StrEnum):
    """Operation on all messages of a window."""

    RECALL = "recall"
    RESCHEDULE = "reschedule"
    HAND_OVER = "hand_over"


class BulkView(NamedTuple):
    """A bulk operation that is not done.

    Bulk operations are worked at one by one, in order of arrival.

    matched  messages that matched so far
    done     matched messages that were recalled or moved; 0 in a dry run
    """

    act: BulkAct
    topic: str
    from_ms: int
    to_ms: int
    tag: str
    dry_run: bool
    operation: str
    matched: int
    done: int


@dataclass(slots=True, frozen=True)
class DescribeBulk:
    """Ask for the progress of bulk recalls and bulk moves.  Result: list[BulkView]."""


MoveCommand = MoveMany | DescribeBulk
