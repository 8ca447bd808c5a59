"""Records that damaged bytes of the log seem to hold, so that their owner knows what to send again.

Nothing is verified: some of these bytes are wrong, often a single bit, and the shown fields may
contain it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from horolog.cli.inspection.log_file import RECORD_HEAD, record_row
from horolog.cli.inspection.report import Report
from horolog.errors import HorologError
from horolog.log.controls import UNREADABLE
from horolog.log.frame import HEADER_BYTES, MAGIC
from horolog.log.record import ENVELOPE, ENVELOPE_BYTES, Kind

_KINDS = frozenset(int(kind) for kind in Kind)


def rows_in(content: bytes, first: int) -> Iterator[tuple[object, ...]]:
    """Yield a row for each apparent record in bytes at log position `first`, a frame's start."""
    at = HEADER_BYTES
    while at + ENVELOPE_BYTES <= len(content):
        size, kind, _, _, _ = ENVELOPE.unpack_from(content, at)
        if kind in _KINDS and ENVELOPE_BYTES <= size <= len(content) - at:
            row = _row(content[at : at + size], first + at, Kind(kind))
            if row is not None:
                yield row
                at += size
                continue
        found = content.find(MAGIC, at)
        if found < 0:
            return
        at = found + HEADER_BYTES


def _row(raw: bytes, position: int, kind: Kind) -> tuple[object, ...] | None:
    try:
        return record_row(position, kind, memoryview(raw))
    except (*UNREADABLE, HorologError, IndexError, OverflowError):
        return None


def read_given_up(path: Path, content: memoryview, *, limit: int) -> Report:
    """Read a file of `salvaged/`."""
    report = Report(str(path), "bytes of the log that a salvage gave up")
    first = int(path.name.partition(".")[0])
    report.head = RECORD_HEAD
    report.take(rows_in(bytes(content), first), limit)
    report.fields |= {"log position": first, "bytes": len(content)}
    report.notes.append("nothing here is verified, and some of the bytes are wrong")
    return report
