"""The life of one version of an app: from a staging directory to messages that wait as all others do.

    open        no record of the log names it.  Whoever loads it may have begun it, staged files, and had them moved
                into `runs` by a commit that was cut off: nothing of that is a message yet, and all of it may be done
                again, by the same attempt or by another one with a token of its own
    appended    its ADOPT record is in the log, above the commit position: a commit that is sent again is answered
                with "already", held like every answer until the record is committed
    committed   the record is committed and its files are sources; staged files that are left are swept

A record that is lost with the power takes the version back to open, and so does forgetting: of ADOPTION_APPS_MAX apps
the highest version is remembered, and after that a commit that is sent again would be taken for a new one.
Versions of one app are committed in ascending order, so one below the highest counts as committed.
"""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """How far it is."""

    OPEN = "open"
    APPENDED = "appended"
    COMMITTED = "committed"


class Event(StrEnum):
    """What happens to it."""

    APPEND = "append"
    APPLY = "apply"
    LOSE = "lose"
    FORGET = "forget"


TABLE: dict[tuple[Stage, Event], Stage] = {
    (Stage.OPEN, Event.APPEND): Stage.APPENDED,
    (Stage.APPENDED, Event.APPLY): Stage.COMMITTED,
    (Stage.APPENDED, Event.LOSE): Stage.OPEN,
    (Stage.COMMITTED, Event.FORGET): Stage.OPEN,
}
