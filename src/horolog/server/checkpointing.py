"""Run the core's checkpoint jobs in a thread, for callers and turns that want a checkpoint.

The core decides when to take a checkpoint and captures its state, in a turn that it has whenever a
checkpoint is wanted, so no timer polls for it.  A backup can keep files from being removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

from horolog.broker.broker import Broker
from horolog.broker.life.checkpoint_job import CheckpointJob
from horolog.errors import NO_ROOM, ErrorCode, HorologError
from horolog.server.jobs import Jobs
from horolog.storage.api import Storage

_log = logging.getLogger("horolog")
_AGAIN_S = 0.5  # until a checkpoint that failed is asked for again (full disk, simulated time)
_TAKEN_S = 60.0  # in which a checkpoint becomes durable, however slow its syncs are


class _Wish(NamedTuple):
    """A caller that waits for a checkpoint at this log position or after it."""

    position: int
    durable: asyncio.Future[int]


class Checkpointing:
    """Carries out checkpoint jobs.

    turn  has the engine make a turn soon
    fail  ends the engine

    made, failed  checkpoints since the start: durable ones, and those that failed
    took_s        seconds that the newest durable checkpoint took
    at            monotonic seconds at the end of the newest durable one; None: none since the start
    """

    def __init__(
        self,
        broker: Broker,
        storage: Storage,
        jobs: Jobs,
        turn: Callable[[], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.is_busy = False  # a job is under way
        self.made = self.failed = 0
        self.took_s = 0.0
        self.at: float | None = None
        self._broker = broker
        self._storage = storage
        self._jobs = jobs
        self._turn = turn
        self._fail = fail
        self._wishes: list[_Wish] = []
        self._again: asyncio.TimerHandle | None = None
        self._pins = 0

    def pin(self) -> None:
        """Keep jobs from removing files until `unpin`: a backup copies them."""
        self._pins += 1

    def unpin(self) -> None:
        """Let the next checkpoint remove the files that were kept since `pin`."""
        self._pins -= 1

    def carry_out(self, job: CheckpointJob) -> None:
        """Write a checkpoint in the thread."""
        self.is_busy = True
        keep = self._pins > 0
        began = perf_counter()

        def done(error: BaseException | None) -> None:
            self._note(began, error)
            self._ended(job, error)

        self._jobs.submit(lambda: job.carry_out(self._storage, keep=keep), done)

    def _note(self, began: float, error: BaseException | None) -> None:
        if error is None:
            self.made += 1
            self.at = perf_counter()
            self.took_s = self.at - began
        else:
            self.failed += 1

    def _ended(self, job: CheckpointJob, error: BaseException | None) -> None:
        self.is_busy = False
        if isinstance(error, HorologError) and error.code in NO_ROOM:
            _log.warning("checkpoint no space, tried again later")
            self._broker.checkpoints.failed()
            self.refuse(error)
        elif error is not None:
            self._fail(error)
            return
        else:
            if job.not_removed:
                _log.warning("checkpoint old files stay, tried again later: %s", job.not_removed)
            self._broker.checkpoints.done(job.checkpoint.position)
            self._grant()
        self._turn()

    # --- who asked --------------------------------------------------------------------------------

    async def take(self) -> int:
        """Take a checkpoint that covers all commands answered so far.

        Return its log position when it is durable.  Raise DISK_FULL if there is no space for one,
        INTERNAL if none was made within a minute.
        """
        shard = self._broker.shard
        if shard.checkpoint_position >= shard.log.end:
            return shard.checkpoint_position
        durable: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._wishes.append(_Wish(shard.log.end, durable))
        self._want()
        try:
            return await asyncio.wait_for(durable, _TAKEN_S)
        except TimeoutError:
            raise _none_taken() from None

    def _want(self) -> None:
        """Have the core decide a checkpoint at its next turn; ask again later in case it fails."""
        self._forget_again()
        self._wishes = [wish for wish in self._wishes if not wish.durable.done()]
        if self._wishes:
            if not (self.is_busy or self._broker.checkpoints.is_decided):
                self._broker.checkpoints.want()
            self._turn()
            self._again = asyncio.get_running_loop().call_later(_AGAIN_S, self._want)

    def _forget_again(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _grant(self) -> None:
        """Settle the callers whose position the durable checkpoint covers.

        A checkpoint decided before a caller asked may not cover enough: then another one follows.
        """
        position = self._broker.shard.checkpoint_position
        for wish in self._wishes:
            if wish.position <= position and not wish.durable.done():
                wish.durable.set_result(position)
        self._want()

    def refuse(self, error: HorologError | None = None) -> None:
        """Refuse all waiting callers: there is no space for a checkpoint, or the engine ends."""
        self._forget_again()
        wishes, self._wishes = self._wishes, []
        for wish in wishes:
            if not wish.durable.done():
                wish.durable.set_exception(error or _none_taken())


def _none_taken() -> HorologError:
    return HorologError(ErrorCode.INTERNAL, "checkpoint: none could be taken")
