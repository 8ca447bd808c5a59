"""Put a fresh shard into the state that a checkpoint describes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from horolog.broker.life import retention
from horolog.broker.shard import Shard
from horolog.broker.topics import Dropped
from horolog.delay.damage import Damaged, quarantine_problem, quarantined_key
from horolog.delay.far import checkpoint as far_checkpoint
from horolog.delay.far.run_access import unreadable_key
from horolog.errors import ErrorCode, HorologError
from horolog.log.checkpoint import Checkpoint, acked_runs, held_leases
from horolog.log.consume_queue import ConsumeQueue
from horolog.log.control_records import NO_HOLDER, Holder
from horolog.log.queue_names import queue_dir_name
from horolog.ready.leases import Lease


def restore(
    shard: Shard,
    checkpoint: Checkpoint,
    wall_ms: int,
    mono_ms: int,
    *,
    aside: Collection[str] = (),
    tolerant: bool = False,
) -> list[Damaged]:
    """Put a fresh shard into the state of a checkpoint, without its damaged parts.

    Return the damaged parts.  Changes no file, unless it is tolerant; the caller calls
    `shard.delay.cut()` to continue with this shard.

    aside     names in `hours` that are in quarantine: damaged, whatever is in their place now
    tolerant  accept damage that can be repaired, or passed over entry by entry
    """
    registry = checkpoint.registry
    _restore_names(shard, registry)
    damaged = _restore_queues(shard, checkpoint)
    for row in registry["hours"]:
        bad = shard.delay.restore_hour(row, aside)
        damaged += [bad] if bad else []
    damaged += far_checkpoint.restore(
        shard.delay.far,
        registry.get("far", {}),
        checkpoint.columns["far_settled"],
        tolerant=tolerant,
    )
    _restore_consumers(shard, checkpoint, wall_ms, mono_ms)
    for appended_ms, position in registry.get("appended", []):
        shard.log_times.restore_span(appended_ms, position, wall_ms, mono_ms)
    shard.lanes.restore(registry.get("lanes", []))  # an older horolog had none
    shard.halves.restore(registry, checkpoint.columns)
    shard.handed_over = registry["handed_over"]
    shard.recalled = registry["recalled"]
    shard.expired = registry.get("expired", 0)  # an older horolog had none
    shard.store_ms = checkpoint.store_ms
    shard.checkpoint_position = checkpoint.position
    retention.restore(shard, checkpoint)
    _restore_problems(shard, registry, wall_ms)
    return damaged


def _restore_queues(shard: Shard, checkpoint: Checkpoint) -> list[Damaged]:
    """Restore consume queues with their next offsets; return those with unusable files."""
    damaged = []
    firsts = retention.firsts_of(checkpoint)
    # Most of many queues may be empty: a queue without a directory is not looked up one by one.
    directories = set(shard.storage.list(f"{shard.directory}/queues"))
    for topic_id, queue_id, length in checkpoint.columns["queues"].tolist():
        topic = shard.topics.by_id[topic_id]
        first = firsts.get((topic_id, queue_id), 0)
        name = queue_dir_name(topic_id, queue_id)
        queue = topic.queues[queue_id]
        why = _restore_queue(queue, first, length, has_directory=name in directories)
        if why:
            why = f"consume queue {queue_id} of topic {topic.name} {why}"
            damaged.append(Damaged("queues", name, (name,), why))
        topic.tails[queue_id] = length
    return damaged


def _restore_queue(queue: ConsumeQueue, first: int, length: int, *, has_directory: bool) -> str:
    """Restore one queue; return why its files cannot be used, "" if they can."""
    try:
        whole = queue.restore(first, length, has_directory=has_directory)
    except HorologError as error:
        if error.code is not ErrorCode.DISK_FAILED:
            raise
        return f"cannot be used: {error}"  # such as a directory in the place of a file
    return "" if whole else f"does not have {length} units"


def _restore_names(shard: Shard, registry: dict[str, Any]) -> None:
    """Restore topics, groups, schedules and adoptions.

    Fields that an older horolog did not write are missing.
    """
    for row in registry["topics"]:
        shard.topics.put_row(row)
    shard.topics.last = max(registry.get("last_topic", 0), shard.topics.last)
    for row in registry.get("dropped_topics", []):
        shard.topics.dropped[row["number"]] = Dropped.of(row)
    for row in registry["groups"]:
        shard.ready.groups.put_row(row)
    last = registry.get("last_group", 0)  # an older horolog deleted none
    shard.ready.groups.last = max(last, shard.ready.groups.last)
    for row in registry.get("schedules", []):  # an older horolog had none
        shard.schedules.put_row(row)
    shard.schedules.last = max(registry.get("last_schedule", 0), shard.schedules.last)
    shard.adoptions.update(registry.get("adoptions", []))
    shard.fingerprints.update(registry.get("fingerprints", {}))


def _restore_consumers(shard: Shard, checkpoint: Checkpoint, wall_ms: int, mono_ms: int) -> None:
    """Restore progress of groups, offsets acknowledged above their floors, and live leases."""
    for group, topic_id, queue, floor, next_offset in checkpoint.columns["progress"].tolist():
        progress = shard.ready.progress_of(group, topic_id, queue)
        progress.floor, progress.next = floor, next_offset
    for group, topic_id, queue, first, stop in acked_runs(checkpoint):
        shard.ready.progress_of(group, topic_id, queue).acked.add(first, stop)
    held = held_leases(checkpoint)
    for row in checkpoint.columns["leases"].tolist():
        group, topic_id, queue, attempt, grant, offset, granted_ms, duration_ms = row
        holder = held.get((group, topic_id, queue, offset), NO_HOLDER)
        lease = restored_lease(attempt, grant, granted_ms, duration_ms, holder, wall_ms, mono_ms)
        shard.ready.restore_lease(group, topic_id, queue, offset, lease)


def _restore_problems(shard: Shard, registry: dict[str, Any], wall_ms: int) -> None:
    shard.problems.restore(registry.get("problems", {}), shard.storage.exists, wall_ms)
    for run in shard.delay.far.runs.values():
        shard.problems.remove(unreadable_key(run.info.name))  # it has been opened now
    for source in (*shard.delay.hours.values(), *shard.delay.far.sources()):
        if source.quarantined and not shard.problems.has(quarantined_key(source)):
            shard.problems.append(quarantine_problem(source))  # an older horolog did not keep it


def restored_lease(
    attempt: int,
    grant: int,
    granted_ms: int,
    duration_ms: int,
    holder: Holder,
    wall_ms: int,
    mono_ms: int,
) -> Lease:
    """Build a lease after a restart: its rest by the wall clock, clamped to [0, duration]."""

    def end(lasts_ms: int) -> int:
        return mono_ms + min(max(granted_ms + lasts_ms - wall_ms, 0), lasts_ms)

    return Lease(
        attempt,
        grant,
        end(duration_ms),
        granted_ms,
        duration_ms,
        holder.client_id,
        end(holder.renewable_ms),
    )
