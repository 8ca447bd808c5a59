"""Gather requests that several connections have sent at about the same time into commands.

`batches` decides which requests make one command, and `CallbackBatch` how long they are gathered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from horolog.limits import MIB

_log = logging.getLogger("horolog")
MESSAGES_MAX = 1_024  # of a batch; more only if one request has more
BYTES_MAX = MIB
_Request = TypeVar("_Request")


def batches(
    requests: Iterable[_Request], size_of: Callable[[_Request], tuple[int, int]]
) -> Iterator[list[_Request]]:
    """Cut requests into batches, in order; `size_of` returns messages and bytes of a request."""
    batch: list[_Request] = []
    messages = size = 0
    for each in requests:
        more, more_bytes = size_of(each)
        if batch and (messages + more > MESSAGES_MAX or size + more_bytes > BYTES_MAX):
            yield batch
            batch, messages, size = [], 0, 0
        batch.append(each)
        messages += more
        size += more_bytes
    if batch:
        yield batch


class CallbackBatch:
    """Callbacks to call once, together: doors pass on the requests that they have gathered."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        """Return whether a callback waits."""
        return bool(self._waiting)

    def add(self, each: Callable[[], None]) -> None:
        """Add a callback for the next `call_all`."""
        self._waiting.append(each)

    def call_within(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """Call the callbacks in `seconds` seconds, unless `call_all` comes first."""
        if self._timer is None:
            self._timer = loop.call_later(seconds, self.call_all)

    def call_all(self) -> None:
        """Call all waiting callbacks; an exception of one does not stop the others."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            try:
                each()
            except Exception:  # noqa: BLE001 - neither others nor the core's turn may suffer
                _log.exception("what a door has gathered could not be handed on")
