"""Rules of schedules: checks of what a user typed, and the next firing of a rule.

A cursor carries the local time of a firing as well as its instant.  If an update of the time zones
moves a local time that has fired already, it has fired: the rule continues after that local time,
whatever instant it is now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice, pairwise

from horolog.calendar import cron
from horolog.calendar.zones import LAST_MS, count_of, local_of, offset_ms, requested_zone, zone
from horolog.errors import refused
from horolog.limits import DAY_MS, SCHEDULE_INTERVAL_MIN_MS, SCHEDULE_JITTER_MAX_MS, SECOND_MS
from horolog.protocol.schedules import (
    Calendar,
    Cursor,
    Firing,
    Gap,
    Overlap,
    Rule,
    ScheduleView,
    due_of,
    interval_after,
)
from horolog.units import DURATION_MAX_MS, TIME_MAX_MS, format_duration_ms


class Zones:
    """The `Calendar` of a real broker."""

    def after(self, rule: Rule, cursor: Cursor) -> Cursor | None:
        """Return the first nominal time after the cursor; None if there is none."""
        if max(cursor.at_ms, rule.start_ms) > LAST_MS:
            return None
        if rule.every_ms:
            at_ms = interval_after(rule, cursor)
        else:
            after_ms = max(cursor.at_ms, rule.start_ms - 1)
            found = cron.after(rule, self._continue_after_ms(rule, cursor, after_ms))
            if found is None:
                return None
            at_ms = found
        if at_ms > min(rule.end_ms or LAST_MS, LAST_MS):
            return None
        local_ms = at_ms + offset_ms(zone(rule.zone), at_ms)
        return Cursor(at_ms, local_of(local_ms).isoformat())

    def _continue_after_ms(self, rule: Rule, cursor: Cursor, at_ms: int) -> int:
        """Return where to continue if a time zone has changed since the last firing was found."""
        if not cursor.local:
            return at_ms
        of = zone(rule.zone)
        local_ms = count_of(datetime.fromisoformat(cursor.local))
        if cron.is_local(of, cursor.at_ms, local_ms):
            return at_ms
        return max(at_ms, local_ms - offset_ms(of, cursor.at_ms))


def local_time(zone_name: str, at_ms: int) -> str:
    """Format an instant as ISO 8601 with the offset of a zone, to the second."""
    return datetime.fromtimestamp(at_ms // SECOND_MS, zone(zone_name)).isoformat()


def firings_to_come(
    calendar: Calendar, view: ScheduleView, now_ms: int, count: int
) -> list[Firing]:
    """Return the next `count` firings of a schedule: see `each_firing_to_come`."""
    return list(islice(each_firing_to_come(calendar, view, now_ms), count))


def each_firing_to_come(calendar: Calendar, view: ScheduleView, now_ms: int) -> Iterator[Firing]:
    """Yield the next firings of a schedule, planned ones first; each may take milliseconds.

    For a paused schedule: the firings if it were resumed now.
    """
    yield from view.planned
    rule = view.rule.since(view.created_ms)
    cursor = view.cursor if view.cursor.at_ms >= now_ms else Cursor(now_ms)
    number = view.fired
    while not (rule.times and number >= rule.times):
        later = calendar.after(rule, cursor)
        if later is None:
            break
        cursor = later
        if cursor.at_ms not in view.used:
            number += 1
            due_ms = due_of(view.name, rule, cursor.at_ms)
            yield Firing(number, cursor.at_ms, due_ms, "", cursor.local)


def check_rule(
    rule: Rule, now_ms: int, *, gap: Gap | None = None, overlap: Overlap | None = None
) -> Rule:
    """Return the rule with its open fields filled in; BAD_REQUEST names the field and the limit.

    gap, overlap  None: as Debian's cron does.  A skipped time of day is shifted, and fires once
                  where it comes twice; if the field of hours begins with a star, skipped times are
                  not made up for, and times that come twice fire twice
    """
    if bool(rule.cron) == bool(rule.every_ms):
        raise refused("cron", "give either a cron expression or an interval")
    requested_zone(rule.zone)
    if rule.cron:
        cron.check(rule.cron)
        wild = cron.is_every_hour(rule.cron)
        rule = rule._replace(
            gap=gap or (Gap.SKIP if wild else Gap.SHIFT),
            overlap=overlap or (Overlap.BOTH if wild else Overlap.FIRST),
        )
    else:
        _check_every(rule)
        for field, given in (("gap", gap), ("overlap", overlap)):
            if given is not None:
                raise refused(field, "is for cron; an interval knows no local time")
    for field, value in (("start_ms", rule.start_ms), ("end_ms", rule.end_ms)):
        if not 0 <= value <= TIME_MAX_MS:
            raise refused(field, f"{value} is not between 1970 and 9999", "1970 to 9999")
    if rule.end_ms and rule.end_ms < max(rule.start_ms, now_ms):
        raise refused("end_ms", "the end is before the start, or has passed")
    _check_jitter(rule)
    return rule


def _check_every(rule: Rule) -> None:
    if not SCHEDULE_INTERVAL_MIN_MS <= rule.every_ms <= DURATION_MAX_MS:
        limit = f"{format_duration_ms(SCHEDULE_INTERVAL_MIN_MS)} to 100 years"
        raise refused(
            "every_ms", f"{format_duration_ms(rule.every_ms)}; {limit} are allowed", limit
        )


def _check_jitter(rule: Rule) -> None:
    if not 0 <= rule.jitter_ms <= SCHEDULE_JITTER_MAX_MS:
        limit = format_duration_ms(SCHEDULE_JITTER_MAX_MS)
        raise refused(
            "jitter_ms", f"{format_duration_ms(rule.jitter_ms)}; at most {limit} is allowed", limit
        )


def check_firings(rule: Rule, firings: Sequence[Firing]) -> None:
    """Raise BAD_REQUEST for a rule that never fires, or whose jitter reaches the next firing."""
    if not firings:
        raise refused(
            "cron" if rule.cron else "every_ms",
            "it never fires: no time of the rule is still to come",
        )
    times = [firing.nominal_ms for firing in firings]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    shortest = min(gaps, default=DAY_MS)
    if rule.jitter_ms >= shortest:
        limit = format_duration_ms(shortest)
        raise refused(
            "jitter_ms",
            f"{format_duration_ms(rule.jitter_ms)}; less than the {limit} between two firings is "
            "allowed",
            limit,
        )
