"""Work counted in bytecodes: the same on every machine and at every hour, unlike time."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any


def bytecodes(work: Callable[[], Any]) -> int:
    """Return how many bytecodes `work` executes in this thread, in all functions that it calls.

    Loops inside C code count as one.
    """
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1

    collects = gc.isenabled()
    gc.disable()  # its callbacks (Hypothesis has one) would be counted
    try:
        with (_monitored if sys.version_info >= (3, 12) else _traced)(count):
            work()
    finally:
        if collects:
            gc.enable()
    return counted


@contextmanager
def _traced(count: Callable[[], None]) -> Iterator[None]:
    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            count()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def _monitored(count: Callable[[], None]) -> Iterator[None]:
    """Count as `_traced` does; from Python 3.12 on that misses the first call of a function."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    tool, thread = monitoring.OPTIMIZER_ID, threading.get_ident()

    def executed(_code: CodeType, _offset: int) -> None:
        if threading.get_ident() == thread:
            count()

    monitoring.use_tool_id(tool, "bytecodes")
    monitoring.register_callback(tool, monitoring.events.INSTRUCTION, executed)
    monitoring.set_events(tool, monitoring.events.INSTRUCTION)
    try:
        yield
    finally:
        monitoring.set_events(tool, monitoring.events.NO_EVENTS)
        monitoring.register_callback(tool, monitoring.events.INSTRUCTION, None)
        monitoring.free_tool_id(tool)
