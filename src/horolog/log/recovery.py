"""Recovery: the decision table of a start (docs/internals/architecture.md).

`Found` holds every fact the decision depends on, and `decide` finds its row in the table;
`broker.life.opening` gathers the facts and carries out the action.  Rows are tried from top to
bottom; None in a row means "any".
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class LogFound(StrEnum):
    """The state of the commit log; E is its end, C the position of the checkpoint."""

    NONE = "none"  # no segment
    WHOLE = "whole"  # valid up to E
    TORN = "torn"  # a bad frame at p; p and what follows had not been promised as durable
    DAMAGED = "damaged"  # a bad frame at p; it had been promised as durable
    SHORT = "short"  # E < C: the log ends before the checkpoint
    HOLE = "hole"  # a segment is missing or misnamed
    FOREIGN = "foreign"  # another log id or shard, or an unknown incompatible flag


class CheckpointFound(StrEnum):
    """The state of the checkpoints."""

    NONE = "none"
    NEWEST = "newest"  # the newest checkpoint is valid
    OLDER = "older"  # the newest checkpoint is bad, an older one is valid
    BAD = "bad"  # there are checkpoints, but none is valid


class DerivedFound(StrEnum):
    """The state of hours, runs and consume queues, compared with the newest valid checkpoint."""

    NONE = "none"
    AS_NAMED = "as_named"
    LONGER = "longer"  # longer, stale, or not named at all: cut, ignored, swept
    OLDER = "older"  # short, or a wrong CRC; but all files of the older valid checkpoint are whole
    BAD = "bad"  # short or a wrong CRC, and no other checkpoint helps


class Action(StrEnum):
    """The action of a start."""

    SERVE = "serve"
    REPLAY = "replay"  # cut derived files to the checkpoint, replay the log after it
    TRUNCATE = "truncate"  # cut the log at p, sync, then as REPLAY
    REBUILD = "rebuild"  # discard derived files, replay all of the log
    QUARANTINE = "quarantine"  # set aside bad files, repair them from the rest of the log, serve
    INITIALISE = "initialise"
    REFUSE = "refuse"


class Found(NamedTuple):
    """The facts of one start."""

    log: LogFound
    after: bool  # the log continues after the checkpoint (E > C)
    from_zero: (
        bool  # the log still begins at position 0, and can be read from there to the checkpoint
    )
    checkpoint: CheckpointFound
    derived: DerivedFound


class Row(NamedTuple):
    """A row of the table: conditions (None: any), action and reason; `number` as in Appendix A."""

    number: int
    log: frozenset[LogFound] | None
    after: bool | None
    from_zero: bool | None
    checkpoint: frozenset[CheckpointFound] | None
    derived: frozenset[DerivedFound] | None
    action: Action
    reason: str


_L, _C, _D = LogFound, CheckpointFound, DerivedFound
_VALID = frozenset({_C.NEWEST, _C.OLDER})
_INVALID = frozenset({_C.NONE, _C.BAD})
_USABLE = frozenset({_L.WHOLE, _L.TORN})


TABLE = (
    Row(6, frozenset({_L.HOLE}), None, None, None, None, Action.REFUSE, "a segment is missing"),
    Row(7, frozenset({_L.FOREIGN}), None, None, None, None, Action.REFUSE, "foreign log or version"),
    Row(4, frozenset({_L.DAMAGED}), None, None, None, None, Action.REFUSE, "the log is damaged"),
    Row(5, frozenset({_L.SHORT}), None, None, None, None, Action.REFUSE, "log ends before checkpoint"),
    Row(5, frozenset({_L.NONE}), None, None, _VALID, None, Action.REFUSE, "checkpoint without a log"),
    Row(
        15, frozenset({_L.NONE}), None, None, frozenset({_C.NONE}), frozenset({_D.NONE}),
        Action.INITIALISE, "empty directory",
    ),
    Row(15, frozenset({_L.NONE}), None, None, _INVALID, None, Action.REFUSE, "files without a log"),
    Row(10, _USABLE, None, False, _INVALID, None, Action.REFUSE, "log begins after 0, no checkpoint"),
    Row(9, _USABLE, None, True, _INVALID, None, Action.REBUILD, "no valid checkpoint"),
    Row(11, _USABLE, None, True, _VALID, frozenset({_D.BAD}), Action.REBUILD, "derived files are bad"),
    Row(12, _USABLE, None, False, _VALID, frozenset({_D.BAD}), Action.QUARANTINE, "files are bad, their log is gone or damaged"),
    Row(3, frozenset({_L.TORN}), None, None, _VALID, None, Action.TRUNCATE, "torn tail"),
    Row(8, frozenset({_L.WHOLE}), None, None, frozenset({_C.OLDER}), None, Action.REPLAY, "older one"),
    Row(
        8, frozenset({_L.WHOLE}), None, None, _VALID, frozenset({_D.OLDER}), Action.REPLAY,
        "older one: files of the newest are bad",
    ),
    Row(2, frozenset({_L.WHOLE}), True, None, _VALID, None, Action.REPLAY, "tail after checkpoint"),
    Row(13, frozenset({_L.WHOLE}), False, None, _VALID, frozenset({_D.LONGER}), Action.SERVE, "sweep"),
    Row(1, frozenset({_L.WHOLE}), False, None, _VALID, None, Action.SERVE, "as left"),
)  # fmt: skip


def decide(found: Found) -> Row:
    """Return the first row whose conditions these facts meet; the table covers all combinations."""
    for row in TABLE:
        if (
            (row.log is None or found.log in row.log)
            and (row.after is None or found.after is row.after)
            and (row.from_zero is None or found.from_zero is row.from_zero)
            and (row.checkpoint is None or found.checkpoint in row.checkpoint)
            and (row.derived is None or found.derived in row.derived)
        ):
            return row
    raise AssertionError(f"no row of the recovery table for {found}")
