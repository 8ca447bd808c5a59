"""The rows that a frame adds to the key index, online and in replay."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.columns import topics_at
from horolog.log.record import ENVELOPE, HAS_KEYS, HEAD_BYTES
from horolog.protocol.rocketmq import properties
from horolog.protocol.rocketmq.message import user_key_hash_of, user_key_hashes

Body = bytes | bytearray | memoryview
_PLAIN = re.compile(rb"\x00(?:[^\x00]*\x02)?KEYS\x01([!-~]+)(?:\x02[^\x00]*)?(?=\x00)")
_KEYS_MARK = f"\x02{properties.KEYS}\x01".encode()


class KeyColumns(NamedTuple):
    """Rows of the key index, in log order, and the frame body that holds their records."""

    keys: npt.NDArray[np.uint64]
    positions: npt.NDArray[np.uint64]  # log positions of the records
    base: int  # log position of the body
    body: Body

    def record(self, position: int) -> bytes:
        """Return the record at one of the positions."""
        start = position - self.base
        size = ENVELOPE.unpack_from(self.body, start)[0]
        return bytes(memoryview(self.body)[start : start + size])


def key_columns(
    heads: npt.NDArray[Any], at: npt.NDArray[np.int64], base: int, body: Body
) -> KeyColumns | None:
    """Build the rows of message records in a frame body: message ids, then user keys.

    `at` are the offsets of the records.  Only records with the flag HAS_KEYS cost more than a copy
    of columns.  None if there are no messages.
    """
    if not len(heads):
        return None
    keys = heads["key"].astype(np.uint64)
    positions = (at + base).astype(np.uint64)
    flagged = np.flatnonzero(heads["flags"] & HAS_KEYS)
    if len(flagged):
        more, counts = _user_keys(body, at[flagged] + HEAD_BYTES, heads["size"][flagged])
        rows = np.ones(len(heads), np.int64)  # of each message
        rows[flagged] += counts
        positions = positions.repeat(rows)
        is_id = np.zeros(len(positions), np.bool_)
        is_id[rows.cumsum() - rows] = True
        ids, keys = keys, np.empty(len(positions), np.uint64)
        keys[is_id], keys[~is_id] = ids, more
    return KeyColumns(keys, positions, base, body)


def _user_keys(
    body: Body, at: npt.NDArray[np.int64], sizes: npt.NDArray[Any]
) -> tuple[list[int], list[int]]:
    """Return hashes of the distinct words of KEYS in each layout, and their counts.

    at     offsets of the layouts in the body
    sizes  of the records, so including HEAD_BYTES before each layout
    """
    text = bytes(body)
    topics = topics_at(np.frombuffer(text, np.uint8), at)
    after = topics + 1 + np.frombuffer(text, np.uint8)[topics]
    names = _pieces(text, topics + 1, after)
    texts = _pieces(text, after + 2, at + sizes - HEAD_BYTES)
    values = _plain_values(texts)
    if values is not None:
        if names.count(names[0]) == len(names):
            return user_key_hashes(names[0], values), [1] * len(names)
        return list(map(user_key_hash_of, names, values)), [1] * len(names)
    found: list[int] = []
    counts: list[int] = []
    for name, properties_text in zip(names, texts, strict=True):
        words = _words(properties_text)
        found += [user_key_hash_of(name, word) for word in words]
        counts.append(len(words))
    return found, counts


def _pieces(
    text: bytes, firsts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> list[bytes]:
    return [text[first:stop] for first, stop in zip(firsts.tolist(), stops.tolist(), strict=True)]


def _plain_values(texts: list[bytes]) -> list[bytes] | None:
    """Return the KEYS of texts that each have the property once and as one word.

    Nearly all texts are so; None if one of them is not.
    """
    joined = b"\0%b\0" % b"\0".join(texts)
    count = len(texts)
    if joined.count(b"\0") != count + 1 or joined.count(_KEYS_MARK[1:]) != count:
        return None
    values: list[bytes] = _PLAIN.findall(joined)
    return values if len(values) == count else None


def _words(text: bytes) -> list[bytes]:
    """Return the distinct words of the last KEYS property in the text."""
    marked = b"\x02" + text
    at = marked.rfind(_KEYS_MARK)
    if at < 0:
        return []
    at += len(_KEYS_MARK)
    stop = marked.find(b"\x02", at)
    value = marked[at : stop if stop >= 0 else None]
    words = dict.fromkeys(value.decode("utf-8", "replace").split())
    return [word.encode() for word in words]
