"""Repair damaged files from what the log still has, when the beginning of the log is gone.

A second replay, of the log between its start and the checkpoint, applies only what concerns the
damaged parts: consume queues get their units again, hours and the far store the messages that were
scheduled there and that no hand-over, recall or offload has ended since.  All of that comes after
the scheduling in the log, so the repair is exact; only messages whose record was dropped by
retention are lost.  Damage in that part of the log is passed over and reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.broker.columns import queue_ids, queue_offsets
from horolog.broker.life import retention
from horolog.broker.life.quarantine import Note, write_note
from horolog.broker.send.message_frames import unfiled_of
from horolog.broker.shard import Shard
from horolog.delay.damage import Damaged
from horolog.delay.far.adopted import Adoption
from horolog.delay.filing import Unfiled
from horolog.delay.state import EntryState
from horolog.delay.tier import Retraced, Step, state_files
from horolog.errors import ErrorCode, HorologError, Problem
from horolog.limits import HOUR_MS, NEAR_HOURS
from horolog.log.checkpoint import Checkpoint
from horolog.log.consume_queue import ConsumeQueue
from horolog.log.controls import ENDING, Control, control_at, ended_in
from horolog.log.frame import HEADER_BYTES, FrameHeader
from horolog.log.queue_names import queue_dir_name
from horolog.log.queue_unit import units_of
from horolog.log.record import IS_MESSAGE, Kind, heads_of, kinds_of, offsets_of
from horolog.log.scan import LogScan, SalvageScan
from horolog.log.segment import segment_name

_OF_TIER = (Kind.OFFLOAD, Kind.ADOPT)


class Rebuilding:
    """Applies frames below the checkpoint to the damaged parts of a shard.

    The shard was restored without these parts.

    hours   damaged hours
    far     whether a buffer or a run is damaged
    queues  damaged consume queues: (topic id, queue id) → length by the checkpoint; each was begun
            again with `ConsumeQueue.begin_rebuild`
    tier    retraces the steps of the tier
    """

    def __init__(
        self,
        shard: Shard,
        hours: set[int],
        far: bool,
        queues: dict[tuple[int, int], int],
        tier: Retraced,
    ) -> None:
        self._shard = shard
        self._hours = np.array(sorted(hours), np.int64)
        self._far = far
        self._queues = queues
        self._tier = tier
        self._healthy = {source.source_id for source in shard.delay.far.sources()}
        if far:
            shard.delay.far.seal()  # origins ascend in a buffer, and repaired ones are older

    def apply(self, header: FrameHeader, body: bytes) -> None:
        """Apply one valid frame."""
        if not header.count:
            return
        offsets = offsets_of(body, header.count)
        kinds = kinds_of(body, offsets)
        for row in np.flatnonzero(np.isin(kinds, ENDING)).tolist():
            control = control_at(header, body, int(offsets[row]))
            ended = ended_in(body, offsets, row, control)
            state = EntryState[ended.outcome.name]
            self._settle(ended.due_ms, ended.origins["position"], state)
        for row in np.flatnonzero(np.isin(kinds, _OF_TIER)).tolist():
            self._retrace(control_at(header, body, int(offsets[row])))
        messages = offsets[IS_MESSAGE[kinds]]
        if len(messages):
            heads = heads_of(body, messages)
            base = header.base + HEADER_BYTES
            self._file(unfiled_of(heads, messages, base, body, header.append_ms))
            self._units(body, base, heads, messages)

    # --- scheduled messages -----------------------------------------------------------------------

    def _file(self, unfiled: Unfiled | None) -> None:
        if unfiled is None:
            return
        heads, origins, records, append_ms = unfiled
        hours = heads["due_ms"] // HOUR_MS
        is_far = hours > append_ms // HOUR_MS + NEAR_HOURS
        wanted = np.isin(hours, self._hours) & ~is_far
        if self._far and bool(is_far.any()):
            there = self._shard.delay.far.finds(heads["due_ms"], origins)
            wanted |= is_far & ~there
        if not bool(wanted.any()):
            return
        ends = np.cumsum(heads["size"].astype(np.int64))
        pieces = [
            records[int(ends[i]) - int(heads["size"][i]) : int(ends[i])] for i in _true_rows(wanted)
        ]
        chosen = Unfiled(heads[wanted], origins[wanted], memoryview(b"".join(pieces)), append_ms)
        _, rest = self._shard.delay.file(chosen)
        if rest is not None:
            raise HorologError(ErrorCode.DISK_FULL, "no space to repair hours from the log")

    def _settle(
        self, dues: npt.NDArray[np.int64], origins: npt.NDArray[np.uint64], state: EntryState
    ) -> None:
        delay = self._shard.delay
        for number in np.unique(dues // HOUR_MS).tolist():
            hour = delay.hours.get(number) if number in self._hours else None
            if hour is not None:
                rows = hour.find_origins(origins[dues // HOUR_MS == number])
                if bool((rows >= 0).any()):
                    hour.settle(rows[rows >= 0], state)
        for source in delay.far.sources() if self._far else ():
            if source.source_id not in self._healthy:
                rows = source.find(dues, origins)
                if bool((rows >= 0).any()):
                    source.settle(rows[rows >= 0], state)

    def _retrace(self, control: Control) -> None:
        if control.kind is Kind.OFFLOAD:
            buffers = self._shard.delay.far.buffers
            rebuilt = [each for each in buffers if each.source_id not in self._healthy]
            self._tier.apply(Step(*control.content), rebuilt)
        else:
            self._promoted(control)

    def apply_after(self, header: FrameHeader, body: bytes) -> None:
        """Apply what a frame above the checkpoint says of messages that a lost tier had."""
        if not header.count:
            return
        offsets = offsets_of(body, header.count)
        for at in offsets[np.isin(kinds_of(body, offsets), _OF_TIER)].tolist():
            control = control_at(header, body, at)
            if control.kind is Kind.OFFLOAD:
                self._tier.apply_after(Step(*control.content))
            else:
                self._promoted(control)

    def _promoted(self, control: Control) -> None:
        if promotion := Adoption.of(control.position, control.content).promotion:
            self._tier.promoted(promotion)

    # --- consume queues ---------------------------------------------------------------------------

    def _units(
        self, body: bytes, base: int, heads: npt.NDArray[Any], at: npt.NDArray[np.int64]
    ) -> None:
        rows = np.flatnonzero(heads["kind"] != Kind.SCHEDULED)
        if not self._queues or not len(rows):
            return
        raw = np.frombuffer(body, np.uint8)
        starts, sub = at[rows], heads.take(rows)
        numbers = queue_offsets(raw, starts)
        known = np.isin(sub["topic"], list(self._shard.topics.by_id))
        starts, sub, numbers = starts[known], sub[known], numbers[known]
        for topic, queue_id, chosen in self._shard.topics.by_queue(
            sub["topic"], queue_ids(raw, starts)
        ):
            if (topic.id, queue_id) not in self._queues:
                continue
            queue = topic.queues[queue_id]
            chosen = chosen[numbers[chosen] >= queue.length]
            if not len(chosen):
                continue
            queue.fill_holes(int(numbers[chosen][0]))
            queue.append(units_of(sub[chosen], starts[chosen] + base))

    def waiting_far(self) -> int:
        """Return how many far messages were filed again and are pending."""
        far = self._shard.delay.far
        return sum(each.waiting for each in far.sources() if each.source_id not in self._healthy)

    def finish(self) -> list[str]:
        """Make the queues durable; return sentences on messages that could not be repaired."""
        lost = []
        for (topic, queue_id), length in self._queues.items():
            found = self._shard.topics.by_id.get(topic)
            if found is None:
                continue  # the topic has been deleted since
            queue = found.queues[queue_id]
            queue.fill_holes(length)
            found.tails[queue_id] = length
            queue.end_rebuild()
            if holes := _holes(queue):
                lost.append(
                    f"consume queue {queue_id} of topic {found.name}: {holes} messages from queue "
                    f"offset {queue.first} on cannot be found in the log and are passed over"
                )
        return lost


def repair(
    shard: Shard,
    damaged: list[Damaged],
    notes: list[Note],
    used: Checkpoint,
    scan: SalvageScan,
    tail: LogScan,
) -> tuple[list[Note], list[str]]:
    """Repair the damaged parts from the frames of a scan, up to the checkpoint.

    tail  the frames above the checkpoint, which are replayed later

    Return the notes, now with the count of lost messages, and sentences for the operator.
    """
    hours = {bad.first_hour for bad in damaged if bad.part == "hours"}
    far = [bad for bad in damaged if bad.part == "runs"]
    for number in hours:
        shard.storage.remove_dir(shard.delay.path(number))  # left by a start that was killed
    of_tier = state_files(used.registry.get("far", {}))
    is_lost = any(not of_tier.isdisjoint(bad.names) for bad in far)
    queues = _begin_queues(shard, damaged, used)
    rebuilding = Rebuilding(shard, hours, bool(far), queues, shard.tier.retracing(is_lost=is_lost))
    for header, body in scan.frames():
        rebuilding.apply(header, body)
    lost_parts = rebuilding.finish()
    damaged_log = _last_segment(shard, scan)
    shard.problems += [Problem(text, damaged_log) for text in lost_parts]
    lost_parts += [f"log positions {first} to {end} do not verify" for first, end in scan.gaps]
    rebuilt_far = rebuilding.waiting_far()
    for header, body in tail.frames() if is_lost else ():
        rebuilding.apply_after(header, body)
    found = []
    for note in notes:
        lost = note.lost
        if note.covers(used.position):
            if note.part == "hours":
                hour = shard.delay.hours.get(note.first_hour)
                lost = note.waiting - min(note.waiting, hour.waiting if hour else 0)
            else:
                lost = note.waiting - min(note.waiting, rebuilt_far)
                rebuilt_far -= note.waiting - lost
        if lost != note.lost:
            note = note._replace(lost=lost)
            write_note(shard.storage, note)
        found.append(note)
        lost_parts.append(note.problem().text)
    return found, lost_parts


def _last_segment(shard: Shard, scan: SalvageScan) -> str:
    """Return the path of the newest segment with damage, "" if there is none.

    The losses are reported until that segment is dropped.
    """
    if not scan.gaps:
        return ""
    position = scan.gaps[-1][0]
    return f"{shard.directory}/log/{segment_name(position - position % shard.log.segment_bytes)}"


def _begin_queues(
    shard: Shard, damaged: list[Damaged], used: Checkpoint
) -> dict[tuple[int, int], int]:
    """Begin the damaged consume queues again; return their lengths by the checkpoint."""
    names = {name for bad in damaged if bad.part == "queues" for name in bad.names}
    firsts = retention.firsts_of(used)
    begun = {}
    for topic, queue_id, length in used.columns["queues"].tolist():
        if queue_dir_name(topic, queue_id) in names:
            first = firsts.get((topic, queue_id), 0)
            shard.topics.by_id[topic].queues[queue_id].begin_rebuild(first)
            shard.ready.drop_below({(topic, queue_id): first})
            begun[(topic, queue_id)] = length
    return begun


def _holes(queue: ConsumeQueue) -> int:
    holes, at = 0, queue.first
    while at < queue.length:
        units = queue.read(at, 65_536)
        holes += int((units["size"] == 0).sum())
        at += len(units)
    return holes


def _true_rows(rows: npt.NDArray[np.bool_]) -> Iterator[int]:
    yield from np.flatnonzero(rows).tolist()
