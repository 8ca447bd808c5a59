"""Findings and notes of a verification."""

from __future__ import annotations

from typing import Any, NamedTuple

KEPT_MAX = 1_000  # most findings and notes that are listed; all findings are counted


class Finding(NamedTuple):
    """One fault in a file."""

    file: str  # path in the data directory
    position: int  # log position for a log segment, byte or row elsewhere as `what` says
    what: str

    def as_json(self) -> dict[str, Any]:
        """Return the finding for --json."""
        return self._asdict()


class Findings:
    """All findings; the first of them are listed.

    notes  what was left out of the verification and why: never damage
    """

    def __init__(self) -> None:
        self.count = 0
        self.kept: list[Finding] = []
        self.notes: list[str] = []
        self._files: dict[str, int] = {}

    def add(self, file: str, position: int, what: str) -> None:
        """Add a finding."""
        self.count += 1
        self._files[file] = self._files.get(file, 0) + 1
        if len(self.kept) < KEPT_MAX:
            self.kept.append(Finding(file, position, what))

    def note(self, what: str) -> None:
        """Add a note on something that is no damage, but was not verified."""
        if len(self.notes) < KEPT_MAX:
            self.notes.append(what)

    def under(self, prefix: str) -> bool:
        """Return whether there is a finding in a file whose path begins with `prefix`."""
        return any(file.startswith(prefix) for file in self._files)
