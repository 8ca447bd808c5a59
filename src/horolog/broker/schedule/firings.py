"""Pure functions of a schedule and the time: the firings to plan, and their messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from horolog.broker.schedule.rows import Progress
from horolog.broker.schedule.schedule import Schedule
from horolog.limits import PLAN_AHEAD_MS, PLAN_LEAD_MS, PLANNED_MAX
from horolog.log.record import KIND_AT, Kind
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.schedules import (
    Calendar,
    Content,
    Cursor,
    Firing,
    Missed,
    Rule,
    State,
    due_of,
)
from horolog.protocol.send_commands import MessageType, NewMessage

SCHEDULE, FIRING, FIRING_TIME = "HOROLOG_SCHEDULE", "HOROLOG_FIRING", "HOROLOG_FIRING_TIME"
"""Properties of the messages of a schedule.

Their values are the name of the schedule, the number of the firing, and its nominal time in epoch
ms.
"""


class PlannedFirings(NamedTuple):
    """The firings to plan for a schedule.

    progress  the schedule's progress after that; None: unchanged
    wake_ms   when to look at the schedule again, by the wall clock; None: only if it is changed
    """

    fresh: list[Firing]
    progress: Progress | None
    wake_ms: int | None
    records: Sequence[bytes] = ()


def plan(
    calendar: Calendar, schedule: Schedule, log_id: int, wall_ms: int, *, has_overdue: bool = False
) -> PlannedFirings:
    """Compute the firings that have to be planned now.

    has_overdue  due messages wait to be handed over; missed firings are planned after these
    """
    rule, name = schedule.rule.since(schedule.created_ms), schedule.name
    cursor, fired, state = schedule.cursor, schedule.fired, State.ACTIVE
    before, ahead = still_ahead(schedule.before, schedule.planned, wall_ms)
    fresh: list[Firing] = []
    waiting = sum(firing.nominal_ms > wall_ms for firing in ahead)
    wake_ms: int | None = None
    while True:
        found = calendar.after(rule, cursor) if not rule.times or fired < rule.times else None
        if found is None:
            state = State.ENDED
            break
        if found.at_ms <= wall_ms and has_overdue:
            wake_ms = wall_ms
            break
        if found.at_ms <= wall_ms and rule.missed is not Missed.ALL:
            cursor = last_until(calendar, rule, cursor, wall_ms)
            if rule.missed is Missed.SKIP:
                continue
            found = cursor
        if found.at_ms in schedule.used:
            cursor = found
            continue
        due_ms = due_of(name, rule, found.at_ms)
        ready_ms = due_ms - PLAN_AHEAD_MS
        if waiting:
            ready_ms = max(ready_ms, cursor.at_ms - PLAN_LEAD_MS)
            if ready_ms <= wall_ms or (fresh and found.at_ms <= wall_ms + 2 * PLAN_LEAD_MS):
                ready_ms = wall_ms
        if ready_ms > wall_ms:
            wake_ms = ready_ms
            break
        if len(fresh) + len(ahead) >= PLANNED_MAX:
            wake_ms = max(wall_ms, (*ahead, *fresh)[0].due_ms)  # one firing is due by then
            break
        fired, cursor = fired + 1, found
        sequence = schedule.sequence + len(fresh) + 1
        message_id = message_id_of(log_id, schedule.schedule_id, sequence)
        fresh.append(Firing(fired, found.at_ms, due_ms, message_id, found.local))
        waiting += found.at_ms > wall_ms
    if not fresh and state is schedule.state and cursor == schedule.cursor:
        return PlannedFirings(fresh, None, wake_ms)
    before, planned = still_ahead(before, (*ahead, *fresh), wall_ms)
    sequence = schedule.sequence + len(fresh)
    used = tuple(at_ms for at_ms in schedule.used if at_ms > cursor.at_ms)
    progress = Progress(schedule.revision, state, sequence, fired, cursor, before, planned, used)
    return PlannedFirings(fresh, progress, wake_ms)


def still_ahead(
    before: Cursor, planned: tuple[Firing, ...], wall_ms: int
) -> tuple[Cursor, tuple[Firing, ...]]:
    """Drop the first firings that are due; return the cursor of the last of these, and the rest."""
    at = 0
    while at < len(planned) and planned[at].due_ms <= wall_ms:
        before = Cursor(planned[at].nominal_ms, planned[at].local)
        at += 1
    return before, planned[at:]


def is_beyond(cursor: Cursor, wall_ms: int) -> bool:
    """Return whether a cursor is further ahead than planning goes.

    The clock was ahead by days when it was set, and has stepped back.
    """
    return cursor.at_ms > wall_ms + 2 * PLAN_AHEAD_MS


def last_until(calendar: Calendar, rule: Rule, cursor: Cursor, wall_ms: int) -> Cursor:
    """Return the last nominal time up to now; there is one after the cursor.

    The search is binary, since a rule can only be asked for its next time: some forty questions for
    a year.
    """
    found = cursor
    low, high = cursor.at_ms, wall_ms  # `after(low)` is at most now; `after(high)` is later
    while low < high:
        at_ms = (low + high) // 2
        later = calendar.after(rule, Cursor(at_ms) if at_ms > cursor.at_ms else cursor)
        if later is not None and later.at_ms <= wall_ms:
            found, low = later, later.at_ms
        else:
            high = at_ms
    assert found.at_ms <= wall_ms, (found, wall_ms)
    return found


def message_id_of(log_id: int, schedule_id: int, sequence: int) -> str:
    """Make a message id of 34 characters, like those of 5.x clients, unique in a log."""
    return (
        f"01{log_id & 0xFFFF_FFFF_FFFF:012X}{schedule_id & 0xFFFF_FFFF:08X}"
        f"{sequence & 0xFFFF_FFFF_FFFF:012X}"
    )


def messages_of(schedule: Schedule, firings: list[Firing], wall_ms: int) -> list[bytes]:
    """Build the records of firings, complete but for topic id, queue and stamped fields."""
    records = []
    for firing in firings:
        record = bytearray(message(schedule.name, schedule.content, firing, wall_ms).record)
        record[KIND_AT] = Kind.SCHEDULED if firing.due_ms > wall_ms else Kind.MESSAGE
        records.append(bytes(record))
    return records


def message(name: str, content: Content, firing: Firing, wall_ms: int) -> NewMessage:
    """Build the message of a firing as it would be sent; raise HorologError if invalid."""
    marks = {SCHEDULE: name, FIRING: str(firing.number), FIRING_TIME: str(firing.nominal_ms)}
    is_fifo = content.message_group is not None
    return encode(
        topic=content.topic,
        body=content.body,
        message_id=firing.message_id,
        type=MessageType.FIFO if is_fifo else MessageType.DELAY,
        due_ms=firing.due_ms,
        tag=content.tag,
        keys=content.keys,
        user_properties={**content.properties, **marks},
        message_group=content.message_group,
        born_ms=wall_ms,
    )
