"""The sum of a job's rows: the same however they come, another one for other rows."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from horolog.spark.row_sums import RowSum, SumOfRows, signed, summed, totalled
from horolog.spark.sink_columns import Unit

AT = 1_800_000_000_000
ROWS = [
    {
        "body": f"b{i}",
        "deliver_at": AT + i * 1_000,
        "message_id": f"i{i}",
        "tag": None if i % 3 else "red",
        "keys": [f"k{i}", "all"],
        "properties": {"n": str(i)},
    }
    for i in range(200)
]
SCHEMA = pa.schema(
    [
        ("body", pa.string()),
        ("deliver_at", pa.int64()),
        ("message_id", pa.string()),
        ("tag", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)


def batch(rows) -> pa.RecordBatch:
    plain = [{**row, "properties": list((row["properties"] or {}).items())} for row in rows]
    return pa.RecordBatch.from_pylist(plain, SCHEMA)


def test_order_parts_and_types_say_nothing() -> None:
    whole = summed([batch(ROWS)], Unit.MS)
    assert whole.rows == 200
    mixed = Random(1).sample(ROWS, len(ROWS))
    parts = [summed([batch(mixed[at : at + 50])], Unit.MS) for at in range(0, 200, 50)]
    assert totalled(reversed(parts)) == whole
    assert summed([batch(mixed[:9]), batch(mixed[9:])], Unit.MS) == whole
    table = pa.Table.from_batches([batch(ROWS)])
    times = table.column("deliver_at").cast(pa.timestamp("ms", "UTC"))
    other = table.set_column(0, "body", table.column("body").cast(pa.binary()))
    other = other.set_column(1, "deliver_at", times.cast(pa.timestamp("us", "UTC")))
    assert summed(other.to_batches(), None) == whole
    in_s = table.set_column(1, "deliver_at", pa.array([row["deliver_at"] // 1_000 for row in ROWS]))
    assert summed(in_s.to_batches(), Unit.S) == whole
    assert summed([], Unit.MS) == RowSum()


def test_a_column_that_is_not_there_is_one_of_nulls() -> None:
    table = pa.Table.from_batches([batch([{**row, "tag": None} for row in ROWS])])
    assert summed(table.to_batches(), Unit.MS) == summed(
        table.drop_columns(["tag"]).to_batches(), Unit.MS
    )


@pytest.mark.parametrize(
    "change",
    [
        {"body": "other"},
        {"deliver_at": AT - 1},
        {"message_id": "other"},
        {"tag": "blue"},
        {"tag": ""},
        {"keys": ["all", "k7"]},
        {"keys": []},
        {"properties": {"n": "8"}},
        {"properties": {}},
    ],
)
def test_one_changed_value_is_another_sum(change) -> None:
    changed = [*ROWS[:7], {**ROWS[7], **change}, *ROWS[8:]]
    one, other = (summed([batch(rows)], Unit.MS) for rows in (ROWS, changed))
    assert one.rows == other.rows
    assert one.sum != other.sum


def test_a_row_more_or_twice_is_another_sum() -> None:
    sums = {summed([batch(rows)], Unit.MS) for rows in (ROWS, ROWS[1:], [*ROWS, ROWS[0]])}
    assert len({each.sum for each in sums}) == 3


def test_a_task_passes_it_as_sparks_long() -> None:
    (row,) = SumOfRows(Unit.MS)(iter([batch(ROWS)]))
    whole = summed([batch(ROWS)], Unit.MS)
    assert row.to_pylist() == [{"rows": 200, "sum": signed(whole.sum)}]
    assert [signed(n) for n in (0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)] == [
        0, (1 << 63) - 1, -(1 << 63), -1,
    ]  # fmt: skip
    assert RowSum(3, 255).fingerprint("t") == "t: 3 rows, sum 00000000000000ff"
