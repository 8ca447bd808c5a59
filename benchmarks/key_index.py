"""Two designs of the log key index, measured: `python -m benchmarks.key_index --rows 1000000`.

chunks  what `horolog.log.key_index` does: files of 2²⁰ rows, each a hash table whose rows are chained
runs    an append file of rows, and over it the sorted runs of `horolog.delay.entry_keys`, merged eight to one

Rows come in batches of 1 000, as the frames of a busy broker do.  Columns: cost of adding a row; the longest
single add; a look-up of one key that is there, and of one that is not; 1 000 keys at once, a tenth of them
there; opening after a kill; bytes of all files a row, and bytes written a row.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from horolog.delay.entry_keys import KeyRuns
from horolog.log.key_index import KeyIndex
from horolog.log.key_merge import equal_ranges
from horolog.storage.disk import Disk

WORK = Path(__file__).resolve().parents[1] / "build" / "bench" / "key-index"
BATCH = 1_000
PAIR = np.dtype([("key", "<u8"), ("position", "<u8")])


class RunIndex:
    """The design that was not taken: rows in an append file, sorted runs of keys over their numbers."""

    def __init__(self, disk: Disk) -> None:
        disk.make_dir("runs")
        self._file = disk.open("runs/rows", create=True)
        self._runs = KeyRuns(disk, "runs")
        self._tail: list[Any] = []
        self.count = 0

    def add(self, keys: Any, positions: Any) -> None:
        """Rows in log order."""
        rows = np.empty(len(keys), PAIR)
        rows["key"], rows["position"] = keys, positions
        self._tail.append(rows)
        self.count += len(rows)
        if len(self._tail) == 4:
            self.flush()
        self._runs.add(keys)

    def flush(self) -> None:
        """Write what is in memory."""
        if self._tail:
            rows = np.concatenate(self._tail)
            self._file.write(16 * (self.count - len(rows)), rows.tobytes())
            self._tail = []

    def find(self, key: int) -> list[int]:
        """Log positions of a key."""
        self.flush()
        found = [self._file.read(16 * row + 8, 8) for row in self._runs.find(key)]
        return [int.from_bytes(raw, "little") for raw in found]

    def find_many(self, keys: Any, from_position: int = 0) -> Any:
        """(Index in `keys`, log position)."""
        self.flush()
        at, rows = self._rows_of(keys)
        positions = np.frombuffer(self._file.view(), PAIR)["position"][rows]
        kept = positions >= from_position
        return at[kept], positions[kept]

    def _rows_of(self, keys: Any) -> tuple[Any, Any]:
        """(Index in `keys`, row), by one search of all keys in every run."""
        order = np.argsort(keys, kind="stable")
        found = [
            (order[at], run.columns.rows[row].astype(np.int64) + run.first)
            for run in self._runs._runs
            for at, row in [equal_ranges(run.columns.keys, keys[order])]
        ]
        buffered = self._runs._buffered
        row, at = equal_ranges(keys[order], self._runs._buffer[:buffered])  # it is not sorted
        found.append((order[at], row + (self._runs.count - buffered)))
        return tuple(np.concatenate(column) for column in zip(*found, strict=True))

    def open(self, count: int) -> None:
        """Go on with so many rows."""
        self.count = count

        def read_keys(first: int, stop: int) -> Any:
            raw = self._file.read(16 * first, 16 * (stop - first))
            return np.frombuffer(raw, PAIR)["key"].copy()

        self._runs.open(count, read_keys)

    def close(self) -> None:
        """Close the files."""
        self._runs.close()
        self._file.close()


class Design(Protocol):
    """What both are asked."""

    def add(self, keys: Any, positions: Any) -> None:
        """Rows, in log order."""

    def find(self, key: int) -> list[int]:
        """Positions of one key."""

    def find_many(self, keys: Any, from_position: int = 0) -> Any:
        """Positions of many keys."""

    def flush(self) -> Any:
        """Write what waits."""

    def close(self) -> None:
        """Close the files."""


def made(design: str, disk: Disk) -> Design:
    """A fresh one."""
    return RunIndex(disk) if design == "runs" else KeyIndex(disk, "keys", log_id=1)


def reopened(design: str, disk: Disk, rows: int, captured: Any) -> Design:
    """As after a kill."""
    index = made(design, disk)
    if isinstance(index, KeyIndex):
        assert not index.restore(captured, 0)
    else:
        index.open(rows)
    return index


def _each_us(calls: int, call: Any) -> float:
    began = time.perf_counter()
    for i in range(calls):
        call(i)
    return (time.perf_counter() - began) / calls * 1e6


def measure(design: str, rows: int) -> dict[str, Any]:
    """Everything for one design and size."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    disk = Disk(WORK)
    index = made(design, disk)
    random = np.random.default_rng(1)
    known = []
    longest, spent = 0.0, 0.0
    written = _written()
    for first in range(0, rows, BATCH):
        keys = random.integers(0, 1 << 64, BATCH, np.uint64)
        positions = (np.arange(first, first + BATCH) * 300).astype(np.uint64)
        began = time.perf_counter()
        index.add(keys, positions)
        took = time.perf_counter() - began
        spent += took
        longest = max(longest, took)
        known.append((int(keys[7]), int(positions[7])))
    index.flush()
    written = _written() - written
    picks = random.integers(0, len(known), 2_000).tolist()
    assert all(known[i][1] in index.find(known[i][0]) for i in picks[:200])
    absent = random.integers(0, 1 << 64, 2_000, np.uint64).tolist()
    there = _each_us(500, lambda i: index.find(known[picks[i]][0]))
    missing = _each_us(500, lambda i: index.find(absent[i]))
    batches = [random.integers(0, 1 << 64, 1_000, np.uint64) for _ in range(20)]
    for batch in batches:
        batch[::10] = [known[i][0] for i in picks[:100]]
    many = _each_us(20, lambda i: index.find_many(batches[i]))
    captured = index.captured() if isinstance(index, KeyIndex) else None
    index.close()
    began = time.perf_counter()
    index = reopened(design, disk, rows, captured)
    opened = time.perf_counter() - began
    began = time.perf_counter()
    assert index.find(known[0][0])
    first_find = time.perf_counter() - began
    index.close()
    size = sum(path.stat().st_size for path in WORK.rglob("*") if path.is_file())
    shutil.rmtree(WORK)
    return {
        "design": design,
        "rows": rows,
        "add_ns": round(spent / rows * 1e9),
        "longest_add_ms": round(longest * 1e3, 1),
        "find_us": round(there),
        "find_absent_us": round(missing),
        "find_1000_ms": round(many / 1e3, 2),
        "open_ms": round(opened * 1e3, 1),
        "first_find_ms": round(first_find * 1e3, 1),
        "bytes_a_row": round(size / rows, 1),
        "written_a_row": round(written / rows, 1),
    }


def _written() -> int:
    """Bytes this process has written by system calls."""
    return int(Path("/proc/self/io").read_text().split("wchar: ")[1].split()[0])


def main() -> None:
    """Both designs."""
    parser = argparse.ArgumentParser(description="Measure two designs of the log key index.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--design", choices=["chunks", "runs"])
    options = parser.parse_args()
    for design in [options.design] if options.design else ["chunks", "runs"]:
        print(json.dumps(measure(design, options.rows)), flush=True)


if __name__ == "__main__":
    main()
