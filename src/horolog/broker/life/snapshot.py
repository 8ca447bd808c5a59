"""Checkpoints taken and restored.

A checkpoint describes the shard at one log position exactly.  Decided state (topics, groups, leases, acks) is
copied in the step that chooses the position, the log end of that step; derived state (queues, hours) is
captured when everything below the position has been applied.  `CheckpointJob` then does the slow part in a
thread: log sync → hours and queues → their directories → state files → checkpoint → deletions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.broker.life import retention
from horolog.broker.shard import Named, Shard
from horolog.broker.topics import Dropped
from horolog.delay.damage import ASIDE, Damaged, quarantine_problem, quarantined_key
from horolog.delay.far import checkpoint as far_checkpoint
from horolog.delay.far.adopted import is_adopted_name
from horolog.delay.far.buffer import is_buffer
from horolog.delay.far.names import files_of_job
from horolog.delay.far.run_access import unreadable_key
from horolog.delay.lanes import delay_offsets
from horolog.delay.state import state_name
from horolog.errors import NO_ROOM, ErrorCode, HorologError
from horolog.limits import CHECKPOINTS_KEPT
from horolog.log.checkpoint import (
    LEASE,
    NO_FRAME,
    PROGRESS,
    QUEUE,
    Checkpoint,
    acked_columns,
    acked_runs,
    checkpoint_name,
    encode_checkpoint,
)
from horolog.log.consume_queue import is_queue_dir, queue_dir_name
from horolog.log.segment import segment_name
from horolog.ready.progress import Lease
from horolog.storage.api import Storage, replace_file

DELAY_OFFSETS = "delayOffset.json"  # beside the checkpoints; never read


@dataclass
class CheckpointJob:
    """Everything a thread needs to make a checkpoint durable; touches no live state."""

    directory: str
    checkpoint: Checkpoint
    sync: list[str]
    states: list[tuple[str, Callable[[], bytes]]]  # files to write
    named: Named
    former: str  # name of the checkpoint to keep beside this one; "": there is none
    log_below: int  # segments below this position are removed
    removed: bool = False  # whether what is to be removed was
    written: int = 0  # bytes
    delay_offsets: bytes = b""  # for people; empty while no level was used
    gone: list[str] = field(
        default_factory=list
    )  # hours, buffers, runs, files of queues that no kept checkpoint names
    kept_states: dict[str, set[str]] = field(default_factory=dict)

    def carry_out(self, storage: Storage, *, keep: bool = False) -> None:
        """Perform it; what it names was written before, and `sync` begins with the log.

        keep  remove nothing: a backup copies files of an earlier checkpoint.  Later jobs will remove it.
        """
        directories = {f"{self.directory}/{part}" for part in ("hours", "queues", "runs")}
        for path in self.sync:
            file = storage.open(path)
            try:
                file.sync()
            finally:
                file.close()
            directories.add(path.rpartition("/")[0])
        place = f"{self.directory}/checkpoint"
        name = checkpoint_name(self.checkpoint.position)
        try:
            for path, encode in self.states:
                self._write_state(storage, path, encode())
                directories.add(path.rpartition("/")[0])
            for directory in sorted(directories):
                storage.sync_dir(directory)
            content = encode_checkpoint(self.checkpoint)
            self.written += len(content)
            replace_file(storage, place, name, content)
        except HorologError as error:
            if error.code in NO_ROOM and not storage.exists(f"{place}/{name}"):
                for path in (*(path for path, _ in self.states), f"{place}/{name}.tmp"):
                    storage.remove(path)
            raise
        if self.delay_offsets:
            self._tell_delay_offsets(storage)
        if not keep:
            self._delete(storage, place)

    def _tell_delay_offsets(self, storage: Storage) -> None:
        try:
            replace_file(storage, self.directory, DELAY_OFFSETS, self.delay_offsets)
        except HorologError as error:
            if error.code not in NO_ROOM:  # nobody reads it, so nothing depends on it
                raise

    def _write_state(self, storage: Storage, path: str, content: bytes) -> None:
        file = storage.open(path, create=True)
        try:
            file.truncate(0)
            file.write(0, content)
            file.sync()
        finally:
            file.close()
        self.written += len(content)

    def _delete(self, storage: Storage, place: str) -> None:
        kept = {checkpoint_name(self.checkpoint.position), self.former}
        assert len(kept) == CHECKPOINTS_KEPT
        for name in storage.list(place):
            if name.endswith(".ckpt") and name not in kept:
                storage.remove(f"{place}/{name}")
        retention.remove_segments(storage, f"{self.directory}/log", self.log_below)
        for path in self.gone:
            name = path.rpartition("/")[2]
            if name.isdigit() or is_buffer(name) or is_queue_dir(name):
                storage.remove_dir(path)
            else:
                storage.remove(path)
        for directory, versions in self.kept_states.items():
            for name in storage.list(directory):
                if name.startswith("state.") and name not in versions:
                    storage.remove(f"{directory}/{name}")
        self.removed = True


def decide(shard: Shard, wall_ms: int) -> Checkpoint:
    """Copy the decided state at the log end of this step; completed by `capture` when all below is applied."""
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
    progress, acked = [], []
    leased: list[tuple[int, int, int, dict[int, Lease]]] = []
    for (group, topic), queues in shard.ready.progress.items():
        for queue, found in queues.items():
            progress.append((group, topic, queue, found.floor, found.next))
            acked += [(group, topic, queue, *run) for run in found.acked.runs()]
            if found.leases:
                leased.append((group, topic, queue, found.leases))
    log = shard.log
    halves, half_columns = shard.halves.captured()
    registry |= halves
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
            **acked_columns(acked),
            "leases": _lease_rows(leased),
            **half_columns,
        },
        shard.topics.queue_count,
    )


def _lease_rows(leased: list[tuple[int, int, int, dict[int, Lease]]]) -> npt.NDArray[Any]:
    """LEASE rows of (group, topic, queue, leases), column by column: there may be a million, in one turn."""
    held = [leases for _, _, _, leases in leased]
    counts = np.fromiter(map(len, held), np.int64, len(held))
    rows = np.empty(int(counts.sum()), LEASE)
    for i, name in enumerate(("group", "topic", "queue")):
        rows[name] = np.array([each[i] for each in leased], np.uint32).repeat(counts)
    rows["offset"] = np.fromiter(chain.from_iterable(held), np.uint64, len(rows))
    for name in ("attempt", "grant", "granted_ms", "duration_ms"):
        values = map(attrgetter(name), chain.from_iterable(map(dict.values, held)))
        rows[name] = np.fromiter(values, LEASE[name], len(rows))
    return rows


def capture(shard: Shard, checkpoint: Checkpoint, now_ms: int, mono_ms: int) -> CheckpointJob:
    """Add the derived state, now that everything below the position is applied.

    DISK_FULL if consume queues cannot be written; then there is no checkpoint this time.
    """
    position = checkpoint.position
    assert shard.applied <= position <= shard.log.commit_position, (shard.applied, position)
    assert not shard.stalled, "what waits to be filed would be missing"
    assert all(change.end > position for change in shard.uncommitted), position
    size = shard.log.segment_bytes
    first = shard.checkpoint_position - shard.checkpoint_position % size
    sync = [
        f"{shard.directory}/log/{segment_name(base)}"
        for base in range(first, checkpoint.position, size)
    ]
    sync += shard.key_index.sync_paths()
    sync += _sync_queues(shard)
    # Without queues that were made since it was decided: a replay from there makes them.
    checkpoint.columns["queues"] = shard.topics.of_queues("length", QUEUE)[: checkpoint.queues]
    shard.delay.drop_finished(now_ms, shard.named.position)
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
    retention.follow(shard, retention.next_start(shard, checkpoint, now_ms, mono_ms))
    former = shard.named
    job = CheckpointJob(
        shard.directory,
        checkpoint,
        sync + captured.sync,
        captured.states,
        retention.describe(shard, checkpoint),
        checkpoint_name(former.position) if former.position >= 0 else "",
        former.start,
    )
    _capture_lanes(shard, job)
    named = {*job.named.hours, *former.hours}
    job.gone = [shard.delay.path(hour) for hour in shard.delay.on_disk() if hour not in named]
    for hour, version in job.named.hours.items():
        kept = {version, former.hours.get(hour, version)}
        job.kept_states[shard.delay.path(hour)] = {state_name(v) for v in kept}
    job.gone += _runs_to_remove(shard, job.named.runs | former.runs)
    job.gone += retention.queue_files(shard)
    job.gone += retention.dropped_queues(shard)
    return job


def _runs_to_remove(shard: Shard, named: set[str]) -> list[str]:
    kept = named | files_of_job(shard.delay.far.compaction.job)
    place = f"{shard.directory}/runs"
    on_disk = shard.storage.list(place)
    shard.delay.far.forget_files(set(on_disk))
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
    """An adopted run that nothing names may be one whose adoption is under way."""
    if not is_adopted_name(name):
        return True
    position = shard.delay.far.finished.get(name.removesuffix(".run"), shard.log.end)
    return position < shard.named.position  # a start from there meets its record


def _sync_queues(shard: Shard) -> list[str]:
    queues = list(shard.topics.changed)
    for queue in queues:  # all or none: what is told to be synced is not told again
        if not queue.flush():
            raise HorologError(ErrorCode.DISK_FULL, "no space to write consume queues")
    return [path for queue in queues for path in queue.sync_paths()]


def done(shard: Shard, job: CheckpointJob) -> None:
    """The job has been carried out."""
    assert shard.checkpoint_position < job.checkpoint.position <= shard.applied
    shard.checkpoint_position = job.checkpoint.position
    shard.checkpoint_bytes = job.written
    shard.key_index.synced()
    retention.is_durable(shard, job.named, removed=job.removed)


def failed(shard: Shard, job: CheckpointJob) -> None:
    """The job could not be carried out: the next checkpoint syncs and writes again what this one should have."""
    for _, _, queue in shard.topics.all_queues():
        queue.not_synced(job.sync)
    shard.delay.capture_failed()


def restore(
    shard: Shard,
    checkpoint: Checkpoint,
    wall_ms: int,
    mono_ms: int,
    *,
    aside: Collection[str] = (),
    tolerant: bool = False,
) -> list[Damaged]:
    """Put a fresh shard into the state of a checkpoint, without the parts that it gives as damaged.

    Changes no file; the caller says `shard.delay.cut()` when it goes on with this shard.

    aside     names in `hours` that are in quarantine: damaged, whatever stands in their place
    tolerant  damage that can be passed over entry by entry is
    """
    registry = checkpoint.registry
    _restore_names(shard, registry)
    damaged = []
    firsts = retention.firsts_of(checkpoint)
    # Most of many queues may be empty: what has no directory is not looked for one by one.
    directories = set(shard.storage.list(f"{shard.directory}/queues"))
    for topic_id, queue_id, length in checkpoint.columns["queues"].tolist():
        topic = shard.topics.by_id[topic_id]
        first = firsts.get((topic_id, queue_id), 0)
        name = queue_dir_name(topic_id, queue_id)
        queue = topic.queues[queue_id]
        if not queue.restore(first, length, has_directory=name in directories):
            why = f"consume queue {queue_id} of topic {topic.name} does not have {length} units"
            damaged.append(Damaged("queues", name, (name,), why))
        topic.tails[queue_id] = length
    for row in registry["hours"]:
        bad = shard.delay.restore_hour(row, aside)
        damaged += [bad] if bad else []
    damaged += far_checkpoint.restore(
        shard.delay.far,
        registry.get("far", {}),
        checkpoint.columns["far_settled"],
        tolerant=tolerant,
    )
    for group, topic_id, queue, floor, next_offset in checkpoint.columns["progress"].tolist():
        progress = shard.ready.of(group, topic_id, queue)
        progress.floor, progress.next = floor, next_offset
    for group, topic_id, queue, first, stop in acked_runs(checkpoint):
        shard.ready.of(group, topic_id, queue).acked.add(first, stop)
    for row in checkpoint.columns["leases"].tolist():
        group, topic_id, queue, attempt, grant, offset, granted_ms, duration_ms = row
        lease = restored_lease(attempt, grant, granted_ms, duration_ms, wall_ms, mono_ms)
        shard.ready.restore_lease(group, topic_id, queue, offset, lease)
    for appended_ms, position in registry.get("appended", []):
        shard.log_times.remember(appended_ms, position, wall_ms, mono_ms)
    shard.lanes.restore(registry.get("lanes", []))  # an older horolog knew none
    shard.halves.restore(registry, checkpoint.columns)
    shard.handed_over = registry["handed_over"]
    shard.recalled = registry["recalled"]
    shard.expired = registry.get("expired", 0)  # an older horolog knew none
    shard.store_ms = checkpoint.store_ms
    shard.checkpoint_position = checkpoint.position
    retention.restore(shard, checkpoint)
    shard.problems.restore(registry.get("problems", {}), shard.storage.exists, wall_ms)
    for run in shard.delay.far.runs.values():
        shard.problems.remove(unreadable_key(run.info.name))  # it has been opened
    for source in (*shard.delay.hours.values(), *shard.delay.far.sources()):
        if source.quarantined and not shard.problems.has(quarantined_key(source)):
            shard.problems.append(quarantine_problem(source))  # an older horolog did not keep it
    return damaged


def _restore_names(shard: Shard, registry: dict[str, Any]) -> None:
    """Topics, groups and adoptions; what an older horolog did not know is not there."""
    for row in registry["topics"]:
        shard.topics.put_row(row)
    shard.topics.last = max(registry.get("last_topic", 0), shard.topics.last)
    for row in registry.get("dropped_topics", []):
        shard.topics.dropped[row["number"]] = Dropped.of(row)
    for row in registry["groups"]:
        shard.ready.groups.put_row(row)
    last = registry.get("last_group", 0)  # an older horolog deleted none
    shard.ready.groups.last = max(last, shard.ready.groups.last)
    for row in registry.get("schedules", []):  # an older horolog knew none
        shard.schedules.put_row(row)
    shard.schedules.last = max(registry.get("last_schedule", 0), shard.schedules.last)
    shard.adoptions.update(registry.get("adoptions", []))
    shard.fingerprints.update(registry.get("fingerprints", {}))


def restored_lease(
    attempt: int, grant: int, granted_ms: int, duration_ms: int, wall_ms: int, mono_ms: int
) -> Lease:
    """A lease after a restart: what is left of it by the wall clock, clamped to [0, duration]."""
    left = min(max(granted_ms + duration_ms - wall_ms, 0), duration_ms)
    return Lease(attempt, grant, mono_ms + left, granted_ms, duration_ms)
