"""Layouts of control records: the payload of each kind after the envelope (`log.record`).  Truth.

===========  ==================================================================================
HAND_OVER    hour u32, n u32, n × origin; the n HANDED records follow in the same frame
RECALL       topic u32, n u32, key hash u64, n × origin; envelope's due ms is that of the messages.
             A *moved* RECALL is the first of two records of a frame; the second one is the message
             with its new due time.  If any recalled message has a lane, the n lanes u16 follow
RECALL_MANY  topic u32, n u32, n × {origin, due ms i64}, and lanes as of a RECALL.  *Expired*: no
             client recalled the messages, they were too late; their dead letters follow as MESSAGE
             records in the same frame
TOPIC        JSON, the whole new state: number, name, type, queues, and those settings (perm, order,
             read_queues, write_queues, attributes, multi_tag) that are not the defaults.
             Or, if deleted: number, name, deleted: true
GROUP        JSON: number, name, settings if the group has its own; or number, name, deleted: true
GRANT        group u32, topic u32, queue u32, n u32, next offset u64, duration ms i64,
             n × {offset u64, attempt u32, grant u32}; granted at the frame's append ms.  *Again*:
             leases got a new end, no message was given out (older logs lack this flag).  If the
             leases are renewed for their client, these follow: epoch u32 of the grants, renewable
             ms u64 from then on, client id
ACK          group u32, topic u32, queue u32, n u32, n × offset u64
OFFSETS      group u32, topic u32, n u32, n × {queue u32, offset u64}: everything below each offset
             is consumed; an offset lower than before discards all progress recorded above it
EPOCH        nothing: the first frame of an epoch
ADOPT        JSON: app, version, topic, queues, rows, files (`delay.far.adopted`); its log position
             is the origin of all rows.  Without files the messages follow in the same frame
OFFLOAD      length u32 of the JSON, JSON: step and its fields, and the tier's own table, whose rows
             docs/reference/formats.md shows; the only record of its frame, but for a reschedule
HALF, HALF_CHECK, HALF_END   of transactions (`log.half_records`)
SCHEDULE     JSON: progress of a recurring schedule (id, name, revision, state, sequence, fired,
             cursor, before, planned), and created_ms, rule and content if it is new or changed; the
             messages of the firings it plans follow in its frame.  Or id, name, deleted: true
===========  ==================================================================================

An origin is {position u64, row u32}, 12 bytes: the log position of the scheduled message's record;
row is 0 but for rows of adopted runs.  `log.controls` has the table of what each kind means.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from horolog.log.record import ENVELOPE, ENVELOPE_BYTES, Kind

IS_MOVED = 1  # flag of a RECALL
IS_EXPIRED = 2  # flag of a RECALL_MANY
IS_AGAIN = 1  # flag of a GRANT

ORIGIN = np.dtype([("position", "<u8"), ("row", "<u4")])
assert ORIGIN.itemsize == 12
RECALLED = np.dtype([("position", "<u8"), ("row", "<u4"), ("due_ms", "<i8")])
assert RECALLED.itemsize == 20
GRANTED = np.dtype([("offset", "<u8"), ("attempt", "<u4"), ("grant", "<u4")])
assert GRANTED.itemsize == 16
COMMITTED = np.dtype([("queue", "<u4"), ("offset", "<u8")])
assert COMMITTED.itemsize == 12

_HAND_OVER = struct.Struct("<II")
_RECALL = struct.Struct("<IIQ")
_RECALL_MANY = struct.Struct("<II")
RECALL_MANY_BYTES = ENVELOPE_BYTES + _RECALL_MANY.size  # bytes of a RECALL_MANY before its rows
_GRANT = struct.Struct("<IIIIQq")
_ACK = struct.Struct("<IIII")
_GRANTED = struct.Struct("<QII")
_HOLDER = struct.Struct("<IQ")
assert _GRANTED.size == GRANTED.itemsize
_OFFSETS = struct.Struct("<III")
_OFFLOAD = struct.Struct("<I")


class HandOver(NamedTuple):
    """A decoded HAND_OVER."""

    hour: int
    origins: npt.NDArray[Any]  # ORIGIN


class RecallRecord(NamedTuple):
    """A decoded RECALL."""

    topic: int
    key: int
    origins: npt.NDArray[Any]  # ORIGIN
    lanes: npt.NDArray[Any]  # u16, one per origin; 0: no lane


class RecallMany(NamedTuple):
    """A decoded RECALL_MANY."""

    topic: int
    messages: npt.NDArray[Any]  # RECALLED
    lanes: npt.NDArray[Any]  # u16, one per message; 0: no lane


class Holder(NamedTuple):
    """A push consumer, whose leases are renewed while it lives."""

    client_id: str  # "": none; the leases end when they say
    renewable_ms: int  # how long the leases may be renewed, from this grant on
    epoch: int = 0  # of the grants, if an earlier process made them; 0: the epoch of the frame


NO_HOLDER = Holder("", 0)


class Grant(NamedTuple):
    """A decoded GRANT."""

    group: int
    topic: int
    queue: int
    next_offset: int
    duration_ms: int
    granted: npt.NDArray[Any]  # GRANTED
    holder: Holder

    @property
    def payload_bytes(self) -> int:
        """Bytes of the encoded payload."""
        client_id = self.holder.client_id.encode()
        held = _HOLDER.size + len(client_id) if self.holder != NO_HOLDER else 0
        return _GRANT.size + self.granted.nbytes + held


class AckRecord(NamedTuple):
    """A decoded ACK."""

    group: int
    topic: int
    queue: int
    offsets: npt.NDArray[np.uint64]

    @property
    def payload_bytes(self) -> int:
        """Bytes of the encoded payload."""
        return _ACK.size + self.offsets.nbytes


class OffsetsRecord(NamedTuple):
    """A decoded OFFSETS."""

    group: int
    topic: int
    committed: npt.NDArray[Any]  # COMMITTED


def _control(kind: Kind, payload: bytes, due_ms: int = 0, flags: int = 0) -> bytes:
    return ENVELOPE.pack(ENVELOPE_BYTES + len(payload), kind, flags, 0, due_ms) + payload


def origins_of(positions: npt.NDArray[Any], rows: npt.NDArray[Any] | int = 0) -> npt.NDArray[Any]:
    """Build ORIGIN rows; `rows` is 0 but for messages of adopted runs."""
    origins = np.empty(len(positions), ORIGIN)
    origins["position"] = positions
    origins["row"] = rows
    return origins


def encode_hand_over(hour: int, origins: npt.NDArray[Any]) -> bytes:
    """Encode a HAND_OVER of the messages with these origins (ORIGIN rows), all of one hour."""
    return _control(Kind.HAND_OVER, _HAND_OVER.pack(hour, len(origins)) + origins.tobytes())


def encode_recall(
    topic: int,
    key: int,
    due_ms: int,
    origins: npt.NDArray[Any],
    lanes: npt.NDArray[Any] | None = None,
    *,
    moved: bool = False,
) -> bytes:
    """Encode a RECALL of the messages with these origins (ORIGIN rows) and lanes.

    moved  rescheduled: the next record of the frame is the message with its new due time
    """
    payload = _RECALL.pack(topic, len(origins), key) + origins.tobytes()
    payload += _lanes(lanes, len(origins))
    return _control(Kind.RECALL, payload, due_ms, IS_MOVED if moved else 0)


def encode_recall_many(
    topic: int,
    messages: npt.NDArray[Any],
    lanes: npt.NDArray[Any] | None = None,
    *,
    expired: bool = False,
) -> bytes:
    """Encode a RECALL_MANY of messages (RECALLED rows) of one topic, with lanes if any has one."""
    payload = _RECALL_MANY.pack(topic, len(messages)) + messages.tobytes()
    payload += _lanes(lanes, len(messages))
    return _control(Kind.RECALL_MANY, payload, flags=IS_EXPIRED if expired else 0)


def _lanes(lanes: npt.NDArray[Any] | None, n: int) -> bytes:
    if lanes is None or not bool(lanes.any()):
        return b""
    assert len(lanes) == n, (len(lanes), n)
    return lanes.astype("<u2").tobytes()


def _lanes_of(payload: bytes, at: int, n: int) -> npt.NDArray[Any]:
    return np.frombuffer(payload, "<u2", n, at) if at < len(payload) else np.zeros(n, "<u2")


def encode_topic(row: dict[str, Any]) -> bytes:
    """Encode a TOPIC: the whole state of a topic after a change."""
    return _control(Kind.TOPIC, orjson.dumps(row))


def encode_topic_end(topic_id: int, name: str) -> bytes:
    """Encode a TOPIC: a topic is deleted with all its messages; its id is never used again."""
    return encode_topic({"number": topic_id, "name": name, "deleted": True})


def encode_group(group_id: int, name: str, settings: dict[str, Any] | None = None) -> bytes:
    """Encode a GROUP: a consumer group exists from here on, or has these settings."""
    fields: dict[str, Any] = {"number": group_id, "name": name}
    if settings is not None:
        fields["settings"] = settings
    return _control(Kind.GROUP, orjson.dumps(fields))


def encode_group_end(group_id: int, name: str) -> bytes:
    """Encode a GROUP: a consumer group is deleted with its progress; its id is never used again."""
    fields = {"number": group_id, "name": name, "deleted": True}
    return _control(Kind.GROUP, orjson.dumps(fields))


def encode_schedule(row: dict[str, Any]) -> bytes:
    """Encode a SCHEDULE: `row` is the state of a recurring schedule from here on."""
    return _control(Kind.SCHEDULE, orjson.dumps(row))


def encode_schedule_end(schedule_id: int, name: str) -> bytes:
    """Encode a SCHEDULE: a recurring schedule is removed; its id is never used again."""
    return encode_schedule({"id": schedule_id, "name": name, "deleted": True})


def granted_rows(grants: Sequence[tuple[int, int, int]]) -> npt.NDArray[Any]:
    """Build GRANTED rows from (offset, attempt, grant) tuples."""
    # numpy takes ten times as long to make rows from tuples.
    packed = b"".join([_GRANTED.pack(*grant) for grant in grants])
    return np.frombuffer(packed, GRANTED)


def encode_grant(
    group: int,
    topic: int,
    queue: int,
    next_offset: int,
    duration_ms: int,
    granted: npt.NDArray[Any],
    holder: Holder = NO_HOLDER,
    *,
    again: bool = False,
) -> bytes:
    """Encode a GRANT: leases that begin now and last `duration_ms`, or longer while `holder` lives.

    granted  GRANTED rows
    again    leases of messages that were given out before get a new end
    """
    payload = _GRANT.pack(group, topic, queue, len(granted), next_offset, duration_ms)
    payload += granted.tobytes()
    if holder != NO_HOLDER:
        payload += _HOLDER.pack(holder.epoch, holder.renewable_ms) + holder.client_id.encode()
    return _control(Kind.GRANT, payload, flags=IS_AGAIN if again else 0)


def encode_ack(group: int, topic: int, queue: int, offsets: list[int]) -> bytes:
    """Encode an ACK of queue offsets."""
    head = _ACK.pack(group, topic, queue, len(offsets))
    return _control(Kind.ACK, head + struct.pack(f"<{len(offsets)}Q", *offsets))


def encode_offsets(group: int, topic: int, offsets: Iterable[tuple[int, int]]) -> bytes:
    """Encode an OFFSETS of (queue, next offset to consume); those of a queue apply in order."""
    rows = np.array(list(offsets), COMMITTED)
    return _control(Kind.OFFSETS, _OFFSETS.pack(group, topic, len(rows)) + rows.tobytes())


def encode_adopt(fields: dict[str, Any]) -> bytes:
    """Encode an ADOPT: a transaction of another application is committed here."""
    return _control(Kind.ADOPT, orjson.dumps(fields))


def encode_offload(fields: dict[str, Any], table: bytes) -> bytes:
    """Encode an OFFLOAD: a step of a tier (`delay.tier`), and the bytes of its table."""
    encoded = orjson.dumps(fields)
    return _control(Kind.OFFLOAD, _OFFLOAD.pack(len(encoded)) + encoded + table)


def decode_offload(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """Decode the payload of an OFFLOAD: (fields, bytes of its table)."""
    end = _OFFLOAD.size + _OFFLOAD.unpack_from(payload)[0]
    return orjson.loads(payload[_OFFLOAD.size : end]), payload[end:]


def encode_epoch() -> bytes:
    """Encode an EPOCH: a new process writes from here on."""
    return _control(Kind.EPOCH, b"")


def decode_hand_over(payload: bytes | bytearray | memoryview) -> HandOver:
    """Decode the payload of a HAND_OVER."""
    hour, n = _HAND_OVER.unpack_from(payload)
    return HandOver(hour, np.frombuffer(payload, ORIGIN, n, _HAND_OVER.size))


def decode_recall(payload: bytes) -> RecallRecord:
    """Decode the payload of a RECALL."""
    topic, n, key = _RECALL.unpack_from(payload)
    origins = np.frombuffer(payload, ORIGIN, n, _RECALL.size)
    return RecallRecord(topic, key, origins, _lanes_of(payload, _RECALL.size + origins.nbytes, n))


def decode_recall_many(payload: bytes) -> RecallMany:
    """Decode the payload of a RECALL_MANY."""
    topic, n = _RECALL_MANY.unpack_from(payload)
    messages = np.frombuffer(payload, RECALLED, n, _RECALL_MANY.size)
    lanes = _lanes_of(payload, _RECALL_MANY.size + messages.nbytes, n)
    return RecallMany(topic, messages, lanes)


def decode_grant(payload: bytes) -> Grant:
    """Decode the payload of a GRANT."""
    group, topic, queue, n, next_offset, duration_ms = _GRANT.unpack_from(payload)
    granted = np.frombuffer(payload, GRANTED, n, _GRANT.size)
    holder, at = NO_HOLDER, _GRANT.size + granted.nbytes
    if len(payload) > at:
        epoch, renewable_ms = _HOLDER.unpack_from(payload, at)
        holder = Holder(payload[at + _HOLDER.size :].decode(), renewable_ms, epoch)
    return Grant(group, topic, queue, next_offset, duration_ms, granted, holder)


def decode_ack(payload: bytes) -> AckRecord:
    """Decode the payload of an ACK."""
    group, topic, queue, n = _ACK.unpack_from(payload)
    return AckRecord(group, topic, queue, np.frombuffer(payload, "<u8", n, _ACK.size))


def decode_offsets(payload: bytes) -> OffsetsRecord:
    """Decode the payload of an OFFSETS."""
    group, topic, n = _OFFSETS.unpack_from(payload)
    return OffsetsRecord(group, topic, np.frombuffer(payload, COMMITTED, n, _OFFSETS.size))
