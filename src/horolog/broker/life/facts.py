"""The facts of a start: checkpoints, segments, and whether they fit together.

Gathering them changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from horolog.broker.life import retention
from horolog.errors import ErrorCode, HorologError
from horolog.log.checkpoint import (
    NO_FRAME,
    Checkpoint,
    checkpoint_name,
    decode_checkpoint,
    position_of,
)
from horolog.log.frame import HEADER_BYTES, is_recognisable, parse
from horolog.log.recovery import CheckpointFound
from horolog.log.resync import next_frame
from horolog.log.scan import Identity, SalvageScan
from horolog.log.segment import SegmentReader, bases_on_disk, segment_bases
from horolog.storage.api import Storage
from horolog.storage.sectors import read_if_any


class ShardMeta(NamedTuple):
    """The fields of `meta` that describe this data directory."""

    log_id: int
    shard: int
    segment_bytes: int


class Facts(NamedTuple):
    """The facts found in a shard's directory.

    bases        of the segments from the log's start on; from 0 if all of them are there
    hole         which segment is missing; "": none
    checkpoints  the valid ones, newest first
    found        the state of the checkpoints, for the recovery table
    covered      log positions in the names of checkpoints, also of damaged ones: a frame begins
                 there, and the log was synced up to it
    derived      whether there are any derived files
    """

    bases: list[int]
    hole: str
    checkpoints: list[Checkpoint]
    found: CheckpointFound
    derived: bool
    covered: tuple[int, ...] = ()

    @property
    def synced(self) -> int:
        """The log position up to which the log was synced."""
        return max(self.covered, default=0)


def gather(storage: Storage, directory: str, meta: ShardMeta, report: list[str]) -> Facts:
    """Gather the facts; add a sentence to `report` for each checkpoint that is passed over."""
    kept = f"{directory}/checkpoint"
    names = [name for name in storage.list(kept) if name.endswith(".ckpt")]
    checkpoints, found = _checkpoints(storage, kept, names, meta, report)
    start = retention.start_of(checkpoints[0]) if checkpoints else None
    place, size = f"{directory}/log", meta.segment_bytes
    hole, bases = "", []
    whole = bases_on_disk(storage, place)
    if whole == list(range(0, len(whole) * size, size)):
        bases = whole  # also when the start has moved, and segments below are not removed yet
    else:
        try:
            bases = segment_bases(storage, place, size, start)
        except HorologError as error:
            hole = error.message
    parts = ("hours", "queues", "runs")
    derived = any(storage.list(f"{directory}/{part}") for part in parts)
    covered = tuple(position_of(name) for name in names)
    return Facts(bases, hole, checkpoints, found, derived, covered)


def _checkpoints(
    storage: Storage, place: str, names: list[str], meta: ShardMeta, report: list[str]
) -> tuple[list[Checkpoint], CheckpointFound]:
    valid = []
    for name in reversed(names):
        checkpoint = decode_checkpoint(read_if_any(storage, f"{place}/{name}"))
        if checkpoint is None:
            report.append(f"checkpoint {name} is not intact and was passed over")
            continue
        if checkpoint.log_id != meta.log_id or checkpoint.shard != meta.shard:
            raise HorologError(
                ErrorCode.DIRECTORY_FOREIGN,
                f"checkpoint {name} belongs to log {checkpoint.log_id:016x} shard "
                f"{checkpoint.shard}, this directory to log {meta.log_id:016x} shard {meta.shard}",
                field="checkpoint",
            )
        if checkpoint_name(checkpoint.position) != name:
            report.append(
                f"checkpoint {name} is of log position {checkpoint.position} and was passed over"
            )
            continue
        valid.append(checkpoint)
    if not names:
        return [], CheckpointFound.NONE
    if not valid:
        return [], CheckpointFound.BAD
    newest = checkpoint_name(valid[0].position) == names[-1]
    return valid, CheckpointFound.NEWEST if newest else CheckpointFound.OLDER


def why_not_reached(
    checkpoint: Checkpoint, facts: Facts, reader: SegmentReader, log_id: int
) -> str:
    """Return why the log does not reach the checkpoint; "" if it does."""
    if checkpoint.last_frame == NO_FRAME:
        return ""
    short = f"the commit log ends before the checkpoint at log position {checkpoint.position}"
    if not facts.bases or facts.bases[-1] + reader.segment_bytes < checkpoint.position:
        return short
    if checkpoint.last_frame < facts.bases[0]:
        return f"the commit log begins after the checkpoint at log position {checkpoint.position}"
    if not _reaches(checkpoint, reader, log_id):
        return f"{short}: its last frame, at {checkpoint.last_frame}, is not there"
    return ""


def _reaches(checkpoint: Checkpoint, reader: SegmentReader, log_id: int) -> bool:
    """Return whether the last frame that a checkpoint covers was written.

    It may be damaged by now.  Damage below a checkpoint costs only what it hits, so one flipped bit
    must not look like a segment that was cut, or exchanged for an older one: then nothing of the
    frame is there, nor of any after it.  A frame that a salvage has given up was there.
    """
    at = checkpoint.last_frame
    raw = reader.bytes_around(at, HEADER_BYTES)
    header = parse(raw)
    if header is not None:
        return header.base == at and header.log_id == log_id
    if is_recognisable(raw, log_id, at):
        return True
    base = at - at % reader.segment_bytes
    if next_frame(reader.bytes_around, log_id, at + 1, base + reader.segment_bytes) is not None:
        return True
    scan = SalvageScan(reader, Identity(log_id, checkpoint.shard), start=base, stop=at)
    return any(each.salvaged and each.end > at for each, _ in scan.frames())
