"""Readers of a run, with every part's CRC and a row per message, and of its state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.cli.inspection.entries import add_bad_sums, entry_batches, record_verdicts
from horolog.cli.inspection.report import NOT_INTACT, Report, instant, verdict
from horolog.delay.entry import is_readable
from horolog.delay.far.run_state import decode_run_state
from horolog.delay.run.format import (
    FOOTER_BYTES,
    HEADER_BYTES,
    KEY_GROUP,
    KEY_ROW_BYTES,
    TOPIC_HOUR,
    Footer,
    Layout,
    decode_footer,
    decode_header,
    is_adopted,
)
from horolog.errors import HorologError
from horolog.limits import HOUR_MS


def read_run(path: Path, content: memoryview, *, limit: int) -> Report:
    """Read a run: a row per message, with the sum of its index row and the CRC of its record."""
    report = Report(str(path), "run")
    try:
        log_id, rows = decode_header(path.stem, bytes(content[:HEADER_BYTES]), None)
        footer, at = decode_footer(path.stem, bytes(content[-FOOTER_BYTES:]), log_id, rows)
    except HorologError as error:
        report.problems.append(error.message)
        return report
    report.fields |= {
        "log id": f"{log_id:016x}",
        "messages": rows,
        "adopted": "yes" if is_adopted(bytes(content[:HEADER_BYTES])) else "no",
        "first due": instant(footer.first_ms),
        "last due": instant(footer.last_ms),
        "record bytes": footer.record_bytes,
    }
    if len(content) != at.size:
        report.problems.append(f"the file has {len(content)} bytes instead of {at.size}")
        return report
    _check_parts(report, content, rows, footer, at)
    verdicts: Counter[str] = Counter()

    def lines() -> Iterator[tuple[object, ...]]:
        for first, entries in entry_batches(content, rows, HEADER_BYTES):
            yield from _lines(content, first, entries, verdicts)

    report.head = (
        "ROW", "DUE", "ORIGIN", "ORIGIN ROW", "TOPIC", "TAGS CODE", "POSITION", "BYTES", "KEY",
        "SUM", "RECORD",
    )  # fmt: skip
    report.take(lines(), limit)
    add_bad_sums(report, verdicts)
    return report


def _lines(
    content: memoryview, first: int, entries: npt.NDArray[Any], verdicts: Counter[str]
) -> Iterator[tuple[object, ...]]:
    sums = is_readable(entries).tolist()
    crcs = record_verdicts(content, entries)
    for i, entry in enumerate(entries.tolist()):
        position, size, tags_code, _, row, due_ms, origin, key, topic, _, _ = entry
        verdicts["entry " + verdict(sums[i])] += 1
        verdicts["record " + crcs[i]] += 1
        yield (
            first + i, instant(due_ms), origin, row, topic, tags_code, position, size,
            f"{key:016x}", verdict(sums[i]), crcs[i],
        )  # fmt: skip


def _check_parts(
    report: Report, content: memoryview, rows: int, footer: Footer, at: Layout
) -> None:
    key_directory = content[at.key_directory_at : at.directory_at]
    directory = content[at.directory_at : at.footer_at]
    goods = {
        "fences": crc32(content[at.fences_at : at.key_directory_at]) == footer.fences_crc,
        "key directory": crc32(key_directory) == footer.key_directory_crc,
        "directory": crc32(directory) == footer.directory_crc,
    }
    if goods["key directory"]:
        goods["key groups"] = all(
            crc32(content[offset : offset + KEY_ROW_BYTES * count]) == crc
            for offset, count, crc in np.frombuffer(key_directory, KEY_GROUP).tolist()
        )
    ends = (
        (at.records_end, at.key_groups_at),
        (
            at.key_groups_at + KEY_ROW_BYTES * rows,
            at.fences_at,
        ),
    )
    goods["gaps"] = not any(any(content[start:stop]) for start, stop in ends)
    report.fields |= {name: verdict(good) for name, good in goods.items()}
    report.problems += [f"{name}: not as written" for name, good in goods.items() if not good]
    if goods["directory"]:
        counts = np.frombuffer(directory, TOPIC_HOUR)
        topics = {
            topic: int(counts["count"][counts["topic"] == topic].sum())
            for topic in np.unique(counts["topic"]).tolist()
        }
        report.fields["by topic"] = ", ".join(f"{n} of topic {t}" for t, n in topics.items())


def read_run_state(path: Path, content: memoryview, *, limit: int) -> Report:
    """Read a run's state: counts of marked rows by mark, and of gone rows by hour and topic."""
    report = Report(str(path), "run state")
    state = decode_run_state(bytes(content))
    if state is None:
        report.problems.append(NOT_INTACT)
        return report
    marked = {kind: int(np.unpackbits(bits).sum()) for kind, bits in sorted(state.maps.items())}
    report.fields |= {
        "messages": state.rows,
        "marked": ", ".join(f"{n} {kind.name}" for kind, n in marked.items()),
        "crc": "ok",
    }
    gone = ((instant(h * HOUR_MS)[:16] + "Z", t, n) for (h, t), n in state.gone_by.items())
    report.head = ("HOUR", "TOPIC", "GONE")
    report.take(gone, limit)
    return report
