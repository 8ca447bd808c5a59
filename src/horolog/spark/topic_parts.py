"""A stretch of a queue, read by one task from the files of a data directory.

A message is returned only from a frame that verifies.  A message that cannot be read is a hole: it
is refused with its offset, or passed over and logged on the worker's stderr, as `failOnDataLoss`
says; messages after it are read.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.errors import ErrorCode, HorologError
from horolog.limits import MIB, QUEUE_FILE_UNITS
from horolog.log.queue_names import queue_dir_name, queue_file_name
from horolog.log.queue_unit import UNIT, UNIT_BYTES
from horolog.log.record import IS_VISIBLE, KIND_AT
from horolog.log.record_check import SegmentRecords
from horolog.log.segment import segment_name
from horolog.spark.message_decode import Records
from horolog.storage.meta import FORMAT, META, SHARD, Meta, parse_meta

_log = logging.getLogger("horolog.spark")
_CHUNK_ROWS = 16_384
_CHUNK_BYTES = 16 * MIB


def read_meta(path: str) -> Meta:
    """Read the meta file of a data directory; DIRECTORY_FOREIGN, naming the option, if it fails."""
    try:
        meta = parse_meta((Path(path) / META).read_bytes())
        if meta.format != FORMAT:
            raise ValueError(f"format {meta.format}; this horolog reads format {FORMAT}")
        return meta
    except (OSError, ValueError) as error:
        raise HorologError(
            ErrorCode.DIRECTORY_FOREIGN,
            f"option 'path': {path} is not a horolog data directory ({error})",
            field="path",
        ) from None


class FilePart(NamedTuple):
    """A stretch of a queue in files.

    filed      below this offset the consume queue files say where messages are stored
    positions  of the other messages, i64
    sizes      of the other messages, i64
    log_id     of the directory that the driver planned with: a task that sees another directory
               must not read it as loss
    lossy      pass over damage and messages that retention has dropped meanwhile, instead of
               raising NOT_FOUND
    is_quiet   pass over without a log line
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
    is_quiet: bool = False


def read_part(part: FilePart) -> Iterator[Records]:
    """Yield the messages of a stretch, in order, in pieces."""
    meta = read_meta(part.path)
    if meta.log_id != part.log_id:
        raise HorologError(
            ErrorCode.DIRECTORY_FOREIGN,
            f"option 'path': {part.path} is another data directory for this task than for the "
            "driver; it must be on a disk that all share",
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
        f"queue offset {offset} of queue {part.queue} is older than the retention "
        "(failOnDataLoss=false goes on with what there is)",
        field="failOnDataLoss",
    )


def _read(
    part: FilePart,
    segment_bytes: int,
    offset: int,
    positions: npt.NDArray[Any],
    sizes: npt.NDArray[Any],
) -> Iterator[Records]:
    """Yield the records at the positions, one segment and at most `_CHUNK_BYTES` at a time."""
    positions, lengths = positions.astype(np.int64), sizes.astype(np.int64)
    bases = positions - positions % segment_bytes
    bases[lengths <= 0] = -1  # holes that a start of the broker has left
    first = 0
    while first < len(positions):
        base = int(bases[first])
        others = np.flatnonzero(bases[first:] != base)
        stop = first + (int(others[0]) if len(others) else len(bases) - first)
        ends = np.cumsum(lengths[first:stop])
        stop = min(stop, first + max(1, int(ends.searchsorted(_CHUNK_BYTES))))
        numbers = offset + np.arange(first, stop)
        rows = slice(first, stop)
        first = stop
        path = f"{part.path}/{SHARD}/log/{segment_name(max(0, base))}"
        if base < 0 or not os.path.exists(path):
            _no_segment(part, base, int(numbers[0]), int(numbers[-1]))
            continue
        # An empty file cannot be mapped.
        raw = np.memmap(path, np.uint8, "r") if os.path.getsize(path) else np.empty(0, np.uint8)
        records = _checked(part, raw, base, numbers, positions[rows], lengths[rows])
        if records is not None:
            yield records


def _no_segment(part: FilePart, base: int, first: int, last: int) -> None:
    """Refuse or log messages that no file has: dropped by retention, or with damaged units."""
    names = sorted(os.listdir(f"{part.path}/{SHARD}/log"))
    is_dropped = base >= 0 and names and segment_name(base) < names[0]
    if not is_dropped:
        _report_damage(part, f"{_offsets(first, last)} of queue {part.queue} cannot be read")
    elif not part.lossy:
        raise _gone(part, first)


def _checked(
    part: FilePart,
    raw: npt.NDArray[np.uint8],
    base: int,
    numbers: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
) -> Records | None:
    """Return the messages that verify and were found at their own place; None if there are none."""
    at = positions - base
    good = SegmentRecords(raw, base, part.log_id).intact(at, lengths)
    good[good] = IS_VISIBLE[raw[at[good] + KIND_AT]]
    found = Records(raw, at[good], lengths[good])
    same = (found.queue_offsets == numbers[good]) & (found.positions == positions[good])
    same &= found.queue_ids == part.queue
    good[good] = same
    bad = np.flatnonzero(~good)
    if len(bad):
        where = f"{_offsets(int(numbers[bad[0]]), int(numbers[bad[-1]]))} of queue {part.queue}"
        text = (
            f"{len(bad)} of {where} cannot be read" if len(bad) > 1 else f"{where} cannot be read"
        )
        _report_damage(part, f"{text}: log position {int(positions[bad[0]])} is damaged")
    if not len(found):
        return None
    return found if bool(same.all()) else found.chosen(same) if bool(same.any()) else None


def _offsets(first: int, last: int) -> str:
    return f"queue offset {first}" if first == last else f"queue offsets {first} to {last}"


def _report_damage(part: FilePart, what: str) -> None:
    """Refuse damage, or log it and pass over it."""
    if not part.lossy:
        raise lost(what)
    if not part.is_quiet:
        _log.warning("%s: %s, and is passed over", part.path, what)


def lost(what: str) -> HorologError:
    """Build a DAMAGED error that names the option by which a reader goes on."""
    return HorologError(
        ErrorCode.DAMAGED,
        f"{what} (failOnDataLoss=false goes on with what there is)",
        field="failOnDataLoss",
    )
