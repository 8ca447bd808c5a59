"""Decide when the loop has its next turn.

A turn comes at once, at the end of the write under way, or when something becomes due.  Requests
come one by one, and a turn has a cost of its own: a turn for each would halve the throughput, and
delay the end of the write, which is a turn too.  So while the disk is busy, inputs wait for more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from horolog.limits import KIB, SECOND_MS
from horolog.server.group_commit import GroupCommit
from horolog.server.inputs import Inputs
from horolog.server.meters import Meters

_GATHER_TURNS = 3  # inputs wait this many times the duration of a turn while the disk is busy,
_GATHER_S_MIN, _GATHER_S_MAX = 0.001, 0.01  # within these bounds
_GATHER_BYTES = 64 * KIB  # of sends that wait for more: a turn costs what 200 small sends do


class NextTurn:
    """Asks the event loop for turns: at most one soon, and one when something becomes due.

    A turn calls `turn_arrived` first.  If it can run, it calls `turn_began`, `inputs_taken`,
    `appended` and `write_started`.  Turns that are asked for between `turn_began` and `appended`
    are delayed until `write_started`.
    """

    def __init__(self, log: GroupCommit, inputs: Inputs, meters: Meters) -> None:
        self._log = log
        self._inputs = inputs
        self._meters = meters
        self._asked: asyncio.Handle | None = None  # for a turn soon; one at most
        self._timer: asyncio.TimerHandle | None = None  # until something becomes due
        self._in_turn = False
        self._is_wanted = False  # a turn was asked for during the current turn

    def start(self, loop: asyncio.AbstractEventLoop, turn: Callable[[], None]) -> None:
        """Begin to have turns, by calling `turn`."""
        self._loop = loop
        self._turn = turn

    @property
    def is_asked(self) -> bool:
        """Whether a turn comes soon."""
        return self._asked is not None

    def soon(self, *, gather: bool = False) -> None:
        """Have a turn at once; with `gather`, a little later while a write is under way."""
        if self._in_turn:
            self._is_wanted = True  # then for the end of the write that this turn begins
        elif self._asked is None:
            if gather and self._log.is_busy:
                self._asked = self._loop.call_later(self.gather_s, self._turn)
            else:
                self._asked = self._loop.call_soon(self._turn)

    def within(self, wait_ms: int) -> None:
        """Have a turn in `wait_ms` milliseconds, unless one comes before."""
        wait_s = wait_ms / SECOND_MS
        if self._log.is_busy:
            wait_s = max(wait_s, self.gather_s)  # shares its turn with the end of the write
        self._timer = self._loop.call_later(wait_s, self._turn)

    @property
    def gather_s(self) -> float:
        """How many seconds a turn waits for the end of the write under way.

        The slower turns are, the longer the wait, so that there are few of them.
        """
        return min(max(_GATHER_TURNS * self._meters.recent_turn_s, _GATHER_S_MIN), _GATHER_S_MAX)

    def can_gather(self) -> bool:
        """Return whether sends may wait for the end of the write under way, which brings a turn.

        Sends cannot be answered before that end anyway, and more of them then share the cost of a
        turn.  Many sends (`_GATHER_BYTES`) have a turn of their own meanwhile: then the next write
        can begin at once.
        """
        return self._log.is_busy and self._inputs.message_bytes < _GATHER_BYTES

    # --- calls from a turn ------------------------------------------------------------------------

    def turn_arrived(self) -> None:
        """Note that a turn has come: the one that was asked for, or another in its place."""
        if self._asked is not None:
            # Otherwise one more turn would wait after each write of a busy time, and all of them
            # would run before any socket is read.
            self._asked.cancel()
            self._asked = None

    def turn_began(self) -> None:
        """Begin a turn; the turn looks for due work itself, so cancel the timer."""
        self.cancel_timer()
        self._in_turn = True

    def inputs_taken(self) -> None:
        """Note that the turn takes all inputs, so no further turn is wanted for them."""
        self._is_wanted = False

    def appended(self) -> None:
        """Note that the turn has appended its records; its answers may ask for another turn."""
        self._in_turn = False

    def write_started(self) -> None:
        """Have another turn if one was asked for during this turn, whose write is under way now."""
        if self._is_wanted:
            self._is_wanted = False
            self.soon(gather=True)

    def cancel_timer(self) -> None:
        """Stop waiting for what becomes due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
