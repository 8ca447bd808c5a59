"""A topic read from the files of a data directory: mapped segments of the log, and consume queues.

The log decides what is visible: the newest intact checkpoint states how long each queue was at its
position, and the frames after the checkpoint, up to the broker's commit position, hold the messages
that came since.  The consume queue files locate the messages before the checkpoint.  Nothing is
written, and nothing is locked.

Damage after the checkpoint is refused, or logged and passed over, as `failOnDataLoss` says; for
damage before it see `topic_parts`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.columns import queue_ids, queue_offsets
from horolog.broker.life.retention import firsts_of, start_of
from horolog.errors import ErrorCode, HorologError
from horolog.log.checkpoint import Checkpoint, newest_checkpoint
from horolog.log.controls import read_control
from horolog.log.frame import FrameHeader
from horolog.log.record import IS_VISIBLE, Kind, heads_of, kinds_of, offsets_of
from horolog.log.scan import Identity, LogEnd, LogScan, SalvageScan
from horolog.log.segment import SegmentReader, bases_on_disk
from horolog.spark.topic_answers import Bounds
from horolog.spark.topic_parts import FilePart, lost, read_meta, read_part
from horolog.storage.disk import Disk
from horolog.storage.meta import SHARD

_log = logging.getLogger("horolog.spark")


class Tail(NamedTuple):
    """Messages of a queue after the checkpoint, from offset `first` on: log positions and sizes."""

    first: int
    positions: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


class TopicFiles:
    """One topic of a data directory, as the files are when the object is made.

    commit  log position up to which messages are visible; None: to the end of the log (a stopped
            broker, or a copy of its directory)
    lossy   log damage and go on, instead of raising DAMAGED
    """

    def __init__(self, path: str, topic: str, commit: int | None, *, lossy: bool = False) -> None:
        self._path = path
        self._lossy = lossy
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
                self._take_topic(row)
            firsts = firsts_of(checkpoint)
            for topic, queue, length in checkpoint.columns["queues"].tolist():
                if topic == self._number:
                    self._bounds[queue] = Bounds(firsts.get((topic, queue), 0), length)
        start = checkpoint.position if checkpoint is not None else (start_of(checkpoint) or 0)
        if not bases or (checkpoint is None and bases[0] != 0):
            why = "lacks its beginning, and no checkpoint can be read" if bases else "is not there"
            raise HorologError(ErrorCode.DAMAGED, f"{self._path}: the log {why}", field="path")
        limit = bases[-1] + self._meta.segment_bytes if commit is None else commit
        reader = SegmentReader(self._disk, f"{SHARD}/log", self._meta.segment_bytes)
        scan = LogScan(
            reader,
            Identity(self._meta.log_id, 0),
            start=start,
            limit=limit,
            epoch=checkpoint.epoch if checkpoint is not None else 0,
            durable=start,
            judge=commit is None,
        )
        try:
            self._take_frames(scan.frames(), limit)
            if scan.outcome is LogEnd.DAMAGED or (commit is not None and scan.end < commit):
                self._read_past_damage(reader, scan.end, limit, commit)
        finally:
            reader.close()

    def _take_frames(self, frames: Iterator[tuple[FrameHeader, bytes]], limit: int) -> int:
        """Take the messages that the frames make visible; return where the last frame ends."""
        end = 0
        for header, body in frames:
            end = header.end
            if header.salvaged:
                self._pass_over(
                    f"from log position {header.base} to {end}, which a salvage gave up"
                )
            if header.count and header.end <= limit:
                self._take(header.end - header.length, body, header.count)
        return end

    def _read_past_damage(
        self, reader: SegmentReader, start: int, limit: int, commit: int | None
    ) -> None:
        """Read on after a frame that does not verify.

        The queue offsets of later messages show how many messages the frame had.
        """
        salvage = SalvageScan(reader, Identity(self._meta.log_id, 0), start=start, stop=limit)
        end = self._take_frames(salvage.frames(), limit)
        if commit is not None and end != commit:
            raise HorologError(
                ErrorCode.DAMAGED,
                f"{self._path}: the log is whole only up to {start}, but committed to {commit}; "
                "is it the directory of this broker?",
                field="path",
            )
        gaps = [(first, stop) for first, stop in salvage.gaps if first < end]
        if gaps:
            text = ", ".join(f"{first} to {stop}" for first, stop in gaps[:10])
            self._pass_over(f"from log position {text}")

    def _pass_over(self, where: str) -> None:
        """Log damage at a place as a warning, or refuse it."""
        if not self._lossy:
            raise lost(f"the log is damaged {where}, where messages may have been")
        _log.warning("%s: the log is damaged %s", self._path, where)

    def _take_topic(self, row: dict[str, Any]) -> None:
        if row["name"] == self._topic:
            if row.get("deleted") or row["number"] != self._number:
                self._bounds.clear()  # an earlier topic had the same name
                self._tails.clear()
            if row.get("deleted"):
                self._number = -1
                return
            self._number, self._queues = row["number"], row["queues"]
            for queue in range(self._queues):
                self._bounds.setdefault(queue, Bounds(0, 0))

    def _take(self, at: int, body: bytes, count: int) -> None:
        """Take the messages of this topic that a frame makes visible."""
        offsets = offsets_of(body, count)
        kinds = kinds_of(body, offsets)
        for place in np.flatnonzero(kinds == Kind.TOPIC).tolist():
            start = int(offsets[place])
            self._take_topic(read_control(body, start, at + start).content)
        rows = offsets[IS_VISIBLE[kinds]]
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
        """Return the offsets of each queue that can be read."""
        found = dict(self._bounds)
        for queue in self._tails:
            tail = self.tail(queue)
            found[queue] = Bounds(found[queue].first, tail.first + len(tail.positions))
        return found

    def tail(self, queue: int) -> Tail:
        """Return the messages of a queue that come after the checkpoint in the log."""
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
        # Frames are in log order, and so are the offsets of a queue; damaged messages are missing.
        steps = np.diff(numbers, prepend=length - 1)
        if bool((steps < 1).any()) or (not self._lossy and bool((steps > 1).any())):
            raise HorologError(
                ErrorCode.DAMAGED,
                f"topic {self._topic!r}: queue offsets of queue {queue} do not follow each other "
                "in the log",
                field="queue_offset",
            )
        there = numbers - length
        filled = np.zeros((2, int(there[-1]) + 1), np.int64)
        filled[0, there], filled[1, there] = positions, sizes
        return Tail(length, filled[0], filled[1])

    def part(self, queue: int, first: int, stop: int) -> FilePart:
        """Return what a task needs to read [first, stop) of a queue."""
        tail = self.tail(queue)
        skipped = max(0, first - tail.first)
        after = slice(skipped, max(skipped, stop - tail.first))
        return FilePart(
            self._path,
            self._number,
            queue,
            first,
            stop,
            min(stop, tail.first),
            tail.positions[after].tobytes(),
            tail.sizes[after].tobytes(),
            self._meta.log_id,
        )

    def store_ms(self, queue: int, offset: int) -> int:
        """Return when the message at an offset, or the next one, became visible, in epoch ms.

        −1 if there is no such message.
        """
        stop = self.bounds()[queue].stop
        width = 1
        while offset < stop:  # read wider and wider stretches, to pass over holes
            part = self.part(queue, offset, min(stop, offset + width))
            for records in read_part(part._replace(lossy=True, is_quiet=True)):
                return int(records.store_ms[0])
            offset += width
            width *= 2
        return -1
