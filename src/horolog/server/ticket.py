"""A command under way whose result goes to a callback: what a door uses, thousands of times a second.

A future would cost an object more, a pass through the event loop for each callback, and an exception for a refusal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

_log = logging.getLogger("horolog")


def nobody(result: object) -> None:
    """Drop a result that nobody is told."""


class Ticket:
    """The token of a command.  Neither the result nor the caller is kept: callers may take long for their answers.

    over  the result has been given
    """

    __slots__ = ("_then", "over")

    def __init__(self, then: Callable[[object], None]) -> None:
        self._then = then
        self.over = False

    def settle(self, result: object) -> None:
        """Give the result to whoever asked; what comes later is for nobody."""
        if self.over:
            return
        self.over = True
        # A call has its ticket, and a ticket its call: here the cycle ends.
        then, self._then = self._then, nobody
        try:
            then(result)
        except Exception:  # noqa: BLE001 - as it says
            # The results of other commands come in the same turn, and must be told all the same.
            _log.exception("a result could not be told")
