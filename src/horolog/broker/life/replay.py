"""Replay: what a frame of the log changes, read from its bytes.

The same `Applied` as online, then the same `Shard.apply`; reads neither clock nor configuration.  Leases get
the time of the restart, because what is left of them runs on its monotonic clock.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from horolog.broker.adopt import adoptions
from horolog.broker.columns import queue_ids, queue_offsets
from horolog.broker.key_columns import key_columns
from horolog.broker.life.snapshot import restored_lease
from horolog.broker.send.sends import unfiled_of
from horolog.broker.shard import Applied, Settled, Shard
from horolog.delay.far.adopted import Adoption
from horolog.delay.resolve import resolve
from horolog.delay.state import EntryState
from horolog.delay.tier import Step
from horolog.errors import NO_ROOM, ErrorCode, HorologError
from horolog.log.consume_queue import units_of
from horolog.log.frame import HEADER_BYTES, FrameHeader
from horolog.log.record import (
    ENVELOPE,
    ENVELOPE_BYTES,
    IS_MESSAGE,
    IS_MOVED,
    Kind,
    decode_ack,
    decode_grant,
    decode_hand_over,
    decode_offload,
    decode_offsets,
    decode_recall,
    decode_recall_many,
    heads_of,
    kinds_of,
    offsets_of,
)
from horolog.ready.lease_life import Event


def index_frame(shard: Shard, header: FrameHeader, body: bytes) -> None:
    """Add what one valid frame holds to the key index, and to nothing else."""
    offsets = offsets_of(body, header.count)
    messages = offsets[IS_MESSAGE[kinds_of(body, offsets)]]
    keyed = key_columns(heads_of(body, messages), messages, header.base + HEADER_BYTES, body)
    if keyed is not None:
        shard.key_index.add(keyed.keys, keyed.positions)


class Replay:
    """Applies frames to a shard in log order."""

    def __init__(self, shard: Shard, wall_ms: int, mono_ms: int) -> None:
        self._shard = shard
        self._wall_ms = wall_ms
        self._mono_ms = mono_ms

    def apply(self, header: FrameHeader, body: bytes) -> None:
        """Apply one valid frame."""
        shard = self._shard
        shard.store_ms = max(shard.store_ms, header.append_ms)
        shard.log.note(header.base, header.append_ms)
        if not header.count:
            shard.applied = header.end
            return
        shard.log_times.remember(header.append_ms, header.base, self._wall_ms, self._mono_ms)
        offsets = offsets_of(body, header.count)
        kinds = kinds_of(body, offsets)
        settled: list[Settled] = []
        adopted: Adoption | None = None
        step: Step | None = None
        is_message = IS_MESSAGE[kinds]
        controls = zip(offsets[~is_message].tolist(), kinds[~is_message].tolist(), strict=True)
        for at, kind in controls:
            if kind == Kind.ADOPT:
                adopted = self._adoption(header, body, at)
            elif kind == Kind.OFFLOAD:
                size = ENVELOPE.unpack_from(body, at)[0]
                step = Step(*decode_offload(body[at + ENVELOPE_BYTES : at + size]))
            else:
                self._control(header, body, offsets, at, settled)
        messages = offsets[is_message]
        base = header.base + HEADER_BYTES
        heads = heads_of(body, messages)
        unfiled = (
            unfiled_of(heads, messages, base, body, header.append_ms) if len(messages) else None
        )
        units = self._units(body, base, heads, messages)
        keyed = key_columns(heads, messages, base, body)
        shard.apply(Applied(header.end, units, unfiled, settled, keyed, adopted, step))
        if shard.stalled:
            raise HorologError(
                ErrorCode.DISK_FULL, "no space to rebuild the delay store from the log"
            )
        self._make_runs()

    def _make_runs(self) -> None:
        """Flushes are done here and now: a long replay must not gather one far buffer after the other."""
        shard = self._shard
        while (job := shard.delay.far.start_flush()) is not None:
            try:
                job.carry_out(shard.storage)
            except HorologError as error:
                if error.code not in NO_ROOM:
                    raise
                shard.delay.far.fail_job()
                return
            shard.switch_far()

    def _adoption(self, header: FrameHeader, body: bytes, at: int) -> Adoption:
        size = ENVELOPE.unpack_from(body, at)[0]
        fields = orjson.loads(body[at + ENVELOPE_BYTES : at + size])
        adoption = Adoption.of(header.base + HEADER_BYTES + at, fields)
        adoptions.note(self._shard.adoptions, self._shard.fingerprints, adoption)
        self._shard.delay.far.look_for(adoption)
        return adoption

    def _units(
        self, body: bytes, base: int, heads: npt.NDArray[Any], at: npt.NDArray[np.int64]
    ) -> list[Any]:
        rows = np.flatnonzero(heads["kind"] != Kind.SCHEDULED)
        if not len(rows):
            return []
        raw = np.frombuffer(body, np.uint8)
        starts, sub = at[rows], heads[rows]
        found = []
        numbers = queue_offsets(raw, starts)
        for topic, queue_id, chosen in self._shard.topics.by_queue(
            sub["topic"], queue_ids(raw, starts)
        ):
            units = units_of(sub[chosen], starts[chosen] + base)
            expected = topic.queues[queue_id].length + np.arange(len(chosen))
            if not bool((numbers[chosen] == expected).all()):
                raise HorologError(
                    ErrorCode.DAMAGED,
                    f"topic {topic.name} queue {queue_id}: the log has queue offset "
                    f"{int(numbers[chosen][0])} where {int(expected[0])} was expected",
                )
            found.append((topic, queue_id, units))
        return found

    def _control(
        self,
        header: FrameHeader,
        body: bytes,
        offsets: npt.NDArray[np.int64],
        at: int,
        settled: list[Settled],
    ) -> None:
        size, kind, flags, _, due_ms = ENVELOPE.unpack_from(body, at)
        payload = body[at + ENVELOPE_BYTES : at + size]
        shard = self._shard
        match kind:
            case Kind.HAND_OVER:
                origins = decode_hand_over(payload).origins
                first = int(np.searchsorted(offsets, at)) + 1  # the messages follow their record
                heads = heads_of(body, offsets[first : first + len(origins)])
                refs = resolve(shard.delay, heads["due_ms"], origins)
                settled.append(Settled(refs, EntryState.HANDED_OVER, heads["lane"]))
            case Kind.RECALL:
                _, _, origins, lanes = decode_recall(payload)
                dues = np.full(len(origins), due_ms, np.int64)
                refs = resolve(shard.delay, dues, origins)
                state = EntryState.MOVED if flags & IS_MOVED else EntryState.RECALLED
                settled.append(Settled(refs, state, lanes))
            case Kind.RECALL_MANY:
                _, gone, lanes = decode_recall_many(payload)
                refs = resolve(shard.delay, gone["due_ms"], gone)
                settled.append(Settled(refs, EntryState.RECALLED, lanes))
            case Kind.TOPIC:
                row = orjson.loads(payload)
                if row.get("deleted"):
                    shard.drop_topic(row["number"], header.base)
                else:
                    shard.topics.put_row(row)
            case Kind.GROUP:
                row = orjson.loads(payload)
                if row.get("deleted"):
                    shard.ready.drop_group(row["number"])
                else:
                    shard.ready.groups.put_row(row)
            case Kind.GRANT:
                self._grant(header, payload)
            case Kind.ACK:
                ack = decode_ack(payload)
                progress = shard.ready.of(ack.group, ack.topic, ack.queue)
                for offset in ack.offsets.tolist():
                    progress.consume(offset, Event.ACK)
                shard.ready.watch(ack.group, ack.topic, ack.queue)
            case Kind.OFFSETS:
                committed = decode_offsets(payload)
                for queue, offset in committed.committed.tolist():
                    shard.ready.commit((committed.group, committed.topic, queue), offset)
            case Kind.EPOCH:
                pass
            case _:
                raise HorologError(
                    ErrorCode.VERSION_UNSUPPORTED,
                    f"log position {header.base}: record kind {kind} is of a newer horolog",
                    field="record",
                )

    def _grant(self, header: FrameHeader, payload: bytes) -> None:
        record = decode_grant(payload)
        progress = self._shard.ready.of(record.group, record.topic, record.queue)
        for offset, attempt, grant in record.granted.tolist():
            if offset < progress.floor or offset in progress.acked:
                continue
            progress.lease(
                offset,
                restored_lease(
                    attempt,
                    header.epoch << 32 | grant,
                    header.append_ms,
                    record.duration_ms,
                    self._wall_ms,
                    self._mono_ms,
                ),
                Event.RECORD,
            )
        progress.skip_to(record.next_offset, set(record.granted["offset"].tolist()))
        self._shard.ready.watch(record.group, record.topic, record.queue)
