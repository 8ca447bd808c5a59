"""The core of a shard: `step` takes what has come, the time, and how far the log is committed.

Deterministic: the same state, inputs and times give the same effects.  One step, in this order:

1. frames that are committed are applied: their messages become visible, scheduled ones are filed;
2. parked polls are served, leases of living clients renewed;
3. commands are decided, in the order they came;
4. their control records, then the sends, then what is due are appended to the log;
5. a mark, or the start of a checkpoint, if it is time.

Everything answered waits for the commit position but leases and empty polls (DESIGN §2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from horolog.broker import adoptions, lake_recalls, offloads, queries
from horolog.broker.adoptions import Adoptions
from horolog.broker.bulk_recalls import BulkRecalls
from horolog.broker.checkpoints import Checkpoints
from horolog.broker.disk_pressure import DiskPressure
from horolog.broker.effects import Effects, Now, Reply
from horolog.broker.hand_over import hand_over
from horolog.broker.key_searches import KeySearches
from horolog.broker.look_ups import find_messages
from horolog.broker.recalls import applied as applied_recalls
from horolog.broker.recalls import recall, with_key, worth_telling
from horolog.broker.receives import Receives
from horolog.broker.reschedules import reschedule
from horolog.broker.sends import Sends
from horolog.broker.shard import Settled, Shard
from horolog.delay.offload import frozen_runs
from horolog.errors import HorologError
from horolog.limits import (
    CHECKPOINT_INTERVAL_MS,
    FRAME_BYTES_MAX,
    LOAD_CHUNK,
    SECOND_MS,
)
from horolog.log.record import encode_topic
from horolog.protocol.adoption_commands import Adopt, BeginAdoption
from horolog.protocol.commands import (
    Ack,
    CancelReceive,
    ChangeInvisible,
    ChangeTopic,
    ClientGone,
    ClientSeen,
    Command,
    CreateTopic,
    DescribeBroker,
    FindMessages,
    Recall,
    RecallByKey,
    Recalled,
    RecallMany,
    Receive,
    Reschedule,
    SendMessages,
)
from horolog.protocol.offload_commands import (
    CommitOffload,
    LakeStep,
    OffloadCommand,
    RecallFromLake,
    RecallManyFromLake,
    RescheduleFromLake,
)
from horolog.protocol.rocketmq.message import key_hash, user_key_hash


class Input(NamedTuple):
    """A command and the token that its reply will carry."""

    token: object
    command: Command


class Broker:
    """One shard's core.  Made by `broker.opening`."""

    def __init__(self, shard: Shard, mono_ms: int = 0) -> None:
        self.shard = shard
        self.disk = DiskPressure(shard)
        self._receives = Receives(shard)
        self._sends = Sends(shard, mono_ms)
        self._bulk = BulkRecalls(shard)
        self._searches = KeySearches(shard)
        self._adoptions = Adoptions(shard)
        self._deferred: list[Input] = []  # about messages that are appended but not filed yet
        self._recalled: list[Settled] = []
        self.checkpoints = Checkpoints(shard)
        self._job_done = False
        self._job_failed = False
        self._job_at = 0  # monotonic ms when it is looked whether there is something to merge
        self._job_hold = 0  # monotonic ms before which none begins, after one failed

    def step(
        self,
        inputs: Sequence[Input],
        *,
        wall_ms: int,
        mono_ms: int,
        commit: int,
        durable: int,
    ) -> Effects:
        """One turn.  `commit` and `durable` are log positions; what they cover becomes visible now."""
        now = Now(wall_ms, mono_ms)
        effects = Effects()
        self._commit(commit, durable, now, effects)
        self.disk.begin_turn()
        self._make_runs(now, effects)
        self._serve(now, effects)
        end_before = self.shard.log.end
        for item in self._undeferred(inputs):
            self._decide(item, now, effects)
        self._searches.work()
        self._recall_many(effects)
        self._append_controls(now)
        effects.replies += self._adoptions.flush(wall_ms)
        effects.replies += self._sends.flush(wall_ms, mono_ms)
        settled = self.shard.wheel.load(wall_ms, LOAD_CHUNK)
        if not self._log_is_full() and not self.shard.delay.far.lake.in_flight:
            hand_over(self.shard, wall_ms)
        self.checkpoints.mark(now)
        self.checkpoints.begin(now)
        if self.shard.log.end != end_before:
            self.checkpoints.written(mono_ms)
        effects.writes = self.shard.log.take_writes()
        effects.end = self.shard.log.end
        effects.wake_in_ms = 0 if not settled or self._has_more() else self._wake_in(now)
        if not self._log_is_full():
            effects.due_in_ms = self.shard.wheel.next_due_in(wall_ms)
        self._tell_problems(effects)
        return effects

    def check_invariants(self) -> None:
        """Everything that must hold between two steps; AssertionError if something does not."""
        self.shard.check_invariants()
        self._receives.renewals.check_invariants()
        self.disk.check_invariants()
        self.checkpoints.check_invariants()
        assert not self._recalled, "decided, and not appended"
        assert not len(self._adoptions), "an adoption was taken up, and not appended"

    def job_done(self) -> None:
        """The job of the last `Effects.job` has been carried out."""
        self._job_done = True

    def job_failed(self) -> None:
        """The job could not be carried out for want of space; another is tried after a while."""
        self.shard.delay.far.fail_job()
        self._job_failed = True

    # --- 1 commit -------------------------------------------------------------------------------

    def _commit(self, commit: int, durable: int, now: Now, effects: Effects) -> None:
        shard = self.shard
        shard.log.commit_position = commit
        shard.log.durable_position = durable
        self.checkpoints.capture(now, effects)
        while shard.uncommitted and shard.uncommitted[0].end <= commit:
            shard.apply(shard.uncommitted.popleft())
            self.checkpoints.capture(now, effects)
        shard.applied = max(shard.applied, min(commit, self._unapplied_from()))
        self.checkpoints.capture(now, effects)
        if shard.stalled:
            shard.file_stalled()

    def _make_runs(self, now: Now, effects: Effects) -> None:
        """Take over what a job has made; begin the next one."""
        shard = self.shard
        if self._job_done and not self._bulk.counts:
            shard.switch_far()
            self._job_done = shard.delay.far.job is not None  # it waits for what is in flight
        if self._job_failed:
            self._job_failed = False
            self._job_hold = now.mono_ms + CHECKPOINT_INTERVAL_MS
        is_time = now.mono_ms >= self._job_at or shard.delay.far.wants_flush
        if is_time and now.mono_ms >= self._job_hold:
            self._job_at = now.mono_ms + SECOND_MS
            self.disk.look(now.mono_ms, now.wall_ms)
            effects.job = shard.delay.far.start_job(now.wall_ms)

    def _unapplied_from(self) -> int:
        return self.shard.log.end if not self.shard.uncommitted else self.shard.applied

    # --- 2 polls and leases ---------------------------------------------------------------------

    def _serve(self, now: Now, effects: Effects) -> None:
        receives = self._receives
        receives.renewals.renew(now)
        effects.prompt += receives.serve(now)
        effects.prompt += receives.time_out(now)

    # --- 3 commands -----------------------------------------------------------------------------

    def _undeferred(self, inputs: Sequence[Input]) -> list[Input]:
        deferred, self._deferred = self._deferred, []
        return [*deferred, *inputs]

    def _decide(self, item: Input, now: Now, effects: Effects) -> None:
        try:
            if isinstance(item.command, OffloadCommand):
                self._offload(item, item.command, now, effects)
            else:
                self._dispatch(item, now, effects)
        except HorologError as error:
            if error.fatal:
                raise
            self._searches.end(item.token)
            effects.replies.append(Reply(item.token, error))

    def _dispatch(self, item: Input, now: Now, effects: Effects) -> None:
        token, command = item
        result: object = None
        match command:
            case SendMessages():
                size = sum(len(message.record) for message in command.messages)
                self.disk.check(now.mono_ms, now.wall_ms, size)
                self._sends.add(token, command, now.wall_ms)
                return
            case Receive():
                reply = self._receives.receive(token, command, now)
                if reply is not None:
                    effects.prompt.append(reply)
                return
            case Ack():
                result = self._receives.ack(command, now)
            case ChangeInvisible():
                result = self._receives.change(command, now)
            case Recall():
                if self._defers(item, command):
                    return
                lake_recalls.check_recalls(self.shard, [command])
                result = self._recall(command)
            case RecallByKey() | FindMessages(message_id=""):
                if (result := self._by_key(item, command)) is None:
                    return
            case RecallMany():
                lake_recalls.check_recall_many(self.shard, command)
                self._bulk.add(token, command)
                return
            case Reschedule():
                self.disk.check(now.mono_ms, now.wall_ms, 0)
                if self._defers(item, command):
                    return
                lake_recalls.check_recalls(self.shard, [command])
                result = reschedule(self.shard, command, now.wall_ms)
            case CreateTopic() | ChangeTopic():
                self.disk.check(now.mono_ms, now.wall_ms, 0)
                result = self._make_topic(command)
            case BeginAdoption() | Adopt():
                if (result := self._adopt(token, command, now)) is None:
                    return
            case CancelReceive(parked):
                self.shard.ready.polls.cancel(parked)
            case ClientSeen(client_id):
                self._receives.renewals.see(client_id, now)
            case ClientGone(client_id):
                effects.prompt += self._receives.client_gone(client_id, now)
            case DescribeBroker():
                self.disk.look(now.mono_ms, now.wall_ms)
                result = queries.answer(self.shard, command)
            case _:
                assert not isinstance(command, OffloadCommand)
                result = queries.answer(self.shard, command)
        effects.replies.append(Reply(token, result))

    def _adopt(self, token: object, command: BeginAdoption | Adopt, now: Now) -> object:
        """The answer to a begin; a commit is appended, and answered, later in the turn."""
        self.disk.check(now.mono_ms, now.wall_ms, adoptions.space_for(command))
        if isinstance(command, BeginAdoption):
            return adoptions.begin(self.shard, command, now.wall_ms)
        self._adoptions.add(token, command)
        return None

    def _defers(self, item: Input, *commands: Recall | RecallByKey | Reschedule) -> bool:
        """Whether it must wait, because what it is about is appended but not filed yet."""
        if self.shard.delay.far.lake.in_flight:
            self._deferred.append(item)
            return True
        for each in commands:
            if isinstance(each, RecallByKey):
                key = user_key_hash(each.topic, each.key)
                is_new = self._sends.has_keyed()
            else:
                key = key_hash(each.topic, each.message_id)
                is_new = self._sends.has_key(key)
            if is_new or len(self._adoptions) or self.shard.is_in_flight(key):
                self._deferred.append(item)
                return True
        return False

    def _offload(self, item: Input, command: OffloadCommand, now: Now, effects: Effects) -> None:
        if not self._lake_waits(item, command):
            result = self._lake(command, now)
            effects.replies.append(Reply(item.token, result))

    def _lake_waits(self, item: Input, command: OffloadCommand) -> bool:
        """Whether a step of an offload must wait for what is appended and not applied, or not done."""
        far = self.shard.delay.far
        if isinstance(command, RecallFromLake | RescheduleFromLake):
            return self._defers(item, Recall(command.topic, command.message_id, command.due_ms))
        waits = isinstance(command, LakeStep | RecallManyFromLake) and far.lake.in_flight
        if isinstance(command, CommitOffload):
            waits = waits or self._bulk.under_way
            waits = waits or any(run.recalling for run in frozen_runs(far))
        if waits:
            self._deferred.append(item)
        return waits

    def _lake(self, command: OffloadCommand, now: Now) -> object:
        wall_ms = now.wall_ms
        match command:
            case RecallFromLake(topic, message_id, due_ms):
                there = lake_recalls.recall(self.shard, command, wall_ms)
                here = self._recall(Recall(topic, message_id, due_ms))
                return there or here
            case RescheduleFromLake():
                self.disk.check(now.mono_ms, wall_ms, 0)
                return lake_recalls.move(self.shard, command, wall_ms)
            case RecallManyFromLake():
                return lake_recalls.recall_rows(self.shard, command, wall_ms)
        return offloads.decide(self.shard, command, wall_ms)

    def _by_key(self, item: Input, command: RecallByKey | FindMessages) -> object:
        """What was found, or what became of each message; None if that has to wait."""
        adopted = self._searches.found(item.token, command)
        if adopted is None:
            self._deferred.append(item)
            return None
        if isinstance(command, FindMessages):
            self._searches.end(item.token)
            return find_messages(self.shard, command, adopted)
        recalls = with_key(self.shard, command, adopted)
        if self._defers(item, command, *recalls):
            return None
        self._searches.end(item.token)
        lake_recalls.check_recalls(self.shard, recalls)
        return worth_telling([self._recall(each) for each in recalls])

    def _recall(self, command: Recall) -> Recalled:
        result, record, settled = recall(self.shard, command)
        if record is not None and settled is not None:
            self._receives.records.append(record)
            self._recalled.append(settled)
        return result

    def _recall_many(self, effects: Effects) -> None:
        if not self._log_is_full() and not self.shard.delay.far.lake.in_flight:
            records, settled, replies = self._bulk.work()
            self._receives.records += records
            self._recalled += settled
            effects.replies += replies

    def _has_more(self) -> bool:
        """Whether a turn is wanted at once, for commands that are not done."""
        log = self.shard.log
        if self._deferred and log.commit_position == log.end:
            return True
        more = self._bulk.wants_turn and not self._log_is_full()
        return more or self._searches.wants_turn

    def _make_topic(self, command: CreateTopic | ChangeTopic) -> object:
        topics = self.shard.topics
        planned = topics.plan(command)
        is_new = command.name not in topics.by_name
        if planned is not None:
            topics.put(*planned)
            number, name, type_, queues = planned
            self._receives.records.append(encode_topic(number, name, type_.value, queues))
        view = queries.view_topic(self.shard, topics.get(command.name), with_pending=not is_new)
        return replace(view, pending=0) if is_new else view  # nothing can wait of a new one

    # --- 4 append -------------------------------------------------------------------------------

    def _append_controls(self, now: Now) -> None:
        records = self._receives.take_records()
        limit = min(FRAME_BYTES_MAX, self.shard.log.segment_bytes // 4)
        batch: list[bytes] = []
        size = 0
        for record in records:
            if batch and size + len(record) > limit:
                self.shard.log.append(b"".join(batch), len(batch), now.wall_ms)
                batch, size = [], 0
            batch.append(record)
            size += len(record)
        if batch:
            self.shard.log.append(b"".join(batch), len(batch), now.wall_ms)
        if self._recalled:
            settled, self._recalled = self._recalled, []
            self.shard.uncommitted.append(applied_recalls(self.shard.log.end, settled))

    def _log_is_full(self) -> bool:
        """Whether a hand-over would have to wait for the disk: half a segment is appended but not durable."""
        log = self.shard.log
        return log.end - log.commit_position > log.segment_bytes // 2

    # --- 5 sleep --------------------------------------------------------------------------------

    def _wake_in(self, now: Now) -> int | None:
        shard = self.shard
        waits = self.checkpoints.wake_in(now)
        for at in (shard.ready.polls.next_at(), self._receives.renewals.next_at()):
            if at is not None:
                waits.append(max(0, at - now.mono_ms))
        return min(waits) if waits else None

    def _tell_problems(self, effects: Effects) -> None:
        self.shard.gather_problems()
        effects.problems = self.shard.problems.take_untold()
