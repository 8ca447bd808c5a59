"""Control records of transactions: a half message, its checks, and its end.  Truth.

===========  ==================================================================================
HALF         the record of the message as it was sent, but for the topic id, the queue and the
             fields that the broker stamps: the queue offset is the number of the half message, the
             log position that of this HALF.  Due ms of the head are as in `protocol.send_commands`:
             below 0 they count from the commit.  Due ms of the envelope: when the producer is first
             asked what became of the transaction
HALF_CHECK   n u32, n × {position u64, next ms i64, checks u32}: producers are asked for the
             `checks`-th time, and the next time at `next ms`
HALF_END     n u32, n × {position u64, outcome u8}: these transactions are over.  The messages of
             those with an outcome in `FOLLOWED` are the next records of the same frame, in this
             order
===========  ==================================================================================

The position of the HALF record is the identity of a transaction for ever.  Every record has the
envelope of `log.record`, and is little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.log.record import ENVELOPE, ENVELOPE_BYTES, HEAD, HEAD_BYTES, Kind

HALF_CHECKED = np.dtype([("position", "<u8"), ("next_ms", "<i8"), ("checks", "<u4")])
assert HALF_CHECKED.itemsize == 20
HALF_ENDED = np.dtype([("position", "<u8"), ("outcome", "u1")])
assert HALF_ENDED.itemsize == 9
HALF_ROWS = struct.Struct("<I")


class HalfOutcome(IntEnum):
    """How a transaction ends."""

    COMMITTED = 1
    ROLLED_BACK = 2
    GIVEN_UP = 3  # no producer has stated an outcome: the message goes to another topic
    LOST = 4  # no producer has stated an outcome, and the message cannot be read any more


FOLLOWED = frozenset({HalfOutcome.COMMITTED, HalfOutcome.GIVEN_UP})


class HalfMessage(NamedTuple):
    """A decoded HALF: the head of the message record, and the whole message record."""

    head: Any  # a row of HEAD
    record: bytes

    @property
    def layout(self) -> bytes:
        """The stored layout of the message."""
        return self.record[HEAD_BYTES:]


def half_envelope(record_bytes: int, first_check_ms: int) -> bytes:
    """Build the HALF envelope that precedes the record of a half message."""
    return ENVELOPE.pack(ENVELOPE_BYTES + record_bytes, Kind.HALF, 0, 0, first_check_ms)


def encode_half_checks(rows: npt.NDArray[Any]) -> bytes:
    """Encode a HALF_CHECK of HALF_CHECKED rows."""
    return _control(Kind.HALF_CHECK, rows)


def encode_half_ends(ends: Sequence[tuple[int, HalfOutcome]]) -> bytes:
    """Encode a HALF_END of (position, outcome) pairs."""
    return _control(Kind.HALF_END, np.array(ends, HALF_ENDED))


def decode_half(payload: bytes) -> HalfMessage:
    """Decode the payload of a HALF; ValueError if its head has a different size."""
    head = np.frombuffer(payload, HEAD, 1)[0]
    if int(head["size"]) != len(payload):
        raise ValueError(f"a record of {int(head['size'])} bytes in a HALF of {len(payload)}")
    return HalfMessage(head, payload)


def decode_half_checks(payload: bytes) -> npt.NDArray[Any]:
    """Decode the payload of a HALF_CHECK: HALF_CHECKED rows."""
    return _rows(payload, HALF_CHECKED)


def decode_half_ends(payload: bytes) -> npt.NDArray[Any]:
    """Decode the payload of a HALF_END: HALF_ENDED rows."""
    return _rows(payload, HALF_ENDED)


def _control(kind: Kind, rows: npt.NDArray[Any]) -> bytes:
    payload = HALF_ROWS.pack(len(rows)) + rows.tobytes()
    return ENVELOPE.pack(ENVELOPE_BYTES + len(payload), kind, 0, 0, 0) + payload


def _rows(payload: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    (count,) = HALF_ROWS.unpack_from(payload)
    return np.frombuffer(payload, dtype, count, HALF_ROWS.size)
