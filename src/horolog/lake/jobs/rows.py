"""Writes the rows of frozen runs as Parquet files of the lake's table, planned in units.

A unit is some hours of one day, and one file.  Its writer merges the rows that the runs have of
these hours, by (due time, origin), and keeps only their index in memory (64 bytes a message);
bodies are copied a row group at a time.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from horolog.delay.entry import tags_of
from horolog.delay.row_sum import MASK, row_sum
from horolog.lake.frozen_run import FrozenRun
from horolog.lake.table.schema import SCHEMA, LakeFile, day_of
from horolog.limits import HOUR_MS, MIB
from horolog.spark.message_decode import Records
from horolog.storage.disk import make_directory, sync_directory

GROUP_ROWS = 50_000  # most rows of a row group, the least that a promotion reads
GROUP_BYTES = 64 * MIB  # most bytes of records in a row group
BODIES_BYTES = 256 * MIB  # most bytes of unpacked bodies in one: kilobytes may become megabytes
UNIT_ROWS = 400_000  # rows planned for a file; one hour is never split


class Unit(NamedTuple):
    """Hours [first_hour, stop_hour) of one UTC day, and their approximate count of rows."""

    day: str
    first_hour: int
    stop_hour: int
    rows: int


def plan(runs: Sequence[FrozenRun], from_ms: int, unit_rows: int = UNIT_ROWS) -> list[Unit]:
    """Plan the units that together cover all messages due at or after `from_ms` (a whole hour)."""
    counts: dict[int, int] = {}
    for frozen in runs:
        directory = frozen.run.directory
        rows = directory[directory["hour"] >= from_ms // HOUR_MS]
        for hour, n in zip(rows["hour"].tolist(), rows["count"].tolist(), strict=True):
            counts[hour] = counts.get(hour, 0) + n
    units: list[Unit] = []
    for hour, n in sorted(counts.items()):
        day = day_of(hour * HOUR_MS)
        last = units[-1] if units else None
        if last is not None and last.day == day and last.rows + n <= unit_rows:
            units[-1] = Unit(day, last.first_hour, hour + 1, last.rows + n)
        else:
            units.append(Unit(day, hour, hour + 1, n))
    return units


def write_unit(
    runs: Sequence[FrozenRun], unit: Unit, place: str, partition: str
) -> LakeFile | None:
    """Write the rows of a unit as one Parquet file under `place`/`partition`; None if it has none.

    Each attempt uses a file name of its own, so that a task that runs twice does no harm; only
    files named in the table's log count.
    """
    index = _index(runs, unit)
    if not len(index.run):
        return None
    directory = Path(place, partition)
    make_directory(directory)
    name = f"part-{unit.first_hour:08d}-{uuid.uuid4().hex}.parquet"
    path = directory / name
    total = 0
    temporary = path.with_suffix(".tmp")
    # Readers verify each page: the broker's copy is gone, and a run gets fresh check sums.
    with pq.ParquetWriter(
        temporary, SCHEMA, compression="zstd", write_page_checksum=True
    ) as writer:
        for batches, checksum in _groups(runs, index):
            for batch in batches:
                writer.write_batch(batch, row_group_size=GROUP_ROWS)
            total = (total + checksum) & MASK
    _sync_and_rename(temporary, path)
    dues = index.due_ms
    size = path.stat().st_size
    where = f"{partition}/{name}"
    return LakeFile(where, unit.day, len(dues), size, int(dues[0]), int(dues[-1]), total)


class _Index(NamedTuple):
    """The rows of a unit in hand-over order: the run of each, its row there, due time and size."""

    run: npt.NDArray[Any]
    row: npt.NDArray[np.int64]
    due_ms: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]


def _index(runs: Sequence[FrozenRun], unit: Unit) -> _Index:
    run_indexes, rows, dues, positions, origin_rows, sizes = [], [], [], [], [], []
    for run_index, frozen in enumerate(runs):
        mine = frozen.rows_between(unit.first_hour * HOUR_MS, unit.stop_hour * HOUR_MS)
        entries = frozen.entries(mine)
        position, row = frozen.origins(entries)
        run_indexes.append(np.full(len(mine), run_index, np.int32))
        rows.append(mine)
        dues.append(entries["due_ms"])
        positions.append(position)
        origin_rows.append(row)
        sizes.append(entries["size"].astype(np.int64))
    due_ms = np.concatenate(dues)
    order = np.lexsort((np.concatenate(origin_rows), np.concatenate(positions), due_ms))
    columns = np.concatenate(run_indexes), np.concatenate(rows), np.concatenate(sizes)
    return _Index(columns[0][order], columns[1][order], due_ms[order], columns[2][order])


def _groups(
    runs: Sequence[FrozenRun], index: _Index
) -> Iterator[tuple[Iterator[pa.RecordBatch], int]]:
    ends = np.cumsum(index.size)
    first = 0
    while first < len(ends):
        before = int(ends[first] - index.size[first])
        stop = int(np.searchsorted(ends, before + GROUP_BYTES, side="right"))
        stop = min(max(stop, first + 1), first + GROUP_ROWS)
        yield _group(runs, index.run[first:stop], index.row[first:stop])
        first = stop


def _group(
    runs: Sequence[FrozenRun], run_indexes: npt.NDArray[np.int32], rows: npt.NDArray[np.int64]
) -> tuple[Iterator[pa.RecordBatch], int]:
    """Build one row group, or several if the unpacked bodies are large; return the checksum too."""
    records: list[memoryview] = [memoryview(b"")] * len(rows)
    fixed = {name: np.empty(len(rows), dtype) for name, dtype in _FIXED.items()}
    for run_index in np.unique(run_indexes).tolist():
        at = np.flatnonzero(run_indexes == run_index)
        entries = runs[run_index].entries(rows[at])
        position, row = runs[run_index].origins(entries)
        for name in ("due_ms", "key", "topic"):
            fixed[name][at] = entries[name]
        fixed["tags"][at] = tags_of(entries)
        fixed["position"][at], fixed["row"][at] = position, row
        for place, record in zip(
            at.tolist(), runs[run_index].records(entries, rows[at]), strict=True
        ):
            records[place] = record
    checksum = row_sum(fixed["key"], fixed["due_ms"], fixed["position"], fixed["row"])
    return _batches(records, fixed), checksum


_FIXED = {
    "due_ms": np.int64,
    "key": np.uint64,
    "topic": np.uint32,
    "tags": np.int32,
    "position": np.uint64,
    "row": np.uint32,
}


def _batches(
    records: Sequence[memoryview], fixed: dict[str, npt.NDArray[Any]]
) -> Iterator[pa.RecordBatch]:
    content = b"".join(records)
    sizes = np.array([len(record) for record in records], np.int64)
    ends = np.cumsum(sizes)
    read = Records(np.frombuffer(content, np.uint8), ends - sizes, sizes)
    found = read.columns(["message_id", "tag", "keys"])
    offsets = np.append(0, ends).astype(np.int32)
    whole = pa.Array.from_buffers(
        pa.binary(), len(records), [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    )
    columns = {
        "due_ms": pa.array(fixed["due_ms"]),
        "deliver_at": pa.array(fixed["due_ms"] * 1000).cast(SCHEMA.field("deliver_at").type),
        "topic": read.topics(),
        **found,
        "topic_number": pa.array(fixed["topic"].astype(np.int64)),
        "tags_code": pa.array(fixed["tags"]),
        "key_hash": pa.array(fixed["key"].view(np.int64)),
        "origin_position": pa.array(fixed["position"].astype(np.int64)),
        "origin_row": pa.array(fixed["row"].astype(np.int64)),
        "record": whole,
    }
    first = 0
    for bodies in read.body_pieces(BODIES_BYTES):
        piece = {name: column.slice(first, len(bodies)) for name, column in columns.items()}
        piece["body"] = bodies
        arrays = [piece[field.name].cast(field.type) for field in SCHEMA]
        yield pa.record_batch(arrays, schema=SCHEMA)
        first += len(bodies)


def _sync_and_rename(temporary: Path, path: Path) -> None:
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_directory(path.parent)
