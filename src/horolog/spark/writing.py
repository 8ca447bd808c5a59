"""The sink: schedule the rows of a DataFrame or of each micro-batch, all or none, exactly once.

The writer of a batch is made once, on the driver, and is sent to the tasks and to the commit.  The
writer of a stream is rebuilt for every micro-batch and again for its commit, so each task finds its
transaction by the ids of query and batch, and sends it to the commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from horolog.admin.status import UnreachableError
from horolog.errors import ErrorCode, refused
from horolog.spark.failures import silent_broker
from horolog.spark.row_sums import RowSum, totalled
from horolog.spark.sink_options import SinkOptions, check_schema, sink_options
from horolog.spark.staged_runs import Task, stage
from horolog.spark.transaction import (
    StagedRun,
    Transaction,
    abort,
    begin,
    check_is_newest,
    check_topic_exists,
    commit,
    manifest,
)

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


@dataclass
class Staged(WriterCommitMessage):
    """What a task reports to the driver."""

    transaction: Transaction
    files: list[StagedRun] = field(default_factory=list)
    sum: RowSum = field(default_factory=RowSum)


@contextmanager
def _names_its_option() -> Iterator[None]:
    """Name the option that has the URL of a broker that does not answer."""
    try:
        yield
    except UnreachableError as error:
        raise silent_broker(error, "broker") from None


@_names_its_option()
def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """Build the writer of `df.write`; options, schema and topic are checked before any job."""
    chosen = _checked(options, schema, overwrite)
    app = chosen.job_id or f"batch-{uuid.uuid4()}"
    return BatchWriter(chosen, begin(chosen.broker, app, 0, chosen.topic, chosen.timeout_ms))


@_names_its_option()
def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Build the writer of `df.writeStream`."""
    chosen = _checked(options, schema, overwrite)
    check_topic_exists(chosen.broker, chosen.topic, chosen.timeout_ms)
    return StreamWriter(chosen)


def _checked(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    chosen = sink_options(options)
    if overwrite:
        raise refused(
            "mode", "a topic cannot be overwritten; use mode append", code=ErrorCode.CONFIG
        )
    check_schema(schema, chosen.unit)
    return chosen


class BatchWriter(DataSourceArrowWriter):
    """Writer of all rows of a DataFrame, as one transaction (job id, 0)."""

    def __init__(self, options: SinkOptions, transaction: Transaction) -> None:
        self._options = options
        self._transaction = transaction

    @_names_its_option()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a partition, in a task."""
        return _stage(self._options, self._transaction, iterator)

    @_names_its_option()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Adopt the staged files, on the driver."""
        options = self._options
        rows = totalled(message.sum for message in _staged(messages))
        if options.job_id:  # also when it is committed already: the broker compares the rows
            fingerprint = rows.fingerprint(options.topic)
            commit(self._transaction, options.topic, _files(messages), fingerprint)
        else:
            commit(self._transaction, options.topic, _files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what is not committed, on the driver; also called after a commit that failed."""
        del messages
        abort(self._transaction)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer of micro-batches, each as one transaction (query id, batch id)."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @_names_its_option()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a partition, in a task, unless the batch is committed already."""
        context = _context()
        options = self._options
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        assert query is not None
        assert batch is not None
        transaction = begin(
            options.broker,
            options.txn_app_id or query,
            int(batch),
            options.topic,
            options.timeout_ms,
            join=True,
            # The checkpoint keeps the query's id; a replayed batch may have other rows.
            fingerprint=f"query {query}",
        )
        if transaction.already:
            check_is_newest(transaction)
        return _stage(options, transaction, iterator)

    @_names_its_option()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Adopt the staged files of a batch, on the driver."""
        transaction = _transaction(messages)
        if transaction is not None and not transaction.already:
            assert transaction.version == batchId
            commit(transaction, self._options.topic, _files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove what is not committed, on the driver."""
        del batchId
        transaction = _transaction(messages)
        if transaction is not None:
            abort(transaction)


def _stage(
    options: SinkOptions, transaction: Transaction, batches: Iterator[pa.RecordBatch]
) -> Staged:
    if transaction.already and not options.job_id:
        return Staged(transaction)
    context = _context()
    task = Task(
        transaction,
        options,
        context.partitionId(),
        context.taskAttemptId(),
    )
    done = stage(task, batches)
    return Staged(transaction, done.files, done.sum)


def _context() -> Any:
    context = TaskContext.get()
    assert context is not None
    return context


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedRun]:
    return manifest([file for message in _staged(messages) for file in message.files])


def _transaction(messages: Sequence[WriterCommitMessage | None]) -> Transaction | None:
    staged = _staged(messages)
    return staged[0].transaction if staged else None
