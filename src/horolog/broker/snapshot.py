"""Checkpoints taken and restored.

A checkpoint describes the shard at one log position exactly.  Decided state (topics, groups, leases, acks) is
copied in the step that chooses the position, the log end of that step; derived state (queues, hours) is
captured when everything below the position has been applied.  `CheckpointJob` then does the slow part in a
thread: log sync → hours and queues → their directories → state files → checkpoint → deletions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from horolog.broker.shard import Shard
from horolog.delay.state import HourState, encode_state, state_name
from horolog.limits import CHECKPOINTS_KEPT
from horolog.log.checkpoint import (
    ACKED,
    LEASE,
    NO_FRAME,
    PROGRESS,
    QUEUE,
    Checkpoint,
    checkpoint_name,
    encode_checkpoint,
)
from horolog.log.segment import segment_name
from horolog.protocol.commands import TopicType
from horolog.ready.progress import Lease
from horolog.storage.api import Storage, replace_file


@dataclass
class CheckpointJob:
    """Everything a thread needs to make a checkpoint durable; touches no live state."""

    directory: str
    checkpoint: Checkpoint
    sync: list[str]
    states: list[tuple[str, HourState]]
    gone: list[str] = field(default_factory=list)  # hour directories that no kept checkpoint names
    kept_states: dict[str, set[str]] = field(default_factory=dict)

    def carry_out(self, storage: Storage) -> None:
        """Perform it; what it names was written before, and `sync` begins with the log."""
        directories = {f"{self.directory}/hours", f"{self.directory}/queues"}
        for path in self.sync:
            file = storage.open(path)
            try:
                file.sync()
            finally:
                file.close()
            directories.add(path.rpartition("/")[0])
        for path, state in self.states:
            file = storage.open(path, create=True)
            try:
                content = encode_state(state)
                file.truncate(0)
                file.write(0, content)
                file.sync()
            finally:
                file.close()
            directories.add(path.rpartition("/")[0])
        for directory in sorted(directories):
            storage.sync_dir(directory)
        place = f"{self.directory}/checkpoint"
        name = checkpoint_name(self.checkpoint.position)
        replace_file(storage, place, name, encode_checkpoint(self.checkpoint))
        self._delete(storage, place)

    def _delete(self, storage: Storage, place: str) -> None:
        names = [name for name in storage.list(place) if name.endswith(".ckpt")]
        for name in names[:-CHECKPOINTS_KEPT]:
            storage.remove(f"{place}/{name}")
        for directory in self.gone:
            storage.remove_dir(directory)
        for directory, kept in self.kept_states.items():
            for name in storage.list(directory):
                if name.startswith("state.") and name not in kept:
                    storage.remove(f"{directory}/{name}")


def decide(shard: Shard, wall_ms: int) -> Checkpoint:
    """Copy the decided state at the log end of this step; completed by `capture` when all below is applied."""
    registry: dict[str, Any] = {
        "topics": [
            {"number": t.number, "name": t.name, "type": t.type.value, "queues": len(t.queues)}
            for t in shard.topics.by_number.values()
        ],
        "groups": [{"number": n, "name": name} for name, n in shard.ready.groups.items()],
        "wall_ms": wall_ms,
    }
    progress, acked, leases = [], [], []
    for (group, topic), queues in shard.ready.progress.items():
        for queue, found in queues.items():
            progress.append((group, topic, queue, found.floor, found.next))
            acked += [(group, topic, queue, offset) for offset in found.acked]
            leases += [
                (group, topic, queue, x.attempt, x.grant, offset, x.granted_ms, x.duration_ms)
                for offset, x in found.leases.items()
            ]
    log = shard.log
    return Checkpoint(
        log.shard,
        log.epoch,
        log.log_id,
        log.end,
        log.last_frame if log.last_frame >= 0 else NO_FRAME,
        log.durable_position,
        shard.store_ms,
        registry,
        {
            "progress": np.array(progress, PROGRESS),
            "acked": np.array(acked, ACKED),
            "leases": np.array(leases, LEASE),
        },
    )


def capture(shard: Shard, checkpoint: Checkpoint, now_ms: int) -> CheckpointJob:
    """Add the derived state, now that everything below the position is applied.

    DISK_FULL if consume queues cannot be written; then there is no checkpoint this time.
    """
    size = shard.log.segment_bytes
    first = shard.checkpoint_position - shard.checkpoint_position % size
    sync = [
        f"{shard.directory}/log/{segment_name(base)}"
        for base in range(first, checkpoint.position, size)
    ]
    lengths = []
    for topic, queue_id, queue in shard.topics.all_queues():
        sync += queue.sync_paths()
        lengths.append((topic.number, queue_id, queue.length))
    checkpoint.columns["queues"] = np.array(lengths, QUEUE)
    shard.delay.drop_finished(now_ms)
    captured = shard.delay.capture()
    checkpoint.registry |= {
        "hours": captured.registry,
        "handed_over": shard.handed_over,
        "recalled": shard.recalled,
    }
    job = CheckpointJob(shard.directory, checkpoint, sync + captured.sync, captured.states)
    versions = {row["hour"]: row["version"] for row in captured.registry}
    named = set(versions) | set(shard.former_hours)
    job.gone = [shard.delay.path(hour) for hour in shard.delay.on_disk() if hour not in named]
    for hour, version in versions.items():
        kept = {version, shard.former_hours.get(hour, version)}
        job.kept_states[shard.delay.path(hour)] = {state_name(v) for v in kept}
    shard.former_hours = versions
    return job


def restore(shard: Shard, checkpoint: Checkpoint, wall_ms: int, mono_ms: int) -> str:
    """Put a fresh shard into the state of a checkpoint; gives why it cannot ("" if it did)."""
    registry = checkpoint.registry
    for row in registry["topics"]:
        shard.topics.put(row["number"], row["name"], TopicType(row["type"]), row["queues"])
    for row in registry["groups"]:
        shard.ready.add_group(row["number"], row["name"])
    for topic_number, queue_id, length in checkpoint.columns["queues"].tolist():
        topic = shard.topics.by_number[topic_number]
        if not topic.queues[queue_id].cut(length):
            return f"consume queue {queue_id} of topic {topic.name} is shorter than {length} units"
        topic.tails[queue_id] = length
    for row in registry["hours"]:
        why = shard.delay.restore_hour(row)
        if why:
            return why
    for group, topic_number, queue, floor, next_offset in checkpoint.columns["progress"].tolist():
        progress = shard.ready.of(group, topic_number, queue)
        progress.floor, progress.next = floor, next_offset
    for group, topic_number, queue, offset in checkpoint.columns["acked"].tolist():
        shard.ready.of(group, topic_number, queue).acked.add(offset)
    for row in checkpoint.columns["leases"].tolist():
        group, topic_number, queue, attempt, grant, offset, granted_ms, duration_ms = row
        shard.ready.of(group, topic_number, queue).lease(
            offset, restored_lease(attempt, grant, granted_ms, duration_ms, wall_ms, mono_ms)
        )
    shard.handed_over = registry["handed_over"]
    shard.recalled = registry["recalled"]
    shard.store_ms = checkpoint.store_ms
    shard.former_hours = {row["hour"]: row["version"] for row in registry["hours"]}
    shard.checkpoint_position = checkpoint.position
    return ""


def restored_lease(
    attempt: int, grant: int, granted_ms: int, duration_ms: int, wall_ms: int, mono_ms: int
) -> Lease:
    """A lease after a restart: what is left of it by the wall clock, clamped to [0, duration]."""
    left = min(max(granted_ms + duration_ms - wall_ms, 0), duration_ms)
    return Lease(attempt, grant, mono_ms + left, granted_ms, duration_ms)
