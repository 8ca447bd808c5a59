"""Promotion of hours that come near, from the lake to the broker, exactly once.

For every offload and topic, hours are promoted one after another as adopted runs, each hour as the
transaction (`promote:<offload id>:<topic>`, hour).  The broker takes exactly as many rows as wait
there by its own count, and stops counting them as in the lake with the same record.  So no message
is lost or comes twice, by whatever process and however often hours are promoted.  No Spark is
needed: Parquet is read a row group at a time.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.admin.client import AdminClient
from horolog.delay.entry import ENTRY, record_crcs
from horolog.delay.run.writer import RunWriter
from horolog.delay.tier import Promotion
from horolog.errors import ErrorCode, HorologError
from horolog.lake.jobs import broker as lake_broker
from horolog.lake.table import delta, reading
from horolog.lake.table.schema import day_of
from horolog.limits import HOUR_MS, PROMOTE_AHEAD_MS
from horolog.protocol.tier_commands import TierHour
from horolog.spark import transaction
from horolog.spark.staging_folder import StagingFolder
from horolog.spark.transaction import StagedRun, Transaction
from horolog.storage.disk import Disk
from horolog.units import counted

RUN_ROWS = 262_144
RUN_BYTES = 128 << 20  # most bytes of records in one run
TRIES = 3  # messages may be recalled while their hour is promoted
TIMEOUT_MS = 60_000
Note = Callable[[str], None]


class Promoted(NamedTuple):
    """What one call has promoted."""

    hours: int  # counted for each offload and topic
    rows: int


def promote_due(
    broker: str,
    *,
    ahead_ms: int = PROMOTE_AHEAD_MS,
    timeout_ms: int = TIMEOUT_MS,
    note: Note | None = None,
) -> Promoted:
    """Promote all hours that begin within `ahead_ms`, by the broker's clock.

    Safe to repeat, and to run twice.
    """
    admin = AdminClient(broker)
    to_ms = int(admin.get("/v1/clock")["wall_ms"]) + ahead_ms
    tables, waiting = lake_broker.hours(admin, to_ms)
    done = rows = 0
    for hour in waiting:
        count = promote_hour(broker, tables[hour.offload_id], hour, timeout_ms)
        done, rows = done + 1, rows + count
        if note is not None:
            note(
                f"offload {hour.offload_id}, hour {hour.hour}: {counted(count, 'message')} of "
                f"{hour.topic_name}"
            )
    return Promoted(done, rows)


def forget_past(broker: str, keep_ms: int) -> int:
    """Remove days that ended more than `keep_ms` ago from the tables; return how many files went.

    A day with messages that still wait, because they could not be promoted, stays.
    """
    admin = AdminClient(broker)
    now_ms = int(admin.get("/v1/clock")["wall_ms"])
    tables, waiting = lake_broker.hours(admin, now_ms)
    files = 0
    for uri in set(tables.values()):
        late = [hour.hour * HOUR_MS for hour in waiting if tables[hour.offload_id] == uri]
        if uri and delta.has_table(uri):
            files += delta.forget(uri, day_of(min([now_ms - keep_ms, *late])))
    return files


def promote_hour(broker: str, uri: str, hour: TierHour, timeout_ms: int = TIMEOUT_MS) -> int:
    """Promote one hour of an offload and topic; return its rows, 0 if it was promoted before.

    Errors: DAMAGED if the table does not have the rows that the broker counts there.
    """
    for left in range(TRIES, 0, -1):
        try:
            return _promote(broker, uri, hour, timeout_ms)
        except _Recalled:
            if left == 1:
                raise
            found = _still_waiting(broker, hour)
            if found is None:
                return 0
            hour = found
    raise AssertionError("unreachable")


class _Recalled(HorologError):
    """Error: the table's rows, without the recalled ones, differ from the rows that wait.

    Perhaps messages were recalled meanwhile.
    """


def _still_waiting(broker: str, hour: TierHour) -> TierHour | None:
    _, waiting = lake_broker.hours(AdminClient(broker), (hour.hour + 1) * HOUR_MS)
    same = [each for each in waiting if each[:3] == hour[:3]]
    return same[0] if same else None


def _promote(broker: str, uri: str, hour: TierHour, timeout_ms: int) -> int:
    app = Promotion(hour.offload_id, hour.hour, hour.topic).app
    begun = transaction.begin(broker, app, hour.hour, hour.topic_name, timeout_ms)
    if begun.already:
        return 0
    try:
        is_shared = transaction.is_reachable(begun)
        with StagingFolder(begun, is_shared=is_shared) as folder:
            files = [_staged(begun, folder, part) for part in _parts(broker, uri, hour)]
        rows = sum(file.rows for file in files)
        if rows != hour.waiting:
            raise _Recalled(
                ErrorCode.DAMAGED,
                f"lake: {uri} has {counted(rows, 'message')} of topic {hour.topic_name} for hour "
                f"{hour.hour} of offload {hour.offload_id}; the broker counts {hour.waiting}",
                field="lake",
            )
        return _commit(begun, hour, files)
    except BaseException:
        transaction.abort(begun)
        raise


def _commit(begun: Transaction, hour: TierHour, files: list[StagedRun]) -> int:
    try:
        done = transaction.commit(begun, hour.topic_name, files)
    except HorologError as error:
        if error.field in ("files", "app"):  # recalled, or promoted by another process, meanwhile
            raise _Recalled(error.code, error.message, field=error.field) from error
        raise
    return 0 if done.already else hour.waiting


def _parts(broker: str, uri: str, hour: TierHour) -> Iterator[pa.Table]:
    """Yield the rows to promote, sorted, one run at a time; a run may span files of the table."""
    gone = lake_broker.recalled_origins(AdminClient(broker), hour.offload_id, hour.hour)
    recalled = set(zip(*(gone[name].to_pylist() for name in gone.column_names), strict=True))
    gathered: list[pa.Table] = []
    rows = size = 0
    last = -1
    for table in reading.rows_of_hour(uri, hour.offload_id, hour.hour, hour.topic):
        kept = _without(table, recalled)
        if not len(kept):
            continue
        first = int(kept["due_ms"][0].as_py())
        if gathered and (first < last or rows >= RUN_ROWS or size >= RUN_BYTES):
            yield pa.concat_tables(gathered)
            gathered, rows, size = [], 0, 0
        gathered.append(kept)
        rows, size = rows + len(kept), size + kept["record"].nbytes
        last = int(kept["due_ms"][-1].as_py())
    if gathered:
        yield pa.concat_tables(gathered)


def _without(table: pa.Table, recalled: set[tuple[int, int]]) -> pa.Table:
    if not recalled:
        return table
    origins = zip(
        table["origin_position"].to_pylist(), table["origin_row"].to_pylist(), strict=True
    )
    return table.filter(pa.array([origin not in recalled for origin in origins]))


def _staged(begun: Transaction, folder: StagingFolder, table: pa.Table) -> StagedRun:
    """Stage one run of the rows."""
    name = f"promoted-{uuid.uuid4().hex}"
    log_id = begun.target.log_id
    writer = RunWriter(Disk(folder.path), ".", name, log_id=log_id, rows=len(table), adopted=True)
    try:
        writer.add(*entries_of(table))
        done = writer.finish()
    except BaseException:
        with suppress(HorologError):
            writer.abandon()
        raise
    return folder.staged(done)


def entries_of(table: pa.Table) -> tuple[npt.NDArray[Any], list[memoryview]]:
    """Return ENTRY rows of an adopted run, and their records; the table is sorted."""
    records = [memoryview(record.as_buffer()) for record in table["record"]]
    n = len(table)
    entries = np.zeros(n, ENTRY)
    entries["size"] = [len(record) for record in records]
    entries["local"] = table["tags_code"].to_numpy().view(np.uint32)
    entries["row"] = np.arange(n)
    entries["due_ms"] = table["due_ms"].to_numpy()
    entries["key"] = table["key_hash"].to_numpy().view(np.uint64)
    entries["topic"] = table["topic_number"].to_numpy()
    entries["crc"] = record_crcs(records, entries["origin"], entries["row"])
    return entries, records
