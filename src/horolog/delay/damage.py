"""A part of the derived files that a checkpoint names and that cannot be opened as it says."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from horolog.errors import Problem
from horolog.limits import HOUR_KEEP_MS
from horolog.units import counted

ASIDE = "quarantined-"  # names in `hours` and `runs` that begin so were set aside, and are never removed


class Damaged(NamedTuple):
    """One hour, far buffer, run or consume queue."""

    part: str  # directory of the shard: "hours", "runs" or "queues"
    label: str  # what it is called there
    names: tuple[str, ...]  # its files or directories
    why: str
    waiting: int = 0  # messages that wait in it, by the checkpoint
    first_hour: int = 0  # they are due in these hours
    last_hour: int = -1
    are_files: bool = False  # else the names are those of directories


class Quarantining(Protocol):
    """An hour, a far buffer or a run."""

    @property
    def label(self) -> str:
        """What an operator calls it."""
        ...

    @property
    def quarantined(self) -> int:
        """Messages in it that are quarantined."""
        ...

    @property
    def until_ms(self) -> int:
        """A moment at which all of it was due."""
        ...


def quarantined_key(source: Quarantining) -> str:
    """The key of the problem that speaks of its quarantined messages."""
    return f"{source.label}: quarantined"


def quarantine_problem(source: Quarantining, origin: int = -1) -> Problem:
    """What is to be said of the quarantined messages of a source; `origin` is that of the last one, if known."""
    last = f" (the last one found: log position {origin})" if origin >= 0 else ""
    text = f"{source.label}: {counted(source.quarantined, 'message')} quarantined for not verifying{last}"
    return Problem(text, key=quarantined_key(source), until_ms=source.until_ms + HOUR_KEEP_MS)
