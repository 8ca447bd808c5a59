"""A cron expression in a time zone.

Local time is cut into stretches of one offset.  Within a stretch local times and instants run side
by side, so the next firing is what cronsim computes from local time alone, and only the end of a
stretch needs a decision:

    Europe/Berlin, 2027-03-28: 02:00 to 03:00 does not exist          "30 2 * * *"
        gap = shift    fires at 03:00 of that day, the first moment after the gap
        gap = skip     does not fire on that day
    Europe/Berlin, 2027-10-31: 02:00 to 03:00 comes twice             "30 2 * * *"
        overlap = first    fires at 02:30 of summer time
        overlap = both     fires at 02:30 of summer time, and an hour later at 02:30 of winter time

Several times of one gap are shifted to one firing, together with a firing that is due at that
moment anyway.
"""

from __future__ import annotations

from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from horolog.calendar.zones import (
    LAST_MS,
    change_after,
    count_of,
    local_of,
    offset_ms,
    repeated_until,
    zone,
)
from horolog.errors import refused
from horolog.limits import CRON_MAX, SECOND_MS
from horolog.protocol.schedules import Gap, Overlap, Rule


def after(rule: Rule, at_ms: int) -> int | None:
    """Return the first instant after `at_ms` at which a cron rule fires; None if there is none."""
    of = zone(rule.zone)
    is_first = rule.overlap is Overlap.FIRST
    at_ms -= at_ms % SECOND_MS
    # `local_ms` is a local time that is already done: the search begins after it.
    if is_first:
        new_ms = repeated_until(of, at_ms + SECOND_MS)
        at_ms = max(at_ms, new_ms - SECOND_MS)
    local_ms = at_ms + offset_ms(of, at_ms)
    next_ms, searched_ms = None, local_ms  # nothing is between the two
    while True:
        offset = offset_ms(of, at_ms)
        if next_ms is None or not searched_ms <= local_ms < next_ms:
            # A rare date takes cronsim 10 ms, and has many changes before it: it is kept.
            next_ms, searched_ms = _next_local(rule.cron, local_ms), local_ms
        if next_ms is None or next_ms - offset > LAST_MS:
            return None
        found = next_ms - offset
        change = change_after(of, at_ms, found)
        if change is None:
            return found
        ended, begins = change + offset, change + offset_ms(of, change)
        if begins > ended:  # a gap: from `ended` on, up to `begins`
            if next_ms < begins and rule.gap is Gap.SHIFT:
                return change
            local_ms = begins - SECOND_MS
        else:  # an overlap: from `begins` on, up to `ended`, again
            local_ms = (ended if is_first else begins) - SECOND_MS
        at_ms = change


def _next_local(expression: str, local_ms: int) -> int | None:
    try:
        return count_of(next(CronSim(expression, local_of(local_ms))))
    except (StopIteration, OverflowError):
        return None


@lru_cache(maxsize=1_024)
def check(expression: str) -> None:
    """Raise BAD_REQUEST unless this is a cron expression of five fields, or six with seconds."""
    if len(expression) > CRON_MAX:
        raise refused(
            "cron", f"{len(expression)} characters; at most {CRON_MAX} are allowed", f"{CRON_MAX}"
        )
    if len(expression.split()) not in (5, 6):
        raise refused(
            "cron",
            f"{expression!r} has not five fields (minute, hour, day of month, month, day of week), "
            "nor six with seconds first",
        )
    try:
        CronSim(expression, local_of(0))
    except (CronSimError, RecursionError) as error:
        raise refused("cron", f"{expression!r}: {str(error).lower() or 'unreadable'}") from None


def is_every_hour(expression: str) -> bool:
    """Return whether the hours begin with a star, and so mean elapsed time, not a time of day."""
    fields = expression.split()
    return fields[-4].startswith("*")


def is_local(of: ZoneInfo, at_ms: int, local_ms: int) -> bool:
    """Return whether an instant has that local time, as the zone is known now."""
    return at_ms + offset_ms(of, at_ms) == local_ms
