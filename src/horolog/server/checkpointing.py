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
_RETRY_S = 0.5  # until a checkpoint that failed is asked for again (full disk, simulated time)
_TIMEOUT_S = 60.0  # in which a checkpoint becomes durable, however slow its syncs are


class _Waiter(NamedTuple):
    """A caller that waits for a checkpoint at this log position or after it."""

    position: int
    durable: asyncio.Future[int]


class Checkpointing:
    """Carries out checkpoint jobs.

    turn  has the engine make a turn soon
    fail  ends the engine

    made, failed  checkpoints since the start: durable ones, and those that failed
    took_s        seconds that the newest durable checkpoint took
    ended_s       monotonic, at the end of the newest durable one; None: none since the start
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
        self.ended_s: float | None = None
        self._broker = broker
        self._storage = storage
        self._jobs = jobs
        self._turn = turn
        self._fail = fail
        self._waiters: list[_Waiter] = []
        self._retry_timer: asyncio.TimerHandle | None = None
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
            self._record(began, error)
            self._job_ended(job, error)

        self._jobs.submit(lambda: job.carry_out(self._storage, keep=keep), done)

    def _record(self, began: float, error: BaseException | None) -> None:
        if error is None:
            self.made += 1
            self.ended_s = perf_counter()
            self.took_s = self.ended_s - began
        else:
            self.failed += 1

    def _job_ended(self, job: CheckpointJob, error: BaseException | None) -> None:
        self.is_busy = False
        if isinstance(error, HorologError) and error.code in NO_ROOM:
            self._broker.checkpoints.failed()
            self._not_made(error)
        elif error is not None:
            self._fail(error)
            return
        else:
            if job.not_shown:
                _log.warning("checkpoint delay levels not shown: %s", job.not_shown)
            if job.not_removed:
                _log.warning("checkpoint old files stay, tried again later: %s", job.not_removed)
            self._broker.checkpoints.done(job.checkpoint.position)
            self._settle_waiters()
        self._turn()

    def not_captured(self, error: HorologError) -> None:
        """Note that there was no space for what a checkpoint needs before its job."""
        self.failed += 1
        self._not_made(error)

    def _not_made(self, error: HorologError) -> None:
        _log.warning("checkpoint not made, tried again later: %s", error.message)
        self.refuse(error)

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
        self._waiters.append(_Waiter(shard.log.end, durable))
        self._request()
        try:
            return await asyncio.wait_for(durable, _TIMEOUT_S)
        except TimeoutError:
            raise _none_taken() from None

    def _request(self) -> None:
        """Have the core decide a checkpoint at its next turn; ask again later in case it fails."""
        self._cancel_retry()
        self._waiters = [waiter for waiter in self._waiters if not waiter.durable.done()]
        if self._waiters:
            if not (self.is_busy or self._broker.checkpoints.is_decided):
                self._broker.checkpoints.request()
            self._turn()
            self._retry_timer = asyncio.get_running_loop().call_later(_RETRY_S, self._request)

    def _cancel_retry(self) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None

    def _settle_waiters(self) -> None:
        """Settle the callers whose position the durable checkpoint covers.

        A checkpoint decided before a caller asked may not cover enough: then another one follows.
        """
        position = self._broker.shard.checkpoint_position
        for waiter in self._waiters:
            if waiter.position <= position and not waiter.durable.done():
                waiter.durable.set_result(position)
        self._request()

    def refuse(self, error: HorologError | None = None) -> None:
        """Refuse all waiting callers: there is no space for a checkpoint, or the engine ends."""
        self._cancel_retry()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.durable.done():
                waiter.durable.set_exception(error or _none_taken())


def _none_taken() -> HorologError:
    return HorologError(ErrorCode.INTERNAL, "checkpoint: none could be taken")
