"""When the loop has its next turn: at once, at the end of the write under way, or when something becomes due.

Requests come one by one, and a turn has a cost of its own: a turn for each would halve the throughput, and delay the
end of the write, which is a turn too.  So while the disk is busy what comes waits for company.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from horolog.limits import KIB, SECOND_MS
from horolog.server.group_commit import GroupCommit
from horolog.server.inputs import Inputs
from horolog.server.meters import Meters

_GATHER_TURNS = 3  # so many times as long as a turn takes do inputs wait while the disk is busy,
_GATHER_S_MIN, _GATHER_S_MAX = 0.001, 0.01  # within these bounds
_GATHER_BYTES = 64 * KIB  # of sends that wait for more: a turn costs what 200 small ones do


class NextTurn:
    """Asks the event loop for turns: one soon at most, and one when something becomes due.

    A turn calls `come` first of all, `begin` if it can be had, `take` when it takes its inputs, and `end`; what is
    asked for between `begin` and `end` is put off until `go_on`.
    """

    def __init__(self, log: GroupCommit, inputs: Inputs, meters: Meters) -> None:
        self._log = log
        self._inputs = inputs
        self._meters = meters
        self._asked: asyncio.Handle | None = None  # for a turn soon; there is one at most
        self._timer: asyncio.TimerHandle | None = None  # until something becomes due
        self._in_turn = False
        self._is_wanted = False  # something came in during this turn

    def start(self, loop: asyncio.AbstractEventLoop, turn: Callable[[], None]) -> None:
        """Have turns by calling `turn` from now on."""
        self._loop = loop
        self._turn = turn

    @property
    def is_asked(self) -> bool:
        """Whether a turn comes soon."""
        return self._asked is not None

    def soon(self, *, gather: bool = False) -> None:
        """Have a turn; with `gather` a little later while a write is under way."""
        if self._in_turn:
            self._is_wanted = True  # it has company at the end of the write that this turn begins
        elif self._asked is None:
            if gather and self._log.is_busy:
                self._asked = self._loop.call_later(self.gather_s, self._turn)
            else:
                self._asked = self._loop.call_soon(self._turn)

    def within(self, wait_ms: int) -> None:
        """Have a turn after so long, unless one comes before."""
        wait_s = wait_ms / SECOND_MS
        if self._log.is_busy:
            wait_s = max(wait_s, self.gather_s)  # what is due has company then
        self._timer = self._loop.call_later(wait_s, self._turn)

    @property
    def gather_s(self) -> float:
        """How many seconds a turn waits for the end of the write under way: where turns are slow they shall be few."""
        return min(max(_GATHER_TURNS * self._meters.recent_turn_s, _GATHER_S_MIN), _GATHER_S_MAX)

    def can_gather(self) -> bool:
        """Whether sends may wait for the end of the write under way, which is a turn.

        They cannot be answered before it anyway, and what a turn costs is shared by more of them.  Many have a turn of
        their own meanwhile: then the next write can begin at once.
        """
        return self._log.is_busy and self._inputs.message_bytes < _GATHER_BYTES

    # --- what a turn calls ------------------------------------------------------------------------

    def come(self) -> None:
        """The turn that was asked for is here, or another one in its place."""
        if self._asked is not None:
            # Else one more would wait after each write of a busy time, and all of them pass before any socket's turn.
            self._asked.cancel()
            self._asked = None

    def begin(self) -> None:
        """A turn begins; what is due is looked at, so no timer waits for it."""
        self.cancel_timer()
        self._in_turn = True

    def take(self) -> None:
        """The turn takes its inputs: what they asked for is had."""
        self._is_wanted = False

    def end(self) -> None:
        """The turn has appended what it has to; its answers may ask for another one."""
        self._in_turn = False

    def go_on(self) -> None:
        """Its write is under way: have another turn if somebody wanted one during it."""
        if self._is_wanted:
            self._is_wanted = False
            self.soon(gather=True)

    def cancel_timer(self) -> None:
        """Wait no longer for what becomes due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
