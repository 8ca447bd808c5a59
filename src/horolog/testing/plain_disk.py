"""The real disk, for tests and simulations that are written for the faulty one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from horolog.storage.disk import Disk


class PlainDisk(Disk):
    """The real disk with the interface of a FaultyDisk, for running one test on both.

    A crash here is a `kill -9`: everything written stays, and open files are simply dropped.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.on_effect: Callable[[str], None] | None = None
        self.capacity_bytes: int | None = None

    def crash(self, *, power_cut: bool) -> None:
        """Do nothing: the files stay as they are."""

    def fail_next(self, operation: str, after: int = 0) -> None:
        """Do nothing: the real disk has no faults on demand."""

    def clear_faults(self) -> None:
        """Do nothing: there are no faults."""

    def used_bytes(self) -> int:
        """Return 0: the space is not limited here."""
        return 0
