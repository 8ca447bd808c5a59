"""The list of a shard's problems: for health, `/v1/broker`, `verify` and the process log.

Every part that meets damage reports it in a list of its own, because it knows neither the broker
nor the other parts; after each step the entries of these lists move here (`Shard.gather_problems`).

* One problem is listed once, however often it is met: `Problem.key`.
* A problem is durable with the next checkpoint.  It is removed when it is repaired (`remove`),
  when the file or directory that it is about is gone, or when its time has passed and it was listed
  for a day (`sweep`, at every checkpoint and start).
* At most PROBLEMS_MAX are listed.  Further ones are counted, and the list ends with their count.
  The count goes with the last listed problem, since it is unknown when an unlisted problem ends.
* Every problem is written to the log of the process once in its life: `take_unreported`.  Problems
  kept by a checkpoint are written again after a start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from horolog.errors import Problem
from horolog.limits import PROBLEM_KEEP_MS, PROBLEM_TEXT_MAX, PROBLEMS_MAX


class Problems:
    """A bounded list of problems without repetitions, in the order in which they were met.

    Iteration yields their texts.
    """

    def __init__(self) -> None:
        self._listed: dict[str, Problem] = {}  # by key
        self._met_ms: dict[str, int] = {}  # key → wall clock at the first sweep
        self._more = 0  # met while the list was full
        self._unreported: list[str] = []
        self.repairs = 0  # messages and other things repaired since the directory was made

    def append(self, problem: str | Problem) -> None:
        """Add a problem, or replace the text of one that is listed."""
        if isinstance(problem, str):
            problem = Problem(problem)
        problem = problem._replace(text=problem.text[:PROBLEM_TEXT_MAX])
        key = problem.key or problem.text
        is_new = key not in self._listed
        if is_new and len(self._listed) >= PROBLEMS_MAX:
            self._more += 1
            if self._more == 1:
                self._unreported.append(self._overflow_text())
            return
        self._listed[key] = problem
        if is_new:
            self._unreported.append(problem.text)

    def __iadd__(self, problems: Iterable[str | Problem]) -> Problems:
        for problem in problems:
            self.append(problem)
        return self

    def __iter__(self) -> Iterator[str]:
        yield from (problem.text for problem in self._listed.values())
        if self._more:
            yield self._overflow_text()

    def __len__(self) -> int:
        return len(self._listed) + bool(self._more)

    def _overflow_text(self) -> str:
        return (
            f"more than {PROBLEMS_MAX} problems: {self._more} that were met after them are not "
            "listed"
        )

    def has(self, key: str) -> bool:
        """Return whether a problem with that key is listed."""
        return key in self._listed

    def remove(self, key: str) -> None:
        """Remove a problem; do nothing if it is not listed."""
        self._listed.pop(key, None)
        self._met_ms.pop(key, None)
        if not self._listed:
            self._more = 0

    def note_repaired(self, text: str, count: int) -> None:
        """Count repairs, which are not listed, and queue `text` for the log of the process."""
        self.repairs += count
        if len(self._unreported) < PROBLEMS_MAX:
            self._unreported.append(text)

    def sweep(self, exists: Callable[[str], bool], now_ms: int) -> None:
        """Remove problems whose file is gone, or whose time has passed.

        The latter stay until they have been listed for a day.
        """
        for key, problem in list(self._listed.items()):
            met_ms = self._met_ms.setdefault(key, now_ms)
            is_over = 0 < problem.until_ms <= now_ms and met_ms + PROBLEM_KEEP_MS <= now_ms
            if is_over or (problem.part and not exists(problem.part)):
                self.remove(key)

    def take_unreported(self) -> list[str]:
        """Return the texts to write to the log of the process since the last call."""
        unreported, self._unreported = self._unreported, []
        return unreported

    # --- checkpoint -------------------------------------------------------------------------------

    def captured(self) -> dict[str, Any]:
        """Return the state to keep in the registry of a checkpoint."""
        listed = [
            {**problem._asdict(), "met_ms": self._met_ms.get(key, 0)}
            for key, problem in self._listed.items()
        ]
        return {"listed": listed, "more": self._more, "repairs": self.repairs}

    def restore(self, captured: dict[str, Any], exists: Callable[[str], bool], now_ms: int) -> None:
        """Restore at a start what a checkpoint has kept.

        A checkpoint of an older horolog has nothing (an empty dict).
        """
        self.repairs = captured.get("repairs", 0)
        for problem, fields in zip(problems_in(captured), captured.get("listed", []), strict=True):
            self.append(problem)
            if fields["met_ms"]:
                self._met_ms[problem.key or problem.text] = fields["met_ms"]
        self._more = captured.get("more", 0)
        self.sweep(exists, now_ms)
        self._unreported = list(self)

    def check_invariants(self) -> None:
        """Assert the invariants that must hold between any two calls."""
        assert len(self._listed) <= PROBLEMS_MAX
        assert not self._more or self._listed
        assert all(key == (each.key or each.text) for key, each in self._listed.items())


def problems_in(captured: dict[str, Any]) -> list[Problem]:
    """Return the problems in the registry of a checkpoint."""
    names = Problem._fields
    return [Problem(*(fields[n] for n in names)) for fields in captured.get("listed", [])]
