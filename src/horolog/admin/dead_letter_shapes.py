"""Types of the results about dead letters."""

from __future__ import annotations

from typing_extensions import TypedDict

from horolog.admin.message_shapes import Problem


class LetterCount(TypedDict):
    """Counts of the dead letters of a group."""

    group: str
    topic: str
    waiting: int
    redriven: int


class LetterCounts(TypedDict):
    """Counts of the dead letters of all groups that have some."""

    groups: list[LetterCount]


class Letter(TypedDict):
    """A dead letter in a list: all but its payload."""

    place: str | None
    redriven: bool
    message_id: str
    origin_topic: str
    tag: str
    keys: list[str]
    attempts: int
    dead_ms: int
    dead: str | None
    size_bytes: int


class Letters(LetterCount):
    """The oldest dead letters of a group; `next` is null at the end."""

    messages: list[Letter]
    next: str | None


class RefusedLetter(TypedDict):
    """A dead letter that could not be sent once more."""

    place: str | None
    message_id: str
    error: Problem


class Redriven(TypedDict):
    """The outcome of a re-drive of dead letters."""

    group: str
    redriven: int
    already: int
    refused: int
    refusals: list[RefusedLetter]
    unknown: list[str]
    first_due_ms: int
    first_due: str | None
    last_due_ms: int
    last_due: str | None
    next: str | None
    dry_run: bool
