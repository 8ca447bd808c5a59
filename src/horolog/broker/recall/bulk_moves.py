"""Bulk moves: a piece of a bulk move is one or several frames of pairs, each a RECALL and its copy.

Each pair is what a reschedule of that one message would log, so a crash between two frames leaves
every message either at its old or at its new due time, and readers of the log need no further rule.

Copies made by a shift carry the property OPERATIONS: the names of the last MOVES_KEPT shifts that
have moved the message, so that the same shift again leaves the message alone, whatever its due time
is by then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.applied import Settled
from horolog.broker.recall.reschedules import append_copies, moved_record
from horolog.broker.send.sends import too_late
from horolog.broker.shard import Shard
from horolog.delay import pending
from horolog.delay.lanes import lanes_of
from horolog.delay.state import EntryState
from horolog.errors import ErrorCode, HorologError
from horolog.limits import HOUR_MS, MOVES_KEPT
from horolog.log.control_records import encode_recall, origins_of
from horolog.log.record import HEAD_BYTES
from horolog.protocol.move_commands import MoveMany
from horolog.protocol.rocketmq import layout, properties

OPERATIONS = "__HOROLOG_MOVES"


def check_move(shard: Shard, command: MoveMany, wall_ms: int) -> None:
    """Check that all messages of the command may be due at their new times; if not, none is moved.

    Raise TOPIC_NOT_FOUND or ILLEGAL_DELIVERY_TIME.
    """
    topic = shard.topics.get(command.topic)
    assert (command.new_due_ms is None) + (command.shift_ms is None) + (not command.now) == 2
    latest_ms = command.new_due_ms or 0
    if command.shift_ms is not None and command.shift_ms > 0:
        hours = [
            hour
            for hour, _ in pending.by_hour(shard.delay, topic.id)
            if command.from_ms - HOUR_MS < hour * HOUR_MS < command.to_ms
        ]
        if hours:
            latest_ms = min(command.to_ms, (hours[-1] + 1) * HOUR_MS) - 1 + command.shift_ms
    refusal = too_late(latest_ms, wall_ms, shard.settings.max_delay_ms)
    if refusal is not None:
        raise refusal


class Moved(NamedTuple):
    """The result of a piece."""

    moved: int
    left: int  # messages whose properties have no room
    bytes: int  # of all records


def move(
    shard: Shard,
    command: MoveMany,
    refs: npt.NDArray[np.int64],
    entries: npt.NDArray[Any],
    wall_ms: int,
) -> Moved:
    """Move pending messages, the earliest first; quarantine unreadable ones, uncounted."""
    order = np.lexsort((entries["row"], entries["origin"], entries["due_ms"]))
    refs, entries, records = shard.delay.read_intact(refs[order], entries.take(order))
    lanes = lanes_of(records)
    limit = shard.log.frame_bytes_max
    frame = _Frame(shard, wall_ms)
    moved = 0
    for i, (record, due_ms) in enumerate(zip(records, entries["due_ms"].tolist(), strict=True)):
        try:
            copy = moved_record(
                bytes(record),
                _new_due_ms(command, due_ms, wall_ms),
                wall_ms,
                _marks(command, record),
            )
        except HorologError as error:
            if error.code is not ErrorCode.PROPERTIES_TOO_LARGE:
                raise
            continue
        one = slice(i, i + 1)
        origins = origins_of(entries["origin"][one], entries["row"][one])
        topic, key = int(entries["topic"][i]), int(entries["key"][i])
        control = encode_recall(topic, key, due_ms, origins, lanes[one], moved=True)
        if frame.bytes + len(control) + len(copy) > limit:
            frame.append()
        frame.add(control, copy, refs[i], lanes[i])
        moved += 1
    frame.append()
    return Moved(moved, len(records) - moved, int(entries["size"].sum()))


class _Frame:
    """Pairs that are to be one frame."""

    def __init__(self, shard: Shard, wall_ms: int) -> None:
        self._shard = shard
        self._wall_ms = wall_ms
        self._pairs: list[tuple[list[bytes], bytes]] = []
        self._refs: list[int] = []
        self._lanes: list[int] = []
        self.bytes = 0

    def add(self, control: bytes, copy: bytes, ref: int, lane: int) -> None:
        """Add one message to the frame."""
        self._pairs.append(([control], copy))
        self._refs.append(ref)
        self._lanes.append(lane)
        self.bytes += len(control) + len(copy)

    def append(self) -> None:
        """Log the pairs that were added, and begin another frame."""
        if not self._pairs:
            return
        refs = np.array(self._refs, np.int64)
        self._shard.delay.mark_inflight(refs, EntryState.RECALLING)
        settled = Settled(refs, EntryState.MOVED, np.array(self._lanes, np.uint16))
        append_copies(self._shard, self._pairs, settled, None, self._wall_ms)
        self._pairs, self._refs, self._lanes, self.bytes = [], [], [], 0


def _new_due_ms(command: MoveMany, due_ms: int, wall_ms: int) -> int:
    if command.now:
        return wall_ms
    if command.shift_ms is not None:
        return max(1, due_ms + command.shift_ms)
    assert command.new_due_ms is not None, command
    return command.new_due_ms


def _marks(command: MoveMany, record: memoryview) -> dict[str, str]:
    """Return the properties that the copy gets beside its due time."""
    if command.shift_ms is None or not command.operation:
        return {}
    names = [*_operations(record), command.operation]
    return {OPERATIONS: " ".join(names[-MOVES_KEPT:])}


def was_moved_by(record: memoryview, operation: str) -> bool:
    """Return whether that shift has moved the message in a record."""
    return operation in _operations(record)


def _operations(record: memoryview) -> list[str]:
    stored = bytes(layout.properties_of(record[HEAD_BYTES:]))
    return (properties.value_of(stored, OPERATIONS) or "").split()
