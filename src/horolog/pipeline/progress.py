"""How a job says what it is at."""

from __future__ import annotations

from typing import Protocol


class Stages(Protocol):
    """Where a job says which of its stages begins."""

    def __call__(self, what: str) -> None:
        """The stage that begins now."""
        ...


def quiet(what: str) -> None:
    """Says nothing."""
    del what
