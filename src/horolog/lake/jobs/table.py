"""The lake: a Delta table of messages that wait, kept by `deltalake` alone (no JVM jars).

    <uri>/_delta_log/…                       what belongs to the table
    <uri>/number=7/day=2027-03-28/part-….parquet

`number` is the broker's id of an offload; files of an offload are added in one Delta transaction with the
application id `horolog-offload:<log id>` and the number as its version, so a repeat is refused or known.
A message stays in the table until its partition is removed (`forget`); what a broker still has in the lake, and what
was recalled of it, the broker knows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from horolog.delay.row_sum import MASK, row_sum
from horolog.errors import ErrorCode, HorologError
from horolog.lake.core.gone import GONE
from horolog.lake.jobs.rows import SCHEMA, LakeFile, day_of
from horolog.limits import HOUR_MS
from horolog.places import local_place

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = ["number", "day"]
_TABLE_SCHEMA = pa.schema([*SCHEMA, ("number", pa.int64()), ("day", pa.string())])
_ORIGIN = ("origin_position", "origin_row")
_SUMMED = ("key_hash", "due_ms", *_ORIGIN)
_PLACE = ("message_id", "due_ms", *_ORIGIN)


class LakeSum(NamedTuple):
    """What the table has of one offload."""

    rows: int
    checksum: int


class LakePlace(NamedTuple):
    """A message of an offload; `origin` is (log position, row)."""

    message_id: str
    due_ms: int
    origin: tuple[int, int]


def app_of(log_id: str) -> str:
    """The application id of a log's offloads in the table's transactions."""
    return f"horolog-offload:{log_id}"


def partition_of(offload_id: int, day: str) -> str:
    """Directory of a partition, relative to the table."""
    return f"number={offload_id}/day={day}"


def open_table(uri: str) -> DeltaTable:
    """The table; NOT_FOUND if there is none, EXTRA_MISSING without the package."""
    delta = _delta_table(uri)
    if not delta.is_deltatable(uri):
        raise HorologError(
            ErrorCode.NOT_FOUND, f"lake: there is no Delta table at {uri}", field="lake"
        )
    table: DeltaTable = delta(uri)
    return table


def _delta_table(uri: str) -> Any:
    """The class, to open the table there: deltalake itself would open a bucket, and the files beside it would not be found."""
    local_place(uri, "lake")
    try:
        from deltalake import DeltaTable
    except ImportError:
        raise HorologError(
            ErrorCode.EXTRA_MISSING,
            "lake: needs the package deltalake; install horolog[spark]",
            field="lake",
        ) from None
    return DeltaTable


def has_table(uri: str) -> bool:
    """Whether there is one."""
    return bool(_delta_table(uri).is_deltatable(uri))


def is_committed(uri: str, log_id: str, offload_id: int) -> bool:
    """Whether the table has that offload already."""
    delta = _delta_table(uri)
    if not delta.is_deltatable(uri):
        return False
    version = delta(uri).transaction_version(app_of(log_id))
    return version is not None and version >= offload_id


def commit_files(uri: str, log_id: str, offload_id: int, files: Sequence[LakeFile]) -> bool:
    """Add the files of an offload in one transaction; False if the table has that number already."""
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError
    from deltalake.transaction import AddAction

    delta = _delta_table(uri)
    if is_committed(uri, log_id, offload_id):
        return False
    name = f"horolog log {log_id}"
    delta.create(uri, _TABLE_SCHEMA, mode="ignore", partition_by=PARTITIONS, name=name)
    found = delta(uri).metadata().name
    if found != name:
        raise HorologError(
            ErrorCode.BAD_REQUEST,
            f"lake: {uri} is the table of {found!r}, and this is {name!r}; numbers of offloads would be mixed up",
            field="lake",
        )
    actions = [
        AddAction(
            file.path,
            file.bytes,
            {"number": str(offload_id), "day": file.day},
            Path(uri, file.path).stat().st_mtime_ns // 1_000_000,
            True,
            json.dumps(
                {
                    "numRecords": file.rows,
                    "minValues": {"due_ms": file.first_ms},
                    "maxValues": {"due_ms": file.last_ms},
                    "nullCount": {"due_ms": 0},
                }
            ),
        )
        for file in files
    ]
    once = CommitProperties(app_transactions=[Transaction(app_of(log_id), offload_id)])
    try:
        delta(uri).create_write_transaction(
            actions, "append", _TABLE_SCHEMA, PARTITIONS, commit_properties=once
        )
    except (CommitFailedError, DeltaError):
        if is_committed(uri, log_id, offload_id):
            return False  # somebody else was quicker
        raise
    return True


def files_of(uri: str, offload_id: int, *days: str) -> list[str]:
    """The Parquet files that the table has of an offload, or of some days of it."""
    filters: list[tuple[str, str, Any]] = [("number", "=", str(offload_id))]
    if days:
        filters.append(("day", "in", list(days)))
    found: list[str] = open_table(uri).file_uris(file_pruning_predicate=filters)
    return sorted(found)


def sum_of(uri: str, offload_id: int) -> LakeSum:
    """Count and checksum of an offload as its files in the table have it."""
    rows = checksum = 0
    for batch in _scan(files_of(uri, offload_id), _SUMMED, None):
        columns = [batch[name].to_numpy() for name in _SUMMED]
        key, due, position, row = columns
        checksum += row_sum(key.view(np.uint64), due, position, row)
        rows += len(batch)
    return LakeSum(rows, checksum & MASK)


def rows_of_hour(
    uri: str, offload_id: int, hour: int, topic: int | None = None
) -> Iterator[pa.Table]:
    """What an offload has of one hour (and topic), file by file, each in hand-over order."""
    low, high = hour * HOUR_MS, (hour + 1) * HOUR_MS
    chosen = (ds.field("due_ms") >= low) & (ds.field("due_ms") < high)
    if topic is not None:
        chosen &= ds.field("topic_number") == topic
    for path in files_of(uri, offload_id, day_of(low)):
        yield from (pa.Table.from_batches([batch]) for batch in _scan([path], None, chosen))


def find_rows(
    uri: str, offload_id: int, topic: int, message_id: str, key: int, due_ms: int
) -> list[tuple[int, int]]:
    """Origins (position, row) of a message; some 10 ms, for only row groups of that time are read."""
    chosen = (ds.field("due_ms") == due_ms) & _is_message(topic, message_id, key)
    found: list[tuple[int, int]] = []
    for batch in _scan(files_of(uri, offload_id, day_of(due_ms)), _ORIGIN, chosen):
        found += zip(*(batch[name].to_pylist() for name in _ORIGIN), strict=True)
    return found


def rows_between(
    uri: str, offload_id: int, topic: int, from_ms: int, to_ms: int, hours: Sequence[int], tag: str
) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.int64]]]:
    """What an offload has of a topic in [from_ms, to_ms), with that tag unless it is "": (GONE rows, bytes of each).

    hours  that are of interest; other days are not read
    """
    chosen = (ds.field("due_ms") >= from_ms) & (ds.field("due_ms") < to_ms)
    chosen &= ds.field("topic_number") == topic
    if tag:
        chosen &= ds.field("tag") == tag
    days = sorted({day_of(hour * HOUR_MS) for hour in hours})
    for batch in _scan(files_of(uri, offload_id, *days), ["due_ms", *_ORIGIN, "record"], chosen):
        rows = np.empty(len(batch), GONE)
        rows["number"], rows["topic"] = offload_id, topic
        for name, column in (("due_ms", "due_ms"), ("position", _ORIGIN[0]), ("row", _ORIGIN[1])):
            rows[name] = batch[column].to_numpy()
        yield rows, pc.binary_length(batch["record"]).to_numpy().astype(np.int64)


def find_key(uri: str, offload_id: int, topic: int, key: str, from_ms: int) -> list[LakePlace]:
    """Messages with this key, due from then on; reads the keys of all of them."""
    chosen = (ds.field("topic_number") == topic) & (ds.field("due_ms") >= from_ms)
    found = []
    for batch in _scan(files_of(uri, offload_id), ["keys", *_PLACE], chosen):
        keys = batch["keys"]
        same = pc.equal(keys.flatten(), key).to_numpy(zero_copy_only=False)
        rows = np.unique(keys.value_parent_indices().to_numpy()[same])
        found += _places(batch.take(pa.array(rows)))
    return found


def find_id(
    uri: str, offload_id: int, topic: int, message_id: str, key: int, from_ms: int
) -> list[LakePlace]:
    """Messages with this id (and its hash), due from then on; reads the hashes of all of them."""
    chosen = (ds.field("due_ms") >= from_ms) & _is_message(topic, message_id, key)
    batches = _scan(files_of(uri, offload_id), _PLACE, chosen)
    return [place for batch in batches for place in _places(batch)]


def records_of(uri: str, offload_id: int, places: Sequence[LakePlace]) -> list[bytes]:
    """The record of each, in their order; NOT_FOUND if the table has lost one."""
    found: dict[tuple[int, int], bytes] = {}
    of_day: dict[str, list[LakePlace]] = {}
    for place in places:
        of_day.setdefault(day_of(place.due_ms), []).append(place)
    for day, wanted in of_day.items():
        chosen = ds.field("due_ms").isin([place.due_ms for place in wanted])
        for at, name in enumerate(_ORIGIN):
            chosen &= ds.field(name).isin([place.origin[at] for place in wanted])
        for batch in _scan(files_of(uri, offload_id, day), [*_ORIGIN, "record"], chosen):
            columns = [batch[name].to_pylist() for name in (*_ORIGIN, "record")]
            found |= {(at, row): record for at, row, record in zip(*columns, strict=True)}
    lost = [place for place in places if place.origin not in found]
    if lost:
        raise HorologError(
            ErrorCode.NOT_FOUND,
            f"lake: offload {offload_id} of {uri} has no longer message {lost[0].message_id}",
            field="lake",
        )
    return [found[place.origin] for place in places]


def _places(batch: pa.RecordBatch) -> list[LakePlace]:
    columns = [batch[name].to_pylist() for name in _PLACE]
    return [LakePlace(name, due, (at, row)) for name, due, at, row in zip(*columns, strict=True)]


def _is_message(topic: int, message_id: str, key: int) -> Any:
    signed = key - (1 << 64) if key >= 1 << 63 else key
    named = (ds.field("key_hash") == signed) & (ds.field("message_id") == message_id)
    return named & (ds.field("topic_number") == topic)


def _scan(
    paths: Sequence[str], columns: Sequence[str] | None, chosen: Any
) -> Iterator[pa.RecordBatch]:
    if not paths:
        return
    found = ds.dataset([_local(path) for path in paths], schema=SCHEMA, format="parquet")
    for batch in found.to_batches(
        columns=columns and list(columns), filter=chosen, batch_size=16_384
    ):
        if len(batch):
            yield batch


def _local(path: str) -> str:
    return path.removeprefix("file://")


def pending_view(
    spark: SparkSession, uri: str, *, now_ms: int | None = None, gone: pa.Table | None = None
) -> DataFrame:
    """Pending messages as a DataFrame, before they are due; register it as a view to ask in SQL.

    now_ms  leave out what is due before
    gone    (origin_position, origin_row) of what was recalled since (`lake.jobs.broker.gone_rows`)
    """
    from pyspark.sql import functions as f

    paths = [_local(path) for path in open_table(uri).file_uris()]
    columns = [name for name in SCHEMA.names if name != "record"]
    if not paths:
        return spark.createDataFrame(SCHEMA.empty_table().select(columns))
    found = spark.read.option("basePath", str(Path(uri).absolute())).parquet(*paths)
    found = found.select("number", "day", *columns)
    if now_ms is not None:
        found = found.where(f.col("due_ms") >= now_ms)
    if gone is not None and len(gone):
        recalled = spark.createDataFrame(gone)
        found = found.join(recalled, ["origin_position", "origin_row"], "left_anti")
    return found


def forget(uri: str, before_day: str, offload_id: int | None = None) -> int:
    """Remove partitions whose day lies before, of one offload or of all; gives how many files went."""
    table = open_table(uri)
    of_one = "" if offload_id is None else f"number = {offload_id} AND "
    gone = table.delete(f"{of_one}day < '{before_day}'")
    return int(gone.get("num_removed_files", 0))
