"""Reader of the log key index: one chunk of its rows, with their heads if it is sealed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from zlib_ng.zlib_ng import crc32

from horolog.cli.inspection.report import Report, verdict
from horolog.log.key_rows import (
    BLOCK,
    CRC,
    HEADER_BYTES,
    NOTHING_BEFORE,
    ROW_BYTES,
    blocks_of,
    chunk_name,
    decode_header,
    intact,
    sealed_bytes,
)

_BATCH = 16_384


def read_key_chunk(path: Path, content: memoryview, *, limit: int) -> Report:
    """Read a chunk: a row per message id or user key with its sum; the CRCs of sealed heads."""
    report = Report(str(path), "key index chunk")
    header = decode_header(bytes(content[:HEADER_BYTES]))
    if header is None:
        report.problems.append("not intact: header; the index is rebuilt from the commit log")
        return report
    sealed = len(content) >= sealed_bytes(header.capacity)
    count = min(header.capacity, (len(content) - HEADER_BYTES) // ROW_BYTES)
    report.fields |= {
        "log id": f"{header.log_id:016x}",
        "first row": header.first,
        "before": "nothing" if header.before == NOTHING_BEFORE else header.before,
        "capacity": header.capacity,
        "sealed": "yes" if sealed else "no",
        "header crc": verdict(good=True),
    }
    if path.name != chunk_name(header.first):
        report.problems.append(f"the file of these rows is named {chunk_name(header.first)}")
    bad = 0

    def rows() -> Iterator[tuple[object, ...]]:
        nonlocal bad
        for first in range(0, count, _BATCH):
            n = min(_BATCH, count - first)
            words = np.frombuffer(content, "<u8", 3 * n, HEADER_BYTES + ROW_BYTES * first)
            good, plain = intact(words.reshape(n, 3), np.arange(first + 1, first + n + 1))
            bad += n - int(good.sum())
            for i, (row, is_good) in enumerate(zip(plain.tolist(), good.tolist(), strict=True)):
                key, position, previous = row
                yield header.first + first + i, f"{key:016x}", position, previous, verdict(is_good)

    report.head = ("ROW", "KEY", "POSITION", "PREVIOUS", "SUM")
    report.take(rows(), limit)
    if bad:
        report.problems.append(f"{bad} bad row sums")
    if sealed:
        heads_good = _heads_intact(content, header.capacity)
        report.fields["heads crc"] = verdict(heads_good)
        if not heads_good:
            report.problems.append("heads: not as written; look-ups read all rows")
    elif rest := len(content) - HEADER_BYTES - ROW_BYTES * count:
        report.notes.append(f"{rest} bytes after the last row: a write that was under way")
    return report


def _heads_intact(content: memoryview, capacity: int) -> bool:
    """Return whether all blocks of heads match the CRCs after them, and these CRCs their own."""
    at = HEADER_BYTES + ROW_BYTES * capacity
    heads, after = content[at : at + 4 * capacity], content[at + 4 * capacity :]
    table = after[: 4 * blocks_of(capacity)]
    if bytes(after[len(table) : len(table) + CRC.size]) != CRC.pack(crc32(table)):
        return False
    blocks = [heads[i : i + 4 * BLOCK] for i in range(0, len(heads), 4 * BLOCK)]
    stored = [crc for (crc,) in CRC.iter_unpack(table)]
    return [crc32(block) for block in blocks] == stored
