"""Recurring schedules: what one says, and its commands.

A schedule makes ordinary scheduled messages, its *firings*: each for a *nominal time*, which its rule gives, and due
then, or a little later with jitter.  Rules are worked out by a `Calendar` (`horolog.calendar`), which knows time zones;
the core asks it, and logs what it said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from xxhash import xxh64_intdigest

from horolog.errors import ErrorCode, refused


class Gap(StrEnum):
    """What becomes of a local time that a change of the clocks leaves out."""

    SKIP = "skip"  # it does not fire
    SHIFT = "shift"  # it fires at the first moment after the gap


class Overlap(StrEnum):
    """What becomes of a local time that a change of the clocks repeats."""

    FIRST = "first"  # it fires the first time only
    BOTH = "both"  # it fires both times


class Missed(StrEnum):
    """What becomes of firings whose time passed before they were planned: the broker was down, or its clock stepped."""

    LATEST = "latest"  # the last of them fires, at once
    ALL = "all"  # each fires, at once, in order
    SKIP = "skip"  # none fires


class Rule(NamedTuple):
    """When a schedule fires: by a cron expression in a time zone, or every so many milliseconds from `start_ms` on."""

    cron: str = ""
    every_ms: int = 0
    zone: str = "UTC"
    gap: Gap = Gap.SHIFT
    overlap: Overlap = Overlap.FIRST
    start_ms: int = 0  # 0: when it was created
    end_ms: int = 0  # no firing after it; 0: without end
    times: int = 0  # that it fires; 0: without end
    jitter_ms: int = 0  # a firing is due up to so much after its nominal time
    missed: Missed = Missed.LATEST

    def since(self, created_ms: int) -> Rule:
        """The same with its start; what a `Calendar` is asked."""
        return self if self.start_ms else self._replace(start_ms=created_ms)


class Content(NamedTuple):
    """What its messages say."""

    topic: str
    body: bytes
    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = {}
    message_group: str | None = None


class Cursor(NamedTuple):
    """Where a rule goes on: after this nominal time, which was that local time when it was worked out."""

    at_ms: int
    local: str = ""  # ISO 8601 without zone; "": nothing has fired yet


class Calendar(Protocol):
    """Works out rules; a pure function of them and of the time zones of this machine."""

    def after(self, rule: Rule, cursor: Cursor) -> Cursor | None:
        """The first nominal time after that; None if there is none.  Knows no `times`; BAD_REQUEST for an unknown zone."""
        ...


class Fixed:
    """A `Calendar` that knows no time zones: intervals only."""

    def after(self, rule: Rule, cursor: Cursor) -> Cursor | None:
        """NOT_IMPLEMENTED for a cron expression."""
        if not rule.every_ms:
            raise refused("cron", "not known here", code=ErrorCode.NOT_IMPLEMENTED)
        at_ms = interval_after(rule, cursor)
        return None if 0 < rule.end_ms < at_ms else Cursor(at_ms)


def interval_after(rule: Rule, cursor: Cursor) -> int:
    """The first nominal time of an interval after a cursor; the first of all is the start."""
    at_ms = max(cursor.at_ms, rule.start_ms - 1)
    return rule.start_ms + ((at_ms - rule.start_ms) // rule.every_ms + 1) * rule.every_ms


class State(StrEnum):
    """The state of a schedule."""

    ACTIVE = "active"
    PAUSED = "paused"  # what was planned is recalled; what would have fired meanwhile does not
    ENDED = "ended"  # its rule has no more firings


class Firing(NamedTuple):
    """A firing that is planned."""

    number: int  # 1, 2, 3 …
    nominal_ms: int
    due_ms: int
    message_id: str
    local: str = ""


class ScheduleView(NamedTuple):
    """A schedule as operators see it."""

    name: str
    revision: int  # rises with every change, pause and resume
    state: State
    rule: Rule
    content: Content
    created_ms: int  # or changed: where the intervals of a rule without a start begin
    fired: int  # firings that were planned and not taken back
    cursor: Cursor  # of the last of them
    planned: tuple[Firing, ...]  # those that are not due yet, as they were planned
    used: tuple[int, ...]  # nominal times that are not planned again
    problem: str = ""  # why it does not go on just now

    @classmethod
    def made(cls, name: str, rule: Rule, content: Content, now_ms: int) -> ScheduleView:
        """One as it would be if it were created now."""
        return cls(name, 1, State.ACTIVE, rule, content, now_ms, 0, Cursor(now_ms), (), ())


@dataclass(slots=True, frozen=True)
class CreateSchedule:
    """Gives `ScheduleView`.  One that says the same is left alone; any other of that name: SCHEDULE_EXISTS.

    dry_run  check it, and create nothing
    """

    name: str
    rule: Rule
    content: Content
    dry_run: bool = False


@dataclass(slots=True, frozen=True)
class ChangeSchedule:
    """Another rule and content; gives `ScheduleView`.  What was planned is recalled, and planned again.

    revision  that it has, or SCHEDULE_CHANGED; 0: whatever it has
    dry_run   check it, and give it as it would be: nothing is changed, and nothing of it is planned
    """

    name: str
    rule: Rule
    content: Content
    revision: int = 0
    dry_run: bool = False


@dataclass(slots=True, frozen=True)
class PauseSchedule:
    """Recall what is planned, and plan nothing; gives `ScheduleView`."""

    name: str


@dataclass(slots=True, frozen=True)
class ResumeSchedule:
    """Go on from now; gives `ScheduleView`."""

    name: str


@dataclass(slots=True, frozen=True)
class RemoveSchedule:
    """Recall what is planned, and forget it; gives `ScheduleView` as it was."""

    name: str


@dataclass(slots=True, frozen=True)
class FindSchedule:
    """Gives `ScheduleView`, or NOT_FOUND."""

    name: str


@dataclass(slots=True, frozen=True)
class ListSchedules:
    """Gives list[ScheduleView], by name: a turn's worth of those after a name."""

    after: str = ""


ScheduleCommand = (
    CreateSchedule
    | ChangeSchedule
    | PauseSchedule
    | ResumeSchedule
    | RemoveSchedule
    | FindSchedule
    | ListSchedules
)


def due_of(name: str, rule: Rule, nominal_ms: int) -> int:
    """When the firing of a nominal time is due: the same whenever it is worked out."""
    if not rule.jitter_ms:
        return nominal_ms
    return nominal_ms + xxh64_intdigest(f"{name}\0{nominal_ms}".encode()) % (rule.jitter_ms + 1)
