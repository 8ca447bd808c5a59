"""A sink for streams that dies around its append."""

from __future__ import annotations

from typing import Any


class DyingSink:
    """A sink that appends with `sink`, and raises before or after it, like a process that dies there."""

    def __init__(self, sink: Any, *, before: bool = False, after: bool = False) -> None:
        self._sink = sink
        self._before = before
        self._after = after

    def __call__(self, frame: Any, batch: int) -> None:
        if self._before:
            raise RuntimeError("killed")
        self._sink(frame, batch)
        if self._after:
            raise RuntimeError("killed")
