"""The protocol of a family of handlers: a class whose methods handle codes that belong together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.request import Answer
from horolog.server.remoting.request import Request

Handler = Callable[[Request], Awaitable[Answer] | Answer | None]
"""Answers the request itself, now or later, and returns None.

Or it returns the answer, or an awaitable of it.
"""


class Family(Protocol):
    """Handlers that belong together."""

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        ...
