"""Recurring schedules: their rules, and the commands about them.

A schedule makes ordinary scheduled messages, its *firings*.  Each firing is for a *nominal time*,
which the rule of the schedule gives, and is due then, or a little later with jitter.  A `Calendar`
(`horolog.calendar`), which knows time zones, evaluates rules; the core asks it, and logs its
answers.
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

    SKIP = "skip"  # the schedule does not fire
    SHIFT = "shift"  # the schedule fires at the first moment after the gap


class Overlap(StrEnum):
    """What becomes of a local time that a change of the clocks repeats."""

    FIRST = "first"  # the schedule fires the first time only
    BOTH = "both"  # the schedule fires both times


class Missed(StrEnum):
    """What becomes of firings that the broker missed: it was down, or its clock stepped."""

    LATEST = "latest"  # the last missed firing is sent, at once
    ALL = "all"  # each missed firing is sent, at once, in order
    SKIP = "skip"  # no missed firing is sent


class Rule(NamedTuple):
    """When a schedule fires: by a cron expression in a time zone, or every `every_ms` milliseconds.

    Intervals begin at `start_ms`.
    """

    cron: str = ""
    every_ms: int = 0
    zone: str = "UTC"
    gap: Gap = Gap.SHIFT
    overlap: Overlap = Overlap.FIRST
    start_ms: int = 0  # 0: when the schedule was created
    end_ms: int = 0  # no firing after this time; 0: without end
    times: int = 0  # count of firings; 0: unlimited
    jitter_ms: int = 0  # a firing is due up to this long after its nominal time
    missed: Missed = Missed.LATEST

    def since(self, created_ms: int) -> Rule:
        """Return the rule with a start time, as a `Calendar` needs it."""
        return self if self.start_ms else self._replace(start_ms=created_ms)


class Content(NamedTuple):
    """What the messages of a schedule contain."""

    topic: str
    body: bytes
    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = {}
    message_group: str | None = None


class Cursor(NamedTuple):
    """The last nominal time of a rule; the rule continues after it.

    local  the nominal time as a local time, as it was when the rule was evaluated
    """

    at_ms: int
    local: str = ""  # ISO 8601 without zone; "": nothing has fired yet


class Calendar(Protocol):
    """Evaluates rules: a pure function of the rule and of the time zones of this machine."""

    def after(self, rule: Rule, cursor: Cursor) -> Cursor | None:
        """Return the first nominal time of a rule after a cursor, or None; ignores `times`.

        BAD_REQUEST for an unknown zone.
        """
        ...


class Fixed:
    """A `Calendar` that knows no time zones: intervals only."""

    def after(self, rule: Rule, cursor: Cursor) -> Cursor | None:
        """Return the next nominal time, or None; NOT_IMPLEMENTED for a cron expression."""
        if not rule.every_ms:
            raise refused("cron", "not known here", code=ErrorCode.NOT_IMPLEMENTED)
        at_ms = interval_after(rule, cursor)
        return None if 0 < rule.end_ms < at_ms else Cursor(at_ms)


def interval_after(rule: Rule, cursor: Cursor) -> int:
    """Return the next nominal time of an interval rule; the very first one is `start_ms`."""
    at_ms = max(cursor.at_ms, rule.start_ms - 1)
    return rule.start_ms + ((at_ms - rule.start_ms) // rule.every_ms + 1) * rule.every_ms


class State(StrEnum):
    """The state of a schedule."""

    ACTIVE = "active"
    PAUSED = "paused"  # planned firings are recalled; firings that fall into the pause are skipped
    ENDED = "ended"  # the rule has no more firings


class Firing(NamedTuple):
    """A planned firing."""

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
    created_ms: int  # or when it was changed: start of the intervals of a rule without a start
    fired: int  # firings that were planned and not taken back
    cursor: Cursor  # at the last of these firings
    planned: tuple[Firing, ...]  # firings that are not due yet, as they were planned
    used: tuple[int, ...]  # nominal times that are not planned again
    problem: str = ""  # why the schedule is stuck at the moment; "": it is not

    @classmethod
    def made(cls, name: str, rule: Rule, content: Content, now_ms: int) -> ScheduleView:
        """Return the schedule as it would be if it were created at `now_ms`."""
        return cls(name, 1, State.ACTIVE, rule, content, now_ms, 0, Cursor(now_ms), (), ())


@dataclass(slots=True, frozen=True)
class CreateSchedule:
    """Create a schedule.  Result: `ScheduleView`.

    An existing schedule with the same rule and content is left alone; else SCHEDULE_EXISTS.

    dry_run  check the schedule, and create nothing
    """

    name: str
    rule: Rule
    content: Content
    dry_run: bool = False


@dataclass(slots=True, frozen=True)
class ChangeSchedule:
    """Replace rule and content of a schedule.  Result: `ScheduleView`.

    Planned firings are recalled, and planned again by the new rule.

    revision  expected revision, SCHEDULE_CHANGED if the schedule has another; 0: any
    dry_run   check the change, return the schedule as it would be; change and plan nothing
    """

    name: str
    rule: Rule
    content: Content
    revision: int = 0
    dry_run: bool = False


@dataclass(slots=True, frozen=True)
class PauseSchedule:
    """Recall the planned firings of a schedule, and plan no others.  Result: `ScheduleView`."""

    name: str


@dataclass(slots=True, frozen=True)
class ResumeSchedule:
    """Continue a paused schedule from now on.  Result: `ScheduleView`."""

    name: str


@dataclass(slots=True, frozen=True)
class RemoveSchedule:
    """Recall the planned firings of a schedule, and delete it.  Result: the last `ScheduleView`."""

    name: str


@dataclass(slots=True, frozen=True)
class FindSchedule:
    """Find a schedule.  Result: `ScheduleView`.  NOT_FOUND if there is none."""

    name: str


@dataclass(slots=True, frozen=True)
class ListSchedules:
    """List schedules after `after` by name, as many as fit into a turn.

    Result: list[ScheduleView].
    """

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
    """Return the due time of the firing of a nominal time.

    Jitter is a hash of name and nominal time, so the due time is the same whenever it is computed.
    """
    if not rule.jitter_ms:
        return nominal_ms
    return nominal_ms + xxh64_intdigest(f"{name}\0{nominal_ms}".encode()) % (rule.jitter_ms + 1)
