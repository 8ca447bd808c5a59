"""When recurring schedules fire: cron expressions, intervals, and the days on which clocks change.

    zones   time zones: offsets, and where they change
    cron    a cron expression in a time zone, with local times that are skipped or come twice
    rules   a rule of either kind: its next firing, and the checks of what a user typed

Reads no clock.  Time zones are those of the system, or of the package tzdata where the system has
none.
"""
