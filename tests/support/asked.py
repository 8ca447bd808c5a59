"""The commands that a door gives to its engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def note_asked(engine: Any) -> list[Any]:
    """A list to which every command is added that the engine is asked from here on; it answers as before."""
    asked: list[Any] = []
    ask = engine.ask

    def noted(command: Any, then: Callable[[object], None]) -> Any:
        asked.append(command)
        return ask(command, then)

    engine.ask = noted
    return asked
