"""A part of the derived files that a checkpoint names and that cannot be opened as it says."""

from __future__ import annotations

from typing import NamedTuple

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
