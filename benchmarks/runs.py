"""Measure runs of far messages: making them, merging them, searching them.

`python -m benchmarks.runs` takes about 20 s; `--rows 10000000` is the size of docs/decisions/0009-runs.md.  Everything
on one core, on the disk that holds build/, with records of 300 bytes; files are in the page cache.

making     messages a second of flush and merge, by the size of the buffer; each ends with its fsync
searching  in one run: open, the row of a moment, the rows of a second, a key, origins
probing    the rows of a ten-second window in 8, 32 and 128 runs
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import ENTRY, entry_sums, record_crcs
from horolog.delay.run.format import run_path
from horolog.delay.run.merge import Part, flush, merge
from horolog.delay.run.reader import Run
from horolog.limits import DAY_MS, MIB
from horolog.storage.disk import Disk

WORK = Path(__file__).resolve().parents[1] / "build" / "bench" / "runs"
RECORD_BYTES = 300
START_MS = 490_000 * 3_600_000
LOG_ID = 1
RUNS = "runs"


@contextmanager
def fresh() -> Iterator[Disk]:
    """An empty directory, removed at the end."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    try:
        disk = Disk(WORK)
        disk.make_dir(RUNS)
        yield disk
    finally:
        shutil.rmtree(WORK, ignore_errors=True)


def touch_page_cache(rows: int) -> None:
    """Memory that a virtual machine uses for the first time is slow, and would be counted as work on runs."""
    with fresh() as disk:
        file = disk.open("touched", create=True)
        for at in range(0, min(4 * rows * (RECORD_BYTES + ENTRY.itemsize), 4096 * MIB), 16 * MIB):
            file.write(at, bytes(16 * MIB))
        file.close()


def rows_of(buffer_bytes: int) -> int:
    """Messages that fit into a buffer with their entries."""
    return buffer_bytes // (RECORD_BYTES + ENTRY.itemsize)


class Buffer:
    """A full far buffer on the disk: records in log order, due over `span_ms` by chance."""

    def __init__(self, disk: Disk, rows: int, span_ms: int) -> None:
        chance = np.random.default_rng(7)
        self.records = chance.bytes(RECORD_BYTES * rows)
        self._file = disk.open("buffer", create=True)
        self._file.write(0, self.records)
        self.view = self._file.view()
        self.entries = np.zeros(rows, ENTRY)
        self.entries["position"] = RECORD_BYTES * np.arange(rows)
        self.entries["size"] = RECORD_BYTES
        self.span_ms = span_ms
        self.number = 0

    def fill(self) -> None:
        """Other messages, later in the log."""
        chance, rows = np.random.default_rng(self.number), len(self.entries)
        entries = self.entries
        entries["origin"] = RECORD_BYTES * (self.number * rows + np.arange(rows))
        entries["due_ms"] = START_MS + chance.integers(0, self.span_ms // 1000, rows) * 1000
        entries["key"] = chance.integers(0, 1 << 63, rows)
        entries["topic"] = chance.integers(0, 8, rows)
        records = self.read(entries)
        entries["crc"] = record_crcs(records, entries["origin"])
        entries["sum"] = entry_sums(entries)
        self.number += 1

    def read(self, entries: npt.NDArray[Any]) -> list[memoryview]:
        """Their records."""
        starts = entries["position"].tolist()
        return [self.view[at : at + RECORD_BYTES] for at in starts]


def best(call: Callable[[], object], times: int = 5) -> float:
    """Seconds of the quickest of some calls."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return min(found)


def table(title: str, columns: list[str], rows: list[list[object]]) -> None:
    """Print a table in Markdown."""
    print(f"\n{title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |")


def make(
    disk: Disk, buffer_bytes: int, total: int, span_ms: int
) -> tuple[list[Run], float, float, float]:
    """Flush buffers until there are `total` rows: runs, seconds of all, CPU seconds of all, longest flush."""
    buffer = Buffer(disk, min(total, rows_of(buffer_bytes)), span_ms)
    runs: list[Run] = []
    took, cpu, longest = 0.0, 0.0, 0.0
    while sum(run.rows for run in runs) < total:
        buffer.fill()
        began, cpu_began = time.perf_counter(), time.process_time()
        name = f"{buffer_bytes}.{len(runs)}"
        flush(disk, RUNS, name, log_id=LOG_ID, entries=buffer.entries, read=buffer.read)
        cpu += time.process_time() - cpu_began
        once = time.perf_counter() - began
        took, longest = took + once, max(longest, once)
        runs.append(Run.open(disk, RUNS, name, LOG_ID))
    return runs, took, cpu, longest


def merging(disk: Disk, runs: list[Run], bounds: list[int]) -> str:
    """The rate of one merge; what it makes is removed."""
    parts = [Part(run, 0, run.rows) for run in runs]
    names = [f"merged.{i}" for i in range(len(bounds))]
    began, cpu_began = time.perf_counter(), time.process_time()
    made = merge(disk, RUNS, parts, bounds, names, log_id=LOG_ID)
    cpu, took = time.process_time() - cpu_began, time.perf_counter() - began
    for info in made:
        disk.remove(run_path(RUNS, info.name))
    n = sum(info.rows for info in made)
    return f"{n / took / 1000:.0f} k ({n / cpu / 1000:.0f} k)"


def making(total: int, span_ms: int) -> None:
    """Rates by the size of the buffer."""
    rows: list[list[object]] = []
    for buffer_bytes in (32 * MIB, 128 * MIB, 512 * MIB):
        with fresh() as disk:
            runs, took, cpu, longest = make(disk, buffer_bytes, total, span_ms)
            n = sum(run.rows for run in runs)
            one = merging(disk, runs, [START_MS])
            days = merging(disk, runs, list(range(START_MS, START_MS + span_ms, DAY_MS)))
            rows.append(
                [
                    f"{buffer_bytes // MIB} MiB",
                    f"{len(runs)} × {runs[0].rows}",
                    f"{n / took / 1000:.0f} k ({n / cpu / 1000:.0f} k)",
                    f"{longest:.2f} s",
                    one,
                    days,
                ]
            )
    table(
        "Making: messages a second with fsync (and a second of CPU)",
        ["buffer", "runs", "flush", "longest flush", "merge into one", "into days"],
        rows,
    )


def searching(total: int, span_ms: int) -> None:
    """Times of searches in one run."""
    rows: list[list[object]] = []
    for n in sorted({min(total, 1_000_000), total}):
        with fresh() as disk:
            runs, *_ = make(disk, 128 * MIB, n, span_ms)
            parts = [Part(run, 0, run.rows) for run in runs]
            merge(disk, RUNS, parts, [START_MS], ["one"], log_id=LOG_ID)
            rows.append(search(disk))
    columns = ["rows", "open", "`row_at`", "second: rows", "load", "`rows_of_key` first", "again"]
    table("Searching one run", [*columns, "`find` of 4 000, each", "`second_counts`"], rows)


def search(disk: Disk) -> list[object]:
    """One row of the table."""
    opened = best(lambda: Run.open(disk, RUNS, "one", LOG_ID))
    run = Run.open(disk, RUNS, "one", LOG_ID)
    middle = int(run.slice(run.rows // 2, run.rows // 2 + 1)["due_ms"][0])
    second = middle // 1000 * 1000
    first, stop = run.row_at(second), run.row_at(second + 1000)
    key = int(run.slice(run.rows // 3, run.rows // 3 + 1)["key"][0])
    cold = best(lambda: run.rows_of_key(key), 1)
    sample = run.entries(np.arange(0, run.rows, max(1, run.rows // 4_000)))
    found = best(lambda: run.find(sample["due_ms"], sample["origin"]))
    return [
        run.rows,
        f"{opened * 1e3:.2f} ms",
        f"{best(lambda: run.row_at(middle), 50) * 1e6:.0f} µs",
        stop - first,
        f"{best(lambda: run.readable(run.row_at(second), run.row_at(second + 1000)), 50) * 1e6:.0f} µs",
        f"{cold * 1e3:.1f} ms",
        f"{best(lambda: run.rows_of_key(key)) * 1e6:.0f} µs",
        f"{found / len(sample) * 1e6:.2f} µs",
        f"{best(lambda: run.second_counts(middle // 3_600_000, 0, run.rows)) * 1e3:.1f} ms",
    ]


def probe(runs: list[Run], span_ms: int) -> list[str]:
    """Medians over 50 windows, and the time of one key."""
    windows = range(START_MS, START_MS + span_ms, span_ms // 50)
    moved, loaded = [], []
    for at in windows:
        began = time.perf_counter()
        stops = [run.row_at(at + 10_000) for run in runs]
        between = time.perf_counter()
        for run, stop in zip(runs, stops, strict=True):
            run.readable(run.row_at(at), stop)
        moved.append(between - began)
        loaded.append(time.perf_counter() - began)
    for run in runs:
        run.rows_of_key(5)  # compares the CRCs
    key = best(lambda: [run.rows_of_key(5) for run in runs])
    times = [float(np.median(moved)), float(np.median(loaded)), key]
    return [f"{each * 1e6:.0f} µs" for each in times]


def probing(total: int, span_ms: int) -> None:
    """Time to find the rows of a ten-second window in all runs."""
    rows: list[list[object]] = []
    for count in (8, 32, 128):
        with fresh() as disk:
            runs, *_ = make(disk, total // count * (RECORD_BYTES + ENTRY.itemsize), total, span_ms)
            rows.append([len(runs), runs[0].rows, *probe(runs, span_ms)])
    columns = ["runs", "rows of each", "cursors moved 10 s on", "10 s loaded", "`rows_of_key`"]
    table("Probing all runs", columns, rows)


def main() -> None:
    """Run all and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="messages in all")
    parser.add_argument("--days", type=int, default=30, help="due over so many days")
    parser.add_argument("--only", choices=["making", "searching", "probing"], default=None)
    chosen = parser.parse_args()
    touch_page_cache(chosen.rows)
    for name, part in (("making", making), ("searching", searching), ("probing", probing)):
        if chosen.only in {None, name}:
            part(chosen.rows, chosen.days * DAY_MS)


if __name__ == "__main__":
    main()
