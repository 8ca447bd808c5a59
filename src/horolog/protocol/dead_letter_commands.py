"""Commands about the dead letters of a consumer group: count, list and re-drive them.

Part of the vocabulary of `protocol.commands`.  A dead letter is *waiting* until it is re-driven.  A
re-driven dead letter stays in its queue until retention drops it, and is never re-driven again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from horolog.errors import HorologError


class LetterPlace(NamedTuple):
    """Position of a dead letter in the dead-letter topic of its group."""

    queue: int
    offset: int


BEGINNING = LetterPlace(0, 0)


@dataclass(slots=True, frozen=True)
class CountDeadLetters:
    """Count dead letters by group.  Result: list[DeadLetterCount], by name.

    At most 1 024 groups (TURN_TOPICS_MAX) after `after` are returned.
    """

    after: str = ""
    group: str = ""  # only this group; an empty list if it has no dead letters


class DeadLetterCount(NamedTuple):
    """Counts of a group's dead letters that retention has kept; the two add up to all of them."""

    group: str
    waiting: int
    redriven: int


@dataclass(slots=True, frozen=True)
class ListDeadLetters:
    """List dead letters of a group from a place on, by queue and age.  Result: `DeadLetterPage`.

    At most TURN_READ_MAX dead letters are returned.
    """

    group: str
    first: LetterPlace = BEGINNING
    limit: int = 100
    all: bool = False  # include dead letters that were re-driven


class DeadLetter(NamedTuple):
    """One dead letter, as it is stored."""

    place: LetterPlace
    redriven: bool
    layout: bytes


class DeadLetterPage(NamedTuple):
    """A page of dead letters; the next page begins at `next`, None at the end."""

    letters: list[DeadLetter]
    next: LetterPlace | None


@dataclass(slots=True, frozen=True)
class Redrive:
    """Send waiting dead letters of a group once more, as new messages.

    Result: `Redriven`, for one turn.

    The new messages and the note that the dead letters are re-driven are one frame, so a repeated
    command sends no dead letter twice.
    """

    group: str
    to: str = ""  # topic; "": the topic in which each message failed
    first: LetterPlace = BEGINNING
    limit: int = 1_024
    only: tuple[LetterPlace, ...] | None = None  # exactly these; None: all from `first` on
    due_ms: int = 0  # due time of the first message; 0: now
    rate: int = 0  # messages a second, which spaces their due times; 0: all are due at `due_ms`
    done: int = 0  # dead letters that the caller has re-driven before with this `due_ms`
    dry_run: bool = False  # report what would be sent, and change nothing


class RedrivenLetter(NamedTuple):
    """A dead letter that was sent again to `topic`, due at `due_ms`; 0: visible at once."""

    place: LetterPlace
    topic: str
    message_id: str
    due_ms: int


class RefusedLetter(NamedTuple):
    """A dead letter that could not be sent and keeps waiting, and the reason."""

    place: LetterPlace
    message_id: str
    error: HorologError


@dataclass(slots=True)
class Redriven:
    """The dead letters that one turn re-drove; the next ones begin at `next`, None at the end."""

    letters: list[RedrivenLetter] = field(default_factory=list)
    refused: list[RefusedLetter] = field(default_factory=list)
    already: int = 0  # places of `only` that were re-driven before
    next: LetterPlace | None = None


DeadLetterCommand = CountDeadLetters | ListDeadLetters | Redrive
