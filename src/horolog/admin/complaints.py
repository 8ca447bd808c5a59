"""What uvicorn warns of, such as requests that are no HTTP: once a second, and how often since then.

Whoever reaches the port could fill the log otherwise.
"""

from __future__ import annotations

import asyncio
import logging

UVICORN = logging.getLogger("uvicorn.error")
_log = logging.getLogger("horolog.admin")
_EVERY_S = 1.0
_TEXTS_MAX = 16  # uvicorn has fewer; what is none of them is let through


class Complaints(logging.Filter):
    """A filter of `UVICORN`; errors pass, since they are ours.  Used from the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._held: dict[str, int] = {}  # text → how often it came since it was told

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged now."""
        if record.levelno > logging.WARNING:
            return True
        text = record.getMessage()
        if text in self._held:
            self._held[text] += 1
            return False
        if len(self._held) < _TEXTS_MAX:
            self._hold(text)
        return True

    def _hold(self, text: str) -> None:
        self._held[text] = 0
        self._loop.call_later(_EVERY_S, self._tell, text)

    def _tell(self, text: str) -> None:
        if count := self._held.pop(text):
            self._hold(text)
            _log.warning("%d times more: %s", count, text)
