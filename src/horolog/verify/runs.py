"""Check of one run file from front to back: every byte is compared with what it must be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.delay.run.format import (
    FENCE_ROWS,
    FOOTER_BYTES,
    GROUP_ROWS,
    HEADER_BYTES,
    KEY_GROUP,
    KEY_ROW_BYTES,
    TOPIC_HOUR,
    decode_footer,
    decode_header,
)
from horolog.errors import ErrorCode, HorologError
from horolog.limits import HOUR_MS
from horolog.verify.entries import Batch, RecordsCheck, batches
from horolog.verify.reading import LogBytes, Reading, Source


class RunFile:
    """A run whose header and footer agree; DAMAGED otherwise."""

    def __init__(self, reading: Reading, file: Source, name: str, log_id: int) -> None:
        self._reading = reading
        self._file = file
        foreign = ErrorCode.DIRECTORY_FOREIGN
        try:
            _, self.rows = decode_header(name, file.read(0, HEADER_BYTES), log_id)
        except HorologError as error:
            raise HorologError(
                ErrorCode.DAMAGED if error.code is foreign else error.code, error.message
            ) from error
        if file.size < HEADER_BYTES + FOOTER_BYTES:
            raise HorologError(ErrorCode.DAMAGED, "the file is cut short")
        foot = file.read(file.size - FOOTER_BYTES, FOOTER_BYTES)
        self.footer, self.layout = decode_footer(name, foot, log_id, self.rows)
        if file.size != self.layout.size:
            raise HorologError(
                ErrorCode.DAMAGED, f"the file has {file.size} bytes, not {self.layout.size}"
            )
        self._counted: dict[int, tuple[int, int]] = {}  # hour << 32 | topic → messages, bytes
        self.damaged = False  # an index row cannot be read

    def _add_finding(self, position: int, what: str) -> None:
        self._reading.findings.add(self._file.path, position, what)

    def batches(self, log: LogBytes | None) -> Iterator[Batch]:
        """Yield all index rows, checked with their records; then check all other parts.

        log  None: the records came from elsewhere, so it has none of them
        """
        reading, at = self._reading, self.layout
        with reading.source(self._file.path) as records:
            check = RecordsCheck(reading, self._file.path, records, at.records_at, log)
            before: npt.NDArray[Any] | None = None
            for batch in batches(reading, self._file, HEADER_BYTES, self.rows):
                check.take(batch)
                self._check_order(before, batch)
                self.damaged = self.damaged or not bool(batch.good.all())
                self._count(batch.entries[batch.good])
                if len(batch.entries):
                    before = batch.entries[-1:]
                yield batch
            end = check.end()
        if end is not None and end != at.records_end:
            self._add_finding(at.records_at, f"records end at {end}, not at {at.records_end}")
        self._check_zeros(at.records_end, at.key_groups_at)
        self._check_zeros(at.key_groups_at + KEY_ROW_BYTES * self.rows, at.fences_at)
        self._check_fences()
        self._check_directory()
        self._check_keys()

    def _check_order(self, before: npt.NDArray[Any] | None, batch: Batch) -> None:
        """Check that rows ascend by (due time, origin, row of the origin)."""
        entries = batch.entries if before is None else np.concatenate([before, batch.entries])
        if len(entries) < 2:
            return
        a, b = entries[:-1], entries[1:]
        later = (b["origin"] > a["origin"]) | ((b["origin"] == a["origin"]) & (b["row"] > a["row"]))
        fine = (b["due_ms"] > a["due_ms"]) | ((b["due_ms"] == a["due_ms"]) & later)
        first = batch.first + (0 if before is not None else 1)
        for row in np.flatnonzero(~fine).tolist():
            self._add_finding(first + row, f"entry {first + row}: is not after the one before it")

    def _count(self, entries: npt.NDArray[Any]) -> None:
        both = (entries["due_ms"] // HOUR_MS << 32) | entries["topic"].astype(np.int64)
        numbers, at = np.unique(both, return_inverse=True)
        counts = np.bincount(at, minlength=len(numbers)).tolist()
        sizes = np.bincount(at, weights=entries["size"], minlength=len(numbers)).tolist()
        for number, n, size in zip(numbers.tolist(), counts, sizes, strict=True):
            count, total = self._counted.get(number, (0, 0))
            self._counted[number] = count + n, total + int(size)

    def _check_zeros(self, start: int, stop: int) -> None:
        found = self._file.first_set(start, stop)
        if found >= 0:
            self._add_finding(found, "bytes between its parts are not zero")

    def _part(self, start: int, stop: int, crc: int, name: str) -> bytes | None:
        content = self._file.read(start, stop - start)
        if crc32(content) != crc:
            self._add_finding(start, f"the {name} does not match its CRC")
            return None
        return content

    def _check_fences(self) -> None:
        at = self.layout
        content = self._part(
            at.fences_at, at.key_directory_at, self.footer.fences_crc, "table of fences"
        )
        if content is None or self.damaged:
            return
        fences = np.frombuffer(content, "<i8")
        for number, fence in enumerate(fences.tolist()):
            row = HEADER_BYTES + 64 * number * FENCE_ROWS
            due_ms = int.from_bytes(self._file.read(row + 24, 8), "little", signed=True)
            if due_ms != fence:
                self._add_finding(at.fences_at, f"fence {number} says {fence}, its row {due_ms}")

    def _check_directory(self) -> None:
        at = self.layout
        content = self._part(at.directory_at, at.footer_at, self.footer.directory_crc, "directory")
        if content is None or self.damaged:
            return
        rows = np.frombuffer(content, TOPIC_HOUR).tolist()
        stated = {hour << 32 | topic: (count, size) for hour, topic, count, size in rows}
        if stated != self._counted:
            self._add_finding(at.directory_at, "the directory does not count what the index has")

    def _check_keys(self) -> None:
        at = self.layout
        content = self._part(
            at.key_directory_at, at.directory_at, self.footer.key_directory_crc, "key directory"
        )
        if content is None:
            return
        for number, (offset, count, crc) in enumerate(np.frombuffer(content, KEY_GROUP).tolist()):
            first = number * GROUP_ROWS
            if count != min(GROUP_ROWS, self.rows - first):
                self._add_finding(at.key_directory_at, f"key group {number} has {count} rows")
                continue
            group = self._part(offset, offset + KEY_ROW_BYTES * count, crc, f"key group {number}")
            if group is not None and not self.damaged:
                self._check_group(number, first, count, offset, group)

    def _check_group(self, number: int, first: int, count: int, offset: int, group: bytes) -> None:
        keys = np.empty(count, np.uint64)
        with self._reading.source(self._file.path, counted=False) as index:
            for batch in batches(self._reading, index, HEADER_BYTES + 64 * first, count):
                keys[batch.first : batch.first + len(batch.entries)] = batch.entries["key"]
        order = np.argsort(keys, kind="stable")
        wanted = keys[order].tobytes() + order.astype("<u2").tobytes()
        if group != wanted:
            self._add_finding(offset, f"key group {number} does not have the keys of its rows")
