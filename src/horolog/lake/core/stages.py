"""The stages of an offload: a state table.

    sealing   begun: the messages in the far store are frozen, and far buffers are being written as
              runs
    frozen    all frozen messages are in runs, which may be read; recalls of them are remembered
              from here on
    lake      the table has the messages: they are cut from the runs, and counted
    broken    frozen messages could not be filed (a full disk), or frozen runs were rebuilt: only
              `abort` is possible
    none      never begun, aborted, or over: none of its messages waits, and the log has no record
              of it any more

Every event but `over` and `rebuilt` is a record of the log.  A record is appended only if the table
allows its event in the stage after all earlier records (one step is in flight at a time), so a
record that the table does not allow is a bug of ours, in a replay too.  A command at the wrong time
is refused before that (`lake.core.decisions`), by the same table.
"""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """The stage of an offload."""

    NONE = "none"  # never stored: there is no such offload
    SEALING = "sealing"
    FROZEN = "frozen"
    LAKE = "lake"
    BROKEN = "broken"


class Event(StrEnum):
    """An event of an offload."""

    BEGIN = "begin"
    BEGIN_UNFILED = "begin, and not all is filed"
    FREEZE = "freeze"
    COMMIT = "commit"
    ABORT = "abort"
    PROMOTE = "promote"  # an hour of a topic is in runs again
    OVER = "over"
    REBUILT = "rebuilt"  # the runs were rebuilt: they are not the ones that were frozen


TABLE: dict[tuple[Stage, Event], Stage] = {
    (Stage.NONE, Event.BEGIN): Stage.SEALING,
    (Stage.NONE, Event.BEGIN_UNFILED): Stage.BROKEN,
    (Stage.SEALING, Event.FREEZE): Stage.FROZEN,
    (Stage.SEALING, Event.ABORT): Stage.NONE,
    (Stage.SEALING, Event.REBUILT): Stage.BROKEN,
    (Stage.FROZEN, Event.COMMIT): Stage.LAKE,
    (Stage.FROZEN, Event.ABORT): Stage.NONE,
    (Stage.FROZEN, Event.REBUILT): Stage.BROKEN,
    (Stage.BROKEN, Event.ABORT): Stage.NONE,
    (Stage.BROKEN, Event.REBUILT): Stage.BROKEN,
    (Stage.LAKE, Event.PROMOTE): Stage.LAKE,
    (Stage.LAKE, Event.OVER): Stage.NONE,
}
