"""The state of one shard, and how a committed frame is applied to it.

There are two kinds of state.  *Decided* state changes inside a step, before anything is durable:
topics, groups, leases, acks, queue tails, the in-flight marks of hours.  It may run ahead of the
log's commit position because every reply waits for that.  *Derived* state changes only when a frame
is committed, online and in replay by the same code (`apply`): consume queues, hours, the key index,
the window, and all counts that clients see.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from horolog.broker.applied import Applied, Uncommitted
from horolog.broker.consume.queued import QueuedMessages
from horolog.broker.counters import Counters
from horolog.broker.problems import Problems
from horolog.broker.schedule.registry import Schedules
from horolog.broker.send.log_times import LogTimes
from horolog.broker.settings import ShardSettings
from horolog.broker.topics import Topics
from horolog.broker.transactions.open_halves import OpenHalves
from horolog.delay.far.adopted import Adoption
from horolog.delay.filing import FilingBatch
from horolog.delay.lanes import Lanes
from horolog.delay.state import EntryState
from horolog.delay.store import DelayStore
from horolog.delay.tier import Step, Tier
from horolog.errors import ErrorCode, HorologError
from horolog.lake.core.tier import LakeTier
from horolog.limits import LEVEL_STEP_MAX_MS
from horolog.log.commit_log import CommitLog
from horolog.log.control_records import encode_offload
from horolog.log.key_index import KeyIndex, chunk_rows_for
from horolog.ready.ready import Ready
from horolog.storage.api import Storage
from horolog.wheel.wheel import Wheel


class CheckpointNeeds(NamedTuple):
    """The files and positions that a durable checkpoint relies on, for deletions."""

    position: int
    start: int  # of the log
    firsts: dict[tuple[int, int], int]  # (topic id, queue id) → first queue offset, if above 0
    hours: dict[int, int]  # state versions
    runs: set[str]  # names under `runs`


class Shard:
    """All state that one step may read and change."""

    def __init__(
        self, storage: Storage, directory: str, log: CommitLog, settings: ShardSettings
    ) -> None:
        self.storage = storage
        self.directory = directory
        self.log = log
        self.settings = settings
        self.topics = Topics(storage, f"{directory}/queues")
        self.tier: Tier = LakeTier()
        self.delay = DelayStore(
            storage,
            f"{directory}/hours",
            tier=self.tier,
            far_directory=f"{directory}/runs",
            log_id=log.log_id,
            far_settings=settings.far,
        )
        self.delay.log = log
        self.lanes = Lanes()
        self.halves = OpenHalves()
        self.wheel = Wheel(self.delay)
        self.schedules = Schedules()
        self.adoptions: dict[str, int] = {}  # app → highest version committed; oldest first
        self.fingerprints: dict[str, str] = {}  # app → that of its highest version, if any
        self.key_index = KeyIndex(
            storage,
            f"{directory}/keys",
            log_id=log.log_id,
            chunk_rows=chunk_rows_for(log.segment_bytes),
        )
        self.queued = QueuedMessages(log)
        self.log_times = LogTimes(settings.dedup_ms)
        self.ready = Ready(self.topics.first_offset)
        self.uncommitted = Uncommitted()
        self.unfiled = FilingBatch()  # committed messages, to be filed together with later ones
        self.visible: set[tuple[int, int]] = set()  # (topic id, queue id) of queues that have grown
        self.handed_over = 0
        self.recalled = 0
        self.expired = 0
        self.applied = 0
        self.checkpoint_position = 0
        self.checkpoint_bytes = 0  # written by the last checkpoint
        self.last_checkpoint = CheckpointNeeds(-1, 0, {}, {}, set())  # the last durable one
        self.removed_below = 0  # segments below this log position have been removed
        self.full_since_ms: dict[int, int] = {}  # base of a full segment → monotonic ms, first seen
        self.store_ms = 0
        self.level_ms: int | None = None  # of the last `stamp_level_ms`; None: none yet
        self.problems = Problems()
        self.counters = Counters(settings.counted_topics)
        self.disk_refusal: HorologError | None = None  # why sends are refused at the moment

    def apply(self, change: Applied, *, files_later: bool = False) -> None:
        """Apply a committed frame: make its messages visible.

        files_later  scheduled messages wait for `file_unfiled`, or for a frame that needs all of
                     them filed
        """
        assert self.applied <= change.end, (self.applied, change.end)
        if change.needs_all_filed:
            self.file_unfiled()
        self.counters.count_applied(change)
        for topic, queue_id, units in change.units:
            queue = topic.queues[queue_id]
            queue.append(units)
            topic.tails[queue_id] = max(topic.tails[queue_id], queue.length)
            self.visible.add((topic.id, queue_id))
        if change.keyed is not None:
            self.key_index.add(change.keyed.keys, change.keyed.positions)
        for refs, state, lanes in change.settled:
            self.delay.settle(refs, state)
            self.lanes.settle(lanes)
            if state is EntryState.HANDED_OVER:
                self.handed_over += len(refs)
            elif state is EntryState.EXPIRED:
                self.expired += len(refs)
                self.tier.note_recalled(self.delay, refs)
            else:
                self.recalled += len(refs)
                self.tier.note_recalled(self.delay, refs)
        if change.adopted is not None:
            self._adopt(change.adopted)
        if change.step is not None:
            is_whole = not self.delay.stalled
            there = self.tier.apply(self.delay, change.step, change.end, is_whole=is_whole)
            self.recalled += there
            self.counters.count_settled_in_tier(there)
        if change.unfiled is not None:
            if change.adopted is None:  # what comes back from the tier was scheduled before
                self.lanes.schedule(change.unfiled.heads["lane"])
            self.unfiled.append(change.unfiled)
            if not files_later:
                self.file_unfiled()
        self.applied = change.end

    def is_applied(self, position: int) -> bool:
        """Return whether everything below a log position is committed and applied."""
        if self.log.commit_position < position:
            return False
        return not self.uncommitted or self.uncommitted[0].end > position

    @property
    def is_log_full(self) -> bool:
        """Whether half a segment is appended but not committed, so that a hand-over must wait."""
        return self.log.end - self.log.commit_position > self.log.segment_bytes // 2

    # --- what the tier asks of the shard (`delay.tier.TierHost`) ----------------------------------

    @property
    def is_tier_changing(self) -> bool:
        """Whether a step of the tier is appended and not applied: no other may run beside it."""
        return self.uncommitted.tier_steps > 0

    @property
    def log_id(self) -> int:
        """The id of the log."""
        return self.log.log_id

    @property
    def is_stalled(self) -> bool:
        """Whether committed messages cannot be filed, for want of space."""
        return bool(self.delay.stalled)

    def topic_name(self, topic_id: int) -> str:
        """Return the name of a topic, which must exist."""
        return self.topics.by_id[topic_id].name

    def append_step(self, step: Step, wall_ms: int) -> None:
        """Log a step of the tier, in a frame of its own after all earlier ones of this turn."""
        assert not self.is_tier_changing, step.fields
        self.log.append(encode_offload(*step), 1, wall_ms)
        self.uncommitted.append(Applied(self.log.end, [], None, [], step=step))

    def parts(self) -> list[Any]:
        """Return the parts that can check their own invariants (`check_invariants`)."""
        far = self.delay.far
        every: list[Any] = [
            self.log,
            self.topics,
            self.lanes,
            self.wheel,
            self.ready,
            self.halves,
            self.schedules,
            self.problems,
            self.counters,
            self.unfiled,
        ]
        every += [self.key_index, far, self.tier]
        for queues in self.ready.progress.values():
            every += queues.values()
        every += self.delay.hours.values()
        every += far.sources()
        return every

    def _adopt(self, adoption: Adoption) -> None:
        highest = self.adoptions.get(adoption.app, adoption.version)  # unless forgotten
        assert adoption.version <= highest, f"{adoption.app} {adoption.version} was not appended"
        if adoption.files:
            self._reload_window(self.delay.adopt(adoption))
        if adoption.promotion is not None:
            self.tier.note_promoted(adoption.promotion)

    def file_unfiled(self) -> None:
        """File the unfiled messages, after those that wait for disk space."""
        if self.unfiled:
            self.delay.stalled += self.unfiled.take()
            self.file_stalled()

    def file_stalled(self) -> None:
        """File messages that wait for disk space, in log order, until the disk is full."""
        while self.delay.stalled:
            filed, rest = self.delay.file(self.delay.stalled[0])
            self.wheel.insert(*filed)
            if rest is not None:
                self.delay.stalled[0] = rest
                return
            self.delay.stalled.pop(0)

    def switch_far(self) -> None:
        """Exchange sources if a job is done; load the window again if it held some of them."""
        before = self.delay.far.waiting
        self._reload_window(self.delay.finish_job())
        after = self.delay.far.waiting
        # There are fewer if some were damaged.
        assert after <= before, f"a job has made {after} messages of {before}"

    def _reload_window(self, moved_ms: int | None) -> None:
        if moved_ms is not None and moved_ms < self.wheel.loaded_until * 1000:
            self.wheel.reset()

    def drop_topic(self, topic_id: int, position: int) -> None:
        """Drop a topic without parked polls or pending messages, deleted near a log position."""
        self.ready.drop_topic(topic_id)
        self.visible = {place for place in self.visible if place[0] != topic_id}
        self.topics.drop(topic_id, position)
        self.counters.drop(topic_id)

    def is_in_flight(self, key: int) -> bool:
        """Return whether a message with that index key is appended, but not applied or filed.

        Raise DISK_FULL if a full disk keeps the message from being filed: waiting is of no use.
        """
        if any(bool((unfiled.heads["key"] == key).any()) for unfiled in self.delay.stalled):
            raise HorologError(
                ErrorCode.DISK_FULL,
                "disk: full; this message cannot be filed, nor recalled, just now",
            )
        if self.halves.is_ending(key):
            return True
        return any(
            change.keyed is not None and bool((change.keyed.keys == key).any())
            for change in self.uncommitted
        )

    def gather_problems(self) -> None:
        """Move problems and repairs of all parts into the shard's list, to bound their own.

        Called after every step.
        """
        delay = self.delay
        for found in (
            delay.problems,
            delay.far.problems,
            self.wheel.problems,
            self.key_index.problems,
            self.log.problems,
        ):
            if found:
                self.problems += found
                found.clear()
        self.problems += self.queued.take_problems()
        for repairs in (
            delay.repairs,
            delay.far.repairs,
            self.queued.repairs,
            self.log.repairs,
        ):
            for repair in repairs:
                self.problems.note_repaired(repair.text, repair.times)
            repairs.clear()

    def close(self) -> None:
        """Close all files of the core."""
        self.delay.close()
        for _, _, queue in self.topics.all_queues():
            queue.close()
        self.key_index.close()
        self.log.close()

    def close_idle(self) -> None:
        """Close files that open again on use: a job has failed, perhaps for want of descriptors."""
        self.topics.open_queues.close()
        self.delay.far.close_runs()
        self.log.close()

    def stamp_ms(self, wall_ms: int) -> int:
        """Return the store time of a message stored now: the wall clock, but never lower."""
        self.store_ms = max(self.store_ms, wall_ms)
        return self.store_ms

    def level_from_ms(self, wall_ms: int) -> int:
        """Return the time from which the delay of a level counts for a message stored now.

        The wall clock, but never less than before, so that a level is a FIFO across small steps of
        the clock.  After a step back of more than LEVEL_STEP_MAX_MS it is the wall clock again, or
        delays would be longer by all of the step.  `stamp_level_ms` records that one was stored.
        """
        last_ms = self.store_ms if self.level_ms is None else self.level_ms
        return wall_ms if last_ms - wall_ms > LEVEL_STEP_MAX_MS else max(last_ms, wall_ms)

    def stamp_level_ms(self, wall_ms: int) -> int:
        """Return `level_from_ms` for a message that is stored, and remember it as the last one."""
        self.level_ms = self.level_from_ms(wall_ms)
        return self.level_ms
