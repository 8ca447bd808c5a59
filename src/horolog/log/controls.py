"""Control records: one table that says of each kind what it carries and how it is decoded.

===========  =============  ==================================================================================
kind         carries        what it says
===========  =============  ==================================================================================
HAND_OVER    HandOver       these scheduled messages are handed over: they follow in the same frame
RECALL       RecallRecord   these copies of one message end: recalled, or moved to the message that follows
RECALL_MANY  RecallMany     these messages of one topic end: recalled, or expired
TOPIC        JSON           a topic is as it says from here on, or is deleted
GROUP        JSON           a consumer group is as it says from here on, or is deleted
GRANT        Grant          leases of a group in a queue begin
ACK          AckRecord      messages of a queue are consumed by a group
OFFSETS      OffsetsRecord  a group consumes queues of a topic from these offsets on
EPOCH        nothing        the process that writes from here on is a new one
ADOPT        JSON           a transaction of somebody else's is committed
OFFLOAD      JSON, bytes    a step of a tier that holds messages elsewhere, and its table
HALF         HalfMessage    a message whose transaction is open: nobody sees it
HALF_CHECK   HALF_CHECKED   producers of half messages are asked what became of them
HALF_END     HALF_ENDED     transactions are over; messages that go on follow in the same frame
SCHEDULE     JSON           a recurring schedule is as it says from here on, has planned firings, or is removed
===========  =============  ==================================================================================

Whoever reads the log (replay, repair, verify, inspect, the log source of Spark) asks this table what a record says, and
has a table of its own, with a row for every kind here, that says what follows from it.  A new kind begins here: tests
then name all the readers that do not know it yet.  Byte layouts: `log.control_records`.
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
"""What `Control.content` raises for a payload that is not of its kind, and what a reader may raise of its JSON."""


class Outcome(StrEnum):
    """How scheduled messages end; the names are those of `delay.state.EntryState`."""

    HANDED_OVER = "handed over"
    RECALLED = "recalled"
    MOVED = "moved"
    EXPIRED = "expired"


class Ended(NamedTuple):
    """Scheduled messages that a control record ends: columns of equal length.

    due_ms, lanes  None of a HAND_OVER, whose messages follow it (`ended_in`)
    """

    outcome: Outcome
    origins: npt.NDArray[Any]  # rows with position and row
    due_ms: npt.NDArray[np.int64] | None
    lanes: npt.NDArray[Any] | None


class Control(NamedTuple):
    """A control record as it stands in the log."""

    position: int  # in the log, of the record
    kind: Kind
    flags: int
    due_ms: int
    payload: bytes

    @property
    def content(self) -> Any:
        """What the table names for its kind; one of UNREADABLE if the payload is not that."""
        return content_of(self.kind, self.payload)

    def ended(self) -> Ended | None:
        """What scheduled messages it ends; None if its kind ends none.  One of UNREADABLE as above."""
        ends = CONTENTS[self.kind].ends
        return ends(self, self.content) if ends is not None else None


class EndedInFrame(NamedTuple):
    """The same with all columns."""

    outcome: Outcome
    origins: npt.NDArray[Any]
    due_ms: npt.NDArray[np.int64]
    lanes: npt.NDArray[Any]


class Content(NamedTuple):
    """A row of the table."""

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
    """What the table names for a kind, of the bytes after the envelope; one of UNREADABLE if they are not that."""
    return CONTENTS[kind].decode(payload)


def control_at(header: FrameHeader, body: bytes, at: int) -> Control:
    """The control record at an offset of a frame's body; VERSION_UNSUPPORTED if its kind is not known."""
    if body[at + KIND_AT] not in CONTROL_KINDS:
        raise HorologError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"log position {header.base}: record kind {body[at + KIND_AT]} is of a newer horolog",
            field="record",
        )
    return read_control(body, at, header.base + HEADER_BYTES + at)


def read_control(raw: Any, at: int, position: int) -> Control:
    """The control record at an offset of any bytes, which lies at this log position; its kind is known."""
    size, kind, flags, _, due_ms = ENVELOPE.unpack_from(raw, at)
    return Control(position, Kind(kind), flags, due_ms, bytes(raw[at + ENVELOPE_BYTES : at + size]))


def ended_in(
    body: bytes, offsets: npt.NDArray[np.int64], row: int, control: Control
) -> EndedInFrame:
    """What a record of a frame ends, with due times and lanes: the messages of a HAND_OVER follow it.

    offsets  of all records of the frame; the control record is that of `row`
    """
    ended = control.ended()
    assert ended is not None, f"{control.kind.name} ends no message"
    outcome, origins, due_ms, lanes = ended
    if due_ms is None or lanes is None:
        heads = heads_of(body, offsets[row + 1 : row + 1 + len(origins)])
        due_ms, lanes = heads["due_ms"], heads["lane"]
    return EndedInFrame(outcome, origins, due_ms, lanes)
