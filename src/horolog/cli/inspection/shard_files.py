"""Readers of checkpoints, consume queues, `meta`, quarantine notes, and manifests of backups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from horolog.backup.manifest import decode_manifest
from horolog.cli.inspection.report import NOT_INTACT, Report, instant
from horolog.errors import HorologError
from horolog.limits import HOUR_MS
from horolog.log.checkpoint import (
    COLUMNS,
    NO_FRAME,
    OPTIONAL_COLUMNS,
    Checkpoint,
    decode_checkpoint,
)
from horolog.log.file_names import number_of
from horolog.log.queue_names import is_queue_dir, units_place
from horolog.log.queue_unit import UNIT, UNIT_BYTES, unseal
from horolog.storage.meta import parse_meta


def read_checkpoint(path: Path, content: memoryview, *, limit: int) -> Report:
    """Read a checkpoint: fields of its header, a row per item of the registry and each column."""
    report = Report(str(path), "checkpoint")
    checkpoint = decode_checkpoint(bytes(content))
    if checkpoint is None:
        report.problems.append(NOT_INTACT)
        return report
    last = checkpoint.last_frame
    report.fields |= {
        "log id": f"{checkpoint.log_id:016x}",
        "epoch": checkpoint.epoch,
        "position": checkpoint.position,
        "last frame": "none" if last == NO_FRAME else last,
        "durable": checkpoint.durable,
        "store ms": checkpoint.store_ms,
        "crc": "ok",
    }
    report.head = ("PART", "CONTENT")
    report.take(_checkpoint_rows(checkpoint), limit)
    return report


def _checkpoint_rows(checkpoint: Checkpoint) -> Iterator[tuple[object, ...]]:
    for part, content in checkpoint.registry.items():
        for item in content if isinstance(content, list) else [content]:
            yield part, orjson.dumps(item).decode()
    for name in (*COLUMNS, *OPTIONAL_COLUMNS):
        rows = checkpoint.columns[name]
        for row in rows:
            fields = zip(rows.dtype.names or (), row.tolist(), strict=True)
            yield name, " ".join(f"{field}={number}" for field, number in fields)


def read_consume_queue(path: Path, content: memoryview, *, limit: int) -> Report:
    """Read a consume queue: a row per unit; units that fail their check are counted.

    The tags code of such a unit is shown as 2⁶².
    """
    report = Report(str(path), "consume queue")
    first = number_of(path.name, "cq") or 0
    units = np.frombuffer(content, UNIT, len(content) // UNIT_BYTES)
    if is_queue_dir(path.parent.name):
        units, rotten = unseal(content, units_place(path.parent.name, first))
        if rotten:
            report.problems.append(f"{len(rotten)} units do not pass their check")
    report.fields["offsets"] = f"{first} to {first + len(units) - 1}" if len(units) else "none"
    if len(units) > 1 and bool((np.diff(units["position"]) <= 0).any()):
        report.problems.append("log positions do not ascend")
    report.head = ("OFFSET", "POSITION", "BYTES", "TAGS CODE")
    report.take(((first + i, *unit) for i, unit in enumerate(units.tolist())), limit)
    if rest := len(content) % UNIT_BYTES:
        report.notes.append(f"{rest} bytes after the last whole unit: a write that was under way")
    return report


def read_meta(path: Path, content: memoryview) -> Report:
    """Read the `meta` file of a data directory."""
    report = Report(str(path), "meta")
    try:
        meta: Any = orjson.loads(bytes(content))
        report.fields |= dict(meta)
        parse_meta(bytes(content))
    except (TypeError, ValueError) as error:
        report.problems.append(f"not JSON with the fields of a meta: {error}")
    return report


def read_quarantine_note(path: Path, content: memoryview) -> Report:
    """Read the note about the files that were set aside in its directory."""
    report = Report(str(path), "quarantine note")
    note: Any = orjson.loads(bytes(content))
    report.fields |= {
        "names": ", ".join(note["names"]),
        "checkpoint": note["position"],
        "waiting": note["waiting"],
        "lost": note["lost"],
        "due from": instant(note["first_hour"] * HOUR_MS),
        "due before": instant((note["last_hour"] + 1) * HOUR_MS),
        "why": note["why"],
    }
    return report


def read_backup_manifest(path: Path, content: memoryview, *, limit: int) -> Report:
    """Read a backup manifest: a row per file; `horolog restore` compares them with the bytes."""
    report = Report(str(path), "backup manifest")
    try:
        manifest = decode_manifest(bytes(content), "FILE")
    except HorologError as error:
        report.problems.append(error.message)
        return report
    report.fields |= {
        "number": manifest.number,
        "complete": "yes" if manifest.complete else "no",
        "log id": f"{manifest.log_id:016x}",
        "made by": manifest.horolog,
        "made": instant(manifest.made_ms),
        "position": manifest.position,
        "crc": "ok",
    }
    report.head = ("FILE", "BYTES", "CRC", "COPIED BY")
    rows = ((file.path, file.bytes, f"{file.crc32:08x}", file.number) for file in manifest.files)
    report.take(rows, limit)
    return report
