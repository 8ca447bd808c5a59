"""Commands about the dead letters of a consumer group: counted, listed, and sent once more.

The same vocabulary as `protocol.commands`.  A dead letter is *waiting* until it is re-driven; it stays where it is
then too, until retention drops it, and is re-driven no second time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from horolog.errors import HorologError


class LetterPlace(NamedTuple):
    """Where a dead letter lies in the topic of its group."""

    queue: int
    offset: int


BEGINNING = LetterPlace(0, 0)


@dataclass(slots=True, frozen=True)
class CountDeadLetters:
    """Dead letters by group; gives list[DeadLetterCount], by name: at most 1 024 (TURN_TOPICS_MAX) after `after`."""

    after: str = ""
    group: str = ""  # only of this one; none if it has no dead letters


class DeadLetterCount(NamedTuple):
    """How many dead letters a group has that retention has kept; the two together are all of them."""

    group: str
    waiting: int
    redriven: int


@dataclass(slots=True, frozen=True)
class ListDeadLetters:
    """Dead letters of a group from a place on, by queue and age; gives `DeadLetterPage`, at most TURN_READ_MAX."""

    group: str
    first: LetterPlace = BEGINNING
    limit: int = 100
    all: bool = False  # those too that were re-driven


class DeadLetter(NamedTuple):
    """One dead letter, as it is stored."""

    place: LetterPlace
    redriven: bool
    layout: bytes


class DeadLetterPage(NamedTuple):
    """Some dead letters; go on at `next`, unless it is None."""

    letters: list[DeadLetter]
    next: LetterPlace | None


@dataclass(slots=True, frozen=True)
class Redrive:
    """Send dead letters of a group that wait once more, as new messages; gives `Redriven`, of a turn's worth.

    They and the note that they are re-driven are one frame: none is sent twice, whoever asks again.
    """

    group: str
    to: str = ""  # topic; "": the one where each has failed
    first: LetterPlace = BEGINNING
    limit: int = 1_024
    only: tuple[LetterPlace, ...] | None = None  # these, instead of all from `first` on
    due_ms: int = 0  # of the first one; 0: now
    rate: int = 0  # a second: due times are that far apart; 0: all are due at `due_ms`
    done: int = 0  # how many the caller has re-driven before with the same `due_ms`
    dry_run: bool = False  # say what would be, and change nothing


class RedrivenLetter(NamedTuple):
    """A dead letter that is a message of that topic again, due then; 0: visible at once."""

    place: LetterPlace
    topic: str
    message_id: str
    due_ms: int


class RefusedLetter(NamedTuple):
    """A dead letter that waits on, and why."""

    place: LetterPlace
    message_id: str
    error: HorologError


@dataclass(slots=True)
class Redriven:
    """What a turn has re-driven; go on at `next`, unless it is None."""

    letters: list[RedrivenLetter] = field(default_factory=list)
    refused: list[RefusedLetter] = field(default_factory=list)
    already: int = 0  # of `only`: re-driven before
    next: LetterPlace | None = None


DeadLetterCommand = CountDeadLetters | ListDeadLetters | Redrive
