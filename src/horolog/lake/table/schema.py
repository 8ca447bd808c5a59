"""The schema of the lake's table: columns, partitions, and the description of a file.

A message is in the partition of its offload and of the UTC day on which it is due.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa

from horolog.limits import DAY_MS

SCHEMA = pa.schema(
    [
        ("due_ms", pa.int64()),
        ("deliver_at", pa.timestamp("us", tz="UTC")),
        ("topic", pa.string()),
        ("message_id", pa.string()),
        ("tag", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("body", pa.binary()),
        ("topic_number", pa.int64()),
        ("tags_code", pa.int32()),
        ("key_hash", pa.int64()),
        ("origin_position", pa.int64()),
        ("origin_row", pa.int64()),
        ("record", pa.binary()),
    ]
)
"""A pending message.

`record` is the message record that a promotion brings back; the other columns show its content.
"""

PARTITIONS = ["number", "day"]
TABLE_SCHEMA = pa.schema([*SCHEMA, ("number", pa.int64()), ("day", pa.string())])


class LakeFile(NamedTuple):
    """A written Parquet file of the table; `path` is relative to the table."""

    path: str
    day: str
    rows: int
    bytes: int
    first_ms: int
    last_ms: int
    checksum: int  # `row_sum`


def day_of(due_ms: int) -> str:
    """Return the UTC day of a due time, as in the partition column."""
    return datetime.fromtimestamp(due_ms // DAY_MS * 86_400, UTC).strftime("%Y-%m-%d")


def partition_of(offload_id: int, day: str) -> str:
    """Return the directory of a partition, relative to the table."""
    return f"number={offload_id}/day={day}"
