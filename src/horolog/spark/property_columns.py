"""Decoder of the stored properties of many messages into Arrow columns, in bulk.

A row is `key 0x01 value 0x02` repeated.  No key and no value contains a separator, so one string
array without the separators holds keys at even places and values at odd places, without a Python
object for each.  Rows of another form (a foreign writer's) are read one by one, as
`protocol.rocketmq.properties.decode` does.  Where all rows have one shape, as those of one producer
often do, a value is a column of bytes and no search is needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from horolog.protocol.rocketmq import properties as names


class Pairs(NamedTuple):
    """All pairs of key and value of all rows."""

    total: int  # rows
    rows: npt.NDArray[np.int64]  # row of each pair, ascending
    keys: Any  # StringArray
    values: Any  # StringArray


def pairs_of(content: bytes, ends: npt.NDArray[np.int64]) -> Pairs:
    """Return the pairs of rows that are stored one after another; `ends` is the end of each row."""
    return _regular(content, ends) or _one_by_one(content, ends)


def _regular(content: bytes, ends: npt.NDArray[np.int64]) -> Pairs | None:
    raw = np.frombuffer(content, np.uint8)
    inner, outer = np.flatnonzero(raw == 1), np.flatnonzero(raw == 2)
    if len(inner) != len(outer):
        return None
    if not len(inner):
        return None if len(raw) else _empty(len(ends))
    lengths = np.diff(ends, prepend=0)
    closed = raw[ends[lengths > 0] - 1] == 2
    if not (bool((inner < outer).all()) and bool((outer[:-1] < inner[1:]).all()) and closed.all()):
        return None
    offsets = np.zeros(2 * len(inner) + 1, np.int32)
    places = np.arange(len(inner))
    offsets[1::2] = inner - 2 * places
    offsets[2::2] = outer - (2 * places + 1)
    text = raw[(raw != 1) & (raw != 2)].tobytes()
    tokens = pa.StringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(text)
    )
    try:
        tokens.validate(full=True)
    except pa.ArrowInvalid:  # not UTF-8
        return None
    even = pa.array(2 * places)
    odd = pa.array(2 * places + 1)
    rows = ends.searchsorted(inner, side="right")
    return Pairs(len(ends), rows, tokens.take(even), tokens.take(odd))


def _empty(count: int) -> Pairs:
    nothing = pa.array([], pa.string())
    return Pairs(count, np.empty(0, np.int64), nothing, nothing)


def _one_by_one(content: bytes, ends: npt.NDArray[np.int64]) -> Pairs:
    rows: list[int] = []
    keys: list[str] = []
    values: list[str] = []
    start = 0
    for row, end in enumerate(ends.tolist()):
        found = names.decode(content[start:end])
        rows += [row] * len(found)
        keys += found.keys()
        values += found.values()
        start = end
    return Pairs(
        len(ends),
        np.array(rows, np.int64),
        pa.array(keys, pa.string()),
        pa.array(values, pa.string()),
    )


class Uniform(NamedTuple):
    """Rows with equal keys at equal places; only the values differ, and all of them are ASCII."""

    table: npt.NDArray[np.uint8]  # (rows, bytes of a row)
    spans: dict[str, tuple[int, int]]  # [first, stop) of each property's value in a row

    def text(self, name: str) -> Any:
        """Return the value of one property in each row, null if the rows have none."""
        count = len(self.table)
        if name not in self.spans:
            return pa.nulls(count, pa.string())
        first, stop = self.spans[name]
        values = np.ascontiguousarray(self.table[:, first:stop])
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(stop - first)
        return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(values))


def uniform_of(content: bytes, ends: npt.NDArray[np.int64]) -> Uniform | None:
    """Return rows, given as for `pairs_of`, as `Uniform`; None if they differ in shape."""
    width = int(ends[0]) if len(ends) else 0
    head = content[:width]
    if not head.endswith(b"\x02") or not head.isascii() or len(content) != width * len(ends):
        return None
    if bool((np.diff(ends) != width).any()):
        return None
    spans: dict[str, tuple[int, int]] = {}
    is_same, start = np.zeros(width, bool), 0
    for pair in head[:-1].split(b"\x02"):
        key, separator, value = pair.partition(b"\x01")
        if not separator or key.decode() in spans:
            return None
        first = start + len(key) + 1
        start = first + len(value) + 1
        spans[key.decode()] = (first, start - 1)
        is_same[first - len(key) - 1 : first] = is_same[start - 1] = True
    table = np.frombuffer(content, np.uint8).reshape(len(ends), width)
    if bool((table[:, is_same] != table[0, is_same]).any()):
        return None
    values = table[:, ~is_same]
    has_separator = bool((values - np.uint8(1) < 2).any())
    return None if has_separator or bool((values > 127).any()) else Uniform(table, spans)


class PropertyColumns:
    """Columns of the messages, built from the pairs."""

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = pairs
        encoded = pc.dictionary_encode(pairs.keys)
        self._codes: npt.NDArray[Any] = encoded.indices.to_numpy(zero_copy_only=False)
        self._names: list[str] = encoded.dictionary.to_pylist()

    def text(self, name: str) -> Any:
        """Return the value of one property in each row, null where a row has none."""
        place = np.full(self._pairs.total, -1, np.int64)
        if name in self._names:
            hits = np.flatnonzero(self._codes == self._names.index(name))
            place[self._pairs.rows[hits]] = hits
        missing = place < 0
        return self._pairs.values.take(pa.array(place, mask=missing))

    def words(self) -> Any:
        """Return the message keys: the words of KEYS, an empty list where a row has none."""
        text = self.text(names.KEYS)
        given = np.flatnonzero(text.is_valid().to_numpy(zero_copy_only=False))
        if not len(given):
            return _lists(np.zeros(len(text), np.int64), pa.array([], pa.string()))
        split = [value.split() for value in text.take(pa.array(given)).to_pylist()]
        counts = np.zeros(len(text), np.int64)
        counts[given] = [len(words) for words in split]
        return _lists(counts, pa.array([word for words in split for word in words], pa.string()))

    def user(self) -> Any:
        """Return the user's own properties of each row as a map."""
        shown = np.array([not names.is_hidden(name) for name in self._names], bool)
        chosen = np.flatnonzero(shown[self._codes]) if len(self._names) else np.empty(0, np.int64)
        counts = np.bincount(self._pairs.rows[chosen], minlength=self._pairs.total)
        picked = pa.array(chosen)
        keys, values = self._pairs.keys.take(picked), self._pairs.values.take(picked)
        return pa.MapArray.from_arrays(pa.array(_offsets(counts)), keys, values)


def _offsets(counts: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _lists(counts: npt.NDArray[Any], words: Any) -> Any:
    return pa.ListArray.from_arrays(pa.array(_offsets(counts)), words)
