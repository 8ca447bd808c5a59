"""The life of a checkpoint: from the decision of its position to its end.

    decided     its position is chosen, and the decided state copied; all frames below have still to
                be applied
    captured    the derived state is added: a job outside of the core writes it
    none        none is under way: the last one is durable or was given up, and another is decided
                in time

One checkpoint is under way at a time.  It is given up when the disk is full: while a queue is
written (`no space`), while the job writes (`failed`), or because messages could not be filed for so
long that later frames were applied with them (`overtaken`): a checkpoint stands for exactly what
lies below its position, so it can no longer be made.
"""

from __future__ import annotations

from enum import StrEnum


class Life(StrEnum):
    """The states of a checkpoint."""

    NONE = "none"
    DECIDED = "decided"
    CAPTURED = "captured"


class Event(StrEnum):
    """The events that change the state of a checkpoint."""

    DECIDE = "decide"
    CAPTURE = "capture"
    OVERTAKEN = "overtaken"
    NO_SPACE = "no space"
    DURABLE = "durable"
    FAILED = "failed"


TABLE: dict[tuple[Life, Event], Life] = {
    (Life.NONE, Event.DECIDE): Life.DECIDED,
    (Life.DECIDED, Event.CAPTURE): Life.CAPTURED,
    (Life.DECIDED, Event.OVERTAKEN): Life.NONE,
    (Life.DECIDED, Event.NO_SPACE): Life.NONE,
    (Life.CAPTURED, Event.DURABLE): Life.NONE,
    (Life.CAPTURED, Event.FAILED): Life.NONE,
}
