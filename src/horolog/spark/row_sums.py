"""What the rows of a job are, as a count and a sum: two runs of a job compare it instead of the rows.

It depends on what the messages say and on nothing else: not on the order of rows, on how they are dealt to tasks, on a
task that runs twice, on the type of a column (text or bytes, timestamp or number), or on what is refused today.
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
_ABSENT = np.uint64(0x9B1A_6E5D_11C3_5F07)  # a null, and every row of a column that is not there


class RowSum(NamedTuple):
    """Rows, and the sum of their hashes modulo 2⁶⁴."""

    rows: int = 0
    sum: int = 0

    def plus(self, other: RowSum) -> RowSum:
        """The sum of both."""
        return RowSum(self.rows + other.rows, (self.sum + other.sum) & MASK)

    def fingerprint(self, topic: str) -> str:
        """The fingerprint that the broker keeps with the transaction, and shows to a person."""
        return f"{topic}: {self.rows} rows, sum {self.sum:016x}"


def sum_of(table: pa.Table, due_ms: npt.NDArray[np.int64]) -> RowSum:
    """The sum of rows; columns as `sink_columns.normalised` gives them."""
    mixed = mix(due_ms.view(np.uint64))
    for name in _COLUMNS:
        if name in table.column_names:
            mixed = mix(mixed ^ _hashes(one_array(table.column(name))))
        else:
            mixed = mix(mixed ^ _ABSENT)
    return RowSum(len(due_ms), int(mixed.sum(dtype=np.uint64)))


def summed(batches: Iterable[pa.RecordBatch], unit: Unit | None) -> RowSum:
    """The sum of rows as Spark gives them to a task."""
    total = RowSum()
    for batch in batches:
        table = normalised(pa.Table.from_batches([batch]))
        total = total.plus(sum_of(table, due_of(table, unit or Unit.MS)))
    return total


def totalled(parts: Iterable[RowSum]) -> RowSum:
    """The sum over all tasks."""
    total = RowSum()
    for part in parts:
        total = total.plus(part)
    return total


class SumOfRows:
    """Rows → one row with their sum, in a task: for `mapInArrow`."""

    schema = "rows long, sum long"

    def __init__(self, unit: Unit | None) -> None:
        self._unit = unit

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row."""
        rows, total = summed(batches, self._unit)
        columns = {"rows": pa.array([rows]), "sum": pa.array([signed(total)])}
        yield pa.RecordBatch.from_pydict(columns)


def signed(number: int) -> int:
    """A sum as Spark's long."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _hashes(array: pa.Array) -> npt.NDArray[np.uint64]:
    """A hash of each value."""
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
