"""Have producers asked how a transaction ended: the core knows when, the doors know whom to ask.

    the core   reports checks that are due
    a door     has a producer of the group: the core is asked for the half message, and counts
               the check
    the core   answers when the count is committed, and the producer is asked
    a door     reports that a producer has connected: the core looks at the checks that wait for one

Nothing waits here for a producer's answer: the answer is a command that ends the transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from horolog.limits import CHECKED_AT_ONCE
from horolog.protocol.transaction_commands import (
    CheckDue,
    CheckTransactions,
    LookForProducers,
    TransactionCheck,
)
from horolog.server.loop import Engine
from horolog.server.ticket import ignore_result

_log = logging.getLogger("horolog")
_GATHER_S = 0.2  # producers come together after a start, so that the core looks once for many


class Producers(Protocol):
    """The producers that are connected to a door.

    on_producer_connected  called with a group when a producer of the group has connected
    """

    on_producer_connected: Callable[[str], None]

    def has(self, due: CheckDue) -> bool:
        """Return whether a producer of the group that may be asked is connected."""
        ...

    def ask(self, check: TransactionCheck) -> bool:
        """Ask a producer of the group how a transaction ended; return False if none is there."""
        ...


class TransactionChecks:
    """Passes checks to the doors, and producers' arrivals to the core."""

    def __init__(self, engine: Engine, doors: Sequence[Producers]) -> None:
        self._engine = engine
        self._doors = doors
        self._connected_groups: set[str] = set()
        engine.on_checks = self._request_checks
        for door in doors:
            door.on_producer_connected = self._on_producer_connected

    def _request_checks(self, checks: list[CheckDue]) -> None:
        found = [due.position for due in checks if any(door.has(due) for door in self._doors)]
        for first in range(0, len(found), CHECKED_AT_ONCE):
            positions = tuple(found[first : first + CHECKED_AT_ONCE])
            self._engine.ask(CheckTransactions(positions), self._ask)

    def _ask(self, result: object) -> None:
        if not isinstance(result, list):
            _log.warning("transactions cannot be checked, tried again later: %s", result)
            return
        for check in result:
            if not any(door.ask(check) for door in self._doors):
                _log.info("transaction %d no producer takes its check", check.position)

    def _on_producer_connected(self, group: str) -> None:
        if not self._connected_groups:
            asyncio.get_running_loop().call_later(_GATHER_S, self._report_producers)
        self._connected_groups.add(group)

    def _report_producers(self) -> None:
        groups, self._connected_groups = frozenset(self._connected_groups), set()
        self._engine.ask(LookForProducers(groups), ignore_result)
