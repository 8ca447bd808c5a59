"""Bulk load of a DataFrame as scheduled messages, in sorted runs that the broker adopts at once.

    from horolog.spark import bulk_load, make_session
    df = make_session("campaign").read.parquet("campaign.parquet")
    bulk_load(df, broker="http://127.0.0.1:8090", topic="campaign", job_id="campaign-2026-03")

All rows are loaded, or none: a row that may not become a message is an error of the whole load,
unless `rejects` names a directory for such rows.  A load that is repeated with its job id changes
nothing.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from horolog.errors import ErrorCode, HorologError, refused
from horolog.places import local_place
from horolog.spark.failures import spark_failures
from horolog.spark.packages import need_jvm, need_spark
from horolog.spark.watching import watched
from horolog.storage.disk import make_directory, sync_new_file

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from horolog.spark.load_job import Loaded
    from horolog.spark.sink_options import SinkOptions
    from horolog.spark.transaction import Transaction

_SHOWN = 3  # most reasons that an error shows


class BulkLoadResult(NamedTuple):
    """Result of a bulk load.

    already  a load with this job id was committed before, and nothing was changed
    """

    already: bool
    rows: int
    rejected: int
    files: int
    bytes: int
    seconds: float
    job_id: str
    rejects: str  # the Parquet file of the refused rows; "" if there are none


def bulk_load(
    df: DataFrame,
    *,
    broker: str,
    topic: str,
    job_id: str = "",
    rejects: str | Path = "",
    deliver_at_unit: str = "",
    overdue_max: str = "1d",
    staging: str = "auto",
    timeout: str = "60s",
    show_progress: bool = False,
) -> BulkLoadResult:
    """Load all rows of a DataFrame with the columns of the sink (`body`, `deliver_at`, …).

    broker           URL of the admin port
    job_id           names the load: a committed load is not repeated, and is refused with other
                     rows; "": a new load
    rejects          a directory of this machine: refused rows are written there as Parquet, with
                     the column `reason`, and all other rows are loaded
    deliver_at_unit  ms, s or us: what a `deliver_at` of type bigint counts since 1970
    overdue_max      rows that have been due for longer are refused
    staging          auto, shared (tasks write into the broker's directory) or upload
    timeout          how long to ask a broker that does not answer
    """
    need_spark()
    kept = rejects_place(rejects) if rejects else ""
    need_jvm(df.sparkSession, "a bulk load")
    from horolog.spark.sink_options import check_schema, sink_options
    from horolog.spark.transaction import abort, begin

    started = time.monotonic()
    options = sink_options(
        {
            "broker": broker,
            "topic": topic,
            "jobId": job_id,
            "staging": staging,
            "timeout": timeout,
            "deliverAtUnit": deliver_at_unit,
            "overdueMax": overdue_max,
        }
    )
    check_schema(df.schema, options.unit)
    app = job_id or f"load-{uuid.uuid4()}"
    transaction = begin(options.broker, app, 0, topic, options.timeout_ms)
    try:
        if transaction.already:
            return _repeated(df, options, transaction, started)
        loaded, table = _loaded(df, options, transaction, kept, show_progress=show_progress)
        return _committed(loaded, table, options, transaction, started)
    except BaseException:
        abort(transaction)
        raise


def _repeated(
    df: DataFrame, options: SinkOptions, transaction: Transaction, started: float
) -> BulkLoadResult:
    """Compare the rows with those of the committed load; FORBIDDEN if they differ."""
    from horolog.spark.load_job import sum_of_rows
    from horolog.spark.transaction import commit

    with spark_failures("load"):
        rows = sum_of_rows(df, options.unit)
    commit(transaction, options.topic, [], rows.fingerprint(options.topic))
    seconds = time.monotonic() - started
    return BulkLoadResult(True, 0, 0, 0, 0, seconds, transaction.app, "")


def _loaded(
    df: DataFrame,
    options: SinkOptions,
    transaction: Transaction,
    rejects: str,
    *,
    show_progress: bool,
) -> tuple[Loaded, str]:
    from horolog.spark.load_job import plan_of, run_load

    quiet = not show_progress
    with spark_failures("load"):
        with watched(df.sparkSession, "counting", quiet=quiet):
            plan = plan_of(df, options.unit)
        with watched(df.sparkSession, "loading", quiet=quiet):
            loaded = run_load(df, plan, options, transaction)
    if not loaded.rejected.num_rows:
        return loaded, ""
    if not rejects:
        raise _refused(loaded)
    return loaded, write_rejects(loaded.rejected, Path(rejects), transaction.token)


def _committed(
    loaded: Loaded,
    rejects: str,
    options: SinkOptions,
    transaction: Transaction,
    started: float,
) -> BulkLoadResult:
    from horolog.spark.transaction import commit

    fingerprint = loaded.sum.fingerprint(options.topic) if options.job_id else ""
    done = commit(transaction, options.topic, loaded.files, fingerprint)
    # A load without a name is nobody else's: the answer was lost, and the commit was sent again.
    already = done.already and bool(options.job_id)
    return BulkLoadResult(
        already,
        0 if already else sum(file.rows for file in loaded.files),
        loaded.rejected.num_rows,
        len(loaded.files),
        sum(file.bytes for file in loaded.files),
        time.monotonic() - started,
        transaction.app,
        rejects,
    )


def rejects_place(rejects: str | Path, what: str = "rejects") -> str:
    """Return the directory for refused rows, which need not exist yet.

    what  the option as its user knows it
    Errors: BAD_REQUEST, before any job runs, if the directory cannot be made or written.
    """
    place = Path(local_place(rejects, what))
    whole = place.absolute()
    there = next(path for path in (whole, *whole.parents) if path.exists())
    if not there.is_dir():
        raise refused(what, f"{place} cannot be made: {there} is no directory")
    if not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        raise refused(what, f"{place} cannot be written: {there} belongs to somebody else")
    return str(place)


def write_rejects(table: pa.Table, directory: Path, token: str) -> str:
    """Write the refused rows to a file, which is durable when this returns; return its path.

    Call this before the commit: a load that is committed is not repeated, so nobody would refuse
    the rows again.
    token  of the transaction: a second load does not overwrite the file of the first one
    """
    import pyarrow.parquet as pq

    make_directory(directory)
    path = directory / f"rejects-{token}.parquet"
    pq.write_table(table, path)
    sync_new_file(path)
    return str(path)


def _refused(loaded: Loaded) -> HorologError:
    from horolog.spark.row_checks import described

    reasons = loaded.rejected.column("reason").to_pylist()
    example = described(loaded.rejected.drop_columns(["reason"]), 0) or "a row of nulls"
    shown = "; ".join(list(dict.fromkeys(reasons))[:_SHOWN])
    rows = len(reasons) + sum(file.rows for file in loaded.files)
    return refused(
        "rows",
        f"{len(reasons)} of {rows} may not become messages ({shown}), for example {example}; so nothing was loaded; "
        "name a directory for such rows (rejects) to load the others",
        code=ErrorCode.MESSAGE_CORRUPTED,
    )
