"""Reports of a job's current stage."""

from __future__ import annotations

from typing import Protocol


class Stages(Protocol):
    """A function that a job calls when a stage begins."""

    def __call__(self, what: str) -> None:
        """Report the stage that begins now."""
        ...


def quiet(what: str) -> None:
    """Ignore the stages."""
    del what
