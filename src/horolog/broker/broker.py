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
from typing import Any, NamedTuple

from horolog.broker import queries, snapshot
from horolog.broker.effects import Effects, Reply
from horolog.broker.hand_over import hand_over
from horolog.broker.queries import view_topic
from horolog.broker.recalls import applied as applied_recalls
from horolog.broker.recalls import recall
from horolog.broker.receives import Now, Receives
from horolog.broker.sends import Sends
from horolog.broker.shard import Settled, Shard
from horolog.errors import ErrorCode, HorologError
from horolog.limits import (
    CHECKPOINT_INTERVAL_MS,
    CHECKPOINT_LOG_BYTES,
    CLIENT_EXPIRY_MS,
    CONTROL_RESERVE_BYTES,
    FRAME_BYTES_MAX,
    LOAD_CHUNK,
    MARK_IDLE_MS,
    SECOND_MS,
)
from horolog.log.checkpoint import Checkpoint
from horolog.log.record import encode_topic
from horolog.protocol.commands import (
    Ack,
    CancelReceive,
    ChangeInvisible,
    ClientGone,
    ClientSeen,
    Command,
    CreateTopic,
    DescribeBroker,
    Recall,
    Receive,
    SendMessages,
)
from horolog.protocol.rocketmq.message import key_hash


class Input(NamedTuple):
    """A command and the token that its reply will carry."""

    token: object
    command: Command


class Broker:
    """One shard's core.  Made by `broker.opening`."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self._receives = Receives(shard)
        self._sends = Sends(shard)
        self._deferred: list[Input] = []  # recalls of messages that are appended but not filed yet
        self._recalled: list[Settled] = []
        self._written_at = 0  # monotonic ms of the last append
        self._checkpoint: Checkpoint | None = None
        self._checkpoint_at: int | None = None
        self._checkpointing = False
        self._disk_looked_at = (-SECOND_MS, 0)  # (monotonic ms, log end)
        self._told = 0

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
        self._serve(now, effects)
        for item in self._undeferred(inputs):
            self._decide(item, now, effects)
        end_before = self.shard.log.end
        self._append_controls(now)
        effects.replies += self._sends.flush(wall_ms)
        settled = self.shard.wheel.load(wall_ms, LOAD_CHUNK)
        if not self._log_is_full():
            hand_over(self.shard, wall_ms)
        self._mark(now)
        self._begin_checkpoint(now)
        if self.shard.log.end != end_before:
            self._written_at = mono_ms
        effects.writes = self.shard.log.take_writes()
        effects.end = self.shard.log.end
        effects.wake_in_ms = 0 if not settled else self._wake_in(now)
        if not self._log_is_full():
            effects.due_in_ms = self.shard.wheel.next_due_in(wall_ms)
        self._tell_problems(effects)
        return effects

    def want_checkpoint(self) -> None:
        """Take a checkpoint at the next step that can (before a clean stop)."""
        self._checkpoint_at = 0

    def checkpoint_done(self, position: int) -> None:
        """The job of the last `Effects.checkpoint` has been carried out."""
        self._checkpointing = False
        self.shard.checkpoint_position = position

    def checkpoint_failed(self) -> None:
        """The job could not be carried out for want of space; another is tried at the next interval."""
        self._checkpointing = False

    # --- 1 commit -------------------------------------------------------------------------------

    def _commit(self, commit: int, durable: int, now: Now, effects: Effects) -> None:
        shard = self.shard
        shard.log.commit_position = commit
        shard.log.durable_position = durable
        self._capture(now, effects)
        while shard.uncommitted and shard.uncommitted[0].end <= commit:
            shard.apply(shard.uncommitted.popleft())
            self._capture(now, effects)
        shard.applied = max(shard.applied, min(commit, self._unapplied_from()))
        self._capture(now, effects)
        if shard.stalled:
            shard.file_stalled()

    def _unapplied_from(self) -> int:
        return self.shard.log.end if not self.shard.uncommitted else self.shard.applied

    def _capture(self, now: Now, effects: Effects) -> None:
        waiting = self._checkpoint
        shard = self.shard
        if waiting is None or shard.log.commit_position < waiting.position or shard.stalled:
            return
        if shard.uncommitted and shard.uncommitted[0].end <= waiting.position:
            return
        self._checkpoint = None
        if shard.applied > waiting.position:
            self._checkpointing = False  # overtaken while the disk was full: taken anew later
            return
        try:
            effects.checkpoint = snapshot.capture(shard, waiting, now.wall_ms)
        except HorologError as error:
            if error.code is not ErrorCode.DISK_FULL:
                raise
            self._checkpointing = False

    # --- 2 polls and leases ---------------------------------------------------------------------

    def _serve(self, now: Now, effects: Effects) -> None:
        receives = self._receives
        receives.renew(now)
        topics = receives.topics_with_ended_leases(now) | self.shard.visible
        self.shard.visible.clear()
        for number in sorted(topics):
            effects.prompt += receives.serve(number, now)
        effects.prompt += receives.time_out(now)

    # --- 3 commands -----------------------------------------------------------------------------

    def _undeferred(self, inputs: Sequence[Input]) -> list[Input]:
        deferred, self._deferred = self._deferred, []
        return [*deferred, *inputs]

    def _decide(self, item: Input, now: Now, effects: Effects) -> None:
        try:
            self._dispatch(item, now, effects)
        except HorologError as error:
            if error.fatal:
                raise
            effects.replies.append(Reply(item.token, error))

    def _dispatch(self, item: Input, now: Now, effects: Effects) -> None:
        token, command = item
        result: object = None
        match command:
            case SendMessages():
                self._check_disk(now)
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
                key = key_hash(command.topic, command.message_id)
                if self._sends.has_key(key) or self.shard.is_in_flight(key):
                    self._deferred.append(item)
                    return
                result = self._recall(command)
            case CreateTopic():
                self._check_disk(now)
                result = self._create_topic(command)
            case CancelReceive(parked):
                self.shard.ready.cancel(parked)
            case ClientSeen(client_id):
                self._receives.see(client_id, now)
            case ClientGone(client_id):
                self._receives.client_gone(client_id, now)
            case DescribeBroker():
                self._look_at_disk(now)
                result = queries.answer(self.shard, command)
            case _:
                result = queries.answer(self.shard, command)
        effects.replies.append(Reply(token, result))

    def _recall(self, command: Recall) -> object:
        result, record, settled = recall(self.shard, command)
        if record is not None and settled is not None:
            self._receives.records.append(record)
            self._recalled.append(settled)
        return result

    def _create_topic(self, command: CreateTopic) -> object:
        topics = self.shard.topics
        number, changes = topics.plan(command)
        if changes:
            topics.put(number, command.name, command.type, command.queues)
            self._receives.records.append(
                encode_topic(number, command.name, command.type.value, command.queues)
            )
        return view_topic(self.shard, topics.get(command.name))

    # --- 4 append -------------------------------------------------------------------------------

    def _append_controls(self, now: Now) -> None:
        records, self._receives.records = self._receives.records, []
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

    def _check_disk(self, now: Now) -> None:
        """Refuse what takes space while less is free than the reserve."""
        self._look_at_disk(now)
        if self.shard.disk_refusal is not None:
            raise self.shard.disk_refusal

    def _look_at_disk(self, now: Now) -> None:
        """Free space, asked for once a second or every few MiB of log."""
        at, end = self._disk_looked_at
        if now.mono_ms - at >= SECOND_MS or self.shard.log.end - end > CONTROL_RESERVE_BYTES // 8:
            self._disk_looked_at = (now.mono_ms, self.shard.log.end)
            free = self.shard.storage.free_bytes()
            self.shard.disk_refusal = None
            if free < self.shard.settings.reserve_bytes:
                self.shard.disk_refusal = HorologError(
                    ErrorCode.DISK_FULL,
                    f"disk: {free} bytes are free; new messages need "
                    f"{self.shard.settings.reserve_bytes} (acks, recalls and hand-over go on)",
                    field="disk",
                    limit=f"{self.shard.settings.reserve_bytes} bytes",
                )

    # --- 5 marks, checkpoints, sleep ------------------------------------------------------------

    def _mark(self, now: Now) -> None:
        log = self.shard.log
        if (
            log.stated_durable < log.durable_position == log.end
            and now.mono_ms - self._written_at >= MARK_IDLE_MS
        ):
            log.append(b"", 0, now.wall_ms)
            log.stated_durable = log.end  # of the mark itself there is nothing to state

    def _begin_checkpoint(self, now: Now) -> None:
        shard = self.shard
        if self._checkpoint_at is None:
            self._checkpoint_at = now.mono_ms + CHECKPOINT_INTERVAL_MS
        behind = shard.log.end - shard.checkpoint_position
        due = now.mono_ms >= self._checkpoint_at and behind > 0
        if self._checkpointing or not (due or behind >= CHECKPOINT_LOG_BYTES):
            return
        self._checkpoint_at = now.mono_ms + CHECKPOINT_INTERVAL_MS
        self._checkpointing = True
        self._checkpoint = snapshot.decide(shard, now.wall_ms)
        self._forget_clients(now)

    def _forget_clients(self, now: Now) -> None:
        clients = self.shard.clients
        for client_id in [
            name for name, seen in clients.items() if now.mono_ms - seen > 2 * CLIENT_EXPIRY_MS
        ]:
            del clients[client_id]

    def _wake_in(self, now: Now) -> int | None:
        shard = self.shard
        waits: list[int] = []
        log = shard.log
        if log.stated_durable < log.durable_position == log.end:
            waits.append(max(1, self._written_at + MARK_IDLE_MS - now.mono_ms))
        if log.end > shard.checkpoint_position and not self._checkpointing:
            assert self._checkpoint_at is not None
            waits.append(max(1, self._checkpoint_at - now.mono_ms))
        poll = shard.ready.next_poll_end()
        if poll is not None:
            waits.append(max(0, poll - now.mono_ms))
        for key in shard.ready.buckets:
            for progress in shard.ready.progress.get(key, {}).values():
                ends_at = progress.next_end()
                if ends_at is not None:
                    waits.append(max(0, ends_at - now.mono_ms))
        renewal = self._receives.next_renewal_in(now)
        if renewal is not None:
            waits.append(renewal)
        return min(waits) if waits else None

    def _tell_problems(self, effects: Effects) -> None:
        shard = self.shard
        new: list[Any] = shard.delay.problems + shard.wheel.problems
        shard.delay.problems, shard.wheel.problems = [], []
        shard.problems += new
        effects.problems = shard.problems[self._told :]
        self._told = len(shard.problems)
