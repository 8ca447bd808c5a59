"""Offload of messages due far ahead, from the broker's disk to Parquet files of a Delta table.

    begin (the broker freezes)  →  Spark writes a file for each unit of hours
    →  Delta commit (app, offload id)  →  the rows of the table are summed up
    →  commit (the broker compares, and cuts its runs)

A job that is stopped in between begins again: the broker continues with the frozen set and the
offload id it had, and if the table has that offload already, nothing is written a second time.
Files of attempts that the table does not name are removed by `DeltaTable.vacuum(full=True)`.  Rows
that an abandoned offload has left in the table are removed by the next call of any kind
(`lake.table.given_up`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from horolog.admin.client import AdminClient
from horolog.errors import ErrorCode, HorologError, refused
from horolog.lake.frozen_run import FrozenRun
from horolog.lake.jobs import broker as lake_broker
from horolog.lake.jobs.rows import Unit, plan, write_unit
from horolog.lake.table import delta, given_up, reading
from horolog.lake.table.schema import LakeFile, partition_of
from horolog.limits import HOUR_MS
from horolog.places import local_place
from horolog.spark.failures import spark_failures
from horolog.spark.shared_place import SharedPlace, check_written, prove_shared, shared_place
from horolog.units import TIME_MAX_MS, counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP = "horolog-offload"
_TASKS = 8  # for each core: a task costs Spark as much as writing a thousand messages
Note = Callable[[str], None]


class Offloaded(NamedTuple):
    """Result of an offload.

    already  an earlier job had written the table, or even reported it to the broker
    """

    number: int  # id of the offload
    rows: int
    files: int
    from_ms: int
    lake: str
    already: bool


def offload(
    admin: AdminClient,
    uri: str,
    from_ms: int,
    *,
    spark: SparkSession | None = None,
    app: str = APP,
    note: Note | None = None,
) -> Offloaded:
    """Move messages due at or after `from_ms`, rounded up to an hour, into the table at `uri`.

    spark  writes the files, in tasks that must see the broker's data directory; None: this process
           writes them
    Errors: those of the broker; DAMAGED if a run cannot be read, or if the table has lost messages
    that wait in it; then nothing is moved.
    """
    uri = table_of(uri)
    tell = note or (lambda _: None)
    _check_there(admin, uri)
    if spark is not None:
        prove_shared(spark, uri, "LAKE")
    frozen = lake_broker.begin(admin, app, -(-from_ms // HOUR_MS) * HOUR_MS)
    tell(f"offload {frozen.offload_id}: {counted(len(frozen.runs), 'run')} frozen")
    _forget_given_up(admin, uri, frozen.log_id)
    already = delta.is_committed(uri, frozen.log_id, frozen.offload_id)
    if not already:
        files = _written(admin, frozen, uri, spark)
        if not files:
            admin.post("/v1/offloads/abort", {"number": frozen.offload_id})
            return Offloaded(frozen.offload_id, 0, 0, frozen.from_ms, uri, False)
        tell(f"offload {frozen.offload_id}: {counted(len(files), 'file')} written")
        already = not delta.commit_files(uri, frozen.log_id, frozen.offload_id, files)
    has = reading.sum_of(uri, frozen.offload_id)
    lake_broker.commit(admin, frozen.offload_id, has.rows, has.checksum, uri)
    tell(f"offload {frozen.offload_id}: {counted(has.rows, 'message')} in the lake")
    count = len(delta.files_of(uri, frozen.offload_id))
    return Offloaded(frozen.offload_id, has.rows, count, frozen.from_ms, uri, already)


def _check_there(admin: AdminClient, uri: str) -> None:
    """Raise DAMAGED if messages wait in a table at `uri`, and no table or another one is there.

    For example, the disk of the table may not be mounted: files written below its mount point would
    be hidden once it is.
    """
    tables, hours = lake_broker.hours(admin, TIME_MAX_MS)
    wait = sorted({hour.offload_id for hour in hours if tables[hour.offload_id] == uri})
    if wait and not delta.has_table(uri):
        raise refused(
            "LAKE",
            f"there is no table at {uri}, where messages of offload {wait[0]} wait; mount or "
            "restore it",
            code=ErrorCode.DAMAGED,
        )
    for offload_id in wait:
        reading.files_there(uri, offload_id)


def table_of(uri: str) -> str:
    """Return the absolute path of a table; BAD_REQUEST if it is not on a disk."""
    return str(Path(local_place(uri, "LAKE")).absolute())


def _written(
    admin: AdminClient, frozen: lake_broker.Frozen, uri: str, spark: SparkSession | None
) -> list[LakeFile]:
    """Write all frozen messages; after damage, write them once more if the broker could repair."""
    try:
        return _written_whole(frozen, uri, spark)
    except HorologError as error:
        if error.code not in (ErrorCode.DAMAGED, ErrorCode.SPARK_FAILED):
            raise
        if not lake_broker.repair(admin, frozen):
            raise
    return _written_whole(frozen, uri, spark)


def _written_whole(
    frozen: lake_broker.Frozen, uri: str, spark: SparkSession | None
) -> list[LakeFile]:
    """Write all frozen messages; DAMAGED if one does not verify or is not found."""
    runs = frozen.opened()
    files = write(frozen, plan(runs, frozen.from_ms), uri, spark)
    wanted = sum(int(run.waits.sum()) for run in runs)
    if (written := sum(file.rows for file in files)) != wanted:
        raise HorologError(
            ErrorCode.DAMAGED,
            f"{wanted - written} of {counted(wanted, 'message')} are not found by the index of "
            "their run, so nothing is offloaded; see `horolog verify`",
            field="path",
        )
    return files


def write(
    frozen: lake_broker.Frozen, units: Sequence[Unit], uri: str, spark: SparkSession | None
) -> list[LakeFile]:
    """Write all units; the files are not yet part of the table."""
    if spark is None or not units:
        runs = frozen.opened()
        made = [_write_one(runs, frozen.offload_id, unit, uri) for unit in units]
        return [file for file in made if file is not None]
    with shared_place(uri, "LAKE") as place:
        files = _written_by_tasks(frozen, units, place, spark)
    check_written(uri, "LAKE", [(file.path, file.bytes) for file in files])
    return files


def _written_by_tasks(
    frozen: lake_broker.Frozen, units: Sequence[Unit], place: SharedPlace, spark: SparkSession
) -> list[LakeFile]:
    offload_id, runs_sent = frozen.offload_id, spark.sparkContext.broadcast(frozen.runs)

    def task(mine: Iterable[Any]) -> Iterable[Any]:
        place.check()
        runs = [FrozenRun(each) for each in runs_sent.value]
        for share in mine:
            for unit in share:
                file = _write_one(runs, offload_id, Unit(*unit), place.path)
                if file is not None:
                    yield tuple(file)

    shares = divide_units(units, _TASKS * spark.sparkContext.defaultParallelism)
    with spark_failures("offload"):
        plain_units = [[tuple(unit) for unit in share] for share in shares]
        rows = spark.sparkContext.parallelize(plain_units, len(shares))
        found: list[Any] = rows.mapPartitions(task).collect()
    return [LakeFile(*row) for row in found]


def divide_units(units: Sequence[Unit], count: int) -> list[list[Unit]]:
    """Divide units, in their order, into at most `count` shares of about as many rows."""
    wanted = -(-sum(unit.rows for unit in units) // count)
    shares: list[list[Unit]] = []
    rows = wanted
    for unit in units:
        if rows >= wanted:
            shares.append([])
            rows = 0
        shares[-1].append(unit)
        rows += unit.rows
    return shares


def _write_one(runs: Sequence[FrozenRun], offload_id: int, unit: Unit, uri: str) -> LakeFile | None:
    return write_unit(runs, unit, uri, partition_of(offload_id, unit.day))


def abort_open(admin: AdminClient, uri: str, app: str = APP) -> int:
    """Abandon what is frozen for this app; return the offload id, 0 if there is none.

    Rows of the offload that are in the table already are removed.
    """
    uri = table_of(uri)
    log_id, done = "", 0
    for fields in admin.get("/v1/offloads")["offloads"]:
        log_id, offload_id = fields["log_id"], int(fields["number"])
        if fields["stage"] == "lake" or fields["app"] != app:
            continue
        given_up.note(uri, log_id, offload_id)
        if admin.post("/v1/offloads/abort", {"number": offload_id})["aborted"]:
            done = offload_id
    if log_id:
        _forget_given_up(admin, uri, log_id)
    return done


def _forget_given_up(admin: AdminClient, uri: str, log_id: str) -> None:
    """Remove rows of abandoned offloads from the table.

    An offload that the broker knows was not abandoned after all: it continues, or is in the lake.
    """
    noted = given_up.noted(uri, log_id)
    if not noted:
        return
    known = {int(fields["number"]) for fields in admin.get("/v1/offloads")["offloads"]}
    for offload_id in noted:
        if offload_id not in known:
            if not delta.has_table(uri):
                continue
            if delta.files_of(uri, offload_id):
                delta.forget(uri, "9999", offload_id)
            if not delta.is_committed(uri, log_id, offload_id):
                continue  # a job that does not know of the abort may still add it
        given_up.drop(uri, log_id, offload_id)
