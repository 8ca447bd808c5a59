"""Recurring schedules: each plans its next firings as ordinary scheduled messages.

schedule          one schedule
registry          the schedules of a shard, as the log states them
rows              a schedule as JSON: in its records and in the checkpoint
firings           compute which firings are to be planned now, and make their messages
planning          decide when to look at a schedule, and append the frame that plans its firings
schedule_changes  the commands: create, change, pause, resume, remove, and questions

Why a firing happens once: it is planned by one frame that holds the SCHEDULE record ("planned up to
here") and the message itself.  The frame is whole in the log or not there at all, so a crash at any
moment leaves either a schedule that has not planned the firing, and will, or a message that is
handed over like any other.  The `Calendar` is asked before the frame is made, and never by a
replay: its answer is in the record.
"""
