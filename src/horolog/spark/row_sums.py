"""Fingerprint of the rows of a job, a count and a sum, by which two runs of a job are compared.

The sum depends only on the content of the messages: not on the order of rows, on how they are
divided among tasks, on a task that runs twice, on the type of a column (text or bytes, timestamp or
number), or on which rows are refused today.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh64_intdigest

from horolog.delay.row_sum import MASK, mix
from horolog.spark.rows import one_array, user_properties
from horolog.spark.sink_columns import Unit, due_of, normalised
from horolog.spark.values import values_of

_COLUMNS = ("body", "message_id", "tag", "keys", "properties")
_ABSENT = np.uint64(0x9B1A_6E5D_11C3_5F07)  # for a null, and for every row of a missing column


class RowSum(NamedTuple):
    """Count of rows, and the sum of their hashes modulo 2⁶⁴."""

    rows: int = 0
    sum: int = 0

    def plus(self, other: RowSum) -> RowSum:
        """Add another sum."""
        return RowSum(self.rows + other.rows, (self.sum + other.sum) & MASK)

    def fingerprint(self, topic: str) -> str:
        """Return the fingerprint that the broker keeps with the transaction, readable as text."""
        return f"{topic}: {self.rows} rows, sum {self.sum:016x}"


def sum_of(table: pa.Table, due_ms: npt.NDArray[np.int64]) -> RowSum:
    """Return the sum of rows with columns as `sink_columns.normalised` returns them."""
    mixed = mix(due_ms.view(np.uint64))
    for name in _COLUMNS:
        if name in table.column_names:
            mixed = mix(mixed ^ _hashes(one_array(table.column(name))))
        else:
            mixed = mix(mixed ^ _ABSENT)
    return RowSum(len(due_ms), int(mixed.sum(dtype=np.uint64)))


def summed(batches: Iterable[pa.RecordBatch], unit: Unit | None) -> RowSum:
    """Return the sum of rows as Spark passes them to a task."""
    total = RowSum()
    for batch in batches:
        table = normalised(pa.Table.from_batches([batch]))
        total = total.plus(sum_of(table, due_of(table, unit or Unit.MS)))
    return total


def totalled(parts: Iterable[RowSum]) -> RowSum:
    """Return the sum over all tasks."""
    total = RowSum()
    for part in parts:
        total = total.plus(part)
    return total


class SumOfRows:
    """Function from rows to one row with their sum, in a task: for `mapInArrow`."""

    schema = "rows long, sum long"

    def __init__(self, unit: Unit | None) -> None:
        self._unit = unit

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row with the sum of all batches."""
        rows, total = summed(batches, self._unit)
        columns = {"rows": pa.array([rows]), "sum": pa.array([signed(total)])}
        yield pa.RecordBatch.from_pydict(columns)


def signed(number: int) -> int:
    """Return a sum as Spark's signed long."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _hashes(array: pa.Array) -> npt.NDArray[np.uint64]:
    """Return a hash of each value."""
    kind = array.type
    if pa.types.is_map(kind):
        is_null, array = pc.is_null(array), user_properties(array)
    else:
        if pa.types.is_list(kind):
            array = pc.binary_join(array, "\0")
        is_null = pc.is_null(array)
    content = pc.fill_null(array.cast(pa.binary()), b"")
    found = np.fromiter(map(xxh64_intdigest, values_of(content)), np.uint64, len(content))
    found[np.asarray(is_null)] = _ABSENT
    return found
