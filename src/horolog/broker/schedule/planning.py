"""Planning: the next firings of every schedule become scheduled messages.

A schedule has its next firing planned as soon as that is due within PLAN_AHEAD_MS, and all firings
of the next PLAN_LEAD_MS.  Planned firings do not change when time zones are updated; firings that
are not planned yet do.  A firing whose time has passed when it is planned was missed, and the rule
says what becomes of it.

Worked example, every 4 s, at 12:00:00: the firings of :04, :08, :12, :16 and :20 are planned in one
frame, up to twice the lead; at :10 (ten seconds before the last of them) the next ones.  Daily at
09:00: tomorrow's is planned at 09:00 today.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from horolog.broker.effects import Now
from horolog.broker.life.space import DiskPressure
from horolog.broker.schedule.firings import PlannedFirings, messages_of, plan
from horolog.broker.schedule.schedule import Schedule
from horolog.broker.send.group_queues import draw_queues
from horolog.broker.send.message_frames import append_messages
from horolog.broker.shard import Shard
from horolog.errors import HorologError
from horolog.limits import PLAN_RETRY_MS, TURN_PLANS_MAX
from horolog.log.control_records import encode_schedule
from horolog.log.record import HEAD, HEAD_BYTES
from horolog.protocol.rocketmq.message_group import NO_GROUP, group_code
from horolog.protocol.schedules import State


class _Wake(NamedTuple):
    at_ms: int  # wall clock
    schedule_id: int


@dataclass(slots=True)
class _Frame:
    """Schedules whose new firings go into one frame."""

    controls: list[bytes] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    queues: list[int] = field(default_factory=list)
    topics: list[int] = field(default_factory=list)
    size: int = 0


class Planner:
    """Plans the firings of a shard's schedules.

    It does nothing while no firing is to be planned: a heap tells when the next schedule has to be
    looked at.
    """

    def __init__(self, shard: Shard, disk: DiskPressure) -> None:
        self._shard = shard
        self._disk = disk
        self._heap: list[_Wake] = []
        self._wakes: dict[int, int] = {}  # id → when; other entries of the heap are stale

    def wake_in(self, wall_ms: int) -> int | None:
        """Return the ms of wall time until a schedule has to be looked at.

        0: now; None: never.
        """
        if self._shard.schedules.changed:
            return 0
        while self._heap and self._wakes.get(self._heap[0].schedule_id) != self._heap[0].at_ms:
            heapq.heappop(self._heap)
        return max(0, self._heap[0].at_ms - wall_ms) if self._heap else None

    def work(self, now: Now) -> None:
        """Plan firings that are to be planned now, for at most TURN_PLANS_MAX schedules."""
        if self.wake_in(now.wall_ms) != 0:
            return
        limit = self._shard.log.frame_bytes_max
        frame = _Frame()
        for schedule_id in self._take(now.wall_ms):
            schedule = self._shard.schedules.by_id.get(schedule_id)
            if schedule is None or schedule.state is not State.ACTIVE:
                continue
            try:
                found = self._plan(schedule, now)
            except HorologError as error:
                if error.fatal:
                    raise
                schedule.problem = error.message
                self._wake(schedule_id, now.wall_ms + PLAN_RETRY_MS)
                continue
            schedule.problem = ""
            if found.progress is not None:
                row = self._shard.schedules.set_progress(schedule, found.progress)
                control = encode_schedule(row)
                size = len(control) + sum(map(len, found.records))
                if frame.size and frame.size + size > limit:
                    self._append(frame, now.wall_ms)
                    frame = _Frame()
                self._add(frame, schedule, control, found.records)
            if found.wake_ms is not None:
                self._wake(schedule_id, found.wake_ms)
        if frame.size:
            self._append(frame, now.wall_ms)

    def _take(self, wall_ms: int) -> list[int]:
        """Return the schedules to look at now."""
        changed = self._shard.schedules.changed
        taken = list(changed)[:TURN_PLANS_MAX]
        for schedule_id in taken:
            del changed[schedule_id]
            self._wakes.pop(schedule_id, None)
        while len(taken) < TURN_PLANS_MAX and self._heap and self._heap[0].at_ms <= wall_ms:
            at_ms, schedule_id = heapq.heappop(self._heap)
            if self._wakes.get(schedule_id) == at_ms:
                del self._wakes[schedule_id]
                taken.append(schedule_id)
        return taken

    def _wake(self, schedule_id: int, at_ms: int) -> None:
        self._wakes[schedule_id] = at_ms
        heapq.heappush(self._heap, _Wake(at_ms, schedule_id))

    def _plan(self, schedule: Schedule, now: Now) -> PlannedFirings:
        """Plan one schedule, with the records of its firings.

        Refused as a send would be; then nothing is changed.
        """
        shard = self._shard
        topic = shard.topics.get(schedule.content.topic)
        topic.check_writable()
        has_overdue = shard.wheel.next_due_in(now.wall_ms) == 0
        found = plan(
            shard.settings.calendar,
            schedule,
            shard.log.log_id,
            now.wall_ms,
            has_overdue=has_overdue,
        )
        records = messages_of(schedule, found.fresh, now.wall_ms)
        if records:
            self._disk.check(now.mono_ms, now.wall_ms, sum(map(len, records)))
        return found._replace(records=records)

    def _add(
        self, frame: _Frame, schedule: Schedule, control: bytes, records: Sequence[bytes]
    ) -> None:
        topic = self._shard.topics.get(schedule.content.topic)
        frame.controls.append(control)
        frame.records += records
        frame.topics += [topic.id] * len(records)
        code = NO_GROUP if (name := schedule.content.message_group) is None else group_code(name)
        codes = np.full(len(records), code)
        frame.queues += draw_queues([topic] * len(records), codes).tolist()
        frame.size += len(control) + sum(map(len, records))

    def _append(self, frame: _Frame, wall_ms: int) -> None:
        """Append one frame: the progress of the schedules, and the messages of their firings."""
        shard = self._shard
        shard.counters.firings += len(frame.records)
        if not frame.records:
            shard.log.append(b"".join(frame.controls), len(frame.controls), wall_ms)
            return
        heads = np.frombuffer(
            b"".join([record[:HEAD_BYTES] for record in frame.records]), HEAD
        ).copy()
        heads["topic"] = frame.topics
        append_messages(
            shard,
            b"".join(frame.records),
            heads,
            np.array(frame.queues, np.int64),
            wall_ms,
            controls=frame.controls,
        )
