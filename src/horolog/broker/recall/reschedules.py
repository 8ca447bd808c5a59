"""Reschedule: one frame holds a RECALL with the flag *moved* and the moved message.

If copies are pending in the tier an OFFLOAD record between the two recalls them there.

So no crash can keep the one without the other.  Messages of different bodies with one id and one
due time are all moved: each is such a pair, and pairs fill a frame, or several; those with copies
in the tier share one frame, as the tier's record is one.  The copy is a message like any: its own
origin, its own handle; id, queue, body and born time stay.  The rules of `recalls` about truth hold
here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.applied import Settled
from horolog.broker.columns import queue_ids
from horolog.broker.recall import past
from horolog.broker.recall.recalls import Copies, find_copies, was_delivered, why_not_found
from horolog.broker.send.message_frames import append_body
from horolog.broker.send.sends import too_late
from horolog.broker.shard import Shard
from horolog.delay.lanes import lanes_of
from horolog.delay.state import EntryState
from horolog.delay.tier import Step
from horolog.errors import ErrorCode, refused
from horolog.limits import STORED_PROPERTIES_MAX
from horolog.log.control_records import encode_offload, encode_recall, origins_of
from horolog.log.record import HEAD, HEAD_BYTES, Kind, heads_of
from horolog.protocol.commands import Reschedule, Rescheduled, RescheduleStatus
from horolog.protocol.rocketmq import layout, properties
from horolog.units import instant


def reschedule(shard: Shard, command: Reschedule, wall_ms: int) -> Rescheduled:
    """Decide a reschedule and append its frames.

    Raise ILLEGAL_DELIVERY_TIME if the new time is too far ahead, IN_TIER if copies in the tier
    cannot be moved.
    """
    new_due_ms = wall_ms if command.now else command.new_due_ms
    there = shard.tier.waiting_rows(shard.topics.get(command.topic).id, command)
    refusal = too_late(new_due_ms, wall_ms, shard.settings.max_delay_ms)
    if refusal is not None:
        raise refusal
    copies = find_copies(shard, command.topic, command.message_id, command.due_ms)
    if command.expected_due_ms is not None:
        present_ms = _present_ms(shard, copies, len(there))
        if present_ms is not None and present_ms != command.expected_due_ms:
            return _changed(copies, present_ms)
    if was_delivered(shard, copies):
        status = RescheduleStatus.ALREADY_DELIVERED
        why = "was handed over " + ("already" if command.now else "before the reschedule")
        return _refused(copies, status, why)
    waiting = copies.waiting
    refs, entries, records = shard.delay.read_intact(copies.refs[waiting], copies.entries[waiting])
    if not len(refs) and not len(there):
        why = "is quarantined" if bool(waiting.any()) else why_not_found(shard, copies)
        return _refused(copies, RescheduleStatus.NOT_FOUND, why)
    step = shard.tier.recall_step(there, moved=True) if len(there) else None
    in_tier = _in_tier(shard, command, copies, there)
    apart, together = _make_moves(copies, entries, records, in_tier, new_due_ms, wall_ms)
    if step is not None:
        together[0].controls.append(encode_offload(*step))
        _check_fits(shard, copies, together)
    places = _append_moves(shard, refs, apart, together, step, wall_ms)
    origin, queue_id, offset = places[0]
    status, why = RescheduleStatus.RESCHEDULED, f"is due {instant(new_due_ms)}"
    if command.now:
        status, why = RescheduleStatus.HANDED_OVER, "was handed over as it was asked for"
    return Rescheduled(
        status,
        _detail(copies, status, why),
        copies.message_id,
        new_due_ms,
        origin,
        queue_id,
        offset,
        len(refs) + len(there),
    )


class _Move(NamedTuple):
    """Copies of one message, and the records that replace them in a frame."""

    rows: npt.NDArray[np.int64]  # of the copies in the delay store
    lanes: npt.NDArray[Any]  # of these
    controls: list[bytes]
    copy: bytes


def _move_bytes(move: _Move) -> int:
    return sum(map(len, move.controls)) + len(move.copy)


def _make_moves(
    copies: Copies,
    entries: npt.NDArray[Any],
    records: list[memoryview],
    in_tier: Sequence[bytes],
    due_ms: int,
    wall_ms: int,
) -> tuple[list[_Move], list[_Move]]:
    """Make the move of each message; those with copies in the tier, which share a frame, apart.

    entries, records  of the copies in the delay store
    in_tier           records of those in the tier
    """
    lanes = lanes_of(records)
    apart: list[_Move] = []
    together: list[_Move] = []
    for rows, is_in_tier, record in _by_body(records, in_tier):
        origins = origins_of(entries["origin"][rows], entries["row"][rows])
        control = encode_recall(
            copies.topic.id, copies.key, copies.due_ms, origins, lanes[rows], moved=True
        )
        move = _Move(rows, lanes[rows], [control], moved_record(record, due_ms, wall_ms, {}))
        (together if is_in_tier else apart).append(move)
    return apart, together


def _append_moves(
    shard: Shard,
    refs: npt.NDArray[np.int64],
    apart: Sequence[_Move],
    together: Sequence[_Move],
    step: Step | None,
    wall_ms: int,
) -> list[tuple[int, int, int]]:
    """Append the frames of moves, that of the tier first; return as `append_copies` does."""
    shard.delay.mark_inflight(refs, EntryState.RECALLING)
    places = []
    for batch in chain([together] if together else [], shard.log.in_frames(apart, _move_bytes)):
        rows = np.concatenate([move.rows for move in batch])
        lanes = np.concatenate([move.lanes for move in batch])
        settled = Settled(refs[rows], EntryState.MOVED, lanes)
        pairs = [(move.controls, move.copy) for move in batch]
        places += append_copies(shard, pairs, settled, step if batch is together else None, wall_ms)
    return places


def _check_fits(shard: Shard, copies: Copies, together: Sequence[_Move]) -> None:
    """Raise IN_TIER if messages of one id in the tier are too long for their one frame."""
    size, most = sum(map(_move_bytes, together)), shard.log.segment_bytes // 4
    if size > most:
        raise refused(
            "deliver_at",
            f"messages {copies.message_id} in the {shard.tier.name} have {size} bytes together; "
            f"at most {most} can be moved from there at once",
            f"{most} bytes",
            code=ErrorCode.IN_TIER,
        )


def _by_body(
    here: Sequence[memoryview], there: Sequence[bytes]
) -> list[tuple[npt.NDArray[np.int64], bool, bytes]]:
    """Group copies by message: rows here, whether there are more in the tier, and the first record.

    Copies of one body are a send and its retries.  Copies of different bodies are different
    messages, of producers that make the same ids (`send.repeats`): each is moved.
    """
    rows: dict[bytes, list[int]] = {}  # rows of the tier follow the rows that are here
    records = [*map(bytes, here), *there]
    for row, record in enumerate(records):
        rows.setdefault(layout.decode(record[HEAD_BYTES:]).body, []).append(row)
    found = [np.array(each, np.int64) for each in rows.values()]
    n = len(here)
    return [(each[each < n], bool(each[-1] >= n), records[each[0]]) for each in found]


def _present_ms(shard: Shard, copies: Copies, there: int) -> int | None:
    """Return the present due time of the message; None if neither pending nor moved."""
    if there or bool(copies.waiting.any()):
        return copies.due_ms
    if was_delivered(shard, copies):
        return None
    return past.moved_to(shard, copies.in_log, copies.due_ms)


def _changed(copies: Copies, present_ms: int) -> Rescheduled:
    status = RescheduleStatus.DUE_TIME_CHANGED
    why = _detail(copies, status, f"is due {instant(present_ms)}, not when it was expected to be")
    return Rescheduled(status, why, copies.message_id, present_ms)


def _in_tier(
    shard: Shard, command: Reschedule, copies: Copies, there: npt.NDArray[Any]
) -> list[bytes]:
    """Return the records in the tier of these pending rows.

    Raise IN_TIER if one of them is not of that message any more.
    """
    if command.elsewhere is None or not len(there):
        return []
    rows, records = command.elsewhere.rows, command.elsewhere.records
    record_of = {row[:3]: record for row, record in zip(rows, records, strict=True)}
    named = zip(*(there[name].tolist() for name in ("number", "position", "row")), strict=True)
    return [_verified(shard, copies, record_of[each]) for each in named]


def _verified(shard: Shard, copies: Copies, record: bytes) -> bytes:
    """Return a record from the tier if it is of that message; else raise IN_TIER."""
    key = int(np.frombuffer(record, HEAD, 1)["key"][0]) if len(record) > HEAD_BYTES else 0
    if key != copies.key or not properties.holds(
        layout.properties_of(memoryview(record)[HEAD_BYTES:]),
        properties.UNIQ_KEY,
        copies.message_id,
    ):
        raise refused(
            "deliver_at",
            f"the {shard.tier.name} has another record in the place of message {copies.message_id}",
            code=ErrorCode.IN_TIER,
        )
    return record


def _detail(copies: Copies, status: RescheduleStatus, why: str) -> str:
    return f"{status.value}: message {copies.message_id} of topic {copies.topic.name} {why}"


def _refused(copies: Copies, status: RescheduleStatus, why: str) -> Rescheduled:
    return Rescheduled(status, _detail(copies, status, why), copies.message_id)


def moved_record(record: bytes, due_ms: int, wall_ms: int, marks: Mapping[str, str]) -> bytes:
    """Make the record of a scheduled message with another due time; raise PROPERTIES_TOO_LARGE.

    marks  properties to set beside the due time
    """
    of_topic = record[HEAD_BYTES:]
    stored = layout.topic_and_properties(of_topic)[1]
    for name, text in {properties.TIMER_DELIVER_MS: str(due_ms), **marks}.items():
        stored = properties.replaced(stored, name, text)
    if len(stored) > STORED_PROPERTIES_MAX:
        raise refused(
            "properties",
            f"{len(stored)} bytes with the new due time; at most "
            f"{STORED_PROPERTIES_MAX} are allowed",
            f"{STORED_PROPERTIES_MAX} bytes",
            code=ErrorCode.PROPERTIES_TOO_LARGE,
        )
    made = layout.with_properties(of_topic, stored)
    head = np.frombuffer(record, HEAD, 1).copy()
    head["size"] = HEAD_BYTES + len(made)
    head["kind"] = Kind.SCHEDULED if due_ms > wall_ms else Kind.MESSAGE
    head["due_ms"] = due_ms
    head["lane"] = 0  # the copy is in no lane
    return head.tobytes() + made


def append_copies(
    shard: Shard,
    pairs: Sequence[tuple[Sequence[bytes], bytes]],
    settled: Settled,
    step: Step | None,
    wall_ms: int,
) -> list[tuple[int, int, int]]:
    """Append one frame; return (origin, queue id, queue offset or −1) of each new copy.

    pairs  the control records of a message, and its copy, which follows them
    """
    pieces = [piece for controls, copy in pairs for piece in (*controls, copy)]
    ends = np.cumsum([len(piece) for piece in pieces])
    copies = np.cumsum([len(controls) + 1 for controls, _ in pairs]) - 1
    at = ends[copies] - np.array([len(copy) for _, copy in pairs])
    body = bytearray(b"".join(pieces))
    heads, queues = heads_of(body, at), queue_ids(np.frombuffer(body, np.uint8), at)
    offsets, positions = append_body(
        shard, body, at, heads, queues, len(pieces), wall_ms, [settled], step=step
    )
    return list(zip(positions.tolist(), queues.tolist(), offsets.tolist(), strict=True))
