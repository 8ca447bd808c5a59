"""The commands that a door passes to its engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def note_asked(engine: Any) -> list[Any]:
    """Return a list to which every further command is added; the engine answers as before."""
    asked: list[Any] = []
    ask = engine.ask

    def noted(command: Any, then: Callable[[object], None]) -> Any:
        asked.append(command)
        return ask(command, then)

    engine.ask = noted
    return asked
