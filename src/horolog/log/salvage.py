"""Salvage: gives up the unreadable parts of a log, only when an operator asks for it.

A start refuses a log that is damaged where it had been durable, that ends before its checkpoint, or
that lacks a segment (rows 4, 5 and 6 of `log.recovery`): to continue means to give up messages that
clients were promised, and a person must decide that.  Once they have decided,

    plan        finds every stretch that fails its check and had been durable; changes nothing
    carry_out   copies the bytes of such a stretch to `salvaged/`, and writes a frame in its place
                that marks the loss

That frame is padding with the flag *salvaged* (`log.frame`): readers of the log skip it, and a
replay adapts the records that follow to the loss (`broker.life.after_salvage`).  A kill at any
moment leaves a log that can be salvaged again.  Salvage ignores bytes after the last durable
position: a start cuts them off as a torn tail.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from horolog.errors import ErrorCode, refused
from horolog.log.file_names import name_of, numbers_of
from horolog.log.frame import HEADER_BYTES, FrameHeader, parse, seal
from horolog.log.resync import frame_at, next_frame
from horolog.log.scan import Identity
from horolog.log.segment import SegmentReader, SegmentWriter, bases_on_disk, segment_name
from horolog.storage.api import File, Storage
from horolog.storage.sectors import read_around

SALVAGED_DIR = "salvaged"  # directory for the bytes that were given up
_PIECE = 1 << 20
_REPORT_BYTES = 16 << 20


class Lost(NamedTuple):
    """A stretch of log positions [first, stop) of one segment that cannot be read.

    records    count of records by the intact headers in the stretch; −1: not known
    after_ms   append wall ms of the frame before the stretch; 0: there is none
    before_ms  append wall ms of the frame after the stretch; 0: there is none
    durable    durable position for the frame in its place: that of the frame before
    epoch      epoch for the frame in its place; −1 while it is not known
    """

    first: int
    stop: int
    records: int
    after_ms: int
    before_ms: int
    durable: int
    epoch: int


@dataclass
class Plan:
    """The stretches to give up, and how far the log reaches."""

    lost: list[Lost]
    end: int  # log position after the last frame that verifies
    promised: int  # log position below which everything had been durable


def plan(
    storage: Storage,
    directory: str,
    identity: Identity,
    segment_bytes: int,
    *,
    start: int,
    covered: Collection[int],
    epoch: int,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> Plan:
    """Read the whole log and find what to give up.

    DIRECTORY_FOREIGN if a frame is of another log, VERSION_UNSUPPORTED if a newer horolog wrote
    one.

    directory  of the segments
    start      log position where the log begins
    covered    log positions of the checkpoints, intact or not: a frame begins there, and the log
               below was durable
    epoch      the highest epoch that a checkpoint names
    report     called with the bytes read so far and the bytes to read
    """
    reader = SegmentReader(storage, directory, segment_bytes)
    try:
        walk = _Walk(reader, identity, set(bases_on_disk(storage, directory)), sorted(covered))
        found = list(walk.lost(start, report))
    finally:
        reader.close()
    kept: list[Lost] = []
    epoch = max(epoch, walk.epoch)
    for each in reversed(found):
        if each.first >= walk.end:  # no frame follows: it ends where the durable log had ended
            each = each._replace(stop=min(each.stop, walk.promised))
        if each.epoch < 0:
            each = each._replace(epoch=epoch)
        epoch = each.epoch
        if each.first < walk.promised:
            kept.append(each)
    return Plan(kept[::-1], walk.end, walk.promised)


class _Walk:
    """One pass over a log, from frame to frame, across damage and missing segments."""

    def __init__(
        self, reader: SegmentReader, identity: Identity, bases: set[int], covered: list[int]
    ) -> None:
        self._reader = reader
        self._identity = identity
        self._bases = bases
        self._covered = covered
        self._newest_ms = 0
        self._stated = 0
        self.epoch = 0  # of the newest frame
        self.end = 0  # log position after the newest frame
        self.promised = max(covered, default=0)

    def lost(self, start: int, report: Callable[[int, int], None]) -> Iterator[Lost]:
        size = self._reader.segment_bytes
        limit = max([self.promised, *(base + size for base in self._bases)])
        at = self.end = reported = start
        lost: Lost | None = None
        while at < limit:
            if at - reported >= _REPORT_BYTES:
                reported = at
                report(at - start, limit - start)
            stop = at - at % size + size
            if stop - at < HEADER_BYTES:
                at = stop
                continue
            header = self._frame(at, stop)
            is_edge = at % size == 0 or at in self._covered
            if lost is not None and (header is not None or is_edge):
                yield _closed(lost, at, header)
                lost = None
            if header is not None:
                self.epoch, self._newest_ms = header.epoch, header.append_ms
                self._stated = header.durable
                self.promised = max(self.promised, header.durable)
                at = self.end = header.end
                continue
            after = bisect_right(self._covered, at)
            following = self._next(at, min([stop, *self._covered[after : after + 1]]))
            records = self._count(at, following)
            if lost is None:
                lost = Lost(at, at, records, self._newest_ms, 0, self._stated, -1)
            elif lost.records >= 0:
                lost = lost._replace(records=lost.records + records if records >= 0 else -1)
            at = following
        if lost is not None:
            yield _closed(lost, at, None)

    def _frame(self, at: int, stop: int) -> FrameHeader | None:
        """Read the intact frame at a position; None for a ghost of a tail that was cut off."""
        if at - at % self._reader.segment_bytes not in self._bases:
            return None
        found = frame_at(self._reader.bytes_around, self._identity.log_id, at, stop)
        if found is None or found[0].epoch < self.epoch or found[0].end > stop:
            return None
        return found[0]

    def _count(self, at: int, following: int) -> int:
        """Return the records of a damaged frame at `at` that ends at `following`; −1: not known."""
        if at - at % self._reader.segment_bytes not in self._bases:
            return -1
        header = parse(self._reader.bytes_around(at, HEADER_BYTES))
        if header is None or header.base != at:
            return -1
        if header.log_id != self._identity.log_id or header.shard != self._identity.shard:
            raise refused(
                "DIR",
                f"the frame at log position {at} belongs to another log: bring the right segment "
                "back",
                code=ErrorCode.DIRECTORY_FOREIGN,
            )
        return header.count if header.end == following else -1

    def _next(self, at: int, stop: int) -> int:
        """Return where the next frame in (at, stop) begins, ghost or not; `stop` if none does."""
        if at - at % self._reader.segment_bytes not in self._bases:
            return stop
        found = next_frame(self._reader.bytes_around, self._identity.log_id, at + 1, stop)
        return stop if found is None else found.base


def _closed(lost: Lost, stop: int, following: FrameHeader | None) -> Lost:
    if following is None:
        return lost._replace(stop=stop)
    return lost._replace(stop=stop, before_ms=following.append_ms, epoch=following.epoch)


def carry_out(
    storage: Storage, shard: str, identity: Identity, segment_bytes: int, lost: Lost
) -> None:
    """Copy the bytes of a stretch aside, and write a frame in its place; durable on return.

    shard  directory of the shard

    DAMAGED if the stretch is shorter than a frame's header; then nothing is changed.
    """
    length = lost.stop - lost.first
    assert lost.first // segment_bytes == (lost.stop - 1) // segment_bytes, lost
    if length < HEADER_BYTES:
        raise refused(
            "DIR",
            f"{length} bytes at log position {lost.first} are too few for a frame; restore a "
            "backup",
            code=ErrorCode.DAMAGED,
        )
    directory = f"{shard}/log"
    segments = SegmentWriter(storage, directory, segment_bytes)
    base = lost.first - lost.first % segment_bytes
    try:
        segments.prepare(base)
    finally:
        segments.close()
    segment = storage.open(f"{directory}/{segment_name(base)}")
    try:
        storage.make_dir(f"{shard}/{SALVAGED_DIR}")
        storage.sync_dir(shard)
        _copy_aside(storage, salvaged_path(shard, lost.first), segment, lost.first - base, length)
        storage.sync_dir(f"{shard}/{SALVAGED_DIR}")
        header = seal(
            log_id=identity.log_id,
            shard=identity.shard,
            base=lost.first,
            durable=lost.durable,
            append_ms=lost.after_ms,
            epoch=lost.epoch,
            count=0,
            body=b"",
            padding=length - HEADER_BYTES,
            salvaged=True,
        )
        segment.write(lost.first - base, header)
        segment.sync()
    finally:
        segment.close()


def salvaged_path(shard: str, first: int) -> str:
    """Return the path of the file with the bytes of the stretch that begins at `first`."""
    return f"{shard}/{SALVAGED_DIR}/{name_of(first, 'bytes')}"


def salvaged_positions(storage: Storage, shard: str) -> list[int]:
    """Return the log positions of the stretches whose bytes have been kept, ascending."""
    return numbers_of(storage.list(f"{shard}/{SALVAGED_DIR}"), "bytes")


def _copy_aside(storage: Storage, path: str, segment: File, at: int, length: int) -> None:
    """Copy bytes of a segment to a file of their own; unreadable bytes become zeros."""
    kept = storage.open(path, create=True)
    try:
        kept.truncate(0)
        kept.truncate(length)
        for offset in range(0, length, _PIECE):
            piece = read_around(
                segment, at + offset, min(_PIECE, length - offset), lambda first, stop, why: None
            )
            if any(piece):
                kept.write(offset, piece)
        kept.sync()
    finally:
        kept.close()
