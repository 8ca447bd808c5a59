"""Log when a full disk makes the broker refuse messages, and when they are accepted again."""

from __future__ import annotations

import logging

from horolog.errors import HorologError

_log = logging.getLogger("horolog")
QUIET_MS = 60_000  # between two such warnings, for a disk at the edge


class RefusalLog:
    """Checks once a turn whether messages are refused; logs changes, but not every short one."""

    def __init__(self) -> None:
        self._refuses = False  # as the last log line says
        self._last_ms = -QUIET_MS

    def log_change(self, refusal: HorologError | None, mono_ms: int) -> None:
        """Log a change; `refusal` is why messages are refused now, None: they are accepted."""
        refuses = refusal is not None
        if refuses is self._refuses or (refuses and mono_ms - self._last_ms < QUIET_MS):
            return
        self._refuses, self._last_ms = refuses, mono_ms
        if refusal is not None:
            _log.warning("messages are refused %s", refusal.message)
        else:
            _log.info("messages are taken again")
