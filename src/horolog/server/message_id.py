"""Make ids for messages whose senders give none: clients of the admin port, old 4.x clients.

An id has 34 hex digits, as the ids of 5.x clients:

    01 | 6 bytes for this process | 2 of its process id | 4 of seconds since 2021 | 4 of a counter

The six bytes are random instead of a hardware address, so that two brokers on one machine differ.
"""

from __future__ import annotations

import itertools
import os
import secrets

_SINCE_MS = 1_609_459_200_000  # 2021-01-01T00:00:00Z


class MessageIds:
    """A source of ids that do not repeat, not even after a restart."""

    def __init__(self) -> None:
        self._node = f"{secrets.token_hex(6).upper()}{os.getpid() & 0xFFFF:04X}"
        self._counter = itertools.count()
        self._second = -1
        self._front = b""  # of the ids of `_second`, with a place for the counter

    def next(self, wall_ms: int) -> str:
        """Return a new id; `wall_ms` only makes ids sort by time."""
        return self.take(wall_ms, 1)[0].decode()

    def take(self, wall_ms: int, count: int) -> list[bytes]:
        """Return `count` new ids, in ASCII."""
        second = wall_ms // 1_000
        if second != self._second:
            since = max(wall_ms - _SINCE_MS, 0) // 1_000 & 0xFFFFFFFF
            self._second, self._front = second, f"01{self._node}{since:08X}".encode() + b"%08X"
        front = self._front
        return [front % (number & 0xFFFFFFFF) for number in itertools.islice(self._counter, count)]
