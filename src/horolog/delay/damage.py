"""Descriptions of derived files that a checkpoint names and that cannot be opened as it states."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from horolog.errors import Problem
from horolog.limits import HOUR_KEEP_MS
from horolog.units import counted

ASIDE = "quarantined-"  # prefix of names in `hours` and `runs` that were set aside; never removed


class Damaged(NamedTuple):
    """One damaged hour, far buffer, run or consume queue."""

    part: str  # directory of the shard: "hours", "runs" or "queues"
    label: str  # name of the damaged part in that directory
    names: tuple[str, ...]  # its files or directories
    why: str
    waiting: int = 0  # messages that wait in it, according to the checkpoint
    first_hour: int = 0  # first and last hour in which these messages are due
    last_hour: int = -1
    are_files: bool = False  # whether `names` are files; else they are directories


class Quarantining(Protocol):
    """An hour, a far buffer or a run that may have quarantined messages."""

    @property
    def label(self) -> str:
        """The name that an operator sees."""
        ...

    @property
    def quarantined(self) -> int:
        """How many messages are quarantined."""
        ...

    @property
    def until_ms(self) -> int:
        """A moment by which all messages are due."""
        ...


def quarantined_key(source: Quarantining) -> str:
    """Return the key of the problem that reports the quarantined messages of a source."""
    return f"{source.label}: quarantined"


def quarantine_problem(source: Quarantining, origin: int = -1) -> Problem:
    """Build the problem that reports the quarantined messages of a source.

    origin  log position of the last quarantined message; −1: unknown
    """
    last = f" (the last one found: log position {origin})" if origin >= 0 else ""
    text = (
        f"{source.label}: {counted(source.quarantined, 'message')} quarantined for not "
        f"verifying{last}"
    )
    return Problem(text, key=quarantined_key(source), until_ms=source.until_ms + HOUR_KEEP_MS)
