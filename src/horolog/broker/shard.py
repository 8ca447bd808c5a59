"""The state of one shard, and what is applied to it when a frame is committed.

Two kinds of state.  *Decided* state changes inside a step, before anything is durable: topics, groups, leases,
acks, queue tails, the in-flight marks of hours.  It may run ahead of the log's commit position because every
reply waits for it.  *Derived* state changes only when a frame is committed, online and in replay by the same
code (`apply`): consume queues, hours, the window, and all counts that anybody sees.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.topics import Topic, Topics
from horolog.delay.state import EntryState
from horolog.delay.store import DelayStore, Unfiled
from horolog.errors import ErrorCode, HorologError
from horolog.limits import CONTROL_RESERVE_BYTES, MAX_DELAY_MS, TURN_HAND_OVER_BYTES
from horolog.log.commit_log import CommitLog
from horolog.ready.ready import Ready
from horolog.storage.api import Storage
from horolog.wheel.wheel import Wheel


class Settled(NamedTuple):
    """Entries of an hour that a frame hands over or recalls."""

    hour: int
    index: npt.NDArray[np.int64]  # type: ignore[assignment]  # hides tuple.index
    state: EntryState


class Applied(NamedTuple):
    """What a frame changes when it is committed; `end` is the log position behind it."""

    end: int
    units: list[tuple[Topic, int, npt.NDArray[Any]]]
    unfiled: Unfiled | None
    settled: list[Settled]


class Settings(NamedTuple):
    """What the core must know of the configuration; nothing of it is read in a replay."""

    broker_name: str = "broker-a"
    store_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"  # advertised IPv4 and port
    max_delay_ms: int = MAX_DELAY_MS
    turn_bytes: int = TURN_HAND_OVER_BYTES  # of one hand-over frame
    reserve_bytes: int = CONTROL_RESERVE_BYTES  # free space below which sends are refused


class Shard:
    """Everything that one step may touch."""

    def __init__(
        self, storage: Storage, directory: str, log: CommitLog, settings: Settings
    ) -> None:
        self.storage = storage
        self.directory = directory
        self.log = log
        self.settings = settings
        self.topics = Topics(storage, f"{directory}/queues")
        self.delay = DelayStore(storage, f"{directory}/hours")
        self.wheel = Wheel(self.delay)
        self.ready = Ready()
        self.uncommitted: deque[Applied] = deque()
        self.stalled: list[Unfiled] = []  # committed, but the disk had no space for their hours
        self.visible: set[int] = (
            set()
        )  # numbers of topics that got new messages since last looked at
        self.handed_over = 0
        self.recalled = 0
        self.applied = 0
        self.checkpoint_position = 0
        self.former_hours: dict[int, int] = {}  # state versions that the last checkpoint names
        self.store_ms = 0
        self.clients: dict[str, int] = {}  # client id → monotonic ms when last seen
        self.problems: list[str] = []
        self.disk_refusal: HorologError | None = None  # why sends are refused just now

    def apply(self, change: Applied) -> None:
        """A frame is committed: make what it holds visible."""
        for topic, queue_id, units in change.units:
            queue = topic.queues[queue_id]
            queue.append(units)
            topic.tails[queue_id] = max(topic.tails[queue_id], queue.length)
            self.visible.add(topic.number)
        for hour, index, state in change.settled:
            self.delay.hours[hour].settle(index, state)
            if state is EntryState.HANDED_OVER:
                self.handed_over += len(index)
            else:
                self.recalled += len(index)
        if change.unfiled is not None:
            self.stalled.append(change.unfiled)
            self.file_stalled()
        self.applied = change.end

    def file_stalled(self) -> bool:
        """File what waits for it, in log order; False if the disk is full."""
        while self.stalled:
            filed, rest = self.delay.file(self.stalled[0])
            for hour, due_ms, index in filed:
                assert hour == due_ms[0] // 3_600_000
                self.wheel.insert(due_ms, index)
            if rest is not None:
                self.stalled[0] = rest
                return False
            self.stalled.pop(0)
        return True

    def is_in_flight(self, key: int) -> bool:
        """Whether a scheduled message of that key hash is appended but not filed yet."""
        if any(bool((unfiled.heads["key"] == key).any()) for unfiled in self.stalled):
            raise HorologError(
                ErrorCode.DISK_FULL,
                "disk: full; this message cannot be filed, nor recalled, just now",
            )
        return any(
            change.unfiled is not None and bool((change.unfiled.heads["key"] == key).any())
            for change in self.uncommitted
        )

    def close(self) -> None:
        """Close all files of the core."""
        self.delay.close()
        for _, _, queue in self.topics.all_queues():
            queue.close()
        self.log.close()

    def stamp_ms(self, wall_ms: int) -> int:
        """Store time: the wall clock, but never less than before."""
        self.store_ms = max(self.store_ms, wall_ms)
        return self.store_ms
