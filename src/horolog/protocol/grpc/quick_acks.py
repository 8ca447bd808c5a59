"""Acknowledge requests in the form that clients serialise, read without protobuf's objects.

The entries of a request follow group and topic, mostly all of one size: (message id, handle).  An
entry of the answer begins with the same two fields, so it is the same bytes and a status.  Any
other form (entries of several sizes, handles that are not this broker's, text that is not ASCII, too
many entries) is left to protobuf.  `tests/unit/test_quick_requests.py` compares both ways.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from google.protobuf.message import DecodeError

from horolog.limits import ACKS_PER_REQUEST_MAX
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.ready import all_acknowledged_as
from horolog.protocol.grpc.translate import name_of

_GROUP, _TOPIC, _ENTRY = (field << 3 | 2 for field in (1, 2, 3))
_ID, _HANDLE = (field << 3 | 2 for field in (1, 2))
CHARACTERS = 60  # of a receipt handle (`ready.receipt`)
_SHORT = 0x80  # lengths below it are one byte
_HANDLE_FRONT = bytes((_HANDLE, CHARACTERS))
_TAIL_BYTES = len(_HANDLE_FRONT) + CHARACTERS  # of an entry


class QuickAck(NamedTuple):
    """An AckMessage request that was read without protobuf."""

    raw: bytes
    group: str
    topic: str
    entries: list[bytes]
    receipt_handles: list[str]

    def acknowledged(self) -> bytes:
        """Return the framed answer that every message is consumed."""
        return all_acknowledged_as(self.entries)

    def as_protobuf(self) -> pb.AckMessageRequest:
        """Return the request as protobuf reads it."""
        return pb.AckMessageRequest.FromString(self.raw)


@lru_cache(maxsize=1_024)
def _names(fields: bytes) -> tuple[str, str]:
    """Return group and topic."""
    read = pb.AckMessageRequest.FromString(fields)
    return name_of(read.group), name_of(read.topic)


def read_ack(raw: bytes) -> QuickAck | pb.AckMessageRequest:
    """Read an AckMessage request; DecodeError if the bytes are none."""
    try:
        return _read(raw) or pb.AckMessageRequest.FromString(raw)
    except (IndexError, DecodeError):
        return pb.AckMessageRequest.FromString(raw)


def _read(raw: bytes) -> QuickAck | None:
    """Read a request of the usual form; None if it is to be left to protobuf."""
    topic_at = 2 + raw[1]
    start = topic_at + 2 + raw[topic_at + 1]
    if raw[0] != _GROUP or raw[topic_at] != _TOPIC or max(raw[1], raw[topic_at + 1]) >= _SHORT:
        return None
    size = raw[start + 1]
    step = 2 + size
    count, left = divmod(len(raw) - start, step)
    id_size = size - _TAIL_BYTES - 2
    if left or id_size <= 0 or size >= _SHORT or count > ACKS_PER_REQUEST_MAX or not raw.isascii():
        return None
    front, handle_at = bytes((_ENTRY, size, _ID, id_size)), start + 4 + id_size
    if not (raw.startswith(front, start) and raw.startswith(_HANDLE_FRONT, handle_at)):
        return None
    group, topic = _names(raw[:start])
    if count == 1:
        return QuickAck(raw, group, topic, [raw[start + 2 :]], [raw[-CHARACTERS:].decode("ascii")])
    for at, mark in (*enumerate(front, start), *enumerate(_HANDLE_FRONT, handle_at)):
        if raw[at::step] != bytes((mark,)) * count:
            return None
    text = raw.decode("ascii")
    ends = range(start + step, len(raw) + 1, step)
    handles = [text[end - CHARACTERS : end] for end in ends]
    return QuickAck(raw, group, topic, [raw[end - size : end] for end in ends], handles)
