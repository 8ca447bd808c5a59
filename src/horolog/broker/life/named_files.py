"""The files that belong to a checkpoint, and how much of each.

A checkpoint describes the shard at one log position.  The log up to there, and the derived files at
the lengths that its registry names, are a complete shard: a backup copies these, and
`horolog verify` reads them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from horolog.broker.life.retention import firsts_of, start_of
from horolog.delay.entry import ENTRY_BYTES, INDEX_NAME, LOG_NAME
from horolog.delay.far.buffer import buffer_name
from horolog.delay.far.names import named_files as far_files
from horolog.delay.key_run import parse_key_run_name
from horolog.delay.state import state_name
from horolog.errors import ErrorCode, HorologError
from horolog.limits import QUEUE_FILE_UNITS
from horolog.log.checkpoint import Checkpoint, checkpoint_name
from horolog.log.key_rows import HEADER_BYTES as KEYS_HEADER_BYTES
from horolog.log.key_rows import ROW_BYTES, decode_header, sealed_bytes
from horolog.log.queue_names import queue_dir_name, queue_file_name
from horolog.log.queue_unit import UNIT_BYTES
from horolog.log.segment import segment_name
from horolog.storage.api import Storage


class NamedFile(NamedTuple):
    """One file of a shard as a checkpoint sees it.

    bytes      how much of it belongs to the checkpoint; None: all of it
    rebuilt    a start rebuilds the file if it is missing, so it may vanish while it is copied
    """

    path: str
    bytes: int | None
    rebuilt: bool = False


def named_files(
    storage: Storage, directory: str, segment_bytes: int, checkpoint: Checkpoint
) -> list[NamedFile]:
    """Return all files of that checkpoint, the log first and the checkpoint last."""
    return [
        *_log(f"{directory}/log", segment_bytes, checkpoint),
        *_queues(storage, f"{directory}/queues", checkpoint),
        *_keys(storage, f"{directory}/keys", checkpoint.registry.get("keys", {})),
        *(
            file
            for row in checkpoint.registry["hours"]
            for file in _hour(storage, f"{directory}/hours/{row['hour']:010d}", row)
        ),
        *_far(storage, f"{directory}/runs", checkpoint.registry.get("far", {})),
        NamedFile(f"{directory}/checkpoint/{checkpoint_name(checkpoint.position)}", None),
    ]


def _log(place: str, segment_bytes: int, checkpoint: Checkpoint) -> list[NamedFile]:
    """Return the segments from the one in which the log begins; the last one up to the position."""
    start, position = start_of(checkpoint) or 0, checkpoint.position
    return [
        NamedFile(f"{place}/{segment_name(base)}", min(segment_bytes, position - base))
        for base in range(start - start % segment_bytes, position, segment_bytes)
    ]


def _queues(storage: Storage, place: str, checkpoint: Checkpoint) -> list[NamedFile]:
    """Return the files of each queue from its first offset to its length."""
    firsts = firsts_of(checkpoint)
    found = []
    for topic, queue, length in checkpoint.columns["queues"].tolist():
        directory = f"{place}/{queue_dir_name(topic, queue)}"
        there = set(storage.list(directory))
        first = firsts.get((topic, queue), 0)
        for base in range(first - first % QUEUE_FILE_UNITS, length, QUEUE_FILE_UNITS):
            name = queue_file_name(base)
            if first < length or name in there:
                units = min(QUEUE_FILE_UNITS, length - base)
                found.append(NamedFile(f"{directory}/{name}", units * UNIT_BYTES))
    return found


def _keys(storage: Storage, place: str, captured: dict[str, int]) -> list[NamedFile]:
    """Return the chunks of the log key index that hold rows which the checkpoint counts."""
    found = []
    rows, sealed = captured.get("rows", 0), captured.get("sealed", 0)
    for name in storage.list(place):
        try:
            file = storage.open(f"{place}/{name}")
            try:
                header = decode_header(file.read(0, KEYS_HEADER_BYTES))
            finally:
                file.close()
        except HorologError as error:
            if error.code is not ErrorCode.DISK_FAILED:
                raise
            continue  # such as a directory in its place: a start rebuilds the index
        if header is None or header.first >= rows:
            continue
        if header.first + header.capacity <= sealed:
            size = sealed_bytes(header.capacity)
        else:
            size = KEYS_HEADER_BYTES + ROW_BYTES * min(header.capacity, rows - header.first)
        found.append(NamedFile(f"{place}/{name}", size, rebuilt=True))
    return found


def _entries(storage: Storage, place: str, row: dict[str, Any]) -> list[NamedFile]:
    """Return log, index and key runs of an hour or far buffer, as long as a registry says."""
    keys = []
    for name in storage.list(place):
        first, rows = parse_key_run_name(name) if name.startswith("keys.") else (0, 0)
        if rows and first + rows <= row["count"]:
            keys.append(NamedFile(f"{place}/{name}", None, rebuilt=True))
    return [
        NamedFile(f"{place}/{LOG_NAME}", row["log_bytes"]),
        NamedFile(f"{place}/{INDEX_NAME}", row["count"] * ENTRY_BYTES),
        *keys,
    ]


def _hour(storage: Storage, place: str, row: dict[str, Any]) -> list[NamedFile]:
    """Return the files of an hour, with its state last.

    An hour that was rebuilt meanwhile does not have that version.
    """
    state = NamedFile(f"{place}/{state_name(row['version'])}", None)
    return [*_entries(storage, place, row), state]


def _far(storage: Storage, place: str, registry: dict[str, Any]) -> list[NamedFile]:
    buffers = {buffer_name(row["number"]): row for row in registry.get("buffers", [])}
    found = [
        file
        for name, row in sorted(buffers.items())
        for file in _entries(storage, f"{place}/{name}", row)
    ]
    runs = sorted(far_files(registry) - buffers.keys())
    return [*found, *(NamedFile(f"{place}/{name}", None) for name in runs)]
