"""Values of a broker at one moment: plain numbers, copied, so that any thread may read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from horolog.histogram import Histogram
from horolog.metrics.group_figures import GroupFigures

OTHER = "(other)"  # no topic can have that name


class TopicFigures(NamedTuple):
    """The figures of one topic, or of all topics without a row of their own (OTHER)."""

    name: str
    counts: tuple[int, ...]  # by `Count`
    lateness: tuple[int, ...]  # of hand-overs, by LATENESS_BOUNDS_MS, not cumulated
    lateness_ms: int  # sum of the lateness of all hand-overs
    pending: int


class DoorFigures(NamedTuple):
    """The figures of one listening port."""

    connections: int
    accepted: int
    refused: int
    bytes_in: int | None  # None: not counted
    bytes_out: int | None


class FileFigures(NamedTuple):
    """Count and size of the files of one kind."""

    files: int
    bytes: int


class DiskFigures(NamedTuple):
    """Bytes of the disk; `needed` must stay free for what was promised.

    Sends are refused once `headroom` bytes more are written.
    """

    size: int
    free: int
    needed: int
    headroom: int
    is_full: bool


@dataclass(frozen=True)
class Present:
    """Values of one moment; counters begin with the process.

    counts     of all topics, by `Count`, deleted topics and those without a row included
    lateness   of all hand-overs, by LATENESS_BOUNDS_MS, not cumulated
    topics     topics with figures of their own, and OTHER
    """

    wall_ms: int
    version: str
    broker_name: str
    started_s: float
    is_simulated: bool
    epoch: int
    counts: tuple[int, ...]
    lateness: tuple[int, ...]
    lease_lateness: tuple[int, ...]
    lease_lateness_ms: int
    topics: tuple[TopicFigures, ...]
    groups: tuple[GroupFigures, ...]
    groups_left_out: int
    topic_count: int
    group_count: int
    core: Mapping[str, int]  # other counters and gauges of the core, by name
    settled: Mapping[str, int]
    halves_ended: Mapping[str, int]
    waiting: Mapping[str, int]  # pending messages by where they wait: near, far, tier
    files: Mapping[str, FileFigures]
    doors: Mapping[str, DoorFigures]
    connections_max: int
    requests_bytes: int
    certificate_ends_s: float | None  # epoch seconds; None: no certificate is configured
    inputs: int
    inputs_bytes: int
    inputs_refused: int
    turn_s: Histogram
    commands: Histogram
    write_s: Histogram
    sync_s: Histogram
    log_written: int
    log_under_way_s: float
    clock_steps: tuple[int, int]
    clock_stepped_ms: tuple[int, int]
    checkpoints: int
    checkpoint_failures: int
    checkpoint_took_s: float
    checkpoint_age_s: float
    disk: DiskFigures
    schedules: Mapping[str, int]
    schedule_problems: int
    backup: str  # state of the newest backup of this process
    backup_ms: int  # when the newest successful backup of this process was made; 0: none
    threads: int

    @property
    def pending(self) -> int:
        """Messages that wait for their due time."""
        return sum(self.waiting.values())
