"""The messages of one queue in a frame: where the record of each begins and ends.

A frame holds the messages appended to a queue in one turn, with consecutive queue offsets.  So a
reader of a queue needs the unit of only the first of them; the verified frame states where the
others are.  Worked example: a frame with the records A0 B0 A1 A2 (queue and offset) has the runs A:
first 0, three records, and B: first 0, one record.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TypeAlias

import numpy as np

from horolog.log.record import HEAD_BYTES, IS_VISIBLE, KIND_AT, TOPIC_AT, kinds_of
from horolog.log.unaligned import get
from horolog.protocol.rocketmq import layout

_FEW = 8  # up to so many records are read one by one: columns cost more
QUEUE_AT = HEAD_BYTES + layout.QUEUE_ID_AT
_OFFSET_AT = HEAD_BYTES + layout.QUEUE_OFFSET_AT
# The fields that name a message's topic, queue and queue offset.
_WHOSE = np.dtype(
    {
        "names": ["topic", "queue", "offset"],
        "formats": ["<u4", ">u4", ">i8"],
        "offsets": [0, QUEUE_AT - TOPIC_AT, _OFFSET_AT - TOPIC_AT],
        "itemsize": _OFFSET_AT + 8 - TOPIC_AT,
    }
)
_Key: TypeAlias = tuple[int, int]  # topic id, queue id


class QueueRun:
    """Visible messages of one queue in a frame, with consecutive queue offsets.

    first   queue offset of the first message
    base    log position of the frame's body
    starts  offsets in the body at which the records begin
    ends    offsets in the body at which the records end
    """

    __slots__ = ("_sums", "_view", "base", "ends", "first", "starts")

    def __init__(
        self, view: memoryview, base: int, first: int, starts: list[int], ends: list[int]
    ) -> None:
        assert len(starts) == len(ends) > 0, (len(starts), len(ends))
        self._view = view
        self.base = base
        self.first = first
        self.starts = starts
        self.ends = ends
        self._sums: list[int] = []  # bytes of the layouts before each message, filled at first use

    def at(self, offset: int, position: int) -> int:
        """Return the index of the message with a queue offset and a log position; −1 if none."""
        i = offset - self.first
        if 0 <= i < len(self.starts) and self.base + self.starts[i] == position:
            return i
        return -1

    def find(self, offset: int) -> int:
        """Return the index of the message with a queue offset; −1 if none."""
        i = offset - self.first
        return i if 0 <= i < len(self.starts) else -1

    def size(self, i: int) -> int:
        """Return the bytes of the record of message `i`."""
        return self.ends[i] - self.starts[i]

    def record(self, i: int) -> bytes:
        """Return the whole record of message `i`."""
        return bytes(self._view[self.starts[i] : self.ends[i]])

    def records(self, i: int, most: int) -> list[bytes]:
        """Return at most `most` whole records from message `i` on."""
        view, end = self._view, i + most
        pairs = zip(self.starts[i:end], self.ends[i:end], strict=True)
        return [bytes(view[start:stop]) for start, stop in pairs]

    def layout(self, i: int) -> memoryview:
        """Return the stored layout of message `i`."""
        return self._view[self.starts[i] + HEAD_BYTES : self.ends[i]]

    def take(self, i: int, most: int, room: int) -> tuple[list[memoryview], int]:
        """Return the stored layouts from message `i` on, and the sum of their bytes.

        At most `most` messages and at most `room` bytes.
        """
        end = min(i + most, len(self.starts))
        if end > i and self.ends[end - 1] - self.starts[i] > room:  # counts other records between
            end = max(i, min(end, self._fitting(i, room)))
        view, starts, ends = self._view, self.starts[i:end], self.ends[i:end]
        found = [view[start + HEAD_BYTES : stop] for start, stop in zip(starts, ends, strict=True)]
        return found, sum(ends) - sum(starts) - HEAD_BYTES * len(starts)

    def _fitting(self, i: int, room: int) -> int:
        """Return the index after the last message from `i` on that fits; `i` or less: none does."""
        if not self._sums:
            sizes = np.array(self.ends) - np.array(self.starts) - HEAD_BYTES
            self._sums = [0, *np.cumsum(sizes).tolist()]
        return bisect_right(self._sums, self._sums[i] + room) - 1


def runs_of(body: bytes | bytearray, base: int, ends: dict[int, int]) -> dict[_Key, QueueRun]:
    """Return the run of each queue in a frame's body, by (topic id, queue id).

    A queue whose messages are not consecutive has no run: its messages are read one by one.

    base  log position of the body
    ends  where a record begins → where it ends, as offsets in the body
    """
    places = _places(body, ends) if len(ends) <= _FEW else _places_in_columns(body, ends)
    view = memoryview(body).toreadonly()
    found = {}
    for key, (first, starts, last) in places.items():
        if last - first + 1 == len(starts):
            found[key] = QueueRun(view, base, first, starts, [ends[at] for at in starts])
    return found


def _places(
    body: bytes | bytearray, ends: dict[int, int]
) -> dict[_Key, tuple[int, list[int], int]]:
    """Return (first offset, starts of the records, last offset) of each queue.

    The last offset is −1 if the queue offsets are not consecutive.
    """
    found: dict[_Key, tuple[int, list[int], int]] = {}
    for at in ends:
        if IS_VISIBLE[body[at + KIND_AT]]:
            topic = int.from_bytes(body[at + TOPIC_AT : at + TOPIC_AT + 4], "little")
            queue = int.from_bytes(body[at + QUEUE_AT : at + QUEUE_AT + 4], "big")
            offset = int.from_bytes(body[at + _OFFSET_AT : at + _OFFSET_AT + 8], "big")
            first, starts, last = found.get((topic, queue), (offset, [], offset - 1))
            starts.append(at)
            found[topic, queue] = first, starts, offset if offset == last + 1 else -1
    return found


def _places_in_columns(
    body: bytes | bytearray, ends: dict[int, int]
) -> dict[_Key, tuple[int, list[int], int]]:
    raw = np.frombuffer(body, np.uint8)
    every = np.fromiter(ends, np.int64, len(ends))
    every = every[IS_VISIBLE[kinds_of(body, every)]]
    if not len(every):
        return {}
    rows = get(raw, every + TOPIC_AT, _WHOSE)
    offsets = rows["offset"].astype(np.int64)
    keys = rows["topic"].astype(np.int64) << 32 | rows["queue"]
    order = keys.argsort(kind="stable")
    offsets, keys, starts = offsets[order], keys[order], every[order].tolist()
    # Rows that do not continue the offset of the row before, and rows that begin another queue.
    breaks = ((offsets[1:] - offsets[:-1] != 1).nonzero()[0] + 1).tolist()
    begins = [0, *((keys[1:] != keys[:-1]).nonzero()[0] + 1).tolist()]
    broken = set(breaks).difference(begins)
    found = {}
    for begin, end in zip(begins, [*begins[1:], len(starts)], strict=True):
        ascends = not broken or not any(begin < row < end for row in broken)
        key, last = int(keys[begin]), int(offsets[end - 1]) if ascends else -1
        found[key >> 32, key & 0xFFFF_FFFF] = int(offsets[begin]), starts[begin:end], last
    return found
