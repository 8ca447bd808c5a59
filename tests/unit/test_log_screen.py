"""The screen of an audit clears what is settled once, and nothing else, whatever part of the keys a row falls into."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from horolog.pipeline import log_screen
from horolog.pipeline.data_files import Segment
from horolog.pipeline.log_screen import Screened, ScreenReader, suspect_keys
from horolog.pipeline.log_source import LogPart, Window
from horolog.pipeline.log_table import LogRows, RowKind

HORIZON_MS = 1_000_000
LATE_MS = 500
PARTS = 7


def rows_of(messages: list[tuple[int, int, int, int, int]]) -> LogRows:
    """From (kind, origin, key, due ms, store ms); the position is the row's number."""
    kind, origin, key, due, store = np.array(messages, np.int64).T
    none = np.zeros(len(kind), np.int64)
    return LogRows(
        kind=kind.astype(np.uint8),
        position=np.arange(len(kind)),
        origin=origin,
        origin_row=none,
        topic=none,
        key=key,
        due_ms=due,
        append_ms=store,
        store_ms=store,
        queue=none,
        queue_offset=none,
        reconsume_times=none,
        size=none,
    )


def story(number: int, random: Random) -> tuple[list[tuple[int, int, int, int, int]], bool]:
    """What the log says about one message, and whether that is fine."""
    key, due = random.getrandbits(63) - (1 << 62), random.randrange(2 * HORIZON_MS)
    scheduled = (int(RowKind.SCHEDULED), number, key, due, 1)
    handed = (int(RowKind.HANDED), number, key, due, due + 5)
    recalled = (int(RowKind.RECALL), number, key, due, 0)
    way = random.choice(
        [
            "wait",
            "hand",
            "hand",
            "hand",
            "recall",
            "twice",
            "early",
            "late",
            "none",
            "after",
            "other",
        ]
    )
    match way:
        case "hand":
            return [scheduled, handed], True
        case "recall":
            return [scheduled, recalled], True
        case "wait":
            return [scheduled], due > HORIZON_MS
        case "twice":
            return [scheduled, handed, handed], False
        case "early":
            return [scheduled, (*handed[:4], due - 1)], False
        case "late":
            return [scheduled, (*handed[:4], due + LATE_MS + 1)], False
        case "none":
            return [handed], False
        case "after":
            return [scheduled, recalled, handed], False
        case _:  # one id, scheduled and handed over twice
            other = number + 500_000
            again = [(row[0], other, *row[2:]) for row in (scheduled, handed)]
            return [scheduled, handed, *again], False


@pytest.fixture
def plan() -> SimpleNamespace:
    """A log that begins at 0 and is large enough for PARTS parts."""
    stop = (PARTS - 1) * log_screen.PART_LOG_BYTES
    return SimpleNamespace(segments=[Segment(0, 0, stop)], adopted=[], forgotten=[], start=0)


def test_only_what_is_settled_once_is_cleared(plan, monkeypatch) -> None:
    random = Random(5)
    rows, wanted = [], set()
    for number in range(4_000):
        events, is_fine = story(number, random)
        rows += events
        if not is_fine:
            wanted.add(events[0][2])
    random.shuffle(rows)
    stretches = [rows_of(rows[first : first + 300]) for first in range(0, len(rows), 300)]
    monkeypatch.setattr(log_screen, "read_part", lambda plan, part: stretches)
    monkeypatch.setattr(log_screen, "PART_ROWS", 1_000)
    limits = {"horizon_ms": HORIZON_MS, "late_ms": LATE_MS}
    reader = ScreenReader(plan, Window(), **limits)
    parts = defaultdict(list)
    for batch in reader.read(LogPart(None)):
        for row in batch.to_pylist():
            names = zip(Screened._fields, (np.int64, np.uint64, np.uint8), strict=True)
            numbers = [np.frombuffer(row[name], dtype) for name, dtype in names]
            parts[row["part"]].append(Screened(*numbers))
    assert sorted(parts) == list(range(PARTS))
    assert sum(len(piece.key) for pieces in parts.values() for piece in pieces) == len(rows)
    found = [suspect_keys(Screened.joined(pieces)).tolist() for pieces in parts.values()]
    assert sorted(key for keys in found for key in keys) == sorted(wanted)


def test_nothing_is_suspected_in_nothing() -> None:
    none = np.empty(0, np.int64)
    assert not len(suspect_keys(Screened(none, none.astype(np.uint64), none.astype(np.uint8))))
