"""When the core writes a mark or takes a checkpoint, and when it must wake for one.

A checkpoint is decided at a log position, captured when exactly the frames before that are applied,
and written by a job outside of the core; while that job runs no other checkpoint begins.
"""

from __future__ import annotations

from horolog.broker.effects import Effects, Now
from horolog.broker.life import retention, snapshot
from horolog.broker.life.checkpoint_job import CheckpointJob
from horolog.broker.life.checkpoint_life import TABLE, Event, Life
from horolog.broker.life.queues_ahead import QueuesAhead
from horolog.broker.shard import Shard
from horolog.errors import NO_ROOM, HorologError
from horolog.limits import (
    CHECKPOINT_INTERVAL_MS,
    CHECKPOINT_LOG_BYTES,
    CHECKPOINT_START_BYTES,
    MARK_IDLE_MS,
    TURN_QUEUES_SEARCHED_MAX,
)
from horolog.state_table import after


class Checkpoints:
    """Marks and checkpoints of one shard."""

    def __init__(self, shard: Shard) -> None:
        self.hurries = False  # simulated time flies: it causes no mark and no checkpoint
        self._shard = shard
        self._queues_ahead = QueuesAhead(shard.topics)
        self._starts: retention.QueueStarts | None = None  # until the checkpoint is captured
        self._written_at = 0  # monotonic ms of the last append
        self._waiting: snapshot.DecidedCheckpoint | None = None  # until all before it is applied
        self._next_at: int | None = None  # monotonic ms
        # The last checkpoint found no space: until the interval is over a long tail asks for none.
        self._no_space = False
        self._life = Life.NONE
        self._job: CheckpointJob | None = None

    def check_invariants(self) -> None:
        """Check that checkpoint and state agree, and that the position is within the log."""
        assert (self._waiting is not None) == (self._life is Life.DECIDED), self._life
        assert (self._job is not None) == (self._life is Life.CAPTURED), self._life
        made = self._waiting if self._job is None else self._job.checkpoint
        if made is not None:
            shard = self._shard
            assert shard.checkpoint_position < made.position <= shard.log.end, made.position

    @property
    def is_decided(self) -> bool:
        """Whether a checkpoint is decided, and waits for all frames before it to be applied."""
        return self._waiting is not None

    def _apply_event(self, event: Event) -> None:
        self._life = after(TABLE, self._life, event)

    def request(self) -> None:
        """Take a checkpoint at the next step that can."""
        self._next_at = 0

    def done(self, position: int) -> None:
        """Note that the job of the last `Effects.checkpoint` has been carried out."""
        self._apply_event(Event.DURABLE)
        self._no_space = False
        job, self._job = self._job, None
        assert job is not None
        assert job.checkpoint.position == position
        snapshot.done(self._shard, job)

    def failed(self) -> None:
        """Note that the job failed for want of space; another is tried at the next interval."""
        self._apply_event(Event.FAILED)
        self._no_space = True
        job, self._job = self._job, None
        assert job is not None
        snapshot.failed(self._shard, job)
        self._shard.close_idle()

    def capture(self, now: Now, effects: Effects) -> None:
        """Make the job of the decided checkpoint, once exactly the frames before are applied."""
        waiting = self._waiting
        shard = self._shard
        if waiting is None or not self._may_capture():
            return
        if shard.uncommitted and shard.uncommitted[0].end <= waiting.position:
            return
        self._waiting = None
        starts, self._starts = self._starts, None
        if shard.applied > waiting.position:
            self._apply_event(Event.OVERTAKEN)  # while the disk was full; another is taken later
            return
        try:
            effects.checkpoint = self._job = snapshot.capture(shard, waiting, *now, starts)
        except HorologError as error:
            if error.code not in NO_ROOM:
                raise
            self._apply_event(Event.NO_SPACE)
            self._no_space = True
            effects.no_checkpoint = error
            return
        self._apply_event(Event.CAPTURE)

    def _may_capture(self) -> bool:
        """Return whether a decided checkpoint needs only the next turn to be captured."""
        waiting, shard = self._waiting, self._shard
        if waiting is None or shard.delay.stalled:
            return False
        return shard.log.commit_position >= waiting.position

    def note_append(self, mono_ms: int) -> None:
        """Note that something was appended."""
        self._written_at = mono_ms

    def mark(self, now: Now) -> None:
        """Append a mark that states the durable position, if the log is idle and lacks one."""
        log = self._shard.log
        is_idle = now.mono_ms - self._written_at >= MARK_IDLE_MS and not self.hurries
        if is_idle and log.stated_durable < log.durable_position == log.end:
            self._append_mark(now)

    def _append_mark(self, now: Now) -> None:
        log = self._shard.log
        log.append(b"", 0, now.wall_ms)
        log.stated_durable = log.end  # no further mark has to state the mark itself

    def begin(self, now: Now) -> None:
        """Decide the next checkpoint, if it is time."""
        shard = self._shard
        tail_bytes = shard.log.end - shard.checkpoint_position
        if self._next_at is None:  # the first step, after which the broker may be killed soon
            at_once = tail_bytes >= CHECKPOINT_START_BYTES
            self._next_at = now.mono_ms + (0 if at_once else CHECKPOINT_INTERVAL_MS)
        due = (now.mono_ms >= self._next_at and not self.hurries) and (
            tail_bytes > 0 or retention.next_drop_in(shard, now.wall_ms, now.mono_ms) == 0
        )
        is_long = tail_bytes >= CHECKPOINT_LOG_BYTES and not self._no_space
        if self._life is not Life.NONE or not (due or is_long):
            self._queues_ahead.end()
            if self._life is Life.NONE:
                self._starts = None
            return
        if self.hurries:
            self._starts = None
        elif self._queues_ahead.write() or not self._find_starts(now):
            return  # the next turn writes more queues, or searches more
        self._next_at = now.mono_ms + CHECKPOINT_INTERVAL_MS
        self._apply_event(Event.DECIDE)
        if not tail_bytes:
            self._append_mark(now)  # each checkpoint needs a position of its own
        self._waiting = snapshot.decide(shard, now.wall_ms)

    def _find_starts(self, now: Now) -> bool:
        """Search some queues for where they will begin; return whether that is done for all."""
        if self._starts is None:
            start = retention.expected_start(self._shard, *now)
            self._starts = retention.QueueStarts(self._shard, start)
        return self._starts.is_done or self._starts.find(TURN_QUEUES_SEARCHED_MAX)

    def wake_in(self, now: Now) -> list[int]:
        """Return the ms until the next mark and the next checkpoint, if they are expected."""
        log = self._shard.log
        waits: list[int] = []
        if self._may_capture():
            waits.append(0)
        if self.hurries:
            return waits
        is_searching = self._starts is not None and not self._starts.is_done
        if self._queues_ahead.is_under_way or is_searching:
            waits.append(0)
        if log.stated_durable < log.durable_position == log.end:
            waits.append(max(1, self._written_at + MARK_IDLE_MS - now.mono_ms))
        checkpoint = self._next_in(now)
        if checkpoint is not None:
            waits.append(checkpoint)
        return waits

    def _next_in(self, now: Now) -> int | None:
        if self._life is not Life.NONE:
            return None
        has_tail = self._shard.log.end > self._shard.checkpoint_position
        drop = 0 if has_tail else retention.next_drop_in(self._shard, now.wall_ms, now.mono_ms)
        if drop is None:
            return None
        assert self._next_at is not None
        return max(1, self._next_at - now.mono_ms, drop)
