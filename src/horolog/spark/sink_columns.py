"""The columns of the sink: their names and types, and the one form that they are encoded from."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_TEXTS = frozenset({"string"})
SINK_TYPES: dict[str, frozenset[str]] = {
    "body": frozenset({"binary", "string"}),
    "deliver_at": frozenset({"timestamp", "bigint"}),
    "message_id": _TEXTS,
    "tag": _TEXTS,
    "keys": frozenset({"string", "array<string>"}),
    "properties": frozenset({"map<string,string>"}),
    "deliver_at_text": _TEXTS,
    "malformed_text": _TEXTS,
}
"""Names of the Spark types that each column may have; `Unit` is the unit of a `bigint`.

Two columns are not part of a message.  `deliver_at_text` is the text from which a null `deliver_at`
was made, for the reason of a refusal.  `malformed_text` is the text of a line that could not be
read as a row: a row that has it is refused.
"""
ARROW_TYPES = {
    "binary": pa.binary(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "bigint": pa.int64(),
    "array<string>": pa.list_(pa.string()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
REQUIRED = ("body", "deliver_at")
TIME_OF_DAY = r"^\s*T?\d{1,2}:"  # a due time as a text that lacks its date
_INT64_MAX = (1 << 63) - 1


class Unit(StrEnum):
    """Unit in which a due time that is a number counts from 1970.

    The unit is never guessed, for seconds read as ms lie in January 1970.
    """

    MS = "ms"
    S = "s"
    US = "us"

    @property
    def in_second(self) -> int:
        """Units in one second."""
        return {Unit.MS: 1_000, Unit.S: 1, Unit.US: 1_000_000}[self]


class Target(NamedTuple):
    """Where rows go, as the broker described it when the transaction began."""

    topic: str
    topic_id: int
    queues: int
    log_id: int
    max_due_ms: int
    born_ms: int
    born_host: tuple[bytes, int]
    min_due_ms: int = 1  # rows that were due earlier are refused as a mistake


def normalised(table: pa.Table) -> pa.Table:
    """Return the columns in the form that is encoded.

    That is `body` as binary, texts as string, `keys` as list<string>; no views and no 64-bit
    offsets.
    """
    columns = {}
    for name in table.column_names:
        if name not in SINK_TYPES:
            continue
        column = table.column(name)
        kind = column.type
        if name == "body":
            column = column.cast(pa.binary())
        elif name == "keys":
            if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
                column = _single(column.cast(pa.string()))
            else:
                column = column.cast(pa.list_(pa.string()))
        elif name in ("tag", "message_id", "deliver_at_text", "malformed_text"):
            column = column.cast(pa.string())
        elif name == "properties":
            column = column.cast(pa.map_(pa.string(), pa.string()))
        columns[name] = column
    return pa.table(columns)


def _single(texts: pa.ChunkedArray) -> pa.Array:
    """Return a list of one text for each text, null for null."""
    array = pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], pa.string())
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(np.asarray(pc.is_valid(array)), out=offsets[1:])
    is_null = np.append(np.asarray(pc.is_null(array)), False)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32(), mask=is_null), array.drop_null())


def due_of(table: pa.Table, unit: Unit = Unit.MS) -> npt.NDArray[np.int64]:
    """Return the due ms of each row, 0 for null.

    Microseconds are rounded up, so that no message is early.
    """
    column = table.column("deliver_at")
    if pa.types.is_timestamp(column.type):
        micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
        return _as_ms(np.asarray(pc.fill_null(micros, 0)).astype(np.int64))
    counted = np.asarray(pc.fill_null(column.cast(pa.int64()), 0)).astype(np.int64)
    if unit is Unit.US:
        return _as_ms(counted)
    if unit is Unit.S:
        most = _INT64_MAX // 1_000  # a broker refuses every later time
        return counted.clip(-most, most) * 1_000
    return counted


def _as_ms(micros: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return microseconds rounded up to ms; the lowest int64 cannot be negated."""
    whole, rest = np.divmod(micros, 1_000)
    return whole + (rest > 0)
