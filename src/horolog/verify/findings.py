"""What a verification finds."""

from __future__ import annotations

from typing import Any, NamedTuple

KEPT_MAX = 1_000  # findings and notes that are told one by one; all are counted


class Finding(NamedTuple):
    """Something that is not as it must be."""

    file: str  # path in the data directory
    position: int  # log position for a log segment, byte or row elsewhere as `what` says
    what: str

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return self._asdict()


class Findings:
    """All findings, the first of them one by one.

    notes  what was left out of the verification and why: never damage
    """

    def __init__(self) -> None:
        self.count = 0
        self.kept: list[Finding] = []
        self.notes: list[str] = []
        self._files: dict[str, int] = {}

    def add(self, file: str, position: int, what: str) -> None:
        """One more."""
        self.count += 1
        self._files[file] = self._files.get(file, 0) + 1
        if len(self.kept) < KEPT_MAX:
            self.kept.append(Finding(file, position, what))

    def note(self, what: str) -> None:
        """Something that is no damage, but was not verified."""
        if len(self.notes) < KEPT_MAX:
            self.notes.append(what)

    def under(self, prefix: str) -> bool:
        """Whether there is a finding in a file whose path begins like this."""
        return any(file.startswith(prefix) for file in self._files)
