"""Gather requests that several connections have sent at about the same time into commands.

`parts` decides which requests make one command, and `Once` how long they are gathered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from horolog.limits import MIB

_log = logging.getLogger("horolog")
MESSAGES_MAX = 1_024  # of a part; more only if one request has more
BYTES_MAX = MIB
_Asked = TypeVar("_Asked")


def parts(
    asked: Iterable[_Asked], size_of: Callable[[_Asked], tuple[int, int]]
) -> Iterator[list[_Asked]]:
    """Cut requests into parts, in order; `size_of` returns the messages and bytes of a request."""
    part: list[_Asked] = []
    messages = size = 0
    for each in asked:
        more, more_bytes = size_of(each)
        if part and (messages + more > MESSAGES_MAX or size + more_bytes > BYTES_MAX):
            yield part
            part, messages, size = [], 0, 0
        part.append(each)
        messages += more
        size += more_bytes
    if part:
        yield part


class Once:
    """Callbacks to call once, together: doors pass on the requests that they have gathered."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        """Return whether a callback waits."""
        return bool(self._waiting)

    def add(self, each: Callable[[], None]) -> None:
        """Add a callback for the next `call`."""
        self._waiting.append(each)

    def call_within(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """Call the callbacks in `seconds` seconds, unless `call` comes first."""
        if self._timer is None:
            self._timer = loop.call_later(seconds, self.call)

    def call(self) -> None:
        """Call all waiting callbacks; an exception of one does not stop the others."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            try:
                each()
            except Exception:  # noqa: BLE001 - nobody else, and no turn of the core, may suffer from it
                _log.exception("what a door has gathered could not be handed on")
