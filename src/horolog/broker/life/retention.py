"""Retention: drop old segments of the log, and update everything that refers to them.

A segment may go when all of it lies below a checkpoint, and its newest frame is older than the
retention or the log is larger than its bound; the oldest go first.  If the wall clock was ahead
when that frame was written, the time counts for which this process has seen the segment full, by
the monotonic clock.  Sends of the dedup window stay, so that a retry finds them, and so do messages
whose transactions are open: they are nowhere else.  Pending messages were filed before the
checkpoint's position was reached and synced by it, so none of them needs the segment (P9).

    before        the start to expect is chosen, and queues are searched for it, some in each turn
    step N        a checkpoint is captured: the new start of the log is chosen, queues, groups and
                  key index follow at once, and the checkpoint says so
    step N + 1    the next checkpoint is captured; once it is durable both kept checkpoints begin at
                  that start or later, and its job removes the segments below, oldest first, each
                  name synced

So a start never misses a segment that a checkpoint counts on, also when it must fall back to the
older one; a crash in between leaves only an extra segment, removed by the next start or checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from horolog.broker.shard import CheckpointNeeds, Shard
from horolog.delay.far.names import named_files
from horolog.log.checkpoint import FIRST, NO_FRAME, Checkpoint
from horolog.log.commit_log import CommitLog
from horolog.log.consume_queue import ConsumeQueue
from horolog.log.segment import bases_on_disk, segment_name
from horolog.storage.api import Storage

# --- choosing -----------------------------------------------------------------------------------


def next_start(shard: Shard, checkpoint: Checkpoint, wall_ms: int, mono_ms: int) -> int:
    """Return where the log begins once that checkpoint is durable.

    The segment of its last frame stays: a start looks for that frame.
    """
    if checkpoint.last_frame == NO_FRAME:
        return shard.log.start
    halves = checkpoint.columns.get("halves")
    # Ask the checkpoint, not the present state: an end since then may not be durable.
    oldest = int(halves["position"].min()) if halves is not None and len(halves) else None
    start = _start(shard, checkpoint.last_frame, oldest, wall_ms, mono_ms)
    _check_unneeded(shard, start)
    return start


def expected_start(shard: Shard, wall_ms: int, mono_ms: int) -> int:
    """Return where the log will begin if a checkpoint of the present state is made.

    Frames that are not applied stay: their messages are not in the queues that are searched.
    """
    if shard.log.last_frame < 0:
        return shard.log.start
    last = min(shard.log.last_frame, shard.applied)
    return _start(shard, last, shard.halves.oldest, wall_ms, mono_ms)


def _start(
    shard: Shard, last_frame: int, oldest_half: int | None, wall_ms: int, mono_ms: int
) -> int:
    log, settings = shard.log, shard.settings
    start, size = log.start, log.segment_bytes
    bounds = (last_frame, shard.log_times.since(mono_ms), oldest_half)
    stop = min(bound for bound in bounds if bound is not None)
    stop -= stop % size
    held = _segments_held(log)
    _note_full(shard, mono_ms)
    while start < stop:
        too_large = 0 < settings.retention_bytes < held * size
        if not too_large and _age_ms(shard, start, wall_ms, mono_ms) <= settings.retention_ms:
            break
        start += size
        held -= 1
    return start


def _note_full(shard: Shard, mono_ms: int) -> None:
    """Note when each full segment was first seen; nothing is appended to it any more."""
    log, seen = shard.log, shard.full_since_ms
    for base in range(next(reversed(seen), log.start), log.last_frame, log.segment_bytes):
        if base + log.segment_bytes <= log.last_frame:
            seen.setdefault(base, mono_ms)


def _age_ms(shard: Shard, base: int, wall_ms: int, mono_ms: int) -> int:
    """Return the minimum age of the newest frame of a full segment.

    A step of the wall clock cannot lower it.
    """
    seen_ms = shard.full_since_ms.get(base, mono_ms)
    return max(wall_ms - shard.log.newest_ms[base], mono_ms - seen_ms)


def _segments_held(log: CommitLog) -> int:
    return -(-(log.end - log.start) // log.segment_bytes)


def _check_unneeded(shard: Shard, start: int) -> None:
    """Check that no message that waits to be applied or filed lies below `start` (P9)."""
    assert not shard.delay.stalled
    assert all(change.end > start for change in shard.uncommitted)


def next_drop_in(shard: Shard, wall_ms: int, mono_ms: int) -> int | None:
    """Return the ms until the oldest segment may go by its age.

    None if a checkpoint comes anyway, or no segment may go.
    """
    log = shard.log
    if log.end > shard.checkpoint_position:
        return None
    if shard.removed_below < log.start:
        return 0  # dropped; the next checkpoint removes it
    end = log.start + log.segment_bytes
    oldest = shard.halves.oldest
    if end > log.last_frame or (oldest is not None and oldest < end):
        return None
    settings = shard.settings
    _note_full(shard, mono_ms)
    by_age = settings.retention_ms + 1 - _age_ms(shard, log.start, wall_ms, mono_ms)
    if 0 < settings.retention_bytes < _segments_held(log) * log.segment_bytes:
        by_age = 0
    return max(0, by_age, shard.log_times.needs_below(end, mono_ms) or 0)


# --- moving -------------------------------------------------------------------------------------


class QueueStarts:
    """Where queues will begin once the log begins at `start`, found some queues in each turn.

    Each takes a binary search in a file of its own; those of thousands would take a second.
    """

    def __init__(self, shard: Shard, start: int) -> None:
        self.start = start
        self.is_done = start <= shard.log.start  # it does not move
        self._shard = shard
        self._left = self._queues(list(shard.topics.by_id))
        self._firsts: dict[tuple[int, int], int] = {}  # (topic id, queue id) → offset

    def _queues(self, topic_ids: list[int]) -> Iterator[tuple[int, int, ConsumeQueue]]:
        for topic_id in topic_ids:
            topic = self._shard.topics.by_id.get(topic_id)  # None: it was deleted meanwhile
            for queue_id, queue in enumerate(topic.queues if topic is not None else ()):
                if topic_id in self._shard.topics.by_id:
                    yield topic_id, queue_id, queue

    def find(self, queues: int | None = None) -> bool:
        """Search in so many more queues, or in all; return whether those were the last."""
        some = list(islice(self._left, queues))
        for topic_id, queue_id, queue in some:
            first = queue.first_from(self.start)
            if first > queue.first:
                self._firsts[topic_id, queue_id] = first
        self.is_done = queues is None or len(some) < queues
        return self.is_done

    def begin_queues(self) -> dict[tuple[int, int], int]:
        """Begin the queues there; return the first offsets of those that have moved.

        Queues made since they were searched have only messages above.
        """
        topics = self._shard.topics.by_id
        return {
            (topic_id, queue_id): first
            for (topic_id, queue_id), first in self._firsts.items()
            if topic_id in topics and topics[topic_id].queues[queue_id].begin_at(first)
        }


def move_start(shard: Shard, start: int, found: QueueStarts | None = None) -> None:
    """Let the log begin at `start` from here on, with queues, groups and the key index.

    found  queues that were searched for the expected start: the log moves there or, if it must not,
           not yet
    """
    if found is not None:
        assert found.is_done
        start = found.start if found.start <= start else shard.log.start
    if start <= shard.log.start:
        return
    shard.log.drop_below(start)
    for base in [base for base in shard.full_since_ms if base < start]:
        del shard.full_since_ms[base]
    shard.key_index.begin_at(start)
    if found is None:
        found = QueueStarts(shard, start)
        found.find()
    shard.ready.drop_below(found.begin_queues())


def add_starts(shard: Shard, checkpoint: Checkpoint) -> CheckpointNeeds:
    """Write the log's start and ages into a checkpoint; return what deletions must know of it."""
    log = shard.log
    checkpoint.registry["log"] = {"start": log.start, "newest_ms": sorted(log.newest_ms.items())}
    firsts = shard.topics.queue_column("first", FIRST)
    checkpoint.columns["firsts"] = firsts[firsts["first"] > 0]
    return _needs_of(checkpoint)


def _needs_of(checkpoint: Checkpoint) -> CheckpointNeeds:
    return CheckpointNeeds(
        checkpoint.position,
        start_of(checkpoint) or 0,
        firsts_of(checkpoint),
        {row["hour"]: row["version"] for row in checkpoint.registry["hours"]},
        named_files(checkpoint.registry.get("far", {})),
    )


def firsts_of(checkpoint: Checkpoint) -> dict[tuple[int, int], int]:
    """Return the first queue offset of each (topic id, queue id) that has dropped some."""
    rows = checkpoint.columns["firsts"].tolist()
    return {(topic, queue_id): first for topic, queue_id, first in rows}


def start_of(checkpoint: Checkpoint | None) -> int | None:
    """Return where the log begins for a checkpoint; for one of version 1 at 0."""
    if checkpoint is None:
        return None
    start: int = checkpoint.registry.get("log", {}).get("start", 0)
    return start


def restore(shard: Shard, checkpoint: Checkpoint) -> None:
    """Restore the start of the log and the ages of its segments.

    Groups begin where their queues do.
    """
    log = shard.log
    row: dict[str, Any] = checkpoint.registry.get("log", {})
    log.start = row.get("start", 0)
    for base in range(log.start, checkpoint.position, log.segment_bytes):
        log.note_append_time(base, 0)
    log.newest_ms.update((base, ms) for base, ms in row.get("newest_ms", []))
    for base, newest_ms in log.newest_ms.items():
        if not newest_ms:  # a checkpoint of version 1
            log.newest_ms[base] = checkpoint.registry["wall_ms"]
    queues = shard.topics.all_queues()
    shard.ready.drop_below(
        {(topic.id, queue_id): queue.first for topic, queue_id, queue in queues if queue.first}
    )
    shard.ready.dropped.clear()
    shard.last_checkpoint = _needs_of(checkpoint)
    oldest = bases_on_disk(shard.storage, f"{shard.directory}/log")
    shard.removed_below = min(oldest[:1], default=log.start)


# --- removing -----------------------------------------------------------------------------------


def queue_files(shard: Shard) -> list[str]:
    """Return files of queues that the last durable and later checkpoints do not need."""
    found = []
    for (topic, queue_id), first in shard.last_checkpoint.firsts.items():
        if topic in shard.topics.by_id:
            found += shard.topics.by_id[topic].queues[queue_id].files_below(first)
    return found


def dropped_queues(shard: Shard) -> list[str]:
    """Return queue directories of deleted topics that no checkpoint from the last one on needs.

    Forget a deleted topic when the log has no message of it any more.
    """
    topics, found = shard.topics, []
    for dropped in list(topics.dropped.values()):
        if dropped.id not in topics.swept and dropped.position < shard.last_checkpoint.position:
            there = [path for path in topics.directories_of(dropped) if shard.storage.list(path)]
            if not there:
                topics.swept.add(dropped.id)
            found += there
        if dropped.id in topics.swept and dropped.position < shard.last_checkpoint.start:
            del topics.dropped[dropped.id]
            topics.swept.discard(dropped.id)
    return found


def note_durable(shard: Shard, needs: CheckpointNeeds, *, removed: bool) -> None:
    """Note that the checkpoint of `needs` is durable.

    With `removed`, the files that its predecessor did not need are gone.
    """
    if removed:
        for (topic, queue_id), first in shard.last_checkpoint.firsts.items():
            if topic in shard.topics.by_id:
                shard.topics.by_id[topic].queues[queue_id].forget_files_below(first)
        shard.key_index.drop_below(shard.last_checkpoint.start)
        shard.removed_below = shard.last_checkpoint.start
    shard.last_checkpoint = needs


def remove_segments(storage: Storage, directory: str, start: int) -> None:
    """Remove the segments below `start`, oldest first.

    A crash in between leaves no hole, since each name is synced.
    """
    for base in bases_on_disk(storage, directory):
        if base >= start:
            break
        storage.remove(f"{directory}/{segment_name(base)}")
        storage.sync_dir(directory)
