"""Replay: apply the changes of a log frame, read from its bytes.

It makes the same `Applied` as online and calls the same `Shard.apply`; it reads neither clock nor
configuration.  Leases get the time of the restart, because the rest of each one runs on the
restarted process's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.broker.adopt import adoptions
from horolog.broker.applied import Applied, Settled
from horolog.broker.columns import queue_ids, queue_offsets
from horolog.broker.key_columns import key_columns
from horolog.broker.life.after_salvage import AfterSalvage
from horolog.broker.life.restore import restored_lease
from horolog.broker.send.message_frames import unfiled_of
from horolog.broker.shard import Shard
from horolog.broker.transactions.open_halves import half_of
from horolog.delay.far.adopted import Adoption
from horolog.delay.resolve import resolve
from horolog.delay.state import EntryState
from horolog.delay.tier import Step
from horolog.errors import NO_ROOM, ErrorCode, HorologError, refused
from horolog.log.control_records import AckRecord, Grant, OffsetsRecord
from horolog.log.controls import CONTROL_KINDS, Control, control_at, ended_in
from horolog.log.frame import HEADER_BYTES, FrameHeader
from horolog.log.half_records import HalfOutcome
from horolog.log.queue_unit import units_of
from horolog.log.record import IS_MESSAGE, Kind, heads_of, kinds_of, offsets_of
from horolog.ready.leases import Lease
from horolog.ready.replayed import ack_again, grant_again


def index_frame(shard: Shard, header: FrameHeader, body: bytes) -> None:
    """Add the messages of one valid frame to the key index, and to nothing else."""
    offsets = offsets_of(body, header.count)
    messages = offsets[IS_MESSAGE[kinds_of(body, offsets)]]
    keyed = key_columns(heads_of(body, messages), messages, header.base + HEADER_BYTES, body)
    if keyed is not None:
        shard.key_index.add(keyed.keys, keyed.positions)


@dataclass(slots=True)
class _Frame:
    """A frame, and the changes that its control records make when all of it is applied."""

    header: FrameHeader
    body: bytes
    offsets: npt.NDArray[np.int64]  # of its records
    settled: list[Settled] = field(default_factory=list)
    adopted: Adoption | None = None
    step: Step | None = None


class Replay:
    """Applies frames to a shard in log order."""

    def __init__(self, shard: Shard, wall_ms: int, mono_ms: int) -> None:
        self._shard = shard
        self._wall_ms = wall_ms
        self._mono_ms = mono_ms
        self._salvage = AfterSalvage(shard)
        self._by_kind: Mapping[Kind, Callable[[_Frame, int, Control], None]] = {
            Kind.HAND_OVER: self._ends,
            Kind.RECALL: self._ends,
            Kind.RECALL_MANY: self._ends,
            Kind.TOPIC: self._topic,
            Kind.GROUP: self._group,
            Kind.GRANT: self._grant,
            Kind.ACK: self._ack,
            Kind.OFFSETS: self._offsets,
            Kind.EPOCH: self._epoch,
            Kind.ADOPT: self._adopt,
            Kind.OFFLOAD: self._offload,
            Kind.HALF: self._half,
            Kind.HALF_CHECK: self._half_check,
            Kind.HALF_END: self._half_end,
            Kind.SCHEDULE: self._schedule,
        }
        assert self._by_kind.keys() == CONTROL_KINDS

    def apply(self, header: FrameHeader, body: bytes) -> None:
        """Apply one valid frame, in log order.

        Raise DISK_FULL if there is no space to rebuild the delay store.
        """
        shard = self._shard
        shard.store_ms = max(shard.store_ms, header.append_ms)
        shard.log.note_append_time(header.base, header.append_ms)
        if not header.count:
            shard.applied = header.end
            if header.salvaged:
                self._salvage.note(header)
            return
        shard.log_times.restore_span(header.append_ms, header.base, self._wall_ms, self._mono_ms)
        frame = _Frame(header, body, offsets_of(body, header.count))
        is_message = IS_MESSAGE[kinds_of(body, frame.offsets)]
        for row in np.flatnonzero(~is_message).tolist():
            control = control_at(header, body, int(frame.offsets[row]))
            if not self._salvage or self._salvage.prepare(control):
                self._by_kind[control.kind](frame, row, control)
        messages = frame.offsets[is_message]
        base = header.base + HEADER_BYTES
        heads = heads_of(body, messages)
        if self._salvage:
            self._salvage.make_topics(heads, messages, body)
        unfiled = (
            unfiled_of(heads, messages, base, body, header.append_ms) if len(messages) else None
        )
        units = self._units(body, base, heads, messages)
        keyed = key_columns(heads, messages, base, body)
        shard.apply(
            Applied(header.end, units, unfiled, frame.settled, keyed, frame.adopted, frame.step)
        )
        if shard.delay.stalled:
            raise self._unfiled_refusal()
        self._make_runs()

    def _unfiled_refusal(self) -> HorologError:
        """Return the refusal of a start: later records may end the messages that have no place."""
        shard = self._shard
        waiting = sum(len(unfiled.heads) for unfiled in shard.delay.stalled)
        return refused(
            "disk",
            f"{waiting} or more scheduled messages of the log find no place in {shard.directory}, as "
            f"the disk takes no more files or bytes ({shard.storage.free_bytes()} bytes are free): "
            "bytes, inodes, a quota or file descriptors are used up; nothing is lost: make room, "
            "and start again",
            code=ErrorCode.DISK_FULL,
        )

    def _make_runs(self) -> None:
        """Carry out flushes at once: a replay must not gather one far buffer after the other."""
        shard = self._shard
        while (job := shard.delay.far.compaction.start_flush()) is not None:
            try:
                job.carry_out(shard.storage)
            except HorologError as error:
                if error.code not in NO_ROOM:
                    raise
                shard.delay.far.compaction.fail()
                return
            shard.switch_far()

    def _units(
        self, body: bytes, base: int, heads: npt.NDArray[Any], at: npt.NDArray[np.int64]
    ) -> list[Any]:
        rows = np.flatnonzero(heads["kind"] != Kind.SCHEDULED)
        if not len(rows):
            return []
        raw = np.frombuffer(body, np.uint8)
        starts, sub = at[rows], heads.take(rows)
        found = []
        numbers = queue_offsets(raw, starts)
        for topic, queue_id, chosen in self._shard.topics.by_queue(
            sub["topic"], queue_ids(raw, starts)
        ):
            units = units_of(sub.take(chosen), starts[chosen] + base)
            if self._salvage:
                self._salvage.fill(topic.id, queue_id, int(numbers[chosen][0]))
            expected = topic.queues[queue_id].length + np.arange(len(chosen))
            if not bool((numbers[chosen] == expected).all()):
                raise HorologError(
                    ErrorCode.DAMAGED,
                    f"topic {topic.name} queue {queue_id}: the log has queue offset "
                    f"{int(numbers[chosen][0])} where {int(expected[0])} was expected",
                )
            found.append((topic, queue_id, units))
        return found

    # --- control records: what follows from each kind ---------------------------------------------

    def _ends(self, frame: _Frame, row: int, control: Control) -> None:
        ended = ended_in(frame.body, frame.offsets, row, control)
        refs = resolve(self._shard.delay, ended.due_ms, ended.origins)
        frame.settled.append(Settled(refs, EntryState[ended.outcome.name], ended.lanes))

    def _topic(self, frame: _Frame, _: int, control: Control) -> None:
        row = control.content
        if row.get("deleted"):
            self._shard.drop_topic(row["number"], frame.header.base)
        else:
            self._shard.topics.put_row(row)

    def _group(self, _frame: _Frame, _: int, control: Control) -> None:
        row = control.content
        if row.get("deleted"):
            self._shard.ready.drop_group(row["number"])
        else:
            self._shard.ready.groups.put_row(row)

    def _schedule(self, _frame: _Frame, _: int, control: Control) -> None:
        self._shard.schedules.put_row(control.content)

    def _grant(self, frame: _Frame, _: int, control: Control) -> None:
        record: Grant = control.content
        progress = self._shard.ready.progress_of(record.group, record.topic, record.queue)
        header = frame.header

        def lease(attempt: int, grant: int) -> Lease:
            return restored_lease(
                attempt,
                grant,
                header.append_ms,
                record.duration_ms,
                record.holder,
                self._wall_ms,
                self._mono_ms,
            )

        grant_again(progress, record, header.epoch, lease)
        self._shard.ready.watch(record.group, record.topic, record.queue)

    def _ack(self, _frame: _Frame, _: int, control: Control) -> None:
        ack: AckRecord = control.content
        ack_again(self._shard.ready.progress_of(ack.group, ack.topic, ack.queue), ack)
        self._shard.ready.watch(ack.group, ack.topic, ack.queue)

    def _offsets(self, _frame: _Frame, _: int, control: Control) -> None:
        record: OffsetsRecord = control.content
        for queue, offset in record.committed.tolist():
            self._shard.ready.commit((record.group, record.topic, queue), offset)

    def _epoch(self, _frame: _Frame, _: int, _control: Control) -> None:
        """Do nothing: the header of every frame states its epoch."""

    def _adopt(self, frame: _Frame, _: int, control: Control) -> None:
        adoption = Adoption.of(control.position, control.content)
        adoptions.note(self._shard.adoptions, self._shard.fingerprints, adoption)
        self._shard.delay.far.note_missing(adoption)
        frame.adopted = adoption

    def _offload(self, frame: _Frame, _: int, control: Control) -> None:
        frame.step = Step(*control.content)

    def _half(self, frame: _Frame, _: int, control: Control) -> None:
        append_ms, check_ms = frame.header.append_ms, control.due_ms
        self._shard.halves.begin(half_of(control.position, control.content, append_ms, check_ms))

    def _half_check(self, _frame: _Frame, _: int, control: Control) -> None:
        for position, next_ms, checks in control.content.tolist():
            if self._salvage.has_half(position):
                self._shard.halves.note_checked(position, next_ms, checks)

    def _half_end(self, _frame: _Frame, _: int, control: Control) -> None:
        for position, outcome in control.content.tolist():
            if self._salvage.has_half(position):
                self._shard.halves.end(position, HalfOutcome(outcome))
