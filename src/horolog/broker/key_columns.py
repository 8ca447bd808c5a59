"""What a frame adds to the log key index, online and in replay."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.columns import topics_at
from horolog.log.record import ENVELOPE, HAS_KEYS, HEAD_BYTES
from horolog.protocol.rocketmq import properties
from horolog.protocol.rocketmq.message import user_key_hash_of

Body = bytes | bytearray | memoryview
_ONE_WORD = re.compile(rb"[!-~]+").fullmatch
_KEYS_MARK = f"\x02{properties.KEYS}\x01".encode()


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
        more, counts = _user_keys(body, at[flagged] + HEAD_BYTES, heads["size"][flagged])
        places = np.repeat(flagged, counts) + 1
        keys = np.insert(keys, places, np.array(more, np.uint64))
        positions = np.insert(positions, places, positions[places - 1])
    return KeyColumns(keys, positions, base, body)


def _user_keys(
    body: Body, at: npt.NDArray[np.int64], sizes: npt.NDArray[Any]
) -> tuple[list[int], list[int]]:
    """Hashes of the words of KEYS, each once a message, of the layouts at these offsets; and how many each has.

    sizes  of the records, so with HEAD_BYTES before a layout
    """
    raw = np.frombuffer(body, np.uint8)
    text = bytes(body) if isinstance(body, memoryview) else body
    topics = topics_at(raw, at)
    found: list[int] = []
    counts: list[int] = []
    for topic_at, end in zip(topics.tolist(), (at + sizes - HEAD_BYTES).tolist(), strict=True):
        stored_at = topic_at + 1 + text[topic_at] + 2
        value_at = text.rfind(_KEYS_MARK, stored_at, end) + len(_KEYS_MARK)
        if value_at < len(_KEYS_MARK):  # the first one has nothing before it
            value_at = stored_at + len(_KEYS_MARK) - 1
            if not text.startswith(_KEYS_MARK[1:], stored_at, end):
                counts.append(0)
                continue
        stop = text.find(b"\x02", value_at, end)
        value = bytes(text[value_at : stop if stop >= 0 else end])
        topic = bytes(text[topic_at + 1 : stored_at - 2])
        if _ONE_WORD(value) is not None:  # as nearly all are
            found.append(user_key_hash_of(topic, value))
            counts.append(1)
        else:
            each = dict.fromkeys(value.decode("utf-8", "replace").split())
            found += [user_key_hash_of(topic, word.encode()) for word in each]
            counts.append(len(each))
    return found, counts
