"""Rows for run files, and run files made of them, for the tests of runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from horolog.delay.entry import ENTRY, entry_sums, record_crcs
from horolog.delay.run.merge import flush
from horolog.delay.run.reader import Run, RunInfo
from horolog.errors import ErrorCode, HorologError
from horolog.testing.disk import FaultyDisk

LOG_ID = 0xFEED
HOUR_MS = 3_600_000


class Source:
    """Entries and their records in log order, as a far buffer has them."""

    def __init__(
        self, due_ms: Sequence[int], first_origin: int = 0, size: int = 20, keys: int = 50
    ):
        n, chance = len(due_ms), np.random.default_rng(len(due_ms) + first_origin)
        self.entries = np.zeros(n, ENTRY)
        self.entries["due_ms"] = due_ms
        self.entries["origin"] = first_origin + 7 * np.arange(n)
        self.entries["size"] = size + np.arange(n) % 7
        self.entries["position"] = np.cumsum(self.entries["size"]) - self.entries["size"]
        self.entries["key"] = chance.integers(0, keys, n)
        self.entries["topic"] = chance.integers(0, 3, n)
        self.entries["local"] = chance.integers(0, 1 << 32, n)
        self.entries["previous"] = -1
        self.content = chance.bytes(int(self.entries["size"].sum()))
        self.entries["crc"] = record_crcs(self.read(self.entries), self.entries["origin"])
        self.sum_up()

    def sum_up(self) -> None:
        self.entries["sum"] = entry_sums(self.entries)

    def read(self, entries: np.ndarray) -> list[memoryview]:
        view = memoryview(self.content)
        pairs = zip(entries["position"].tolist(), entries["size"].tolist(), strict=True)
        return [view[at : at + size] for at, size in pairs]

    def flush(self, disk: FaultyDisk, name: str) -> RunInfo:
        return flush(disk, "runs", name, log_id=LOG_ID, entries=self.entries, read=self.read)


class Row(NamedTuple):
    """The parts of a message that a run must keep."""

    due_ms: int
    origin: int
    row: int
    key: int
    topic: int
    tags_code: int
    crc: int
    record: bytes


def rows_of(entries: np.ndarray, records: Sequence[bytes | memoryview]) -> list[Row]:
    names = ("due_ms", "origin", "row", "key", "topic", "local", "crc")
    columns = [entries[name].tolist() for name in names]
    return [Row(*row, bytes(record)) for *row, record in zip(*columns, records, strict=True)]


def content(run: Run) -> list[Row]:
    entries, _, damaged = run.readable(0, run.rows)
    assert damaged == 0
    return rows_of(entries, run.records(entries))


def new_disk(seed: int = 0, **options: Any) -> FaultyDisk:
    disk = FaultyDisk(seed, **options)
    disk.make_dir("runs")
    return disk


def opened(disk: FaultyDisk, name: str, log_id: int | None = LOG_ID) -> Run:
    return Run.open(disk, "runs", name, log_id)


def made(disk: FaultyDisk, source: Source, name: str = "a") -> Run:
    source.flush(disk, name)
    return opened(disk, name)


def sorted_rows(*sources: Source) -> list[Row]:
    found = [
        row for source in sources for row in rows_of(source.entries, source.read(source.entries))
    ]
    return sorted(found, key=lambda row: row[:3])


def many(n: int, seconds: int = 5_000, **options: Any) -> Source:
    chance = random.Random(n)
    return Source([HOUR_MS + 1000 * chance.randrange(seconds) for _ in range(n)], **options)


def code_of(call: Any) -> ErrorCode:
    with pytest.raises(HorologError) as found:
        call()
    return found.value.code
