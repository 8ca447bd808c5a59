"""One check of the doctor: what was seen, and what to do about it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple


class State(StrEnum):
    """The outcome of a check.  `wrong` and `warning` make exit code 1; a note does not."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    WRONG = "wrong"


class Check(NamedTuple):
    """A line of the report.

    seen  what was seen, as a fact with its figures
    do    what to do, as a sentence; empty when the check is ok
    """

    name: str
    state: State
    seen: str
    do: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the fields for --json."""
        return {"name": self.name, "state": self.state.value, "seen": self.seen, "do": self.do}


def is_well(checks: list[Check]) -> bool:
    """Return whether there is nothing to do."""
    return not any(check.state in (State.WARNING, State.WRONG) for check in checks)
