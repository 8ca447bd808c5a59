"""The columns of a message, and the Arrow schema that Spark expects of a batch.

A reader returns the columns of the user's schema, in its order: a schema is a projection, and a
column that it leaves out is not decoded.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from horolog.errors import HorologError, refused

MESSAGE_SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("queue_id", IntegerType()),
        StructField("queue_offset", LongType()),
        StructField("message_id", StringType()),
        StructField("tag", StringType()),
        StructField("keys", ArrayType(StringType())),
        StructField("properties", MapType(StringType(), StringType())),
        StructField("body", BinaryType()),
        StructField("born_at", TimestampType()),
        StructField("stored_at", TimestampType()),
        StructField("deliver_at", TimestampType()),
        StructField("reconsume_times", IntegerType()),
    ]
)
"""Columns of a visible message; `deliver_at` is null if the message was never scheduled."""

DUE_SCHEMA = StructType(
    [
        StructField("deliver_at", TimestampType()),
        StructField("topic", StringType()),
        StructField("message_id", StringType()),
        StructField("tag", StringType()),
        StructField("keys", ArrayType(StringType())),
        StructField("properties", MapType(StringType(), StringType())),
        StructField("body", BinaryType()),
        StructField("born_at", TimestampType()),
        StructField("file", StringType()),
        StructField("row", LongType()),
    ]
)
"""Columns of a pending message that has become due; `file` and `row` identify it."""


PIECE_SCHEMA = StructType(
    [
        StructField("path", StringType()),
        StructField("file", StringType()),
        StructField("rows_in_file", LongType()),
        StructField("first", LongType()),
        StructField("stop", LongType()),
        StructField("topic", StringType()),
        StructField("lossy", BooleanType()),
    ]
)
"""Columns of a piece: rows [first, stop) of a file that have become due.

topic  read only the messages of this topic; "": all messages
lossy  leave out damaged rows, instead of raising DAMAGED
"""


def check_projection(wanted: StructType, known: StructType) -> None:
    """Raise BAD_REQUEST for a schema without columns, or that names the first wrong column.

    A column is wrong if it does not exist or has another type.
    """
    types: dict[str, DataType] = {field.name: field.dataType for field in known.fields}
    if not wanted.fields:
        raise refused("schema", f"names no column; there are {', '.join(types)}")
    for field in wanted.fields:
        there = types.get(field.name)
        if there is None:
            raise _refused(field.name, f"there is no such column; there are {', '.join(types)}")
        if not _is_same(there, field.dataType):
            raise _refused(
                field.name,
                f"is {there.simpleString()}, not {field.dataType.simpleString()}; cast it in the "
                "query",
            )


def _is_same(one: DataType, other: DataType) -> bool:
    """Return whether two types are equal, whether or not their elements may be null."""
    return one.simpleString() == other.simpleString()


def _refused(column: str, why: str) -> HorologError:
    return refused("schema", f"column {column!r}: {why}")


def arrow_schema(wanted: StructType) -> Any:
    """Return the exact Arrow schema of a reader's batches."""
    return to_arrow_schema(wanted, timezone="UTC")


def fitted(columns: dict[str, Any], schema: Any) -> Any:
    """Build a record batch of the columns.

    Types may differ from the schema's only in the names of nested fields.
    """
    arrays = []
    for field in schema:
        column = columns[field.name]
        arrays.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
