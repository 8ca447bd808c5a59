"""The schedules of a shard: decided state, changed by appended records and by a replay."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from horolog.broker.schedule import rows
from horolog.broker.schedule.schedule import Schedule
from horolog.errors import ErrorCode, HorologError
from horolog.limits import PLANNED_MAX, SCHEDULES_BYTES_MAX, SCHEDULES_MAX
from horolog.protocol.rocketmq.message import key_hash
from horolog.protocol.schedules import Content, Cursor, Rule, State


def new_schedule(
    schedule_id: int, name: str, rule: Rule, content: Content, wall_ms: int
) -> Schedule:
    """Make a schedule that begins now."""
    definition = rows.definition_row(rule, content, wall_ms)
    cursor = Cursor(wall_ms)
    size = rows.size_of(definition)
    return Schedule(
        schedule_id,
        name,
        1,
        State.ACTIVE,
        rule,
        content,
        wall_ms,
        size,
        definition,
        cursor=cursor,
        before=cursor,
    )


def _of_row(row: dict[str, Any]) -> Schedule:
    rule, content, created_ms = rows.definition_in(row)
    found = new_schedule(row["id"], row["name"], rule, content, created_ms)
    for name, value in rows.progress_of(row)._asdict().items():
        setattr(found, name, value)
    return found


class Schedules:
    """All schedules of a shard, by name and id.

    changed  ids of schedules that the planner has to look at; a replay puts in all
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Schedule] = {}
        self.by_id: dict[int, Schedule] = {}
        self.last = 0  # last assigned id; none is assigned again
        self.bytes = 0
        self.changed: dict[int, None] = {}

    def get(self, name: str) -> Schedule:
        """Return the schedule of that name, or raise NOT_FOUND."""
        found = self.by_name.get(name)
        if found is None:
            raise HorologError(
                ErrorCode.NOT_FOUND, f"schedule {name!r} does not exist", field="schedule"
            )
        return found

    def of_topic(self, topic: str) -> str:
        """Return the name of a schedule that sends to a topic; "" if there is none."""
        return next((s.name for s in self.by_name.values() if s.content.topic == topic), "")

    def put(self, schedule: Schedule) -> None:
        """Add or replace a schedule."""
        known = self.by_id.get(schedule.schedule_id)
        self.bytes += schedule.size - (known.size if known is not None else 0)
        self.by_name[schedule.name] = schedule
        self.by_id[schedule.schedule_id] = schedule
        schedule.row = {**schedule.definition, **rows.progress_row(schedule)}
        self.last = max(self.last, schedule.schedule_id)
        self.changed[schedule.schedule_id] = None

    def set_progress(self, schedule: Schedule, progress: rows.Progress) -> dict[str, Any]:
        """Set the progress of a schedule; return that as JSON."""
        for name, value in progress._asdict().items():
            setattr(schedule, name, value)
        row = rows.progress_row(schedule)
        schedule.row = {**schedule.definition, **row}
        return row

    def drop(self, schedule_id: int) -> None:
        """Remove a schedule."""
        gone = self.by_id.pop(schedule_id)
        del self.by_name[gone.name]
        self.bytes -= gone.size
        self.changed.pop(schedule_id, None)

    def put_row(self, row: dict[str, Any]) -> None:
        """Apply a SCHEDULE record, or a row of a checkpoint."""
        if row.get("deleted"):
            self.drop(row["id"])
        elif "rule" in row:
            self.put(_of_row(row))
        else:
            known = self.by_id[row["id"]]
            self.set_progress(known, rows.progress_of(row))
            self.changed[known.schedule_id] = None

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of all schedules, for a checkpoint."""
        return [schedule.row for schedule in self.by_id.values()]

    def keys_planned(self, name: str) -> Iterator[int]:
        """Yield key hashes of the messages that a schedule has planned, if it exists."""
        schedule = self.by_name.get(name)
        if schedule is not None:
            for firing in schedule.planned:
                yield key_hash(schedule.content.topic, firing.message_id)

    def check_invariants(self) -> None:
        """Assert the invariants that must hold between two steps."""
        assert len(self.by_name) == len(self.by_id) <= SCHEDULES_MAX
        assert self.bytes == sum(s.size for s in self.by_id.values()) <= SCHEDULES_BYTES_MAX
        for schedule_id, schedule in self.by_id.items():
            name = schedule.name
            assert schedule_id == schedule.schedule_id <= self.last, name
            assert self.by_name[name] is schedule, name
            numbers = [firing.number for firing in schedule.planned]
            assert len(numbers) <= PLANNED_MAX, name
            assert numbers == list(range(schedule.fired - len(numbers) + 1, schedule.fired + 1)), (
                name
            )
            assert schedule.fired <= schedule.sequence, name
            times = [schedule.before.at_ms, *(firing.nominal_ms for firing in schedule.planned)]
            assert all(a < b for a, b in pairwise(times)), name
            assert schedule.cursor.at_ms >= times[-1], name
            if schedule.state is State.PAUSED:
                assert not schedule.planned, name
