"""Exactly-once appends of micro-batches to a Delta table, by (query, batch), without a jar.

    append = DeltaAppend("/tables/delivered")
    stream.writeStream.foreachBatch(append).option("checkpointLocation", …).start()

Tasks write Parquet files under names of their own; one Delta commit adds the files of the attempts
that count, together with the transaction (query, batch).  A batch that Spark repeats is found in
the table and skipped; no commit names the files of other attempts, and a full vacuum of the table
removes them.  Before tasks write, they prove that the driver sees the same directory, and before
the driver commits it looks at the files (`shared_place`).
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from horolog.errors import ErrorCode, HorologError, refused
from horolog.places import local_place
from horolog.spark.shared_place import SharedPlace, check_written, shared_place
from horolog.spark.transaction import rewound
from horolog.storage.disk import sync_new_file

if TYPE_CHECKING:
    from deltalake import DeltaTable, Field
    from deltalake.transaction import RemoveAction
    from pyspark.sql import DataFrame

_FILES = "path string, size long, rows long"
_REPEATING = frozenset({"topic", "tag", "file", "queue_id"})
_NULLABLE = frozenset({"nullable", "containsNull", "valueContainsNull"})
_QUERY_ID = "sql.streaming.queryId"


class Unpack(Protocol):
    """A function that turns batches of Spark into batches of `schema`; sent to the tasks."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches to write."""
        ...


class DeltaAppend:
    """The function for `foreachBatch`.

    table   directory of the Delta table, on a disk that all tasks see, as a path or a file: URL;
            made with the first batch
    query   names the query in the table's transactions; "": Spark's id, which is kept in the
            checkpoint; Spark Connect does not tell it
    unpack  what a task does to its batches before it writes them, such as `due_pieces.DueMessages`
    """

    def __init__(self, table: str, query: str = "", unpack: Unpack | None = None) -> None:
        self._table = str(Path(local_place(table, "table")).absolute())
        self._query = query
        self._unpack = unpack

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Append a batch, unless the table has it."""
        from deltalake import DeltaTable
        from deltalake.transaction import AddAction, CommitProperties, Transaction

        query = self._query or _query_id(frame)
        table = self._opened(frame) if DeltaTable.is_deltatable(self._table) else None
        if table is not None:
            there = table.transaction_version(query)
            if there is not None and there > batch:
                raise refused("checkpointLocation", rewound(batch, there), code=ErrorCode.FORBIDDEN)
            if there == batch:
                return
            self._check_fits(table, frame)
        with shared_place(self._table, "table") as place:
            written = frame.mapInArrow(_Writer(place, self._unpack), _FILES).collect()
        check_written(self._table, "table", [(row.path, row.size) for row in written])
        if table is None:
            table = self._opened(frame)
        now = time.time_ns() // 1_000_000
        adds: list[AddAction | RemoveAction] = [
            AddAction(row.path, row.size, {}, now, True, json.dumps({"numRecords": row.rows}))
            for row in written
        ]
        table.create_write_transaction(
            adds,
            "append",
            table.schema(),
            commit_properties=CommitProperties(app_transactions=[Transaction(query, batch)]),
        )

    def _opened(self, frame: DataFrame) -> DeltaTable:
        from deltalake import DeltaTable

        schema = self._schema(frame)
        return DeltaTable.create(self._table, schema, mode="ignore", raise_if_key_not_exists=False)

    def _schema(self, frame: DataFrame) -> pa.Schema:
        """Return the columns that the tasks write."""
        from horolog.spark.message_columns import arrow_schema

        return self._unpack.schema if self._unpack else arrow_schema(frame.schema)

    def _check_fits(self, table: DeltaTable, frame: DataFrame) -> None:
        """Raise BAD_REQUEST for a batch that readers of the table would misread."""
        from deltalake import Schema

        if parted := table.metadata().partition_columns:
            raise self._other(
                f"the table is partitioned by {', '.join(parted)}; name one that is not"
            )
        there = {field.name: field for field in table.schema().fields}
        given = {field.name: field for field in Schema.from_arrow(self._schema(frame)).fields}
        for name, field in given.items():
            if name not in there:
                raise self._other(
                    f"column {name!r} is not in the table, which has {', '.join(there)}"
                )
            if _kind(field) != _kind(there[name]):
                kinds = f"{_kind(field)} here, and {_kind(there[name])} in the table"
                raise self._other(f"column {name!r} is {kinds}")
        for name, field in there.items():
            if name not in given and not field.nullable:
                raise self._other(f"column {name!r} is missing, and may not be null in the table")

    def _other(self, why: str) -> HorologError:
        return refused("table", f"{self._table}: {why}")


def _kind(field: Field) -> str:
    """Return the type of a column as a Delta log has it, without what may be null in it."""
    return json.dumps(_without_nulls(json.loads(field.type.to_json()))).strip('"')


def _without_nulls(kind: Any) -> Any:
    if isinstance(kind, list):
        return [_without_nulls(each) for each in kind]
    if not isinstance(kind, dict):
        return kind
    return {name: _without_nulls(each) for name, each in kind.items() if name not in _NULLABLE}


def _query_id(frame: DataFrame) -> str:
    session = frame.sparkSession
    has_jvm = hasattr(session, "sparkContext")  # not in a session of Spark Connect
    found = session.sparkContext.getLocalProperty(_QUERY_ID) if has_jvm else None
    if not found:
        raise refused(
            "query",
            "Spark tells no query id here; name the query, as in DeltaAppend(table, 'audit')",
        )
    return str(found)


class _Writer:
    """The function of a task, which writes all its batches to one file."""

    def __init__(self, place: SharedPlace, unpack: Unpack | None) -> None:
        self._place = place
        self._unpack = unpack

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._place.check()
        if self._unpack:
            batches = self._unpack(batches)
        name = f"part-{uuid.uuid4()}.parquet"
        writer = None
        rows = 0
        path = f"{self._place.path}/{name}"
        for batch in batches:
            if not batch.num_rows:
                continue
            if writer is None:
                # Ids and bodies differ in every row: a dictionary of such columns would be a waste.
                few = [name for name in batch.schema.names if name in _REPEATING]
                writer = pq.ParquetWriter(
                    path, batch.schema, compression="zstd", use_dictionary=few or False
                )
            writer.write_batch(batch)
            rows += batch.num_rows
        if writer is None:
            return
        writer.close()
        sync_new_file(Path(path))  # the Delta log must name only files that survive a crash
        yield pa.RecordBatch.from_pydict(
            {"path": [name], "size": [os.path.getsize(path)], "rows": [rows]}
        )
