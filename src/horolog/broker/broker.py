"""The core of a shard: `step` takes commands, the time and the commit position; it returns effects.

Deterministic: the same state, inputs and times give the same effects.  One step, in this order:

1. apply frames that are committed: their messages become visible, scheduled ones are filed;
2. serve parked polls, and renew leases of living clients;
3. decide commands, in the order in which they arrived;
4. append pieces of bulk recalls, the control records, the messages of the turn (ends of
   transactions, adoptions, dead letters, sends), then due messages and the firings of recurring
   schedules;
5. append a mark, or start a checkpoint, if it is time.

Every reply waits for the commit position, except leases and the empty answers to polls
(docs/decisions/0004-replies-wait-but-polls-do-not.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from horolog.broker import relations
from horolog.broker.decisions import Decisions
from horolog.broker.effects import Effects, Now
from horolog.broker.filing_pace import FilingPace
from horolog.broker.hand_over import hand_over
from horolog.broker.handlers import Input
from horolog.broker.life.checkpoints import Checkpoints
from horolog.broker.life.space import DiskPressure
from horolog.broker.recall.recalls import applied_recalls
from horolog.broker.send.sends import NO_REPLY
from horolog.broker.shard import Shard
from horolog.broker.waits import BulkPiece, HandOver, TakeRuns
from horolog.limits import (
    CHECKPOINT_INTERVAL_MS,
    LOAD_CHUNK,
    SECOND_MS,
)
from horolog.protocol.commands import (
    Ack,
    CancelReceive,
    ChangeInvisible,
    ClientSeen,
    Receive,
    SendMessages,
)
from horolog.protocol.queue_commands import CommitOffsets, GetOffsets, Pull

__all__ = ["Broker", "Input"]
# Commands that add scheduled messages or concern visible ones only: they read no pending message.
_NEED_NO_FILING = frozenset(
    (
        SendMessages,
        Pull,
        CommitOffsets,
        GetOffsets,
        Receive,
        CancelReceive,
        Ack,
        ChangeInvisible,
        ClientSeen,
    )
)


class Broker:
    """The core of one shard, built by `broker.life.opening`.

    is_ending  the process is stopping: the core appends nothing unasked, so that a checkpoint can
               cover the whole log
    """

    def __init__(self, shard: Shard, mono_ms: int = 0) -> None:
        self.shard = shard
        self.is_ending = False
        shard.counters.begin(shard.topics.by_id)  # forget what a replay has counted
        self.disk = DiskPressure(shard)
        self.checkpoints = Checkpoints(shard)
        self._decisions = Decisions(shard, self.disk, self.checkpoints, mono_ms)
        self._receives = self._decisions.receives
        self._receives.renewals.resume(mono_ms)
        self._filing = FilingPace(shard)
        self._job_done = False
        self._job_failed = False
        self._next_job_ms = 0  # monotonic, when to check next whether to make or merge runs
        self._job_hold_ms = 0  # monotonic, before which no job begins, after one has failed

    def step(
        self,
        inputs: Sequence[Input],
        *,
        wall_ms: int,
        mono_ms: int,
        commit: int,
        durable: int,
    ) -> Effects:
        """Run one turn.

        `commit` and `durable` are log positions; everything below `commit` becomes visible in this
        turn.
        """
        now = Now(wall_ms, mono_ms)
        effects = self.begin_turn(inputs, now, commit=commit, durable=durable)
        self.finish_turn(now, effects)
        return effects

    def begin_turn(
        self, inputs: Sequence[Input], now: Now, *, commit: int, durable: int
    ) -> Effects:
        """Run phases 1 to 3 of a turn.

        The caller may send prompt answers, and replies that waited for this commit position, before
        phases 4 and 5.
        """
        effects = Effects()
        self._commit(commit, durable, now, effects, waits=self._may_file_later(inputs))
        self.disk.begin_turn()
        self._make_runs(now, effects)
        self._serve(now, effects)
        effects.end = self.shard.log.end
        self._decisions.decide(inputs, now, effects)
        return effects

    def finish_turn(self, now: Now, effects: Effects) -> None:
        """Run phases 4 and 5 of the turn that has begun at `now`, and add to its effects."""
        wall_ms, mono_ms = now
        end_before = effects.end
        decisions = self._decisions
        decisions.recalls.do_searches()
        decisions.lists.work()
        if not decisions.waits(BulkPiece()):
            decisions.recalls.do_bulk(now, effects)
        if not self.is_ending:
            decisions.transactions.report_due(now, effects)
        self._append_controls(now)
        effects.replies += decisions.transactions.flush(now)
        effects.replies += decisions.adoptions.flush(wall_ms)
        effects.replies += decisions.dead_letters.flush(wall_ms)
        effects.replies += [
            reply
            for reply in decisions.sends.flush(wall_ms, mono_ms)
            if reply.token is not NO_REPLY
        ]
        self._append_records(decisions.send_backs.take_buried(), now)
        settled = self.shard.wheel.load(wall_ms, LOAD_CHUNK)
        if not self.is_ending:
            self._append_due(now)
            self.checkpoints.mark(now)
        self.checkpoints.begin(now)
        if self.shard.log.end != end_before:
            self.checkpoints.note_append(mono_ms)
        effects.writes = self.shard.log.take_writes()
        effects.end = self.shard.log.end
        effects.wake_in_ms = 0 if not settled or self._has_more() else self._wake_in(now)
        if not (self.shard.is_log_full or self.is_ending):
            effects.due_in_ms = self._due_in(wall_ms)
        self._report_problems(effects)

    def check_invariants(self) -> None:
        """Raise AssertionError if an invariant that must hold between two steps is broken."""
        relations.check_shard(self.shard)
        self._decisions.check_invariants()
        self.disk.check_invariants()
        self.checkpoints.check_invariants()

    def job_done(self) -> None:
        """Note that the job of the last `Effects.job` has been carried out."""
        self._job_done = True

    def job_failed(self) -> None:
        """Note that a job failed, for want of space or because of damage.

        Another job is tried after a while.
        """
        self.shard.delay.far.compaction.fail()
        self.shard.close_idle()
        self._job_failed = True

    # --- 1 commit -------------------------------------------------------------------------------

    def _may_file_later(self, inputs: Sequence[Input]) -> bool:
        """Return whether filing may wait, because no command of this turn reads pending messages.

        A turn of sends is such a turn: the end of its write brings another one.
        """
        decisions = self._decisions
        if not inputs or self.checkpoints.is_decided or decisions.has_deferred:
            return False
        if decisions.recalls.wants_turn or decisions.recalls.bulk.under_way:
            return False
        return all(type(item.command) in _NEED_NO_FILING for item in inputs)

    def _commit(
        self, commit: int, durable: int, now: Now, effects: Effects, *, waits: bool
    ) -> None:
        """Apply committed frames; with `waits`, scheduled messages may be filed in a later turn."""
        shard = self.shard
        shard.log.commit_position = commit
        shard.log.durable_position = durable
        if not waits:
            shard.file_unfiled()
        self.checkpoints.capture(now, effects)
        while shard.uncommitted and shard.uncommitted[0].end <= commit:
            shard.apply(shard.uncommitted.popleft(), files_later=waits)
            self.checkpoints.capture(now, effects)
        self._filing.file(now)
        shard.applied = max(shard.applied, min(commit, self._unapplied_from()))
        shard.counters.note_visible(shard.applied, now.wall_ms)
        self.checkpoints.capture(now, effects)
        if shard.delay.stalled:
            shard.file_stalled()

    def _make_runs(self, now: Now, effects: Effects) -> None:
        """Take over the runs that a finished job has made, and begin the next job."""
        shard = self.shard
        if self._job_done and not self._decisions.waits(TakeRuns()):
            shard.switch_far()
            # The job is done, but its runs cannot be taken over while messages are in flight.
            self._job_done = shard.delay.far.compaction.job is not None
        if self._job_failed:
            self._job_failed = False
            self._job_hold_ms = now.mono_ms + CHECKPOINT_INTERVAL_MS
        is_time = now.mono_ms >= self._next_job_ms or shard.delay.far.compaction.wants_flush
        if is_time and now.mono_ms >= self._job_hold_ms:
            self._next_job_ms = now.mono_ms + SECOND_MS
            self.disk.refresh(now.mono_ms, now.wall_ms)
            effects.job = shard.delay.far.compaction.start(now.wall_ms)

    def _unapplied_from(self) -> int:
        return self.shard.log.end if not self.shard.uncommitted else self.shard.applied

    # --- 2 polls and leases ---------------------------------------------------------------------

    def _serve(self, now: Now, effects: Effects) -> None:
        if not self.is_ending:
            self._receives.renewals.renew(now)
        for reply in self._decisions.waiting.serve(now):
            effects.answer_poll(reply)
        effects.prompt += self._decisions.waiting.time_out(now)

    def _has_more(self) -> bool:
        """Return whether another turn is needed at once, for unfinished commands and polls."""
        decisions = self._decisions
        if decisions.wants_turn or decisions.recalls.wants_turn or decisions.lists.wants_turn:
            return True
        if self.shard.visible:
            return True
        if self.shard.unfiled and self.shard.log.commit_position == self.shard.log.end:
            return True
        if self.shard.ready.polls.has_postponed:
            return True
        return decisions.recalls.bulk.wants_turn and not decisions.waits(BulkPiece())

    # --- 4 append -------------------------------------------------------------------------------

    def _append_controls(self, now: Now) -> None:
        self._append_records(self._decisions.take_records(), now)
        recalls = self._decisions.recalls
        if recalls.settled:
            settled, recalls.settled = recalls.settled, []
            self.shard.uncommitted.append(applied_recalls(self.shard.log.end, settled))

    def _append_records(self, records: list[bytes], now: Now) -> None:
        log = self.shard.log
        for batch in log.in_frames(records, len):
            log.append(b"".join(batch), len(batch), now.wall_ms)

    def _append_due(self, now: Now) -> None:
        """Append due messages and the firings of recurring schedules."""
        if not self._decisions.waits(HandOver()):
            hand_over(self.shard, self._decisions.late, now.wall_ms)
        self._decisions.schedules.planner.work(now)

    # --- 5 sleep --------------------------------------------------------------------------------

    def _wake_in(self, now: Now) -> int | None:
        shard = self.shard
        waits = self.checkpoints.wake_in(now)
        renew_at = None if self.is_ending else self._receives.renewals.next_at()
        for at in (shard.ready.polls.next_at(), renew_at):
            if at is not None:
                waits.append(max(0, at - now.mono_ms))
        if shard.delay.far.compaction.wants_flush:  # a job has failed, and has to be tried again
            waits.append(max(0, self._job_hold_ms - now.mono_ms))
        return min(waits) if waits else None

    def _due_in(self, wall_ms: int) -> int | None:
        """Return the ms of wall time until a message, transaction or schedule needs a turn."""
        waits = [
            self.shard.wheel.next_due_in(wall_ms),
            self._decisions.schedules.planner.wake_in(wall_ms),
        ]
        look_ms = self.shard.halves.next_ms()
        if look_ms is not None:
            waits.append(max(0, look_ms - wall_ms))
        return min((ms for ms in waits if ms is not None), default=None)

    def _report_problems(self, effects: Effects) -> None:
        self.shard.gather_problems()
        effects.problems = self.shard.problems.take_unreported()
