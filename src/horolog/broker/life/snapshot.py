"""The content of a checkpoint, and what follows when its job ends.

A checkpoint describes the shard at one log position exactly.  Decided state (topics, groups,
leases, acks) is copied in the step that chooses the position, the log end of that step; derived
state (queues, hours) is captured when everything below the position has been applied.  A thread
then does the slow part (`checkpoint_job`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from horolog.broker.life import retention
from horolog.broker.life.checkpoint_job import CheckpointJob
from horolog.broker.life.consumers_copy import ConsumersCopy
from horolog.broker.shard import CheckpointNeeds, Shard
from horolog.delay.damage import ASIDE
from horolog.delay.far.adopted import is_adopted_name
from horolog.delay.far.names import files_of_job
from horolog.delay.lanes import delay_offsets
from horolog.delay.state import state_name
from horolog.log.checkpoint import (
    NO_FRAME,
    QUEUE,
    Checkpoint,
    checkpoint_name,
)
from horolog.log.segment import segment_name


class DecidedCheckpoint(NamedTuple):
    """A checkpoint without its derived state; `consumers` become columns when it is encoded."""

    checkpoint: Checkpoint
    consumers: ConsumersCopy

    @property
    def position(self) -> int:
        """The log position that the checkpoint describes."""
        return self.checkpoint.position


def decide(shard: Shard, wall_ms: int) -> DecidedCheckpoint:
    """Copy the decided state at the log end of this step.

    `capture` completes it when everything below that position is applied.
    """
    registry: dict[str, Any] = {
        "topics": shard.topics.registry(),
        "last_topic": shard.topics.last,
        "dropped_topics": [topic.row() for topic in shard.topics.dropped.values()],
        "groups": shard.ready.groups.rows(),
        "last_group": shard.ready.groups.last,
        "schedules": shard.schedules.rows(),
        "last_schedule": shard.schedules.last,
        "adoptions": list(shard.adoptions.items()),
        "fingerprints": dict(shard.fingerprints),
        "wall_ms": wall_ms,
    }
    log = shard.log
    halves, half_columns = shard.halves.captured()
    registry |= halves
    checkpoint = Checkpoint(
        log.shard,
        log.epoch,
        log.log_id,
        log.end,
        log.last_frame if log.last_frame >= 0 else NO_FRAME,
        log.durable_position,
        shard.store_ms,
        registry,
        half_columns,
        shard.topics.queue_count,
    )
    return DecidedCheckpoint(checkpoint, ConsumersCopy.of(shard.ready))


def capture(
    shard: Shard,
    decided: DecidedCheckpoint,
    now_ms: int,
    mono_ms: int,
    starts: retention.QueueStarts | None = None,
) -> CheckpointJob:
    """Add the derived state, now that everything below the position is applied, and make the job.

    Raise DISK_FULL if consume queues cannot be written; then there is no checkpoint this time.
    """
    checkpoint, position = decided.checkpoint, decided.position
    assert shard.applied <= position <= shard.log.commit_position, (shard.applied, position)
    assert not shard.delay.stalled, "what waits to be filed would be missing"
    assert all(change.end > position for change in shard.uncommitted), position
    sync = _log_paths(shard, position) + shard.key_index.sync_paths() + _sync_queues(shard)
    # Queues made since the checkpoint was decided are left out: a replay from there makes them.
    checkpoint.columns["queues"] = shard.topics.queue_column("length", QUEUE)[: checkpoint.queues]
    shard.delay.drop_finished(now_ms, shard.last_checkpoint.position)
    shard.tier.forget(shard.log.start)
    captured = shard.delay.capture()
    shard.gather_problems()
    shard.problems.sweep(shard.storage.exists, now_ms)
    checkpoint.columns["far_settled"] = captured.settled
    checkpoint.registry |= {
        "hours": captured.registry,
        "far": captured.far,
        "keys": shard.key_index.captured(),
        "appended": shard.log_times.captured(checkpoint.position),
        "problems": shard.problems.captured(),
        "handed_over": shard.handed_over,
        "recalled": shard.recalled,
        "expired": shard.expired,
    }
    start = retention.next_start(shard, checkpoint, now_ms, mono_ms)
    retention.move_start(shard, start, starts)
    former = shard.last_checkpoint
    job = CheckpointJob(
        shard.directory,
        checkpoint,
        decided.consumers,
        sync + captured.sync,
        captured.states,
        retention.add_starts(shard, checkpoint),
        checkpoint_name(former.position) if former.position >= 0 else "",
        former.start,
    )
    _capture_lanes(shard, job)
    _plan_removals(shard, job, former)
    return job


def _log_paths(shard: Shard, position: int) -> list[str]:
    """Return the segments of the log from the last checkpoint to a log position."""
    size = shard.log.segment_bytes
    first = shard.checkpoint_position - shard.checkpoint_position % size
    return [f"{shard.directory}/log/{segment_name(base)}" for base in range(first, position, size)]


def _plan_removals(shard: Shard, job: CheckpointJob, former: CheckpointNeeds) -> None:
    """Name what a job removes: files and states that neither of the two checkpoints needs."""
    hours = {*job.needs.hours, *former.hours}
    job.gone = [shard.delay.path(hour) for hour in shard.delay.on_disk() if hour not in hours]
    for hour, version in job.needs.hours.items():
        kept = {version, former.hours.get(hour, version)}
        job.kept_states[shard.delay.path(hour)] = {state_name(v) for v in kept}
    job.gone += _runs_to_remove(shard, job.needs.runs | former.runs)
    job.gone += retention.queue_files(shard)
    job.gone += retention.dropped_queues(shard)


def _runs_to_remove(shard: Shard, needed: set[str]) -> list[str]:
    kept = needed | files_of_job(shard.delay.far.compaction.job)
    place = f"{shard.directory}/runs"
    on_disk = shard.storage.list(place)
    shard.delay.far.forget_finished(set(on_disk))
    return [
        f"{place}/{name}"
        for name in on_disk
        if name not in kept and not name.startswith(ASIDE) and _may_go(shard, name)
    ]


def _capture_lanes(shard: Shard, job: CheckpointJob) -> None:
    if lanes := shard.lanes.rows():
        job.checkpoint.registry["lanes"] = [list(lane) for lane in lanes]
        job.delay_offsets = delay_offsets(lanes, job.checkpoint.position, shard.store_ms)


def _may_go(shard: Shard, name: str) -> bool:
    """Return whether an unnamed file may be removed.

    An adopted run may be one whose adoption is under way.
    """
    if not is_adopted_name(name):
        return True
    position = shard.delay.far.finished.get(name.removesuffix(".run"), shard.log.end)
    return position < shard.last_checkpoint.position  # a start from there replays its record


def _sync_queues(shard: Shard) -> list[str]:
    queues = list(shard.topics.changed)
    for queue in queues:  # all or none: a path to sync is reported only once
        queue.write()
    return [path for queue in queues for path in queue.sync_paths()]


def done(shard: Shard, job: CheckpointJob) -> None:
    """Take over the results of a job that has been carried out."""
    assert shard.checkpoint_position < job.checkpoint.position <= shard.applied
    shard.checkpoint_position = job.checkpoint.position
    shard.checkpoint_bytes = job.written
    shard.key_index.synced()
    retention.note_durable(shard, job.needs, removed=job.removed)


def failed(shard: Shard, job: CheckpointJob) -> None:
    """Undo a failed job: the next checkpoint syncs and writes again what this one should have."""
    paths = set(job.sync)
    for _, _, queue in shard.topics.all_queues():
        queue.mark_unsynced(paths)
    shard.delay.capture_failed()
