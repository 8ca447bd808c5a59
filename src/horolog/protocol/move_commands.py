"""Commands that change when many scheduled messages are due, and how far those are that are under way.

The same vocabulary as `protocol.commands`: `Engine.submit(command)` gives a future of the result that the command's
docstring names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


@dataclass(slots=True, frozen=True)
class MoveMany:
    """Let all messages of a topic that wait and are due in [from_ms, to_ms) be due at other times; gives `MovedMany`.

    Exactly one of `new_due_ms`, `shift_ms` and `now` says at which.  What is sent, or moved there, after the command has
    come is left alone.  The answer comes when all is done.  The same command again goes on where a crash has ended it:
    what is due at `new_due_ms`, or was handed over, is not meant any more, and of a shift `operation` is remembered with
    each message that it has moved.
    """

    topic: str
    from_ms: int
    to_ms: int
    tag: str = ""  # "": any
    new_due_ms: int | None = None  # all of them are due then
    shift_ms: int | None = None  # each so much later, or earlier
    now: bool = False  # they are handed over now, the earliest first
    operation: str = ""  # names a shift; with the same name no message is shifted twice
    dry_run: bool = False  # only count


@dataclass(slots=True)
class MovedMany:
    """How many messages were meant, and how many of them are due at other times now: all, or none in a dry run.

    left  of those that were meant: they have no room for the property that a new due time needs, and wait as before
    """

    matched: int
    moved: int
    bytes: int  # of the records of those that were meant
    left: int = 0


class BulkAct(StrEnum):
    """What is done to all messages of a window."""

    RECALL = "recall"
    RESCHEDULE = "reschedule"
    HAND_OVER = "hand_over"


class BulkView(NamedTuple):
    """One that has come and is not done.  They are worked at one after the other, in this order.

    matched  messages that were meant so far
    done     of those: recalled, or moved; 0 in a dry run
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
    """How far bulk recalls and bulk moves are; gives list[BulkView]."""


MoveCommand = MoveMany | DescribeBulk
