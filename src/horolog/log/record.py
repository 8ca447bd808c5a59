"""Records: the entries of a frame.  Truth.

Every record begins with the same envelope of 16 bytes; a record that holds a message continues with
16 bytes of routing and the stored layout, a control record with the fields of its kind
(`log.control_records`).  Little-endian but for the layout.

======  =====  ===========  =========================================================================
offset  bytes  field        meaning
======  =====  ===========  =========================================================================
0       4      size         of the whole record
4       1      kind         `Kind`
5       1      flags        bit 0: a message has KEYS, a RECALL is *moved*, a GRANT is *again*; bit
                            1: a message has its own late policy, a RECALL_MANY is *expired*; bit 2:
                            a visible message of a topic whose messages may have several tags;
                            unknown bits are kept
6       2      lane         of a SCHEDULED or HANDED message: its delay level, 0 without one; else 0
8       8      due ms       UTC epoch milliseconds; 0 where it has no meaning
16      4      topic        id of the topic                                  (message records only)
20      4      tags code    Java hash of the tag, int32, 0 without a tag;    (message records only)
                            with flag bit 2 the bits of all its tags (`protocol.rocketmq.tags`)
24      8      key hash     xxh64, seed 42, of topic NUL message id          (message records only)
32      …      layout       `protocol.rocketmq.layout`                       (message records only)
======  =====  ===========  =========================================================================

The routing repeats fields that the layout has at variable offsets, so that hand-over, replay and
audit can work on columns (docs/decisions/0002-routing-in-the-record.md).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.errors import ErrorCode, HorologError
from horolog.log.unaligned import get

ENVELOPE = struct.Struct("<IBBHq")
ENVELOPE_BYTES = 16
assert ENVELOPE.size == ENVELOPE_BYTES
HEAD = np.dtype(
    [
        ("size", "<u4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("lane", "<u2"),
        ("due_ms", "<i8"),
        ("topic", "<u4"),
        ("tags", "<i4"),
        ("key", "<u8"),
    ]
)
HEAD_BYTES = 32
assert HEAD.itemsize == HEAD_BYTES
assert HEAD.fields is not None
KIND_AT, FLAGS_AT, LANE_AT, DUE_AT, TOPIC_AT, TAGS_AT, KEY_AT = (
    HEAD.fields[name][1] for name in ("kind", "flags", "lane", "due_ms", "topic", "tags", "key")
)
LANE_BYTES = 2
HAS_KEYS = 1  # flag of a message with user keys: the key index reads the properties of no other
HAS_LATE = 2  # flag of a scheduled message with its own late policy (`late_policy`)
MANY_TAGS = 4  # flag of a visible message whose tags code is `tags.bits_of`


class Kind(IntEnum):
    """Kinds of records; a value is never used again for another kind."""

    MESSAGE = 1  # visible at once
    SCHEDULED = 2  # to be handed over at its due time
    HAND_OVER = 3
    HANDED = 4  # a message that follows its HAND_OVER
    RECALL = 5
    TOPIC = 6
    GROUP = 7
    GRANT = 8
    ACK = 9
    EPOCH = 10
    RECALL_MANY = 11
    ADOPT = 12
    OFFLOAD = 13
    OFFSETS = 14
    HALF = 15
    HALF_CHECK = 16
    HALF_END = 17
    SCHEDULE = 18


MESSAGE_KINDS = frozenset({Kind.MESSAGE, Kind.SCHEDULED, Kind.HANDED})
IS_MESSAGE = np.zeros(256, np.bool_)  # MESSAGE_KINDS as a mask, for columns: IS_MESSAGE[kinds]
IS_MESSAGE[list(MESSAGE_KINDS)] = True
# Kinds of messages that consumers can take, as plain ints, which every read compares.
VISIBLE_KINDS = frozenset({int(Kind.MESSAGE), int(Kind.HANDED)})
IS_VISIBLE = np.zeros(256, np.bool_)
IS_VISIBLE[list(VISIBLE_KINDS)] = True


def offsets_of(body: bytes | bytearray | memoryview, count: int) -> npt.NDArray[np.int64]:
    """Return where each of `count` records of a frame body begins; DAMAGED if sizes do not fit."""
    total = len(body)
    if count and total % count == 0 and total // count >= ENVELOPE_BYTES:
        stride = total // count  # the usual case under load: all records of one size
        sizes = np.ndarray((count,), "<u4", body, 0, (stride,))
        if bool((sizes == stride).all()):
            return np.arange(0, total, stride, dtype=np.int64)
    offsets = []
    at = 0
    unpack = struct.Struct("<I").unpack_from
    for _ in range(count):
        if at + ENVELOPE_BYTES > total:
            break
        offsets.append(at)
        size = unpack(body, at)[0]
        if size < ENVELOPE_BYTES:
            break
        at += size
    if at != total or len(offsets) != count:
        raise HorologError(
            ErrorCode.DAMAGED, f"frame body of {total} bytes does not hold {count} records"
        )
    return np.array(offsets, np.int64)


def kinds_of(body: bytes | bytearray | memoryview, offsets: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the kind (u8) of each record."""
    kinds: npt.NDArray[np.uint8] = np.frombuffer(body, np.uint8)[offsets + KIND_AT]
    return kinds


def heads_of(body: bytes | bytearray | memoryview, offsets: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the HEAD rows of the message records at these offsets (copied, contiguous)."""
    raw = np.frombuffer(body, np.uint8)
    return get(raw, offsets, HEAD)
