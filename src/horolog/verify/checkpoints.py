"""Check of checkpoints: they are intact, of this log, and the files that they name exist."""

from __future__ import annotations

from typing import Any

from horolog.broker.life.named_files import named_files
from horolog.limits import CHECKPOINTS_KEPT
from horolog.log.checkpoint import Checkpoint, acked_runs, checkpoint_name, decode_checkpoint
from horolog.storage.api import read_file
from horolog.verify.far import read_run_state
from horolog.verify.hours import read_state
from horolog.verify.reading import Reading


def read_checkpoints(reading: Reading, place: str, *, log_id: int, shard: int) -> list[Checkpoint]:
    """Return the intact ones of the checkpoints that are kept, the newest first."""
    found = []
    names = reading.storage.list(place)
    kept = [name for name in names if name.endswith(".ckpt")][-CHECKPOINTS_KEPT:]
    for name in reversed(names):
        path = f"{place}/{name}"
        if name not in kept:
            reading.findings.note(f"{path}: left by a write or a removal that was interrupted")
            continue
        with reading.part(path):
            content = read_file(reading.storage, path)
            reading.tick(path, len(content))
            checkpoint = decode_checkpoint(content)
            if checkpoint is None:
                reading.findings.add(path, 0, "is not intact: magic, length or a CRC is wrong")
            elif (checkpoint.log_id, checkpoint.shard) != (log_id, shard):
                reading.findings.add(path, 0, f"belongs to log {checkpoint.log_id:016x}")
            elif checkpoint_name(checkpoint.position) != name:
                reading.findings.add(path, 0, f"is of log position {checkpoint.position}")
            else:
                found.append(checkpoint)
    return found


def check_progress(reading: Reading, path: str, checkpoint: Checkpoint) -> None:
    """Check that progress of consumer groups lies inside existing queues."""
    columns = checkpoint.columns
    lengths = {(topic, queue): n for topic, queue, n in columns["queues"].tolist()}
    topics = {row["number"] for row in checkpoint.registry["topics"]}
    groups = {row["number"] for row in checkpoint.registry["groups"]}
    for topic, queue in lengths:
        if topic not in topics:
            what = f"names queue {queue} of topic {topic}, but does not list that topic"
            reading.findings.add(path, 0, what)
    for group, topic, queue, floor, next_offset in columns["progress"].tolist():
        if group not in groups or not floor <= next_offset <= lengths.get((topic, queue), -1):
            reading.findings.add(
                path,
                0,
                f"group {group} has progress {floor} to {next_offset} in queue {queue} of topic"
                f" {topic}, which has {lengths.get((topic, queue), 'no')} messages",
            )
    last = [("acked", (*run[:3], run[4] - 1)) for run in acked_runs(checkpoint)]
    last += [("leases", (*row[:3], row[5])) for row in columns["leases"].tolist()]
    for name, (_, topic, queue, offset) in last:
        if offset >= lengths.get((topic, queue), 0):
            reading.findings.add(path, 0, f"{name}: offset {offset} is after the end of its queue")


def check_older(reading: Reading, directory: str, segment_bytes: int, older: Checkpoint) -> None:
    """Check that an older checkpoint, to which a start may fall back, names intact files."""
    for path, size, rebuilt in named_files(reading.storage, directory, segment_bytes, older):
        if rebuilt:
            continue
        if not reading.storage.exists(path):
            reading.findings.add(path, 0, f"is missing; checkpoint {older.position} names it")
        elif size is not None and reading.size(path) < size:
            reading.findings.add(
                path, reading.size(path), f"is shorter than checkpoint {older.position} says"
            )
    for row in older.registry["hours"]:
        read_state(reading, f"{directory}/hours/{row['hour']:010d}", row)
    runs: list[dict[str, Any]] = older.registry.get("far", {}).get("runs", [])
    for row in runs:
        read_run_state(reading, f"{directory}/runs", row)
