r"""Stored properties of many messages of one shape and size, read as rows of a table of bytes.

Messages sent together often differ in digits of ids and times only (· for \x01, | for \x02):

    UNIQ_KEY·7F00010A|TIMER_DELIVER_MS·1700000000123|
    UNIQ_KEY·7F00010B|TIMER_DELIVER_MS·1700000000207|
                    ^                            ^^^

The first row is read by its shape (`shapes`).  In the other rows a byte that equals the one above
it means the same; a byte that differs must be within a value, and be a byte that this value may
have.  So only columns that vary are checked, and a message costs no more than comparing its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.limits import SHAPE_TEXT_MAX
from horolog.protocol.remoting.shapes import PropertyShape, Shapes
from horolog.protocol.remoting.wanted import SendContext
from horolog.protocol.rocketmq.delays import PLAIN_DELAYS, plain_dues

_Table = npt.NDArray[np.uint8]
_ID, _TAGS, _GROUP = b"UNIQ_KEY", b"TAGS", b"__SHARDINGKEY"
_NAME, _VALUE, _LETTERS, _DIGITS, _FIRST_DIGIT = range(5)  # the kinds of column
# [kind, byte]: allowed bytes; the bytes of a name must equal the first row
_MAY_BE = np.zeros((5, 256), np.bool_)
_MAY_BE[_VALUE, 3:128] = True
_MAY_BE[_LETTERS, [byte for byte in range(128) if bytes((byte,)).isalnum()]] = True
_MAY_BE[_DIGITS, 48:58] = _MAY_BE[_FIRST_DIGIT, 49:58] = True


class TextRows(NamedTuple):
    """Columns of `Wanted` for such properties; a column has one value if all messages share it.

    texts  the properties as they are stored: tables of bytes, side by side
    """

    texts: Sequence[_Table]
    ids: Sequence[bytes]
    keyed: bool
    tags: Sequence[bytes]
    groups: Sequence[bytes]
    due_ms: Sequence[int]
    lanes: Sequence[int]


def read_rows(texts: _Table, context: SendContext, shapes: Shapes) -> TextRows | None:
    """Read the properties of many messages; None: they have to be read one by one.

    context  with an entry of `delayed_properties` for each message
    """
    count, width = texts.shape
    if width > SHAPE_TEXT_MAX:
        return None
    first = texts[0].tobytes()
    shape = shapes.shape_of(first) if first.isascii() else None
    if shape is None or (shape.delay and len(set(map(len, context.delayed_properties))) > 1):
        return None
    kinds, spans = _places(first, shape)
    varying = (texts != texts[0]).any(axis=0).nonzero()[0]
    if not bool(_MAY_BE[kinds[varying], texts[:, varying]].all()):
        return None

    def values(name: bytes) -> list[bytes]:
        if name not in spans:
            return [b""]
        start, stop = spans[name]
        if start < stop and bool(((varying >= start) & (varying < stop)).any()):
            return _as_bytes(texts[:, start:stop])
        return [first[start:stop]]

    pieces = [_table(shape.region), texts] if shape.region else [texts]
    due_ms: Sequence[int] = (0,)
    lanes: Sequence[int] = (0,)
    if shape.delay:
        plain = plain_dues(shape.delay, _numbers(texts, *spans[shape.delay]), context.levels)
        if plain is None:
            return None
        due_ms, lanes = plain
    ids = values(_ID)
    between = shape.separator
    if _ID not in spans:
        ids = context.new_ids(count)
        pieces += [_table(between + b"UNIQ_KEY\x01"), _table(*ids), _table(b"\x02")]
        between = b""
    elif len(ids) < count:
        ids *= count
    if shape.delay:
        pieces += [_table(between)] if between else []
        pieces.append(_table(*context.delayed_properties))
    shapes.matched(count)
    return TextRows(pieces, ids, shape.keyed, values(_TAGS), values(_GROUP), due_ms, lanes)


def _places(text: bytes, shape: PropertyShape) -> tuple[_Table, dict[bytes, tuple[int, int]]]:
    """Return the kind of each column of a text of that shape, and the bounds of each value."""
    kinds = np.full(len(text), _NAME, np.uint8)
    spans = {}
    at = 0
    for name in shape.names:
        start = at + len(name) + 1
        stop = text.find(b"\x02", start)
        stop = len(text) if stop < 0 else stop
        spans[name] = start, stop
        if name in PLAIN_DELAYS:
            kinds[start:stop] = _DIGITS
            kinds[start] = _FIRST_DIGIT
        else:
            kinds[start:stop] = _LETTERS if name == _ID else _VALUE
        at = stop + 1
    return kinds, spans


def _numbers(texts: _Table, start: int, stop: int) -> list[int]:
    """Parse the plain numbers in these columns, which have at most 15 digits."""
    assert 0 < stop - start <= 15, (start, stop)
    places = 10 ** np.arange(stop - start - 1, -1, -1, dtype=np.int64)
    numbers: list[int] = ((texts[:, start:stop] - np.uint8(48)) @ places).tolist()
    return numbers


def _as_bytes(table: _Table) -> list[bytes]:
    """Return each row as bytes."""
    found: list[bytes] = np.ascontiguousarray(table).view(f"V{table.shape[1]}")[:, 0].tolist()
    return found


def _table(*rows: bytes) -> _Table:
    """Return byte strings of one size as the rows of a table."""
    raw: Any = np.frombuffer(b"".join(rows), np.uint8)
    assert len(raw) == len(rows) * len(rows[0]), (len(raw), len(rows))
    table: _Table = raw.reshape(len(rows), -1)
    return table
