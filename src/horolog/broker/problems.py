"""The one list of a shard's problems: what health, `/v1/broker`, the log of the process and `verify` read.

Every part that meets damage says so in a list of its own, because it knows neither broker nor other parts; after
each step what is in them moves here (`Shard.gather_problems`).

* One problem is listed once, however often it is met: `Problem.key`.
* It is durable with the next checkpoint, and goes when it is repaired (`repaired`), when the file or directory that
  it is about is gone, or when its time has passed and a day to see it (`sweep`, at every checkpoint and start).
* At most PROBLEMS_MAX are listed.  What is found beyond that is counted, and the count is said.  The count goes with
  the last listed problem: of what was not listed nobody knows when it ends.
* Every problem is told to the log of the process once in its life: `take_unreported`.  What a checkpoint has kept is told
  again after a start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from horolog.errors import Problem
from horolog.limits import PROBLEM_KEEP_MS, PROBLEM_TEXT_MAX, PROBLEMS_MAX


class Problems:
    """Bounded, without repetitions, in the order in which they were met; iterated over, it gives their texts."""

    def __init__(self) -> None:
        self._listed: dict[str, Problem] = {}  # by key
        self._met_ms: dict[str, int] = {}  # key → wall clock at the first sweep
        self._more = 0  # met while the list was full
        self._unreported: list[str] = []
        self.repairs = 0  # messages and other things made whole again, since the directory was made

    def append(self, problem: str | Problem) -> None:
        """One more, or a later text of one that is listed."""
        if isinstance(problem, str):
            problem = Problem(problem)
        problem = problem._replace(text=problem.text[:PROBLEM_TEXT_MAX])
        key = problem.key or problem.text
        is_new = key not in self._listed
        if is_new and len(self._listed) >= PROBLEMS_MAX:
            self._more += 1
            if self._more == 1:
                self._unreported.append(self._about_more())
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
            yield self._about_more()

    def __len__(self) -> int:
        return len(self._listed) + bool(self._more)

    def _about_more(self) -> str:
        return f"more than {PROBLEMS_MAX} problems: {self._more} that were met after them are not listed"

    def has(self, key: str) -> bool:
        """Whether a problem with that key is listed."""
        return key in self._listed

    def remove(self, key: str) -> None:
        """A problem is no more; nothing if it is not listed."""
        self._listed.pop(key, None)
        self._met_ms.pop(key, None)
        if not self._listed:
            self._more = 0

    def repaired(self, text: str, count: int = 1) -> None:
        """Count so many things that were made whole again, and tell the log of the process; they are no problem."""
        self.repairs += count
        if len(self._unreported) < PROBLEMS_MAX:
            self._unreported.append(text)

    def sweep(self, exists: Callable[[str], bool], now_ms: int) -> None:
        """Forget those whose part is gone, or whose time has passed since they have been listed for a day."""
        for key, problem in list(self._listed.items()):
            met_ms = self._met_ms.setdefault(key, now_ms)
            is_over = 0 < problem.until_ms <= now_ms and met_ms + PROBLEM_KEEP_MS <= now_ms
            if is_over or (problem.part and not exists(problem.part)):
                self.remove(key)

    def take_unreported(self) -> list[str]:
        """What has to be told to the log of the process since the last call."""
        unreported, self._unreported = self._unreported, []
        return unreported

    # --- checkpoint -------------------------------------------------------------------------------

    def captured(self) -> dict[str, Any]:
        """For the registry of a checkpoint."""
        listed = [
            {**problem._asdict(), "met_ms": self._met_ms.get(key, 0)}
            for key, problem in self._listed.items()
        ]
        return {"listed": listed, "more": self._more, "repairs": self.repairs}

    def restore(self, captured: dict[str, Any], exists: Callable[[str], bool], now_ms: int) -> None:
        """At start: what a checkpoint has kept; one of an older horolog has kept nothing (an empty dict)."""
        self.repairs = captured.get("repairs", 0)
        for problem, fields in zip(problems_in(captured), captured.get("listed", []), strict=True):
            self.append(problem)
            if fields["met_ms"]:
                self._met_ms[problem.key or problem.text] = fields["met_ms"]
        self._more = captured.get("more", 0)
        self.sweep(exists, now_ms)
        self._unreported = list(self)

    def check_invariants(self) -> None:
        """Assert what must hold between any two calls."""
        assert len(self._listed) <= PROBLEMS_MAX
        assert not self._more or self._listed
        assert all(key == (each.key or each.text) for key, each in self._listed.items())


def problems_in(captured: dict[str, Any]) -> list[Problem]:
    """The problems in the registry of a checkpoint."""
    names = Problem._fields
    return [Problem(*(fields[n] for n in names)) for fields in captured.get("listed", [])]
