"""Recurring schedules: each plans its next firings as ordinary scheduled messages.

    schedule          one of them
    registry          the schedules there are, as the log says
    rows              a schedule as JSON: in its records and in the checkpoint
    firings           which firings are to be planned now, and their messages
    planning          when a schedule has to be looked at, and the frame that plans its firings
    schedule_changes  the commands: create, change, pause, resume, remove, and questions

What makes a firing happen once: a firing is planned by one frame that holds the SCHEDULE record ("planned up to here")
and the message itself.  It is whole in the log or not there at all, so a crash at any moment leaves either a schedule
that has not planned it, and will, or a message that is handed over like any other.  The `Calendar` is asked before the
frame is made, and never by a replay: what it said is in the record.
"""
