"""What a frame adds to the log key index, online and in replay."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.log.record import ENVELOPE, HAS_KEYS, HEAD_BYTES
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import user_key_hash

Body = bytes | bytearray | memoryview


class KeyColumns(NamedTuple):
    """Rows of the key index, in log order, and the frame body in which their records stand."""

    keys: npt.NDArray[np.uint64]
    positions: npt.NDArray[np.uint64]  # log positions of the records
    base: int  # log position of the body
    body: Body

    def record(self, position: int) -> bytes:
        """The record at one of the positions."""
        start = position - self.base
        size = ENVELOPE.unpack_from(self.body, start)[0]
        return bytes(memoryview(self.body)[start : start + size])


def key_columns(
    heads: npt.NDArray[Any], at: npt.NDArray[np.int64], base: int, body: Body
) -> KeyColumns | None:
    """Rows for the message records at these offsets of a body: their ids, then their user keys.

    Only records with the flag HAS_KEYS cost more than a copy of columns.  None if there are no messages.
    """
    if not len(heads):
        return None
    keys = heads["key"].astype(np.uint64)
    positions = (at + base).astype(np.uint64)
    flagged = np.flatnonzero(heads["flags"] & HAS_KEYS)
    if len(flagged):
        view = memoryview(body)
        more: list[int] = []
        behind: list[int] = []
        for row in flagged.tolist():
            start = int(at[row])
            found = _user_keys(bytes(view[start + HEAD_BYTES : start + int(heads["size"][row])]))
            more += found
            behind += [row] * len(found)
        places = np.array(behind, np.int64) + 1
        keys = np.insert(keys, places, np.array(more, np.uint64))
        positions = np.insert(positions, places, positions[places - 1])
    return KeyColumns(keys, positions, base, body)


def _user_keys(stored: bytes) -> list[int]:
    """Hashes of the words of a layout's KEYS, each once."""
    topic, packed = layout.topic_and_properties(stored)
    words = properties.decode(packed).get(properties.KEYS, "").split()
    return [user_key_hash(topic, word) for word in dict.fromkeys(words)]
