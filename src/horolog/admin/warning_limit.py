"""Rate limit of uvicorn's warnings, such as those for requests that are not HTTP.

Each text is logged at most once a second, then with the count of its repetitions.  Without the
limit, anyone who reaches the port could fill the log.
"""

from __future__ import annotations

import asyncio
import logging

UVICORN = logging.getLogger("uvicorn.error")
_log = logging.getLogger("horolog.admin")
_EVERY_S = 1.0
_TEXTS_MAX = 16  # texts that are counted; uvicorn has fewer, and further ones are always logged


class WarningLimit(logging.Filter):
    """A filter of `UVICORN`; errors pass, since they are our own.  Used from the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        # Text → how often it was held back since it was last logged
        self._held: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged now."""
        if record.levelno > logging.WARNING:
            return True
        text = record.getMessage()
        if text in self._held:
            self._held[text] += 1
            return False
        if len(self._held) < _TEXTS_MAX:
            self._count_repeats(text)
        return True

    def _count_repeats(self, text: str) -> None:
        self._held[text] = 0
        self._loop.call_later(_EVERY_S, self._log_repeats, text)

    def _log_repeats(self, text: str) -> None:
        if count := self._held.pop(text):
            self._count_repeats(text)
            _log.warning("%d times more: %s", count, text)
