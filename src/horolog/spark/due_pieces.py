"""Due messages as pieces: rows that say where messages are stored, and the task that reads them.

Through Spark a message goes from Python to the JVM, row by row, and back to Python, which costs
several times as much as to read and write it.  Where a sink in Python takes the messages as they
are, Spark need only carry pieces:

    due = spark.readStream.format("horolog").option("mode", "due").option("rows", "pieces")
    append = DeltaAppend("tables/delivered", unpack=DueMessages())
    due.load("campaign").writeStream.foreachBatch(append) …

Offsets, batches and their proofs are equal for messages and pieces.
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
    """Yield the messages of a piece, with the columns of `target`.

    topic  yield only the messages of this topic; "": all messages
    """
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
    """Cut rows into pieces whose bodies fit into memory."""
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
    """Return a row for each piece, with the columns of `PIECE_SCHEMA` that are in `target`."""
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
    """Function from pieces to messages in a task: for `mapInArrow`, or `unpack` of `DeltaAppend`.

    columns  of the messages: all of them, or those of a schema such as "deliver_at timestamp, body
             binary" (Spark parses the text, so a session must exist)
    Errors: BAD_REQUEST for a column that does not exist; in a task DAMAGED, as the due source
    raises it.
    """

    def __init__(self, columns: StructType | str = DUE_SCHEMA) -> None:
        wanted = StructType.fromDDL(columns) if isinstance(columns, str) else columns
        assert isinstance(wanted, StructType)  # DDL gives no other type
        check_projection(wanted, DUE_SCHEMA)
        self.schema: pa.Schema = arrow_schema(wanted)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of all pieces of all batches."""
        for batch in batches:
            for row in batch.to_pylist():
                piece = Piece(row["file"], row["rows_in_file"], row["first"], row["stop"])
                yield from messages_of(
                    row["path"], piece, row["topic"], self.schema, lossy=row["lossy"]
                )
