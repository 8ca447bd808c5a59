"""Single keys from a terminal, without waiting for a line."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager


class Keys:
    """Keys as they are pressed; `keyboard` makes this object."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def wait(self, seconds: float) -> str:
        """Return the next key; "" after `seconds` without one, "q" when the terminal has gone."""
        ready, _, _ = select.select([self._descriptor], [], [], max(seconds, 0))
        if not ready:
            return ""
        pressed = os.read(self._descriptor, 32)
        return pressed[:1].decode("ascii", "replace") if pressed else "q"


@contextmanager
def keyboard() -> Iterator[Keys]:
    """Read keys at once and do not show them; restore the terminal afterwards."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
