"""What has become due as pieces: rows that say where messages are, and the task that reads them.

Through Spark a message goes from Python to the JVM, row by row, and back to Python, which costs several times what
reading and writing it does.  Where a sink in Python takes the messages as they are, Spark need only carry pieces:

    due = spark.readStream.format("horolog").option("mode", "due").option("rows", "pieces").load("campaign")
    due.writeStream.foreachBatch(DeltaAppend("tables/delivered", unpack=DueMessages())) …

Offsets, batches and their proofs are the same either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from horolog.spark.due_lake import is_lake, read_lake_piece
from horolog.spark.due_runs import DueRows, Piece, read_piece
from horolog.spark.message_columns import DUE_SCHEMA, arrow_schema, check_projection, fitted


def messages_of(
    path: str, piece: Piece, topic: str, target: pa.Schema, *, lossy: bool
) -> Iterator[pa.RecordBatch]:
    """The messages of a piece, with the columns of `target`; `topic`: only these, "" all."""
    read = read_lake_piece if is_lake(path) else read_piece
    for due in read(path, piece, lossy=lossy):
        for few in _few(_of_topic(due, topic)):
            if not len(few.rows):
                continue
            columns = few.records.columns(target.names)
            if "topic" in target.names:
                columns["topic"] = few.records.topics()
            if "file" in target.names:
                columns["file"] = pa.repeat(pa.scalar(piece.name, pa.string()), len(few.rows))
            if "row" in target.names:
                columns["row"] = pa.array(few.rows)
            yield fitted(columns, target)


def _few(due: DueRows) -> Iterator[DueRows]:
    """The same in pieces whose bodies fit into memory."""
    first = 0
    for records in due.records.pieces():
        yield DueRows(records, due.rows[first : first + len(records)])
        first += len(records)


def _of_topic(due: DueRows, topic: str) -> DueRows:
    if not topic:
        return due
    ours = pc.equal(due.records.topics(), topic).to_numpy(zero_copy_only=False)
    return due if ours.all() else DueRows(due.records.chosen(ours), due.rows[ours])


def piece_rows(
    path: str, pieces: Sequence[Piece], topic: str, target: pa.Schema, *, lossy: bool
) -> pa.RecordBatch:
    """A row for each piece, with the columns of `message_columns.PIECE_SCHEMA` that are in `target`."""
    rows = [
        {
            "path": path,
            "file": piece.name,
            "rows_in_file": piece.rows_in_file,
            "first": piece.first,
            "stop": piece.stop,
            "topic": topic,
            "lossy": lossy,
        }
        for piece in pieces
    ]
    return pa.RecordBatch.from_pylist(rows, target)


class DueMessages:
    """Pieces → messages, in a task: for `mapInArrow`, or as what `DeltaAppend` unpacks.

    columns  of the messages: all of them, or those of a schema, as in "deliver_at timestamp, body binary" (text is
             read by Spark, so a session must be there)
    Errors: BAD_REQUEST for a column that there is not; in a task DAMAGED, as the source has it.
    """

    def __init__(self, columns: StructType | str = DUE_SCHEMA) -> None:
        wanted = StructType.fromDDL(columns) if isinstance(columns, str) else columns
        assert isinstance(wanted, StructType)  # DDL gives no other type
        check_projection(wanted, DUE_SCHEMA)
        self.schema: pa.Schema = arrow_schema(wanted)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The messages of all pieces of all batches."""
        for batch in batches:
            for row in batch.to_pylist():
                piece = Piece(row["file"], row["rows_in_file"], row["first"], row["stop"])
                yield from messages_of(
                    row["path"], piece, row["topic"], self.schema, lossy=row["lossy"]
                )
