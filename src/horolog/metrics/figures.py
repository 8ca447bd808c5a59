"""Present values of a broker as plain numbers: for Prometheus, and for a page that shows rates.

    present = figures.read()      # on the event loop; computed at most once a second
    present.counts[Count.HANDED_OVER], present.lateness, present.pending …

The values are read between two turns, from what the parts keep in memory: reading waits for
nothing, so it works also while the disk hangs.  Most values cost nothing.  Values that grow with
topics or groups are bounded by the number of topics and groups with metrics of their own, or are
computed so seldom that they take at most a hundredth of the loop's time (`CachedFigure`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from horolog import __version__
from horolog.backup.status import BackupState
from horolog.broker.counters import OTHERS, Count
from horolog.delay import pending
from horolog.delay.entry import ENTRY_BYTES
from horolog.delay.far.adopted import AdoptedRun
from horolog.errors import HorologError
from horolog.limits import COUNTED_GROUPS
from horolog.metrics.group_figures import GroupFigures, Marks, group_figures
from horolog.metrics.present import (
    OTHER,
    DiskFigures,
    DoorFigures,
    FileFigures,
    Present,
    TopicFigures,
)
from horolog.server.intake import Intake
from horolog.server.loop import Engine

_FINEST_S = 1.0  # reads within this time share one result
_PART = 100  # a `CachedFigure` takes at most one part in this many of the time
_Result = TypeVar("_Result")


class Connected(Protocol):
    """The figures of a door (`server.door.Door`, `admin.server.AdminServer`)."""

    accepted: int
    refused: int

    @property
    def connections(self) -> int:
        """Count of open connections."""
        ...


class CachedFigure(Generic[_Result]):
    """A costly value, cached for at least a hundred times as long as it took to compute.

    If it cannot be computed, because a file is damaged or gone, the old value stays: metrics must
    work when things are bad.
    """

    def __init__(self, compute: Callable[[], _Result], first: _Result) -> None:
        self._compute = compute
        self._next_s = 0.0
        self._result = first

    def result(self) -> _Result:
        """Return the cached value, computed again when it is old enough."""
        began = time.monotonic()
        if began >= self._next_s:
            with suppress(HorologError, OSError):
                self._result = self._compute()
            took = time.monotonic() - began
            self._next_s = began + took * _PART
        return self._result


class Figures:
    """The reader of one broker's values; belongs to the event loop's thread.

    groups_max   pairs of a group and a topic to read with figures of their own
    """

    def __init__(
        self,
        engine: Engine,
        *,
        broker_name: str,
        data_dir: Path,
        groups_max: int = COUNTED_GROUPS,
    ) -> None:
        self._engine = engine
        self._doors: dict[str, Connected] = {}
        self._intake: Intake | None = None
        self._encrypts: Any = None  # the front with the certificate
        self._name = broker_name
        self._data_dir = data_dir
        self._started_s = time.time()
        self._began = time.perf_counter()
        self._backup_ms = 0
        self._marks = Marks()
        shard = engine.broker.shard
        no_topics: dict[int, int] = {}
        self._pending = CachedFigure(lambda: pending.by_topic(shard.delay), no_topics)
        no_groups: list[GroupFigures] = []
        self._groups = CachedFigure(
            lambda: group_figures(
                shard,
                self._marks,
                groups_max,
                engine.clock.wall_ms(),
                engine.clock.monotonic_ms(),
            ),
            (no_groups, 0),
        )
        self._present: Present | None = None
        self._next_s = 0.0

    def watch(self, fronts: Iterable[Any]) -> None:
        """Report on the doors of these open fronts from now on."""
        for front in fronts:
            if hasattr(front, "certificate_ends_s"):
                self._encrypts = front
            for name, door in front.doors.items():
                self._doors[name] = door
                self._intake = getattr(door, "intake", self._intake)

    def read(self) -> Present:
        """Return the values of now, or of a moment less than a second ago."""
        now_s = time.monotonic()
        if self._present is None or now_s >= self._next_s:
            self._present = self._read()
            self._next_s = now_s + _FINEST_S
        return self._present

    def _read(self) -> Present:
        engine = self._engine
        shard, wall_ms = engine.broker.shard, engine.clock.wall_ms()
        shard.counters.fold()
        shard.counters.assign_rows(shard.topics.by_id)
        self._marks.note(wall_ms, shard.log.end)
        groups, left_out = self._groups.result()
        states = [schedule.state.value for schedule in shard.schedules.by_id.values()]
        return Present(
            wall_ms=wall_ms,
            version=__version__,
            broker_name=self._name,
            started_s=self._started_s,
            is_simulated=engine.clock.simulated,
            epoch=shard.log.epoch,
            topics=self._topics(),
            groups=tuple(groups),
            groups_left_out=left_out,
            topic_count=len(shard.topics.by_id),
            group_count=len(shard.ready.groups.ids),
            core=self._core(wall_ms),
            waiting={
                "near": shard.delay.near.waiting,
                "far": shard.delay.far.waiting,
                "tier": shard.tier.waiting,
            },
            files=self._files(),
            doors={name: _door(door) for name, door in self._doors.items()},
            connections_max=0 if self._intake is None else self._intake.connections_max,
            requests_bytes=0 if self._intake is None else self._intake.under_way,
            certificate_ends_s=None
            if self._encrypts is None
            else self._encrypts.certificate_ends_s,
            disk=self._disk(),
            schedules={state: states.count(state) for state in ("active", "paused", "ended")},
            schedule_problems=sum(bool(s.problem) for s in shard.schedules.by_id.values()),
            backup=self._backup(),
            backup_ms=self._backup_ms,
            threads=threading.active_count(),
            **self._counted(),
            **self._loop(),
        )

    def _counted(self) -> dict[str, Any]:
        counters = self._engine.broker.shard.counters
        lateness = counters.lateness.sum(axis=0) + counters.gone.lateness
        return {
            "counts": tuple(counters.total(count) for count in Count),
            "lateness": tuple(lateness.tolist()),
            "lease_lateness": tuple(counters.lease_lateness.tolist()),
            "lease_lateness_ms": counters.lease_lateness_ms,
            "settled": {state.name.lower(): n for state, n in counters.settled.items()},
            "halves_ended": {each.name.lower(): n for each, n in counters.halves_ended.items()},
        }

    def _loop(self) -> dict[str, Any]:
        engine = self._engine
        meters, log, checkpointing = engine.meters, engine.log, engine.checkpointing
        return {
            "inputs": len(engine.inputs),
            "inputs_bytes": engine.inputs.message_bytes,
            "inputs_refused": meters.refused,
            "turn_s": meters.turn_s.copy(),
            "commands": meters.commands.copy(),
            "write_s": log.write_s.copy(),
            "sync_s": log.sync_s.copy(),
            "log_written": log.written,
            "log_under_way_s": log.under_way_s,
            "clock_steps": (meters.steps[0], meters.steps[1]),
            "clock_stepped_ms": (meters.stepped_ms[0], meters.stepped_ms[1]),
            "checkpoints": checkpointing.made,
            "checkpoint_failures": checkpointing.failed,
            "checkpoint_took_s": checkpointing.took_s,
            "checkpoint_age_s": time.perf_counter() - (checkpointing.ended_s or self._began),
        }

    def _topics(self) -> tuple[TopicFigures, ...]:
        shard = self._engine.broker.shard
        counters, waiting = shard.counters, self._pending.result()
        rows = {
            topic_id: (shard.topics.by_id[topic_id].name, row)
            for topic_id, row in counters.row_of.items()
            if topic_id in shard.topics.by_id
        }
        others = sum(waiting.values()) - sum(waiting.get(topic_id, 0) for topic_id in rows)
        rows[OTHERS] = (OTHER, OTHERS)
        return tuple(
            TopicFigures(
                name,
                tuple(counters.rows[row]),
                tuple(counters.lateness[row].tolist()),
                int(counters.lateness_ms[row]),
                others if row == OTHERS else waiting.get(topic_id, 0),
            )
            for topic_id, (name, row) in rows.items()
        )

    def _core(self, wall_ms: int) -> dict[str, int]:
        shard = self._engine.broker.shard
        counters, log = shard.counters, shard.log
        listed = len(shard.problems) + bool(shard.disk_refusal) + bool(shard.tier.problem)
        return {
            "adopted": counters.adopted,
            "adoptions": counters.adoptions,
            "dead_letters": counters.dead_letters,
            "expired_leases": shard.ready.expired,
            "firings": counters.firings,
            "half_checks": counters.half_checks,
            "halves_begun": counters.halves_begun,
            "holes": shard.queued.holes,
            "leases": shard.ready.leased,
            "leases_max": shard.ready.leases_max,
            "loaded": shard.wheel.loaded,
            "next_due_ms": (shard.delay.next_waiting(0) or 0) * 1000,  # in whole seconds; 0: none
            "log_after_checkpoint": log.end - shard.checkpoint_position,
            "overdue_ms": shard.wheel.overdue_ms(wall_ms),
            "parked": shard.ready.parked,
            "problems": listed,
            "refused_for_space": counters.refused_for_space,
            "repairs": shard.problems.repairs,
            "retries": counters.retries,
            "tier_steps": counters.tier_steps,
            "tier_unreadable": int(bool(shard.tier.problem)),
            "transactions": len(shard.halves),
        }

    def _files(self) -> dict[str, FileFigures]:
        shard = self._engine.broker.shard
        delay, log = shard.delay, shard.log
        segments = -(-log.end // log.segment_bytes) - log.start // log.segment_bytes
        hours = delay.hours.values()
        runs = delay.far.runs.values()
        adopted = [run for run in runs if isinstance(run, AdoptedRun)]
        own = [run for run in runs if not isinstance(run, AdoptedRun)]
        buffers = delay.far.buffers
        return {
            "log": FileFigures(segments, log.end - log.start),
            "hour": FileFigures(
                len(hours), sum(h.log_bytes + h.count * ENTRY_BYTES for h in hours)
            ),
            "far_buffer": FileFigures(
                len(buffers), sum(b.log_bytes + b.count * ENTRY_BYTES for b in buffers)
            ),
            "run": FileFigures(len(own), sum(run.access.info.size for run in own)),
            "adopted_run": FileFigures(len(adopted), sum(run.access.info.size for run in adopted)),
        }

    def _disk(self) -> DiskFigures:
        pressure, shard = self._engine.broker.disk, self._engine.broker.shard
        try:  # on the loop, as the core's own look at the space: 5 µs a second, also while the disk hangs
            found = os.statvfs(self._data_dir)
            # Without the space reserved for the system, as in `df`: the rest is used or free.
            usable = found.f_blocks - found.f_bfree + found.f_bavail
            size, free = found.f_frsize * usable, found.f_frsize * found.f_bavail
        except OSError:  # the disk has been unmounted: other figures show that
            size = free = 0
        full = shard.disk_refusal is not None
        return DiskFigures(size, free, pressure.needed, pressure.headroom, full)

    def _backup(self) -> str:
        if self._engine.backups is None:
            return BackupState.NONE.value
        view = self._engine.backups.view()
        if view.state is BackupState.DONE:
            self._backup_ms = view.made_ms
        return view.state.value


def _door(door: Connected) -> DoorFigures:
    return DoorFigures(
        door.connections,
        door.accepted,
        door.refused,
        getattr(door, "bytes_in", None),
        getattr(door, "bytes_out", None),
    )
