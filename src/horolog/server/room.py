"""What the log says of a disk that has no room: when messages begin to be refused, and when they are taken again."""

from __future__ import annotations

import logging

from horolog.errors import HorologError

_log = logging.getLogger("horolog")
QUIET_MS = 60_000  # a disk at the edge tells no more often


class RoomLines:
    """Looks once a turn; what does not last is told once in a while."""

    def __init__(self) -> None:
        self._refuses = False  # as the log says
        self._last_ms = -QUIET_MS

    def look(self, refusal: HorologError | None, mono_ms: int) -> None:
        """Why messages are refused just now; None: they are taken."""
        refuses = refusal is not None
        if refuses is self._refuses or (refuses and mono_ms - self._last_ms < QUIET_MS):
            return
        self._refuses, self._last_ms = refuses, mono_ms
        if refusal is not None:
            _log.warning("messages are refused %s", refusal.message)
        else:
            _log.info("messages are taken again")
