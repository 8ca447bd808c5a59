"""Control records: one table with the content, the meaning and the decoder of each kind.

===========  =============  ==================================================================================
kind         carries        meaning
===========  =============  ==================================================================================
HAND_OVER    HandOver       these scheduled messages are handed over: they follow in the same frame
RECALL       RecallRecord   these copies of one message end: recalled, or moved to the message that follows
RECALL_MANY  RecallMany     these messages of one topic end: recalled, or expired
TOPIC        JSON           a topic has this state from here on, or is deleted
GROUP        JSON           a consumer group has this state from here on, or is deleted
GRANT        Grant          leases of a group in a queue begin
ACK          AckRecord      messages of a queue are consumed by a group
OFFSETS      OffsetsRecord  a group consumes queues of a topic from these offsets on
EPOCH        nothing        a new process writes from here on
ADOPT        JSON           a transaction of another application is committed
OFFLOAD      JSON, bytes    a step of a tier that holds messages elsewhere, and its table
HALF         HalfMessage    a message whose transaction is open: no consumer sees it
HALF_CHECK   HALF_CHECKED   producers of half messages are asked what became of their transactions
HALF_END     HALF_ENDED     transactions are over; messages that go on follow in the same frame
SCHEDULE     JSON           a recurring schedule has this state from here on, has planned firings,
                            or is removed
===========  =============  ==================================================================================

Every reader of the log (replay, repair, verify, inspect, the log source of Spark) decodes records
by this table, and has a table of its own, with a row for every kind here, of what follows from a
record.  To add a kind, begin here: tests then name all readers that do not know the kind yet.  Byte
layouts: `log.control_records`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from horolog.errors import ErrorCode, HorologError
from horolog.log.control_records import (
    IS_EXPIRED,
    IS_MOVED,
    HandOver,
    RecallMany,
    RecallRecord,
    decode_ack,
    decode_grant,
    decode_hand_over,
    decode_offload,
    decode_offsets,
    decode_recall,
    decode_recall_many,
)
from horolog.log.frame import HEADER_BYTES, FrameHeader
from horolog.log.half_records import decode_half, decode_half_checks, decode_half_ends
from horolog.log.record import ENVELOPE, ENVELOPE_BYTES, KIND_AT, MESSAGE_KINDS, Kind, heads_of

CONTROL_KINDS = frozenset(Kind) - MESSAGE_KINDS
UNREADABLE = (struct.error, ValueError, KeyError, TypeError)
"""Errors of `Control.content` for an invalid payload, and of readers of its JSON for invalid fields."""


class Outcome(StrEnum):
    """How a scheduled message ends; the names are those of `delay.state.EntryState`."""

    HANDED_OVER = "handed over"
    RECALLED = "recalled"
    MOVED = "moved"
    EXPIRED = "expired"


class Ended(NamedTuple):
    """Scheduled messages that a control record ends: columns of equal length.

    due_ms, lanes  None for a HAND_OVER: read them from the messages that follow it (`ended_in`)
    """

    outcome: Outcome
    origins: npt.NDArray[Any]  # rows with position and row
    due_ms: npt.NDArray[np.int64] | None
    lanes: npt.NDArray[Any] | None


class Control(NamedTuple):
    """A control record as stored in the log."""

    position: int  # log position of the record
    kind: Kind
    flags: int
    due_ms: int
    payload: bytes

    @property
    def content(self) -> Any:
        """The decoded payload, as the table says; raises one of UNREADABLE if it is not valid."""
        return content_of(self.kind, self.payload)

    def ended(self) -> Ended | None:
        """Return the scheduled messages that the record ends; None if its kind ends none.

        Raises one of UNREADABLE for a payload that is not of its kind.
        """
        ends = CONTENTS[self.kind].ends
        return ends(self, self.content) if ends is not None else None


class EndedInFrame(NamedTuple):
    """Scheduled messages that a control record ends, with all columns filled."""

    outcome: Outcome
    origins: npt.NDArray[Any]
    due_ms: npt.NDArray[np.int64]
    lanes: npt.NDArray[Any]


class Content(NamedTuple):
    """A row of the table: how to decode a payload, and how to find the messages it ends."""

    decode: Callable[[bytes], Any]
    ends: Callable[[Control, Any], Ended] | None = None


def _handed_over(_: Control, content: HandOver) -> Ended:
    return Ended(Outcome.HANDED_OVER, content.origins, None, None)


def _recalled(control: Control, content: RecallRecord) -> Ended:
    due_ms = np.full(len(content.origins), control.due_ms, np.int64)
    outcome = Outcome.MOVED if control.flags & IS_MOVED else Outcome.RECALLED
    return Ended(outcome, content.origins, due_ms, content.lanes)


def _many_recalled(control: Control, content: RecallMany) -> Ended:
    messages = content.messages
    outcome = Outcome.EXPIRED if control.flags & IS_EXPIRED else Outcome.RECALLED
    return Ended(outcome, messages, messages["due_ms"].astype(np.int64), content.lanes)


def _nothing(_: bytes) -> None:
    return None


_JSON = Content(orjson.loads)
CONTENTS: Mapping[Kind, Content] = {
    Kind.HAND_OVER: Content(decode_hand_over, _handed_over),
    Kind.RECALL: Content(decode_recall, _recalled),
    Kind.RECALL_MANY: Content(decode_recall_many, _many_recalled),
    Kind.TOPIC: _JSON,
    Kind.GROUP: _JSON,
    Kind.GRANT: Content(decode_grant),
    Kind.ACK: Content(decode_ack),
    Kind.OFFSETS: Content(decode_offsets),
    Kind.EPOCH: Content(_nothing),
    Kind.ADOPT: _JSON,
    Kind.OFFLOAD: Content(decode_offload),
    Kind.HALF: Content(decode_half),
    Kind.HALF_CHECK: Content(decode_half_checks),
    Kind.HALF_END: Content(decode_half_ends),
    Kind.SCHEDULE: _JSON,
}


ENDING = tuple(kind for kind, content in CONTENTS.items() if content.ends is not None)


def content_of(kind: Kind, payload: bytes) -> Any:
    """Decode the bytes after an envelope by their kind; raise one of UNREADABLE if invalid."""
    return CONTENTS[kind].decode(payload)


def control_at(header: FrameHeader, body: bytes, at: int) -> Control:
    """Read the control record at an offset of a frame's body.

    VERSION_UNSUPPORTED if its kind is unknown.
    """
    if body[at + KIND_AT] not in CONTROL_KINDS:
        raise HorologError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"log position {header.base}: record kind {body[at + KIND_AT]} is of a newer horolog",
            field="record",
        )
    return read_control(body, at, header.base + HEADER_BYTES + at)


def read_control(raw: Any, at: int, position: int) -> Control:
    """Read the control record at an offset of any bytes; it lies at log position `position`."""
    size, kind, flags, _, due_ms = ENVELOPE.unpack_from(raw, at)
    return Control(position, Kind(kind), flags, due_ms, bytes(raw[at + ENVELOPE_BYTES : at + size]))


def ended_in(
    body: bytes, offsets: npt.NDArray[np.int64], row: int, control: Control
) -> EndedInFrame:
    """Return the messages that a record of a frame ends, with due times and lanes.

    Of a HAND_OVER both come from the messages that follow it in the frame.

    offsets  of all records of the frame; `control` is the record in row `row`
    """
    ended = control.ended()
    assert ended is not None, f"{control.kind.name} ends no message"
    outcome, origins, due_ms, lanes = ended
    if due_ms is None or lanes is None:
        heads = heads_of(body, offsets[row + 1 : row + 1 + len(origins)])
        due_ms, lanes = heads["due_ms"], heads["lane"]
    return EndedInFrame(outcome, origins, due_ms, lanes)
