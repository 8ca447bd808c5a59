"""Run files of messages that become due, and their contents."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from horolog.spark.due_runs import RunDirectory, read_piece
from horolog.testing.due_files import write_run

START = 1_700_000_000_000


def numbered(body: bytes) -> int:
    """Return the number at the beginning of a body."""
    return int(bytes(body)[:16])


def three_runs(place: Path) -> Path:
    """Write three files of 3 000 messages in all, due within ten seconds.

    Half of one file is due in one millisecond.
    """
    place.mkdir()
    chance = np.random.default_rng(5)
    for number in range(3):
        due = START + chance.integers(0, 10_000, 1_000)
        if number == 1:
            due[:500] = START + 5_000
        write_run(place, f"r{number}", np.sort(due), first=1_000 * number)
    return place


def all_due(place: Path) -> dict[int, int]:
    """Return the number of each message and its due time, from the files."""
    found = {}
    directory = RunDirectory(str(place))
    directory.refresh()
    for piece in directory.between(0, 1 << 60):
        for due in read_piece(str(place), piece, lossy=False):
            bodies = due.records.columns(["body"])["body"].to_pylist()
            found.update(zip(map(numbered, bodies), due.records.due_ms.tolist(), strict=True))
    return found
