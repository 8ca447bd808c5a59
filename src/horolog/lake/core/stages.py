"""The stages of an offload, and what brings it from one to the next.

    sealing   begun: what is in the far store is frozen, and far buffers have still to become runs
    frozen    all of it lies in runs, which may be read; what is recalled of it from here on is remembered
    lake      the table has the messages: they are cut from the runs, and counted
    broken    not all that is frozen could be filed (a full disk), or frozen runs were rebuilt: only `abort` is left
    none      never begun, aborted, or over: nothing of it waits, and the log does not speak of it any more

Every event but `over` and `rebuilt` is a record of the log.  It is appended only if the table has it in the stage
that all records before it have led to (one step is in flight at a time), so a record that the table does not
have is a mistake of ours, in a replay too.  What a caller asks for at the wrong time is refused before that
(`lake.core.decisions`), with the same table.
"""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """How far an offload is."""

    NONE = "none"  # never written anywhere: there is no such offload
    SEALING = "sealing"
    FROZEN = "frozen"
    LAKE = "lake"
    BROKEN = "broken"


class Event(StrEnum):
    """What happens to it."""

    BEGIN = "begin"
    BEGIN_UNFILED = "begin, and not all is filed"
    FREEZE = "freeze"
    COMMIT = "commit"
    ABORT = "abort"
    PROMOTE = "promote"  # an hour of a topic is in runs again
    OVER = "over"
    MADE_ANEW = "rebuilt"  # a rebuild: the runs that were frozen are not these


TABLE: dict[tuple[Stage, Event], Stage] = {
    (Stage.NONE, Event.BEGIN): Stage.SEALING,
    (Stage.NONE, Event.BEGIN_UNFILED): Stage.BROKEN,
    (Stage.SEALING, Event.FREEZE): Stage.FROZEN,
    (Stage.SEALING, Event.ABORT): Stage.NONE,
    (Stage.SEALING, Event.MADE_ANEW): Stage.BROKEN,
    (Stage.FROZEN, Event.COMMIT): Stage.LAKE,
    (Stage.FROZEN, Event.ABORT): Stage.NONE,
    (Stage.FROZEN, Event.MADE_ANEW): Stage.BROKEN,
    (Stage.BROKEN, Event.ABORT): Stage.NONE,
    (Stage.BROKEN, Event.MADE_ANEW): Stage.BROKEN,
    (Stage.LAKE, Event.PROMOTE): Stage.LAKE,
    (Stage.LAKE, Event.OVER): Stage.NONE,
}
