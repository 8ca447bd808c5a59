"""Readers of the files of a near hour: delay log, delay index, state versions, key runs."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from zlib_ng.zlib_ng import crc32

from horolog.cli.inspection.entries import add_bad_sums, entry_batches, record_verdicts
from horolog.cli.inspection.log_file import message_detail
from horolog.cli.inspection.report import NOT_INTACT, Report, instant, verdict
from horolog.delay import key_run
from horolog.delay.entry import ENTRY_BYTES, is_readable
from horolog.delay.state import SECONDS, EntryState, HourState, decode_state
from horolog.log.record import ENVELOPE, HEAD_BYTES
from horolog.units import counted, format_time_ms


def read_delay_index(
    path: Path, content: memoryview, log: memoryview | None, *, limit: int
) -> Report:
    """Read a delay index: a row per entry, with its sum, and its record's CRC if `log` is given."""
    report = Report(str(path), "delay index")
    verdicts: Counter[str] = Counter()

    def rows() -> Iterator[tuple[object, ...]]:
        for first, entries in entry_batches(content, len(content) // ENTRY_BYTES):
            sums = is_readable(entries).tolist()
            crcs = [""] * len(entries) if log is None else record_verdicts(log, entries)
            for i, entry in enumerate(entries.tolist()):
                position, size, local, previous, _, due_ms, origin, key, topic, _, _ = entry
                verdicts["entry " + verdict(sums[i])] += 1
                verdicts["record " + crcs[i]] += 1
                yield (
                    first + i, instant(due_ms), local, previous, origin, topic, position, size,
                    f"{key:016x}", verdict(sums[i]), crcs[i],
                )  # fmt: skip

    report.head = (
        "INDEX", "DUE", "LOCAL", "PREVIOUS", "ORIGIN", "TOPIC", "POSITION", "BYTES",
        "KEY", "SUM", "RECORD",
    )  # fmt: skip
    report.take(rows(), limit)
    _add_rest(report, len(content) % ENTRY_BYTES)
    add_bad_sums(report, verdicts)
    if log is None:
        report.notes.append("no delay.log beside it: records are not checked")
    return report


def _add_rest(report: Report, rest: int) -> None:
    if rest:
        report.notes.append(f"{rest} bytes after the last whole row: a write that was under way")


def read_delay_log(
    path: Path, content: memoryview, index: memoryview | None, *, limit: int
) -> Report:
    """Read a delay log: a row per record, verified by the delay index if it is there."""
    report = Report(str(path), "delay log")
    crcs: dict[int, str] = {}
    if index is not None:
        for _, entries in entry_batches(index, len(index) // ENTRY_BYTES):
            verdicts = record_verdicts(content, entries)
            crcs.update(zip(entries["position"].tolist(), verdicts, strict=True))
    else:
        report.notes.append("no delay.idx beside it: records are not checked")

    def rows() -> Iterator[tuple[object, ...]]:
        at = 0
        while at + HEAD_BYTES <= len(content):
            size, _, _, _, due_ms = ENVELOPE.unpack_from(content, at)
            if size < HEAD_BYTES or at + size > len(content):
                report.notes.append(f"no whole record at {at}; an entry may still name later ones")
                return
            detail, layout = message_detail(bytes(content[at + HEAD_BYTES : at + size]))
            yield at, size, instant(due_ms), detail, layout, crcs.get(at, "not indexed")
            at += size

    report.head = ("POSITION", "BYTES", "DUE", "MESSAGE", "LAYOUT", "RECORD")
    report.take(rows(), limit)
    if bad := sum(1 for each in crcs.values() if each == verdict(good=False)):
        report.problems.append(f"{counted(bad, 'record')} not verified")
    return report


def read_state(path: Path, content: memoryview, *, limit: int) -> Report:
    """Read a state of an hour: its totals, and a row per second that has entries."""
    report = Report(str(path), "hour state")
    state = decode_state(bytes(content))
    if state is None:
        report.problems.append(NOT_INTACT)
        return report
    report.fields |= _state_fields(state)
    filed = np.flatnonzero(state.heads["filed"])
    start_ms = state.hour * SECONDS * 1000

    def rows() -> Iterator[tuple[object, ...]]:
        for second in filed.tolist():
            newest, count, waiting = state.heads[second].tolist()
            yield format_time_ms(start_ms + second * 1000)[:19] + "Z", newest, count, waiting

    report.head = ("SECOND", "NEWEST", "FILED", "WAITING")
    report.take(rows(), limit)
    return report


def _state_fields(state: HourState) -> dict[str, object]:
    counted = np.bincount(state.states & EntryState.SETTLED_BITS, minlength=6).tolist()
    named = [
        EntryState.WAITING,
        EntryState.HANDED_OVER,
        EntryState.RECALLED,
        EntryState.QUARANTINED,
        EntryState.MOVED,
        EntryState.EXPIRED,
    ]
    return {
        "hour": f"{state.hour} ({format_time_ms(state.hour * SECONDS * 1000)})",
        "entries": state.count,
        "log bytes": state.log_bytes,
        "states": ", ".join(f"{counted[each]} {each.name}" for each in named if counted[each]),
        "waiting by topic": ", ".join(f"{n} of topic {t}" for t, n in state.by_topic.items()),
        "crc": "ok",
    }


def read_key_run(path: Path, content: memoryview, *, limit: int) -> Report:
    """Read a key run: a row per key."""
    report = Report(str(path), "key run")
    if len(content) < key_run.HEADER_BYTES or bytes(content[:4]) != key_run.MAGIC:
        report.problems.append("not intact: no header")
        return report
    _, version, flags, first, count, columns_crc, _ = struct.unpack_from("<4sHHQIII", content)
    header_good = crc32(content[:28]) == struct.unpack_from("<I", content, 28)[0]
    columns = content[key_run.HEADER_BYTES : key_run.HEADER_BYTES + 12 * count]
    columns_good = len(columns) == 12 * count and crc32(columns) == columns_crc
    report.fields |= {
        "version": version,
        "flags": flags,
        "entries": f"{first} to {first + count - 1}",
        "header crc": verdict(header_good),
        "columns crc": verdict(columns_good),
    }
    if not (header_good and columns_good):
        report.problems.append("not intact; it is rebuilt from the delay index")
        return report
    found = np.frombuffer(columns, "<u8", count).tolist()
    index = np.frombuffer(columns, "<u4", count, 8 * count).tolist()
    report.head = ("KEY", "INDEX")
    report.take(((f"{k:016x}", first + i) for k, i in zip(found, index, strict=True)), limit)
    return report
