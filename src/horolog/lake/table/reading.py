"""Reads rows of the lake's table; only files and row groups that may hold them are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from horolog.delay.row_sum import MASK, row_sum
from horolog.errors import ErrorCode, first_line, refused
from horolog.lake.core.recalled_set import LAKE_ROW
from horolog.lake.table.delta import files_of, local_path
from horolog.lake.table.schema import SCHEMA, day_of
from horolog.limits import HOUR_MS

# Verifies files with page check sums; older files have none, and are read without a check.
_FORMAT = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)
_ORIGIN = ("origin_position", "origin_row")
_SUMMED = ("key_hash", "due_ms", *_ORIGIN)
_PLACE = ("message_id", "due_ms", *_ORIGIN)
_TAKEN_BACK = tuple(name for name in SCHEMA.names if name != "body")


class LakeSum(NamedTuple):
    """Count and checksum of an offload's rows in the table."""

    rows: int
    checksum: int


class LakePlace(NamedTuple):
    """A message of an offload; `origin` is (log position, row)."""

    message_id: str
    due_ms: int
    origin: tuple[int, int]


def files_there(uri: str, offload_id: int, *days: str) -> list[str]:
    """Return the files of an offload with waiting messages; DAMAGED if the table has none.

    Then it is another table: for instance one that a job has made where the table's disk was not
    mounted.
    """
    found = files_of(uri, offload_id, *days)
    if not found:
        raise refused(
            "lake",
            f"{uri} has no file of offload {offload_id}, of which messages wait; mount or restore "
            "the table",
            code=ErrorCode.DAMAGED,
        )
    return found


def sum_of(uri: str, offload_id: int) -> LakeSum:
    """Compute count and checksum of an offload from its files in the table."""
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
    """Yield the rows of an offload's hour (and topic), file by file, each in hand-over order.

    Without the column `body`: `record` has the body too, as its producer packed it.
    """
    low, high = hour * HOUR_MS, (hour + 1) * HOUR_MS
    chosen = (ds.field("due_ms") >= low) & (ds.field("due_ms") < high)
    if topic is not None:
        chosen &= ds.field("topic_number") == topic
    for path in files_of(uri, offload_id, day_of(low)):
        yield from (pa.Table.from_batches([batch]) for batch in _scan([path], _TAKEN_BACK, chosen))


def find_rows(
    uri: str, offload_id: int, topic: int, message_id: str, key: int, due_ms: int
) -> list[tuple[int, int]]:
    """Find the origins (position, row) of a message.

    Takes some 10 ms, because only row groups with that due time are read.
    """
    chosen = (ds.field("due_ms") == due_ms) & _is_message(topic, message_id, key)
    found: list[tuple[int, int]] = []
    for batch in _scan(files_there(uri, offload_id, day_of(due_ms)), _ORIGIN, chosen):
        found += zip(*(batch[name].to_pylist() for name in _ORIGIN), strict=True)
    return found


def rows_between(
    uri: str, offload_id: int, topic: int, from_ms: int, to_ms: int, hours: Sequence[int], tag: str
) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.int64]]]:
    """Yield (LAKE_ROW rows, bytes of each record) of a topic due in [from_ms, to_ms), in pieces.

    hours  hours with waiting messages; the files of other days are not read
    tag    only messages with this tag; "": all
    """
    chosen = (ds.field("due_ms") >= from_ms) & (ds.field("due_ms") < to_ms)
    chosen &= ds.field("topic_number") == topic
    if tag:
        chosen &= ds.field("tag") == tag
    days = sorted({day_of(hour * HOUR_MS) for hour in hours})
    for batch in _scan(files_there(uri, offload_id, *days), ["due_ms", *_ORIGIN, "record"], chosen):
        rows = np.empty(len(batch), LAKE_ROW)
        rows["number"], rows["topic"] = offload_id, topic
        for name, column in (("due_ms", "due_ms"), ("position", _ORIGIN[0]), ("row", _ORIGIN[1])):
            rows[name] = batch[column].to_numpy()
        yield rows, pc.binary_length(batch["record"]).to_numpy().astype(np.int64)


def find_key(uri: str, offload_id: int, topic: int, key: str, from_ms: int) -> list[LakePlace]:
    """Find messages with a key, due from `from_ms` on; reads the keys of all of them."""
    chosen = (ds.field("topic_number") == topic) & (ds.field("due_ms") >= from_ms)
    found = []
    for batch in _scan(files_there(uri, offload_id), ["keys", *_PLACE], chosen):
        keys = batch["keys"]
        same = pc.equal(keys.flatten(), key).to_numpy(zero_copy_only=False)
        rows = np.unique(keys.value_parent_indices().to_numpy()[same])
        found += _places(batch.take(pa.array(rows)))
    return found


def find_id(
    uri: str, offload_id: int, topic: int, message_id: str, key: int, from_ms: int
) -> list[LakePlace]:
    """Find messages with an id (`key`: its hash), due from `from_ms` on; reads all hashes."""
    chosen = (ds.field("due_ms") >= from_ms) & _is_message(topic, message_id, key)
    batches = _scan(files_there(uri, offload_id), _PLACE, chosen)
    return [place for batch in batches for place in _places(batch)]


def records_of(uri: str, offload_id: int, places: Sequence[LakePlace]) -> list[bytes]:
    """Read the records of messages, in the order of `places`; NOT_FOUND if one is missing."""
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
        raise refused(
            "lake",
            f"offload {offload_id} of {uri} has no longer message {lost[0].message_id}",
            code=ErrorCode.NOT_FOUND,
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
    for path in paths:
        yield from _scan_file(local_path(path), columns, chosen)


def _scan_file(path: str, columns: Sequence[str] | None, chosen: Any) -> Iterator[pa.RecordBatch]:
    """Yield the batches of one file; DAMAGED, naming it, if it or a page of it cannot be read."""
    try:
        found = ds.dataset([path], format=_FORMAT)
        if unknown := set(found.schema.names) - set(SCHEMA.names):
            raise pa.ArrowInvalid(f"it has a column {min(unknown)!r}")  # a damaged column name
        found = found.replace_schema(SCHEMA)
        wanted = columns and list(columns)
        for batch in found.to_batches(columns=wanted, filter=chosen, batch_size=16_384):
            if len(batch):
                yield batch
    except (pa.ArrowException, OSError, ValueError) as error:
        why = (
            f"{path} cannot be read ({first_line(error)}); restore the file, then run the job again"
        )
        raise refused("lake", why, code=ErrorCode.DAMAGED) from error
