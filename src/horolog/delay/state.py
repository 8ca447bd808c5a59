"""State file of an hour: heads, and the state of each entry.  Rebuilt (truth, once log is dropped).

Written at a checkpoint as a new version, `state.<version>`, and never changed.  Little-endian.

======  ======  =================  =================================================================
offset  bytes   field              meaning
======  ======  =================  =================================================================
0       4       magic              b"HLST"
4       2       version            1
6       2       incompatible flags unknown bit: refuse
8       4       hour               due ms // 3 600 000
12      4       topics             rows of the topic table
16      8       count              entries of the delay index that this state covers
24      8       log bytes          length of the delay log that belongs to these entries
32      8       handed over        entries with state 1
40      8       recalled           entries with state 2, 4 or 5
48      4       body CRC           CRC-32 of all that follows the header
52      4       header CRC         CRC-32 of bytes 0–51
56      57 600  heads              3 600 × {newest i64: global index, −1: none; filed u32;
                                   waiting u32}
…       n × 12  topic table        {topic u32, waiting u64}
…       count   states             one byte an entry: `EntryState`
======  ======  =================  =================================================================
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.errors import ErrorCode, HorologError

MAGIC = b"HLST"
VERSION = 1
_HEAD = struct.Struct("<4sHHIIQQQQI")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEAD.size + _CRC.size
assert HEADER_BYTES == 56
HEAD = np.dtype([("newest", "<i8"), ("filed", "<u4"), ("waiting", "<u4")])
assert HEAD.itemsize == 16
SECONDS = 3_600
TOPIC_ROW = np.dtype([("topic", "<u4"), ("waiting", "<u8")])
assert TOPIC_ROW.itemsize == 12


class EntryState(IntEnum):
    """State of a message; the high bits mark an event that is appended but not yet committed."""

    WAITING = 0
    HANDED_OVER = 1
    RECALLED = 2
    QUARANTINED = 3  # the record does not verify: reported, never handed over
    MOVED = 4  # rescheduled: recalled, and a copy with another due time was made
    EXPIRED = 5  # too late to be handed over: dropped, or a dead letter (`broker.late_messages`)
    SETTLED_BITS = 0x0F
    HANDING_OVER = 0x10  # in memory only
    RECALLING = 0x20  # in memory only


# event → the states, in-flight bits included, of a message for which the event is legal
LEGAL: dict[EntryState, frozenset[int]] = {
    EntryState.HANDING_OVER: frozenset({EntryState.WAITING}),
    EntryState.RECALLING: frozenset({EntryState.WAITING}),
    # A replay has nothing in flight, and settles waiting messages.  It also settles messages that a
    # start has quarantined: according to the log they were settled in time.
    EntryState.HANDED_OVER: frozenset(
        {EntryState.WAITING, EntryState.HANDING_OVER, EntryState.QUARANTINED}
    ),
    EntryState.RECALLED: frozenset(
        {EntryState.WAITING, EntryState.RECALLING, EntryState.QUARANTINED}
    ),
    EntryState.MOVED: frozenset({EntryState.WAITING, EntryState.RECALLING, EntryState.QUARANTINED}),
    EntryState.EXPIRED: frozenset(
        {EntryState.WAITING, EntryState.RECALLING, EntryState.QUARANTINED}
    ),
    EntryState.QUARANTINED: frozenset({EntryState.WAITING}),
}
_IS_LEGAL = np.zeros((256, 256), np.bool_)  # [event, state], to check columns at once
for _event, _states in LEGAL.items():
    _IS_LEGAL[_event, list(_states)] = True


def check_event(states: npt.NDArray[np.uint8], event: EntryState) -> None:
    """Assert that `event` is legal for messages in these states."""
    legal = _IS_LEGAL[event][states]
    assert bool(legal.all()), (
        f"{event.name} of a message that is {int(states[int(np.argmin(legal))]):#x}"
    )


RECALLED_STATES = (EntryState.RECALLED, EntryState.MOVED, EntryState.EXPIRED)
"""States of messages that ended without a hand-over: recalled, rescheduled, or too late."""


def empty_heads() -> npt.NDArray[Any]:
    """Return the heads of an hour without entries."""
    heads = np.zeros(SECONDS, HEAD)
    heads["newest"] = -1
    return heads


@dataclass
class HourState:
    """The content of a state file."""

    hour: int
    count: int
    log_bytes: int
    handed_over: int
    recalled: int
    heads: npt.NDArray[Any]
    by_topic: dict[int, int]
    states: npt.NDArray[np.uint8]

    def disagreements(self) -> list[tuple[str, int, int]]:
        """Return counts of header and tables that differ from the states: (what, said, counted)."""
        counts = np.bincount(self.states, minlength=len(EntryState))
        waiting = int(counts[EntryState.WAITING])
        recalled = sum(int(counts[each]) for each in RECALLED_STATES)
        counted = [
            ("handed over", self.handed_over, int(counts[EntryState.HANDED_OVER])),
            ("recalled", self.recalled, recalled),
            ("waiting by topic", sum(self.by_topic.values()), waiting),
            ("waiting by second", int(self.heads["waiting"].sum()), waiting),
            ("filed by second", int(self.heads["filed"].sum()), self.count),
        ]
        return [(what, says, has) for what, says, has in counted if says != has]

    def is_named_by(self, row: dict[str, int]) -> bool:
        """Return whether this is the state that the row of a checkpoint's registry names.

        Versions begin again when hours are rebuilt from the log, so an older copy of a file may
        have the right name.
        """
        waiting = sum(self.by_topic.values())
        has = self.hour, self.count, self.log_bytes, waiting
        # A checkpoint of version 1 does not know `waiting`.
        return has == (row["hour"], row["count"], row["log_bytes"], row.get("waiting", waiting))


def state_name(version: int) -> str:
    """Return the file name of one version."""
    return f"state.{version:010d}"


def encode_state(state: HourState) -> bytes:
    """Encode the complete file."""
    topics = np.array(sorted(state.by_topic.items()), TOPIC_ROW)
    states = (state.states & np.uint8(EntryState.SETTLED_BITS)).tobytes()
    body = b"".join((state.heads.tobytes(), topics.tobytes(), states))
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        0,
        state.hour,
        len(topics),
        state.count,
        state.log_bytes,
        state.handed_over,
        state.recalled,
        crc32(body),
    )
    return head + _CRC.pack(crc32(head)) + body


def decode_state(content: bytes) -> HourState | None:
    """Decode a state file; None: not intact; VERSION_UNSUPPORTED: a newer horolog wrote it."""
    if len(content) < HEADER_BYTES or content[:4] != MAGIC:
        return None
    if crc32(content[: _HEAD.size]) != _CRC.unpack_from(content, _HEAD.size)[0]:
        return None
    _, version, flags, hour, topics, count, log_bytes, handed, recalled, crc = _HEAD.unpack_from(
        content
    )
    if version > VERSION or flags:
        raise HorologError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"state of hour {hour} has version {version}; this horolog reads version {VERSION}",
            field="state",
        )
    body = memoryview(content)[HEADER_BYTES:]
    heads_bytes = SECONDS * HEAD.itemsize
    topic_bytes = topics * TOPIC_ROW.itemsize
    if len(body) != heads_bytes + topic_bytes + count or crc32(body) != crc:
        return None
    rows = np.frombuffer(body, TOPIC_ROW, topics, heads_bytes)
    return HourState(
        hour,
        count,
        log_bytes,
        handed,
        recalled,
        np.frombuffer(body, HEAD, SECONDS).copy(),
        {int(row["topic"]): int(row["waiting"]) for row in rows},
        np.frombuffer(body, np.uint8, count, heads_bytes + topic_bytes).copy(),
    )
