"""A topic from the files of a data directory: segments of the log, mapped, and consume queues.

What is visible is decided by the log: the newest intact checkpoint says how long each queue was at its position,
and the frames behind it, up to the broker's commit position, what has come since.  The consume queue files say
where the messages below that lie.  Nothing is written, and nothing is locked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from horolog.broker.columns import queue_ids, queue_offsets
from horolog.broker.retention import firsts_of, start_of
from horolog.errors import ErrorCode, HorologError
from horolog.limits import MIB, QUEUE_FILE_UNITS
from horolog.log.checkpoint import Checkpoint, newest_checkpoint
from horolog.log.consume_queue import UNIT, UNIT_BYTES, queue_dir_name, queue_file_name
from horolog.log.record import ENVELOPE_BYTES, Kind, heads_of, kinds_of, offsets_of
from horolog.log.scan import Identity, LogScan
from horolog.log.segment import SegmentReader, bases_on_disk, segment_name
from horolog.spark.message_decode import Records
from horolog.spark.topic_answers import Bounds
from horolog.storage.disk import Disk
from horolog.storage.meta import FORMAT, SHARD, Meta, parse_meta

_CHUNK_ROWS = 16_384
_CHUNK_BYTES = 16 * MIB
_VISIBLE = (Kind.MESSAGE, Kind.HANDED)


class Tail(NamedTuple):
    """Messages of a queue behind the checkpoint: log position and size of each, from an offset on."""

    first: int
    positions: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


def read_meta(path: str) -> Meta:
    """DIRECTORY_FOREIGN that names the option unless `path` is a data directory."""
    try:
        meta = parse_meta((Path(path) / "meta").read_bytes())
        if meta.format != FORMAT:
            raise ValueError(f"format {meta.format}; this horolog reads format {FORMAT}")
        return meta
    except (OSError, ValueError) as error:
        raise HorologError(
            ErrorCode.DIRECTORY_FOREIGN,
            f"option 'path': {path} is not a horolog data directory ({error})",
            field="path",
        ) from None


class TopicFiles:
    """One topic of a data directory, as it is when this is made.

    commit  log position up to which messages are visible; None: as far as the log is whole (a broker that is
            stopped, or a copy of its directory)
    """

    def __init__(self, path: str, topic: str, commit: int | None) -> None:
        self._path = path
        self._topic = topic
        self._meta = read_meta(path)
        self._disk = Disk(Path(path), read_only=True)
        self._number = -1
        self._queues = 0
        self._bounds: dict[int, Bounds] = {}
        self._tails: dict[int, list[tuple[Any, Any, Any]]] = {}
        self._joined: dict[int, Tail] = {}
        found = newest_checkpoint(self._disk, f"{SHARD}/checkpoint", self._meta.log_id)
        self._scan_from(found, commit)
        if self._number < 0:
            raise HorologError(
                ErrorCode.TOPIC_NOT_FOUND, f"topic {topic!r} does not exist", field="topic"
            )

    def _scan_from(self, checkpoint: Checkpoint | None, commit: int | None) -> None:
        bases = bases_on_disk(self._disk, f"{SHARD}/log")
        if checkpoint is not None:
            for row in checkpoint.registry["topics"]:
                self._meet(row)
            firsts = firsts_of(checkpoint)
            for topic, queue, length in checkpoint.columns["queues"].tolist():
                if topic == self._number:
                    self._bounds[queue] = Bounds(firsts.get((topic, queue), 0), length)
        start = checkpoint.position if checkpoint is not None else (start_of(checkpoint) or 0)
        if not bases or (checkpoint is None and bases[0] != 0):
            raise HorologError(
                ErrorCode.DAMAGED, f"{self._path}: the log is not there", field="path"
            )
        limit = bases[-1] + self._meta.segment_bytes if commit is None else commit
        reader = SegmentReader(self._disk, f"{SHARD}/log", self._meta.segment_bytes)
        scan = LogScan(
            reader,
            Identity(self._meta.log_id, 0),
            start=start,
            limit=limit,
            epoch=checkpoint.epoch if checkpoint is not None else 0,
            durable=0,
            judge=False,
        )
        try:
            for header, body in scan.frames():
                if header.count and header.end <= limit:
                    self._take(header.end - header.length, body, header.count)
        finally:
            reader.close()
        if commit is not None and scan.end < commit:
            raise HorologError(
                ErrorCode.DAMAGED,
                f"{self._path}: the log is whole only up to {scan.end}, but committed to {commit}; "
                "is it the directory of this broker?",
                field="path",
            )

    def _meet(self, row: dict[str, Any]) -> None:
        if row["name"] == self._topic:
            self._number, self._queues = row["number"], row["queues"]
            for queue in range(self._queues):
                self._bounds.setdefault(queue, Bounds(0, 0))

    def _take(self, at: int, body: bytes, count: int) -> None:
        """What a frame makes visible of this topic."""
        offsets = offsets_of(body, count)
        kinds = kinds_of(body, offsets)
        for place in np.flatnonzero(kinds == Kind.TOPIC).tolist():
            start = int(offsets[place])
            size = int.from_bytes(body[start : start + 4], "little")
            self._meet(orjson.loads(body[start + ENVELOPE_BYTES : start + size]))
        rows = offsets[np.isin(kinds, _VISIBLE)]
        if not len(rows):
            return
        heads = heads_of(body, rows)
        ours = heads["topic"] == self._number
        if not ours.any():
            return
        raw = np.frombuffer(body, np.uint8)
        rows, sizes = rows[ours], heads["size"][ours].astype(np.int64)
        queues, numbers = queue_ids(raw, rows), queue_offsets(raw, rows)
        for queue in np.unique(queues).tolist():
            here = queues == queue
            piece = (numbers[here], rows[here] + at, sizes[here])
            self._tails.setdefault(queue, []).append(piece)

    def bounds(self) -> dict[int, Bounds]:
        """What can be read of each queue."""
        found = dict(self._bounds)
        for queue in self._tails:
            tail = self.tail(queue)
            found[queue] = Bounds(found[queue].first, tail.first + len(tail.positions))
        return found

    def tail(self, queue: int) -> Tail:
        """What of a queue lies behind the checkpoint."""
        found = self._joined.get(queue)
        if found is None:
            found = self._joined[queue] = self._join(queue)
        return found

    def _join(self, queue: int) -> Tail:
        pieces = self._tails.get(queue)
        length = self._bounds[queue].stop
        if not pieces:
            nothing = np.empty(0, np.int64)
            return Tail(length, nothing, nothing)
        columns = [np.concatenate(column) for column in zip(*pieces, strict=True)]
        numbers, positions, sizes = columns
        # Frames are in the order of the log, and so are the offsets of a queue.
        if not np.array_equal(numbers, np.arange(length, length + len(numbers))):
            raise HorologError(
                ErrorCode.DAMAGED,
                f"topic {self._topic!r}: queue offsets of queue {queue} do not follow each other in the log",
                field="queue_offset",
            )
        return Tail(length, positions, sizes)

    def part(self, queue: int, first: int, stop: int) -> FilePart:
        """What a task needs to read [first, stop)."""
        tail = self.tail(queue)
        skipped = max(0, first - tail.first)
        behind = slice(skipped, max(skipped, stop - tail.first))
        return FilePart(
            self._path,
            self._number,
            queue,
            first,
            stop,
            min(stop, tail.first),
            tail.positions[behind].tobytes(),
            tail.sizes[behind].tobytes(),
            self._meta.log_id,
        )

    def store_ms(self, queue: int, offset: int) -> int:
        """When the message at an offset, or the next one behind it, became visible; −1 if there is none."""
        stop = self.bounds()[queue].stop
        width = 1
        while offset < stop:  # wider and wider, should there be holes
            for records in read_part(self.part(queue, offset, min(stop, offset + width))):
                return int(records.store_ms[0])
            offset += width
            width *= 2
        return -1


class FilePart(NamedTuple):
    """A stretch of a queue in files.

    filed      below this offset the consume queue files say where messages lie
    positions  of the rest, i64
    sizes      of the rest, i64
    log_id     of the directory that was planned from: a task that sees another one must not take it for loss
    lossy      pass over what retention has dropped meanwhile, instead of NOT_FOUND
    """

    path: str
    topic: int
    queue: int
    first: int
    stop: int
    filed: int
    positions: bytes
    sizes: bytes
    log_id: int
    lossy: bool = False


def read_part(part: FilePart) -> Iterator[Records]:
    """The messages of a stretch, in order, in pieces."""
    meta = read_meta(part.path)
    if meta.log_id != part.log_id:
        raise HorologError(
            ErrorCode.DIRECTORY_FOREIGN,
            f"option 'path': {part.path} is another data directory for this task than for the driver; "
            "it must be on a disk that all share",
            field="path",
        )
    segment_bytes = meta.segment_bytes
    offset = part.first
    while offset < part.filed:
        try:
            units = _units(part, offset, min(_CHUNK_ROWS, part.filed - offset))
        except HorologError as error:
            if not part.lossy or error.code is not ErrorCode.NOT_FOUND:
                raise
            offset += QUEUE_FILE_UNITS - offset % QUEUE_FILE_UNITS
            continue
        yield from _read(part, segment_bytes, offset, units["position"], units["size"])
        offset += len(units)
    positions = np.frombuffer(part.positions, np.int64)
    sizes = np.frombuffer(part.sizes, np.int64)
    for at in range(0, len(positions), _CHUNK_ROWS):
        rows = slice(at, at + _CHUNK_ROWS)
        yield from _read(part, segment_bytes, offset + at, positions[rows], sizes[rows])


def _units(part: FilePart, offset: int, count: int) -> npt.NDArray[Any]:
    base = offset - offset % QUEUE_FILE_UNITS
    count = min(count, base + QUEUE_FILE_UNITS - offset)
    name = f"queues/{queue_dir_name(part.topic, part.queue)}/{queue_file_name(base)}"
    try:
        with open(f"{part.path}/{SHARD}/{name}", "rb") as file:
            raw = os.pread(file.fileno(), count * UNIT_BYTES, (offset - base) * UNIT_BYTES)
    except FileNotFoundError:
        raise _gone(part, offset) from None
    if len(raw) != count * UNIT_BYTES:
        raise HorologError(ErrorCode.DAMAGED, f"{name} is cut short", field=name)
    return np.frombuffer(raw, UNIT)


def _gone(part: FilePart, offset: int) -> HorologError:
    return HorologError(
        ErrorCode.NOT_FOUND,
        f"queue offset {offset} of queue {part.queue} is older than the retention",
        field="queue_offset",
    )


def _read(
    part: FilePart,
    segment_bytes: int,
    offset: int,
    positions: npt.NDArray[Any],
    sizes: npt.NDArray[Any],
) -> Iterator[Records]:
    """Records at these positions, one segment and at most some MiB at a time; holes are passed over."""
    there = np.flatnonzero(sizes)
    positions, lengths = positions[there].astype(np.int64), sizes[there].astype(np.int64)
    numbers = offset + there
    first = 0
    while first < len(positions):
        base = int(positions[first]) - int(positions[first]) % segment_bytes
        ends = np.cumsum(lengths[first:])
        stop = first + max(1, int(ends.searchsorted(_CHUNK_BYTES)))
        stop = min(stop, int(positions.searchsorted(base + segment_bytes)))
        rows = slice(first, stop)
        try:
            raw = np.memmap(f"{part.path}/{SHARD}/log/{segment_name(base)}", np.uint8, "r")
        except FileNotFoundError:
            if not part.lossy:
                raise _gone(part, int(numbers[first])) from None
            first = stop
            continue
        records = Records(raw, positions[rows] - base, lengths[rows])
        _check(part, records, numbers[rows], positions[rows])
        yield records
        first = stop


def _check(
    part: FilePart,
    records: Records,
    numbers: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
) -> None:
    """A message must have the place that it was found at."""
    wrong = (records.queue_offsets != numbers) | (records.positions != positions)
    wrong |= records.queue_ids != part.queue
    if wrong.any():
        raise HorologError(
            ErrorCode.DAMAGED,
            f"queue offset {int(numbers[wrong][0])} of queue {part.queue}: "
            "the log has another message in its place",
            field="queue_offset",
        )
