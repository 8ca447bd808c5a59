"""The event loop around the core: gather inputs into turns, perform effects, release replies.

The event loop's thread runs the core, a second thread writes and syncs the log (`group_commit`),
a third makes checkpoints (`checkpointing`).  A failed write or sync of the log ends the process;
recovery starts from the disk.  `next_turn` decides when the next turn is.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any

from horolog.broker.broker import Input
from horolog.broker.effects import Effects, Now, Reply
from horolog.broker.life.opening import Opened
from horolog.clock import Clock
from horolog.delay.far.jobs import FarJob
from horolog.errors import HorologError
from horolog.limits import TURN_COMMANDS_MAX
from horolog.protocol.commands import CancelReceive, Command, Receive, SendMessages
from horolog.protocol.queue_commands import Pull
from horolog.protocol.transaction_commands import CheckDue
from horolog.server import simulated_time
from horolog.server.adoptions import Adoptions
from horolog.server.backups import Backups
from horolog.server.batching import CallbackBatch
from horolog.server.checkpointing import Checkpointing
from horolog.server.failures import too_late, why_failed
from horolog.server.group_commit import Flush, GroupCommit
from horolog.server.inputs import Inputs
from horolog.server.jobs import Jobs
from horolog.server.meters import Meters
from horolog.server.next_turn import NextTurn
from horolog.server.refusal_log import RefusalLog
from horolog.server.replies import HeldReplies, settle_replies
from horolog.server.running import OffloadMaker
from horolog.server.ticket import Ticket, ignore_result
from horolog.server.write_back import WriteBack
from horolog.storage.api import Storage

_log = logging.getLogger("horolog")
_CLOCK_CHECK_MS = 500  # how often to look for a step of the wall clock while messages wait
_SWITCH_S = 0.000_1
_GATHER_S = 0.002  # seconds that doors gather requests for one command while the disk is busy


class Engine:
    """A running shard.  Everything but its jobs belongs to the event loop's thread.

    storage     the data directory
    on_checks   called with transactions whose producers must be asked how they ended
    on_answers  called when answers were given that can be written before the turn goes on
    next_turn   asked for a turn by every part that has work for the core
    next_in_ms  milliseconds until the core has work; None: it has none before a command arrives
    """

    def __init__(
        self, opened: Opened, storage: Storage, clock: Clock, flush: Flush = "sync"
    ) -> None:
        self.clock = clock
        self.broker = opened.broker
        self.report = opened.report
        self.failed: asyncio.Future[None]
        self.storage = storage
        self.inputs = Inputs()
        self.meters = Meters()
        self._held = HeldReplies()
        self.log = GroupCommit(
            opened.writer, self.broker.disk, clock, flush, opened.broker.shard.log.end
        )
        self.next_turn = NextTurn(self.log, self.inputs, self.meters)
        self._before_turn = CallbackBatch()
        self._refusal_log = RefusalLog()
        self._has_left = False  # the last turn could not take all inputs
        self.next_in_ms: int | None = 0
        self._quiet: list[asyncio.Future[None]] = []
        self._stopping = False
        self._on_close: list[Callable[[], None]] = []
        self.on_answers: list[Callable[[], None]] = []
        self.on_checks: Callable[[list[CheckDue]], None] = lambda _: None
        self.backups: Backups | None = None  # None without a data directory
        self.adoptions: Adoptions | None = None  # None without a data directory
        self.offloads: OffloadMaker | None = None  # None without a data directory

    async def start(self) -> None:
        """Start the threads and the first turn; needs a running event loop."""
        # The log's thread must get the interpreter back soon after its sync, not 5 ms later.
        sys.setswitchinterval(_SWITCH_S)
        self._loop = asyncio.get_running_loop()
        self.failed = self._loop.create_future()
        self.next_turn.start(self._loop, self._turn)
        self.log.begin(self._loop, self._turn, self._fail)
        self._checkpoint_jobs = Jobs("horolog-checkpoint", self._loop)
        self._runs_jobs = Jobs("horolog-runs", self._loop)
        self.checkpointing = Checkpointing(
            self.broker, self.storage, self._checkpoint_jobs, self.next_turn.soon, self._fail
        )
        self._write_back = WriteBack(self.broker.shard.delay, self.storage, self._checkpoint_jobs)
        for line in self.report:
            _log.info("%s", line)
        self._turn()

    def on_close(self, close: Callable[[], None]) -> None:
        """Call `close` when the engine has stopped, to release the directory's lock for example."""
        self._on_close.append(close)

    def submit(self, command: Command) -> asyncio.Future[Any]:
        """Queue a command for the core; the future returns its result or raises HorologError.

        The future fails at once with TOO_MANY_REQUESTS while too much waits for the disk.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if (refusal := self._put(future, command)) is not None:
            future.set_exception(refusal)
        return future

    def ask(self, command: Command, then: Callable[[object], None]) -> Ticket:
        """Queue a command for the core on behalf of a door, without a future.

        `then` is called with the result or the HorologError, after `ask` has returned.
        """
        ticket = Ticket(then)
        if (refusal := self._put(ticket, command)) is not None:
            self._loop.call_soon(ticket.settle, refusal)
        return ticket

    def before_turn(self, ask: Callable[[], None]) -> None:
        """Call `ask` once, before the next turn takes its commands, or within two milliseconds.

        Until then a door gathers requests whose commands cost less together.  While a write is
        under way no client could be answered anyway, and the end of the write brings a turn.
        """
        self._before_turn.add(ask)
        if self._stopping or self.failed.done():
            self._loop.call_soon(self._before_turn.call_all)  # commands of `ask` are refused
        elif self.log.is_busy:
            self._before_turn.call_within(self._loop, _GATHER_S)
        else:
            self.next_turn.soon()

    def _put(self, token: asyncio.Future[Any] | Ticket, command: Command) -> HorologError | None:
        if self._stopping or self.failed.done():
            return too_late(self.failed)
        if (refusal := self.inputs.put(Input(token, command))) is not None:
            self.meters.refused += 1
            return refusal
        if self.clock.simulated and isinstance(command, Receive | Pull) and command.poll_ms > 0:
            # A simulated clock stands still, but the caller's patience is real.
            self._loop.call_later(command.poll_ms / 1000, self._give_up, token)
        if not (isinstance(command, SendMessages) and self.next_turn.can_gather()):
            self.next_turn.soon(gather=True)
        return None

    def _give_up(self, token: asyncio.Future[Any] | Ticket) -> None:
        if not (token.over if isinstance(token, Ticket) else token.done()):
            self.ask(CancelReceive(token, answer=True), ignore_result)

    # --- turns ----------------------------------------------------------------------------------

    def _turn(self) -> None:
        self.next_turn.turn_arrived()
        if self.failed.done():
            return
        if self.log.is_full:
            self.log.write()
            if self.log.is_full:
                return  # the disk lags: the end of the write under way brings the next turn
        self.next_turn.turn_began()
        self._before_turn.call_all()
        self.next_turn.inputs_taken()
        inputs = self.inputs.take(TURN_COMMANDS_MAX)
        self._has_left = bool(self.inputs)
        now = Now(self.clock.wall_ms(), self.clock.monotonic_ms())
        self.meters.begin(len(inputs), *now)
        try:
            effects = self.broker.begin_turn(
                inputs, now, commit=self.log.commit, durable=self.log.durable
            )
            self._answer_early(effects)
            self.broker.finish_turn(now, effects)
        except Exception as error:  # noqa: BLE001 - a broken invariant, a dead disk: stop
            self.inputs.put_back(inputs)  # `_fail` refuses them
            self._fail(error)
            return
        finally:
            self.next_turn.appended()
        self.meters.end()
        self._refusal_log.log_change(self.broker.shard.disk_refusal, now.mono_ms)
        self._perform(effects)
        self.next_turn.write_started()

    def _answer_early(self, effects: Effects) -> None:
        """Give and write the answers that are ready before the turn appends.

        Clients go on meanwhile.
        """
        prompt, effects.prompt = effects.prompt, []
        if prompt or self._held.are_due(self.log.commit):
            self.meters.pause()
            settle_replies(prompt)
            self._held.release(self.log.commit)
            for write in self.on_answers:
                write()
            self.meters.resume()

    def _perform(self, effects: Effects) -> None:
        # Write first: commands that the answers bring then wait for the end of this write, and have
        # no turn before it.
        self.log.gather(effects.writes, effects.end)
        self.log.write()
        self._write_back.begin_if_due(effects.end)
        settle_replies(effects.prompt)
        for problem in effects.problems:
            _log.error("problem %s", problem)
        for transaction in effects.given_up:
            _log.warning("%s", transaction)
        if effects.checks:
            self.on_checks(effects.checks)
        self._held.hold(effects.end, effects.replies)
        self._held.release(self.log.commit)
        if effects.checkpoint is not None:
            self.checkpointing.carry_out(effects.checkpoint)
        if effects.no_checkpoint is not None:
            self.checkpointing.not_captured(effects.no_checkpoint)
        if effects.job is not None:
            self._make_runs(effects.job)
        self._sleep(effects)

    def _sleep(self, effects: Effects) -> None:
        waits = [ms for ms in (effects.wake_in_ms, effects.due_in_ms) if ms is not None]
        self.next_in_ms = min(waits) if waits else None
        if self._has_left or self.next_in_ms == 0:
            self.next_turn.soon()
        elif self.next_in_ms is not None and not self.clock.simulated:
            wait_ms = self.next_in_ms
            if effects.due_in_ms is not None:
                wait_ms = min(wait_ms, _CLOCK_CHECK_MS)
            self.next_turn.within(wait_ms)
        self._notice_quiet()

    # --- other jobs -----------------------------------------------------------------------------

    async def checkpoint(self) -> int:
        """Take a checkpoint that covers all commands answered so far.

        Return its log position when it is durable.

        Raise DISK_FULL if there is no space for one, INTERNAL if none was made within a minute.
        """
        if self.failed.done() or self._stopping:
            raise too_late(self.failed)
        return await self.checkpointing.take()

    def pin(self) -> None:
        """Keep checkpoints from removing files until `unpin`: a backup copies them."""
        self.checkpointing.pin()

    def unpin(self) -> None:
        """Let the next checkpoint remove the files that were kept since `pin`."""
        self.checkpointing.unpin()

    def _make_runs(self, job: FarJob) -> None:
        def done(error: BaseException | None) -> None:
            if isinstance(error, HorologError) and not error.fatal:
                _log.warning("runs not made, tried again later: %s", error)
                self.broker.job_failed()
            elif error is not None:
                self._fail(error)
                return
            else:
                self.broker.job_done()
            self.next_turn.soon()

        self._runs_jobs.submit(lambda: job.carry_out(self.storage), done)

    # --- quiet, stop, failure -------------------------------------------------------------------

    def _notice_quiet(self) -> None:
        if self._quiet and self._is_quiet():
            waiting, self._quiet = self._quiet, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    def _is_quiet(self) -> bool:
        return (
            not self.inputs
            and not self._before_turn
            and self.log.is_quiet
            and not self.next_turn.is_asked
            and not self.checkpointing.is_busy
        )

    async def until_quiet(self) -> None:
        """Return when no work is under way, and none is due at this time."""
        if self.failed.done():
            return  # there will be no more turns
        self.next_turn.soon()
        future: asyncio.Future[None] = self._loop.create_future()
        self._quiet.append(future)
        await future

    async def advance(self, by_ms: int) -> None:
        """Move a simulated clock; return when all that became due is handed over and committed.

        Raise BAD_REQUEST for a system clock or a negative time.
        """
        await simulated_time.advance(self, by_ms)

    async def stop(self) -> None:
        """Finish the work under way, take a checkpoint, close everything; refuse later commands."""
        if self.backups is not None:
            await self.backups.close()
        if not self.failed.done():
            self.broker.is_ending = True
            await self.until_quiet()
        self._stopping = True  # nobody would answer a command that comes after the last turn
        if not self.failed.done():
            self.broker.checkpoints.request()  # a checkpoint of the whole log: no new work is begun
            await self.until_quiet()
        self.checkpointing.refuse()
        self.next_turn.cancel_timer()
        self.log.end_jobs()
        self._checkpoint_jobs.stop()
        self._runs_jobs.stop()
        self.log.close(sync=not self.failed.done())
        self.broker.shard.close()
        for close in self._on_close:
            close()

    def _fail(self, error: BaseException) -> None:
        why = why_failed(error, self.storage, self.broker.shard)
        _log.critical("failed %s", why or error, exc_info=None if why else error)
        error = why or error
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()  # so that asyncio does not log it as never retrieved
        lost = too_late(self.failed)
        settle_replies(Reply(item.token, lost) for item in self.inputs)
        self.inputs.clear()
        self._held.refuse(lost)
        self.checkpointing.refuse(lost)
        self._before_turn.call_all()  # commands of the callbacks are refused
        for future in self._quiet:
            if not future.done():
                future.set_result(None)
