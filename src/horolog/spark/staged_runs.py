"""The task of a load: sort rows into runs, in the broker's staging directory or for upload.

A file name holds the task attempt and a random part, so a second attempt, a speculative attempt or
a task of a replayed batch never overwrites another file; only the files in the manifest are
adopted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh64_intdigest

from horolog.broker.adopt.staging import check_room
from horolog.delay.run.writer import RunWriter
from horolog.errors import ErrorCode, HorologError
from horolog.spark.row_checks import described, refusals
from horolog.spark.row_sums import RowSum, sum_of, summed
from horolog.spark.rows import encode_rows, made_ids
from horolog.spark.sink_columns import Unit, due_of, normalised
from horolog.spark.sink_options import SinkOptions, Staging
from horolog.spark.staging_folder import StagingFolder
from horolog.spark.transaction import StagedRun, Transaction, is_reachable
from horolog.storage.api import Storage
from horolog.storage.disk import Disk

_STEP_ROWS = 16_384  # rows encoded at once: the records stay in the processor's cache
_RUN_BYTES = 192 << 20  # bytes of columns gathered for one run: bounds the memory of a task
_SHARED_ONLY = (
    "staging: the broker's directory {} is not reachable from this machine; use staging=upload"
)


class Task(NamedTuple):
    """Which task this is, and the options of its job."""

    transaction: Transaction
    options: SinkOptions
    partition: int
    attempt: int


class Written(NamedTuple):
    """The runs that a task has staged, and the sum of all its rows if the job has a name."""

    files: list[StagedRun]
    sum: RowSum


class Rejected(NamedTuple):
    """Rows that may not become messages, as the task received them, and the reason for each."""

    rows: pa.Table
    reasons: list[str]


def stage(
    task: Task, batches: Iterable[pa.RecordBatch], rejects: list[Rejected] | None = None
) -> Written:
    """Write all rows to runs, each sorted; return the files for the manifest.

    Either all files are staged on return, or no manifest names any of them.  If the transaction is
    committed already, the rows are only summed up.
    rejects  receives the refused rows; None: the first refused row is an error
    """
    if task.transaction.already:
        return Written([], summed(batches, task.options.unit) if task.options.job_id else RowSum())
    with StagingFolder(task.transaction, is_shared=_is_shared(task)) as folder:
        runs = _TaskRuns(task, folder)
        files = []
        first = 0
        for table in _gathered(batches, task.options.rows_per_file):
            rows = table.num_rows
            files += runs.write(table, first, rejects)
            first += rows
        return Written(files, runs.sum)


def _is_shared(task: Task) -> bool:
    """Return whether runs are written into the broker's staging directory.

    Errors: CONFIG if `staging` asks for that and the directory is not reachable.
    """
    transaction, staging = task.transaction, task.options.staging
    shared = staging is not Staging.UPLOAD and is_reachable(transaction)
    if staging is Staging.SHARED and not shared:
        raise HorologError(
            ErrorCode.CONFIG, _SHARED_ONLY.format(transaction.staging), field="staging"
        )
    return shared


def _gathered(batches: Iterable[pa.RecordBatch], rows_per_file: int) -> Iterator[pa.Table]:
    """Yield tables of at most `rows_per_file` rows and about _RUN_BYTES, one for each run."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        while batch.num_rows:
            part = batch.slice(0, rows_per_file - rows)
            batch = batch.slice(part.num_rows)
            waiting.append(part)
            rows += part.num_rows
            size += part.nbytes
            if rows == rows_per_file or size >= _RUN_BYTES:
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(waiting)


class StagedWriter(RunWriter):
    """A run writer that syncs in a thread while the next rows are encoded.

    Without the thread a task would wait for the disk 6 % of its time.

    is_shared  the disk is the broker's: what it keeps free for acks and hand-over stays free, but
               for a few megabytes of each task
    """

    def __init__(
        self, storage: Storage, name: str, log_id: int, rows: int, *, is_shared: bool = False
    ) -> None:
        self._is_shared = is_shared
        if is_shared:
            check_room(storage)
        self._thread = ThreadPoolExecutor(1)
        self._syncing: Future[None] | None = None
        super().__init__(storage, ".", name, log_id=log_id, rows=rows, adopted=True)

    def _sync_on_the_way(self) -> None:
        if self._is_shared:
            check_room(self._storage)
        self._wait()
        self._syncing = self._thread.submit(self._file.sync)

    def _wait(self) -> None:
        syncing, self._syncing = self._syncing, None
        if syncing is not None:
            syncing.result()

    def _close(self) -> None:
        """Wait until the thread is done with the file, then close the file."""
        try:
            self._wait()
        finally:
            self._thread.shutdown()
            super()._close()


class _TaskRuns:
    """The runs of a task; `sum` is the sum of all rows so far, if the job has a name."""

    def __init__(self, task: Task, folder: StagingFolder) -> None:
        self._task = task
        self._folder = folder
        self.sum = RowSum()
        transaction = task.transaction
        earliest = max(1, transaction.target.born_ms - task.options.overdue_max_ms)
        self._target = transaction.target._replace(min_due_ms=earliest)
        self._seed = xxh64_intdigest(f"{transaction.app}\0{transaction.version}".encode())

    def write(self, table: pa.Table, first: int, rejects: list[Rejected] | None) -> list[StagedRun]:
        """Write the rows of a partition from `first` on as one run; none if all are refused."""
        task = self._task
        given, table = table, normalised(table)
        due = due_of(table, task.options.unit or Unit.MS)
        if task.options.job_id:
            self.sum = self.sum.plus(sum_of(table, due))
        ids = None
        if "message_id" not in table.column_names:
            ids = made_ids(self._seed, task.partition, first, table.num_rows)
        bad = refusals(table, due, self._target)
        order = _order(due, bad)
        if bad:
            _reject(given, bad, first, task.partition, rejects)
        if order is not None:
            table, due = table.take(order), due[order]
            ids = ids.take(pa.array(order)) if ids is not None else None
        if not len(due):
            return []
        return [self._write_run(table.combine_chunks(), due, ids)]

    def _write_run(
        self, table: pa.Table, due: npt.NDArray[np.int64], ids: pa.Array | None
    ) -> StagedRun:
        task = self._task
        name = f"p{task.partition:06d}-{task.attempt}-{uuid.uuid4().hex}"
        target = task.transaction.target
        n = len(due)
        queue = task.partition * 7919  # so that small partitions do not all begin with queue 0
        disk, shared = Disk(self._folder.path), self._folder.is_shared
        writer = StagedWriter(disk, name, target.log_id, n, is_shared=shared)
        try:
            for at in range(0, n, _STEP_ROWS):
                rows = slice(at, min(n, at + _STEP_ROWS))
                part = table.slice(at, _STEP_ROWS)
                part_ids = part.column("message_id").combine_chunks() if ids is None else ids[rows]
                writer.add_joined(
                    *encode_rows(
                        part, due[rows], part_ids, target, first_row=at, first_queue=queue + at
                    )
                )
            done = writer.finish()
        except BaseException:
            with suppress(HorologError):
                writer.abandon()
            raise
        return self._folder.staged(done)


def _order(due: npt.NDArray[np.int64], bad: dict[int, str]) -> npt.NDArray[np.int64] | None:
    """Return the row indices by due time, without the bad rows; None: all rows as they are."""
    if not bad and bool((due[1:] >= due[:-1]).all()):
        return None
    order = np.argsort(due, kind="stable")
    if bad:
        order = order[~np.isin(order, np.fromiter(bad, np.int64))]
    return order


def _reject(
    table: pa.Table, bad: dict[int, str], first: int, partition: int, rejects: list[Rejected] | None
) -> None:
    if rejects is None:
        row, reason = next(iter(sorted(bad.items())))
        more = f" ({len(bad)} such rows in this part)" if len(bad) > 1 else ""
        raise HorologError(
            ErrorCode.BAD_REQUEST,
            f"{reason}; partition {partition}, row {first + row}: {described(table, row)}{more}",
            field=reason.partition(":")[0],
        )
    rows, reasons = zip(*sorted(bad.items()), strict=True)
    rejects.append(Rejected(table.take(list(rows)), list(reasons)))
