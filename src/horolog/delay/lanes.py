"""Lanes: how many messages each delay level has scheduled, and how many of them are done.

A message that names a level is filed like any other; its due time is its store time plus the delay
of its level, decided once and logged.  A level never counts from an earlier time than before
(`Shard.level_from_ms`), so messages of one level and delay are due in log order: a lane is a FIFO
without a queue of its own, until the wall clock is stepped back by more than LEVEL_STEP_MAX_MS.
What a lane adds is this count.  The record of a message names its lane (`log.record`), when the
message is scheduled and when it is handed over; a recall, a move or an expiry logs the lanes of the
messages that it takes away.  So a replay counts the same (docs/decisions/0015-lanes.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from horolog.log.record import LANE_AT, LANE_BYTES
from horolog.protocol.send_commands import LaneView


class Lanes:
    """The lane counts of a shard."""

    def __init__(self) -> None:
        self._scheduled: dict[int, int] = {}
        self._done: dict[int, int] = {}

    @property
    def waits(self) -> bool:
        """Whether any message waits that was scheduled by a level."""
        return any(count > self._done.get(lane, 0) for lane, count in self._scheduled.items())

    def schedule(self, lanes: npt.NDArray[Any]) -> None:
        """Count messages with these lanes as scheduled; lane 0 stands for none."""
        _add(self._scheduled, lanes)

    def settle(self, lanes: npt.NDArray[Any]) -> None:
        """Count messages with these lanes as handed over, recalled, moved or expired."""
        _add(self._done, lanes)
        for lane, done in self._done.items():
            # Unknown after a rebuild without the earlier log: at least as many as are done.
            self._scheduled[lane] = max(self._scheduled.get(lane, 0), done)

    def rows(self) -> list[LaneView]:
        """Return all lanes that were ever used, by level."""
        return [LaneView(at, n, self._done.get(at, 0)) for at, n in sorted(self._scheduled.items())]

    def restore(self, rows: list[list[int]]) -> None:
        """Restore the counts that `rows` returned."""
        self._scheduled = {lane: scheduled for lane, scheduled, _ in rows}
        self._done = {lane: done for lane, _, done in rows if done}

    def check_invariants(self) -> None:
        """Assert that no lane has more messages done than scheduled."""
        assert 0 not in self._scheduled
        for lane, scheduled, done in self.rows():
            assert 0 <= done <= scheduled, (lane, scheduled, done)
        assert self._done.keys() <= self._scheduled.keys()


def _add(counts: dict[int, int], lanes: npt.NDArray[Any]) -> None:
    if not bool(lanes.any()):
        return
    found, each = np.unique(lanes[lanes != 0], return_counts=True)
    for lane, count in zip(found.tolist(), each.tolist(), strict=True):
        counts[lane] = counts.get(lane, 0) + count


def lanes_of(records: list[memoryview]) -> npt.NDArray[np.uint16]:
    """Return the lane of each record."""
    packed = b"".join([record[LANE_AT : LANE_AT + LANE_BYTES] for record in records])
    return np.frombuffer(packed, "<u2")


def delay_offsets(rows: list[LaneView], version: int, at_ms: int) -> bytes:
    """Encode RocketMQ's delayOffset.json: messages done by level; for people, never read back."""
    fields = {
        "dataVersion": {"counter": version, "stateVersion": 0, "timestamp": at_ms},
        "offsetTable": {str(row.level): row.done for row in rows},
    }
    return orjson.dumps(fields)
