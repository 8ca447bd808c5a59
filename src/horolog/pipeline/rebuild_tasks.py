"""What the tasks of a rebuild write: segments, consume queues, hours and runs.

A task writes under a name of its own and renames the finished file, so a task that is tried again,
or run twice at once, changes nothing.  Records are read from the mapped log; Spark moves only their
log positions.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from horolog.delay.entry import ENTRY, record_crcs
from horolog.delay.entry_files import Filing
from horolog.delay.near.filing import file_in_hours
from horolog.delay.near.hour import Hour
from horolog.delay.run.writer import RunWriter
from horolog.delay.state import encode_state, state_name
from horolog.errors import ErrorCode, HorologError
from horolog.limits import QUEUE_FILE_UNITS
from horolog.log.queue_names import queue_dir_name, queue_file_name
from horolog.log.queue_unit import UnitsPlace, seal, units_of
from horolog.log.record import HEAD
from horolog.log.segment import segment_name
from horolog.log.unaligned import get
from horolog.pipeline.data_files import FIELD, LogPlan, files_of, plan_of
from horolog.pipeline.log_walk import mapped
from horolog.storage.disk import Disk
from horolog.storage.meta import SHARD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULT = "result string"
_COPY_BYTES = 8 << 20
_FILE_ROWS = 16_384
Batches = Iterator[Any]
Task = Callable[[Batches], Batches]


class Target(NamedTuple):
    """Where a rebuild reads and writes."""

    plan: str  # text of `plan_text`
    out: str

    @property
    def storage(self) -> Disk:
        """Disk of the directory that is written."""
        return Disk(Path(self.out))


def result_rows(rows: list[dict[str, Any]]) -> Any:
    """Build a batch of RESULT: one row of JSON for each dict."""
    texts = [orjson.dumps(row).decode() for row in rows]
    return pa.RecordBatch.from_pydict({"result": pa.array(texts, pa.string())})


def columns_of(batch: Any, *names: str) -> list[npt.NDArray[np.int64]]:
    """Return the named columns of an Arrow batch as int64."""
    return [batch.column(name).cast(pa.int64()).to_numpy(zero_copy_only=False) for name in names]


# --- the log ------------------------------------------------------------------------------------


def copy_segments(spark: SparkSession, plan: LogPlan, target: Target) -> None:
    """Copy every segment up to the end of the log; the last one keeps its full length."""
    rows = spark.createDataFrame(
        [(s.base, s.stop) for s in plan.segments] or [(0, 0)], "b long, s long"
    )
    rows.repartition(max(1, len(plan.segments))).mapInArrow(_copier(target), RESULT).collect()


def _copier(target: Target) -> Task:
    def copy(batches: Batches) -> Batches:
        plan = plan_of(target.plan)
        for batch in batches:
            for base, stop in zip(
                *(column.tolist() for column in columns_of(batch, "b", "s")), strict=True
            ):
                if stop > base:
                    _copy_segment(plan, target, base, stop - base)
            yield result_rows([])

    return copy


def _copy_segment(plan: LogPlan, target: Target, base: int, length: int) -> None:
    name = f"{SHARD}/log/{segment_name(base)}"
    copy_file(files_of(plan.root).path(name), target, name, length, allocate=plan.segment_bytes)


def copy_file(source: Path, target: Target, name: str, length: int, *, allocate: int = 0) -> None:
    """Copy the first `length` bytes of a file to a name in the target directory.

    allocate  the copy is extended with zeros to this many bytes
    """
    temporary, storage = f"{name}.{uuid.uuid4().hex}", target.storage
    file = storage.open(temporary, create=True)
    with source.open("rb") as content:
        at = 0
        while at < length:
            chunk = content.read(min(_COPY_BYTES, length - at))
            if not chunk:
                raise HorologError(
                    ErrorCode.DAMAGED, f"{source} was cut short while it was copied", field=FIELD
                )
            file.write(at, chunk)
            at += len(chunk)
    file.allocate(allocate)
    file.sync()
    file.close()
    storage.rename(temporary, name)


def write_file(storage: Disk, name: str, content: bytes) -> None:
    """Write a whole file in the target directory."""
    temporary = f"{name}.{uuid.uuid4().hex}"
    file = storage.open(temporary, create=True)
    file.write(0, content)
    file.sync()
    file.close()
    storage.rename(temporary, name)


# --- groups of sorted batches -------------------------------------------------------------------


def groups_of(
    batches: Batches, by: list[str], rest: list[str]
) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield (values of `by`, columns `rest`) of sorted batches; a group may come in pieces."""
    for batch in batches:
        keys = columns_of(batch, *by)
        columns = columns_of(batch, *rest)
        if not len(keys[0]):
            continue
        changes = np.zeros(len(keys[0]) - 1, bool)
        for key in keys:
            changes |= key[1:] != key[:-1]
        cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(keys[0])]
        for first, stop in pairwise(cuts):
            group = tuple(int(key[first]) for key in keys)
            yield group, [column[first:stop] for column in columns]


def heads_at(plan: LogPlan, positions: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return HEAD rows of the message records at the log positions."""
    found = np.zeros(len(positions), HEAD)
    bases = positions - positions % plan.segment_bytes
    for base in np.unique(bases).tolist():
        raw = mapped(plan.root, base)
        assert raw is not None, "a segment was removed while it was read"
        mine = np.flatnonzero(bases == base)
        found[mine] = get(raw, positions[mine] - base, HEAD)
    return found


def records_at(
    plan: LogPlan, positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> list[memoryview]:
    """Return the records at the log positions."""
    views: dict[int, memoryview] = {}
    found = []
    for position, size in zip(positions.tolist(), sizes.tolist(), strict=True):
        base = position - position % plan.segment_bytes
        if base not in views:
            raw = mapped(plan.root, base)
            assert raw is not None, "a segment was removed while it was read"
            views[base] = raw.data
        found.append(views[base][position - base : position - base + size])
    return found


# --- consume queues -----------------------------------------------------------------------------


def write_queues(target: Target) -> Task:
    """Build the task that writes rows of (topic, queue, file), by queue offset, to that file."""

    def write(batches: Batches) -> Batches:
        plan, storage = plan_of(target.plan), target.storage
        parts: dict[tuple[int, ...], list[Any]] = {}
        written = []
        by = ["topic", "queue", "file"]
        for group, columns in groups_of(batches, by, ["queue_offset", "position"]):
            if group not in parts and parts:
                written.append(_write_queue(plan, storage, *parts.popitem()))
            parts.setdefault(group, []).append(columns)
        if parts:
            written.append(_write_queue(plan, storage, *parts.popitem()))
        yield result_rows(written)

    return write


def _write_queue(
    plan: LogPlan, storage: Disk, group: tuple[int, ...], pieces: list[Any]
) -> dict[str, Any]:
    topic, queue, number = group
    offset, position = (np.concatenate(column) for column in zip(*pieces, strict=True))
    first = number * QUEUE_FILE_UNITS
    whole = bool((offset == first + np.arange(len(offset))).all())
    units = units_of(heads_at(plan, position), position)
    sealed = seal(units, UnitsPlace(topic, queue, first))
    place = f"{SHARD}/queues/{queue_dir_name(topic, queue)}"
    storage.make_dir(place)
    write_file(storage, f"{place}/{queue_file_name(first)}", sealed)
    storage.sync_dir(place)
    return {"topic": topic, "queue": queue, "first": first, "count": len(offset) if whole else -1}


# --- hours --------------------------------------------------------------------------------------


def write_hours(target: Target) -> Task:
    """Build the task that writes an hour's rows, in log order; it returns registry rows."""

    def write(batches: Batches) -> Batches:
        plan, storage = plan_of(target.plan), target.storage
        number, hour, place = -1, None, ""
        written = []
        for (due_hour,), (position, size) in groups_of(batches, ["hour"], ["position", "size"]):
            if due_hour != number:
                if hour is not None:
                    written.append(_finish_hour(storage, hour, place))
                number = due_hour
                place = f"{SHARD}/hours/{number:010d}.{uuid.uuid4().hex}"
                hour = Hour(storage, place, number)
            assert hour is not None
            for first in range(0, len(position), _FILE_ROWS):
                rows = slice(first, first + _FILE_ROWS)
                filing = _filing(plan, position[rows], size[rows])
                for _ in file_in_hours([hour], [0, len(filing.size)], filing):
                    pass
        if hour is not None:
            written.append(_finish_hour(storage, hour, place))
        yield result_rows(written)

    return write


def _filing(plan: LogPlan, position: npt.NDArray[np.int64], size: npt.NDArray[np.int64]) -> Filing:
    heads = heads_at(plan, position)
    records = records_at(plan, position, size)
    origin = position.astype(np.uint64)
    return Filing(
        heads["due_ms"],
        origin,
        size,
        heads["key"],
        heads["topic"],
        heads["tags"],
        record_crcs(records, origin),
        b"".join(records),
    )


def _finish_hour(storage: Disk, hour: Hour, place: str) -> dict[str, Any]:
    _, state = hour.capture()
    file = storage.open(f"{place}/{state_name(hour.version)}", create=True)
    file.write(0, encode_state(state))
    file.sync()
    file.close()
    for path in hour.sync_paths():
        file = storage.open(path)
        file.sync()
        file.close()
    hour.close()
    storage.sync_dir(place)
    final = f"{SHARD}/hours/{hour.hour:010d}"
    if storage.exists(final):
        storage.remove_dir(place)  # another attempt of this task was first
    else:
        storage.rename(place, final)
    return {
        "hour": hour.hour,
        "version": hour.version,
        "count": hour.count,
        "log_bytes": hour.log_bytes,
        "waiting": hour.waiting,
    }


# --- runs ---------------------------------------------------------------------------------------


def write_runs(target: Target) -> Task:
    """Build the task that writes a run, by (due time, log position); it returns registry rows."""

    def write(batches: Batches) -> Batches:
        from pyspark import TaskContext

        plan, storage = plan_of(target.plan), target.storage
        pieces = [columns_of(batch, "position", "size") for batch in batches]
        if not sum(len(piece[0]) for piece in pieces):
            yield result_rows([])
            return
        position, size = (np.concatenate(column) for column in zip(*pieces, strict=True))
        context = TaskContext.get()
        assert context is not None
        name = f"{context.partitionId() + 1:010d}"
        yield result_rows([_write_run(plan, storage, name, position, size)])

    return write


def _write_run(
    plan: LogPlan,
    storage: Disk,
    name: str,
    position: npt.NDArray[np.int64],
    size: npt.NDArray[np.int64],
) -> dict[str, Any]:
    place, temporary = f"{SHARD}/runs", f"{name}.{uuid.uuid4().hex}"
    writer = RunWriter(storage, place, temporary, log_id=plan.log_id, rows=len(position))
    for first in range(0, len(position), _FILE_ROWS):
        rows = slice(first, first + _FILE_ROWS)
        heads = heads_at(plan, position[rows])
        records = records_at(plan, position[rows], size[rows])
        entries = np.zeros(len(heads), ENTRY)
        entries["size"], entries["local"] = size[rows], heads["tags"].view(np.uint32)
        entries["due_ms"], entries["key"] = heads["due_ms"], heads["key"]
        entries["topic"], entries["origin"] = heads["topic"], position[rows]
        entries["crc"] = record_crcs(records, entries["origin"])
        writer.add(entries, records)
    info = writer.finish()
    storage.rename(f"{place}/{temporary}.run", f"{place}/{name}.run")
    return {
        "name": name,
        "level": 1,
        "rows": info.rows,
        "cursor": 0,
        "limit": info.rows,
        "limit_ms": info.last_ms + 1,
        "waiting": info.rows,
        "version": 0,
        "first_ms": info.first_ms,
        "last_ms": info.last_ms,
    }
