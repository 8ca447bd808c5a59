"""One schedule: its definition, its progress, and its planned firings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from horolog.protocol.schedules import Content, Cursor, Firing, Rule, ScheduleView, State

_START = Cursor(0)


@dataclass(slots=True)
class Schedule:
    """One schedule.

    sequence  of the last message that was ever planned: part of its id, so no two have the same
    fired     number of the last firing; unlike `sequence` it does not count those recalled by a
              change or a pause
    cursor    of the last firing that is planned
    before    of the last firing that has left `planned`
    used      nominal times after `cursor` that have been planned before, and are not planned again
    """

    schedule_id: int
    name: str
    revision: int
    state: State
    rule: Rule
    content: Content
    created_ms: int
    size: int  # bytes of `definition` as JSON
    definition: dict[str, Any]  # rule and content as JSON
    sequence: int = 0
    fired: int = 0
    cursor: Cursor = _START
    before: Cursor = _START
    planned: tuple[Firing, ...] = ()
    used: tuple[int, ...] = ()
    problem: str = ""  # why it cannot go on at the moment; not logged
    row: dict[str, Any] = field(default_factory=dict)  # of a checkpoint; replaced, not changed

    def view(self) -> ScheduleView:
        """Return the schedule as operators see it."""
        return ScheduleView(
            self.name,
            self.revision,
            self.state,
            self.rule,
            self.content,
            self.created_ms,
            self.fired,
            self.cursor,
            self.planned,
            self.used,
            self.problem,
        )
