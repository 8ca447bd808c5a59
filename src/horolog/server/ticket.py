"""A command under way whose result goes to a callback, as doors use it thousands of times a second.

A future would cost one more object, a pass through the event loop for each callback, and an
exception for a refusal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

_log = logging.getLogger("horolog")


def ignore_result(result: object) -> None:
    """Drop a result that has no receiver."""


class Ticket:
    """The token of a command.

    A ticket keeps neither the result nor the caller: callers may take long for their answers.

    over  the result has been given
    """

    __slots__ = ("_then", "over")

    def __init__(self, then: Callable[[object], None]) -> None:
        self._then = then
        self.over = False

    def settle(self, result: object) -> None:
        """Pass the result to the callback; drop every later result."""
        if self.over:
            return
        self.over = True
        # A call refers to its ticket and the ticket to its call: break the cycle here.
        then, self._then = self._then, ignore_result
        try:
            then(result)
        except Exception:  # noqa: BLE001 - as it says
            # The results of other commands are given in the same turn, and must not be lost.
            _log.exception("a result could not be delivered")
