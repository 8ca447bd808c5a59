"""Work counted in bytecodes: the same on every machine and at every hour, unlike time."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def bytecodes(work: Callable[[], Any]) -> int:
    """Return how many bytecodes `work` executes, in all functions that it calls.

    Loops inside C code count as one.
    """
    counted = 0

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        nonlocal counted
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        counted += event == "opcode"
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # its callbacks (Hypothesis has one) would be counted
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return counted
