"""When recurring schedules fire: cron expressions, intervals, and the days on which clocks change.

    zones   time zones: offsets, and where they change
    cron    a cron expression in a time zone, with what becomes of times that are left out or repeated
    rules   a rule of either kind: what the core asks, and the checks of what a user typed

Reads no clock.  Time zones are those of the system, or of the package tzdata where it has none.
"""
