"""Check of delay index entries with their records: sums, CRCs, and equality with the log.

Hours, far buffers and runs share these checks: an index of ENTRY rows, and a file that holds their
records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.delay.entry import (
    ENTRY,
    ENTRY_BYTES,
    is_readable,
    origin_seed,
    record_crcs,
)
from horolog.delay.key_run import encode_key_run, parse_key_run_name
from horolog.log.key_merge import sorted_columns
from horolog.log.record import HEAD_BYTES, Kind, heads_of
from horolog.verify.reading import LogBytes, Reading, Source

BATCH_ROWS = 16_384
_BATCH_BYTES = 8 << 20  # bytes of records that are checked at once
Rows = npt.NDArray[np.int64]
_FIELDS = ("size", "due_ms", "topic", "key")


class Batch(NamedTuple):
    """Rows [first, first + len(entries)) of an index; `good` where the sum is right."""

    first: int
    entries: npt.NDArray[Any]
    good: npt.NDArray[np.bool_]


def batches(reading: Reading, index: Source, at: int, count: int) -> Iterator[Batch]:
    """Yield the rows of an index that begins at byte `at`; rows with a wrong sum are findings."""
    for first in range(0, count, BATCH_ROWS):
        n = min(BATCH_ROWS, count - first)
        raw = index.read(at + first * ENTRY_BYTES, n * ENTRY_BYTES)
        entries = np.frombuffer(raw, ENTRY, len(raw) // ENTRY_BYTES)
        good = is_readable(entries)
        for row in np.flatnonzero(~good).tolist():
            reading.findings.add(index.path, first + row, f"entry {first + row}: its sum is wrong")
        if len(entries) < n:
            reading.findings.add(
                index.path, first + len(entries), f"ends at entry {first + len(entries)} of {count}"
            )
        yield Batch(first, entries, good)
        if len(entries) < n:
            return


class RecordsCheck:
    """Check of the records of one index, one batch after another.

    records    the file that holds the records
    at         byte at which the first record begins
    log        the commit log that holds the same records; None: it has none of them
    """

    def __init__(
        self, reading: Reading, index: str, records: Source, at: int, log: LogBytes | None
    ) -> None:
        self._reading = reading
        self._index = index
        self._records = records
        self._next: int | None = at  # None: not known, after an entry that cannot be read
        self._log = log

    def take(self, batch: Batch) -> None:
        """Check places, CRCs and the log's copies of all entries whose sum is right."""
        self._check_places(batch)
        if self._reading.quick:
            return
        rows = np.flatnonzero(batch.good)
        sizes = batch.entries["size"][rows].astype(np.int64)
        ends = np.cumsum(sizes)
        at = 0
        while at < len(rows):
            done = int(ends[at - 1]) if at else 0
            stop = max(at + 1, int(np.searchsorted(ends, done + _BATCH_BYTES, side="right")))
            self._check_records(batch.entries[rows[at:stop]], batch.first + rows[at:stop])
            at = stop

    def end(self) -> int | None:
        """Return the byte after the last record; None if its entry cannot be read."""
        return self._next

    def _add_finding(self, numbers: Rows, what: str) -> None:
        for number in numbers.tolist():
            self._reading.findings.add(self._index, number, f"entry {number}: {what}")

    def _check_places(self, batch: Batch) -> None:
        """Check that records follow each other without gaps."""
        entries, good = batch.entries, batch.good
        if not len(entries):
            return
        starts = entries["position"].astype(np.int64)
        ends = starts + entries["size"].astype(np.int64)
        wanted = np.empty(len(entries), np.int64)
        wanted[1:] = ends[:-1]
        wanted[0] = starts[0] if self._next is None else self._next
        known = good.copy()
        known[1:] &= good[:-1]
        wrong = known & (starts != wanted)
        self._add_finding(
            batch.first + np.flatnonzero(wrong), "its record is not after the one before it"
        )
        self._next = int(ends[-1]) if bool(good[-1]) else None

    def _check_records(self, entries: npt.NDArray[Any], numbers: Rows) -> None:
        spans = zip(entries["position"].tolist(), entries["size"].tolist(), strict=True)
        records = [self._records.read(at, size) for at, size in spans]
        good = record_crcs(records, entries["origin"], entries["row"]) == entries["crc"]
        for row in np.flatnonzero(~good).tolist():
            self._reading.findings.add(
                self._records.path,
                int(entries["position"][row]),
                f"the record of entry {int(numbers[row])} does not match its CRC",
            )
        rows = np.flatnonzero(good)
        if not len(rows):
            return
        entries, numbers = entries[rows], numbers[rows]
        self._check_heads(entries, numbers, [records[row] for row in rows.tolist()])
        if self._log is not None:
            self._check_log(self._log, entries, numbers)

    def _check_heads(self, entries: npt.NDArray[Any], numbers: Rows, records: list[bytes]) -> None:
        heads = heads_of(  # a foreign writer's record may be shorter than a head, with a right CRC
            b"".join(record[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0") for record in records),
            np.arange(len(records)) * HEAD_BYTES,
        )
        same = heads["kind"] == Kind.SCHEDULED
        for name in _FIELDS:
            same &= heads[name] == entries[name]
        self._add_finding(numbers[~same], "its record has another size, due time, topic or key")

    def _check_log(self, log: LogBytes, entries: npt.NDArray[Any], numbers: Rows) -> None:
        """Check that the log has equal bytes at each origin, as far as it goes back."""
        there = (entries["origin"] >= np.uint64(log.start)) & (entries["row"] == 0)
        mine = np.flatnonzero(there & ~log.holes.contains(entries["origin"]))
        mine = mine[np.argsort(entries["origin"][mine], kind="stable")]
        columns = (entries[name][mine].tolist() for name in ("origin", "size", "crc"))
        for row, origin, size, crc in zip(mine.tolist(), *columns, strict=True):
            if crc32(log.read(origin, size), origin_seed(origin)) != crc:
                self._add_finding(numbers[row : row + 1], f"the log has another record at {origin}")


class OriginOrder:
    """Check that the origins of one index ascend, one batch after another."""

    def __init__(self, reading: Reading, index: str) -> None:
        self._reading = reading
        self._index = index
        self._last = -1

    def take(self, entries: npt.NDArray[Any], numbers: Rows) -> None:
        """Check entries whose sum is right."""
        if not len(entries):
            return
        origins = entries["origin"].astype(np.int64)
        before = np.append(self._last, origins[:-1])
        for number in numbers[origins <= before].tolist():
            what = f"entry {number}: its origin is not after that of the one before it"
            self._reading.findings.add(self._index, number, what)
        self._last = int(origins[-1])


def check_key_runs(reading: Reading, directory: str, index: str, count: int) -> None:
    """Compare key run files with the index that they were made from."""
    for name in reading.storage.list(directory):
        if not name.startswith("keys."):
            continue
        path = f"{directory}/{name}"
        first, rows = parse_key_run_name(name)
        if not rows or first + rows > count:
            reading.findings.note(
                f"{path}: covers entries that no checkpoint names; a start drops it"
            )
            continue
        with reading.part(path), reading.source(path) as file:
            if file.size and file.is_blank(0, min(file.size, 32)):
                reading.findings.note(f"{path}: was being written; a start drops it")
                continue
            keys = _keys_of(reading, index, first, rows)
            columns = sorted_columns(keys)
            wanted = encode_key_run(first, columns.keys, columns.rows)
            _compare(reading, file, wanted)


def _keys_of(reading: Reading, index: str, first: int, rows: int) -> npt.NDArray[np.uint64]:
    keys = np.empty(rows, np.uint64)
    with reading.source(index, counted=False) as file:
        for at in range(0, rows, BATCH_ROWS):
            n = min(BATCH_ROWS, rows - at)
            raw = file.read((first + at) * ENTRY_BYTES, n * ENTRY_BYTES)
            keys[at : at + n] = np.frombuffer(raw, ENTRY, n)["key"]
    return keys


def _compare(reading: Reading, file: Source, wanted: bytes) -> None:
    what = "is not the key run of its entries; a start rebuilds it"
    if file.size != len(wanted):
        reading.findings.add(file.path, 0, what)
        return
    step = 1 << 20
    for at in range(0, len(wanted), step):
        if file.read(at, min(step, len(wanted) - at)) != wanted[at : at + step]:
            reading.findings.add(file.path, at, what)
            return
