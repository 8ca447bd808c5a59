"""Reader of the state of the lake: waiting and recalled messages by offload, hour and topic."""

from __future__ import annotations

from pathlib import Path

from horolog.cli.inspection.report import NOT_INTACT, Report, instant
from horolog.lake.core.state_file import decode_lake
from horolog.limits import HOUR_MS


def read_lake_state(path: Path, content: memoryview, *, limit: int) -> Report:
    """Read the counts of messages that wait, and of recalled ones that the table still has."""
    report = Report(str(path), "lake state")
    tables = decode_lake(bytes(content))
    if tables is None:
        report.problems.append(NOT_INTACT)
        return report
    counts, gone = tables
    waiting = {row[:3]: row[3] for row in counts.tolist()}
    recalled: dict[tuple[int, int, int], int] = {}
    for offload_id, _, _, topic, due_ms in gone.tolist():
        key = offload_id, due_ms // HOUR_MS, topic
        recalled[key] = recalled.get(key, 0) + 1
    report.fields |= {"waiting": sum(waiting.values()), "recalled": len(gone), "crc": "ok"}
    report.head = ("OFFLOAD", "HOUR", "TOPIC", "WAITING", "RECALLED")
    lines = (
        (*_shown(*key), waiting.get(key, 0), recalled.get(key, 0))
        for key in sorted(waiting.keys() | recalled.keys())
    )
    report.take(lines, limit)
    return report


def _shown(offload_id: int, hour: int, topic: int) -> tuple[int, str, int]:
    return offload_id, instant(hour * HOUR_MS)[:16] + "Z", topic
