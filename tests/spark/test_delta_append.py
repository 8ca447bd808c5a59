"""What `DeltaAppend` adds to a table fits it: readers would read anything else otherwise than it was written."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from horolog.errors import HorologError
from horolog.spark.delta_append import DeltaAppend

TABLE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("body", pa.binary()),
        pa.field("keys", pa.list_(pa.field("element", pa.string(), nullable=False))),
        pa.field("at", pa.timestamp("us", tz="UTC")),
    ]
)


class Rows:
    """What a task would write, as `unpack` says it."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches


class Reached(Exception):
    """The batch was about to be written."""


class Frame:
    """A batch that must not be touched before it is known to fit."""

    def mapInArrow(self, *_: object) -> None:  # noqa: N802 - Spark's name
        raise Reached


def append(path: str, schema: pa.Schema, batch: int = 1) -> None:
    DeltaAppend(path, "q", Rows(schema))(Frame(), batch)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (TABLE.append(pa.field("tag", pa.string())), "column 'tag' is not in the table, which has id, body, keys, at"),
        (TABLE.set(0, pa.field("id", pa.string())), "column 'id' is string here, and long in the table"),
        (TABLE.set(2, pa.field("keys", pa.string())), "column 'keys' is string here, and {.*array.*} in the table"),
        (TABLE.set(3, pa.field("at", pa.timestamp("us"))), "column 'at' is timestamp_ntz here, and timestamp in the table"),
        (TABLE.remove(0), "column 'id' is missing, and may not be null in the table"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_refused(tmp_path, schema, says) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(path, TABLE)
    with pytest.raises(HorologError, match=f"^table: {path}: {says}"):
        append(path, schema)
    assert DeltaTable(path).version() == 0


def test_a_table_with_partitions_is_refused(tmp_path) -> None:
    DeltaTable.create(str(tmp_path), TABLE, partition_by=["id"])
    with pytest.raises(HorologError, match="the table is partitioned by id; name one that is not"):
        append(str(tmp_path), TABLE)


def test_columns_that_may_be_null_may_be_left_out_and_come_in_any_order(tmp_path) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(path, TABLE)
    keys = pa.field("keys", pa.list_(pa.field("element", pa.string())))
    for schema in (TABLE, TABLE.remove(1), pa.schema(reversed(TABLE)), TABLE.set(2, keys)):
        with pytest.raises(Reached):
            append(path, schema)


def test_a_batch_is_there_once_and_none_comes_again_after_a_later_one(tmp_path) -> None:
    """A checkpoint that forgot batches gives their numbers to other rows."""
    path = str(tmp_path / "t")
    third = CommitProperties(app_transactions=[Transaction("q", 3)])
    DeltaTable.create(path, TABLE).create_write_transaction(
        [], "append", TABLE, commit_properties=third
    )
    append(path, TABLE, 3)
    with pytest.raises(HorologError, match="batch 2 of the query comes again, but its batch 3 is"):
        append(path, TABLE, 2)
    with pytest.raises(Reached):
        append(path, TABLE, 4)
