"""The life of one version of an app: from a staging directory to pending messages like all others.

    open        no record of the log names it.  The loading program may have begun it, staged files,
                and had them moved into `runs` by a commit that was cut off: nothing of that is a
                message yet, and all of it may be done again, by the same attempt or by another one
                with a token of its own
    appended    its ADOPT record is in the log, above the commit position: a commit that is sent
                again is answered with "already", held like every answer until the record is
                committed
    committed   the record is committed and its files are sources; staged files that are left are
                swept

If the record is lost in a power cut the version is open again, and so it is when the app is
forgotten: the highest version of ADOPTION_APPS_MAX apps is remembered, and after that a repeated
commit would be taken for a new one. Versions of one app are committed in ascending order, so one
below the highest counts as committed.
"""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """The states of a version."""

    OPEN = "open"
    APPENDED = "appended"
    COMMITTED = "committed"


class Event(StrEnum):
    """The events that change the state of a version."""

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
