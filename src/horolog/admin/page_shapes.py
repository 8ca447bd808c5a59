"""Types of the results that mainly the page asks for (`shapes` has the others)."""

from __future__ import annotations

from typing_extensions import TypedDict

Histogram = TypedDict(
    "Histogram",
    {
        "topic": str,
        "step": str,
        "zone": str,
        "from_ms": int,
        "from": str | None,
        "to_ms": int,
        "to": str | None,
        "total": int,
        "in_tier": int,
        "rows": list[tuple[int, int]],
    },
)
"""Counts of pending messages in even steps: [start_ms, count].

A row ends where the next begins, the last at `to_ms`.
"""


class HotSecond(TypedDict):
    """A second with many pending messages."""

    at_ms: int
    count: int


class OverviewTopic(TypedDict):
    """A topic in the overview; `rates` as in the overview itself."""

    topic: str
    pending: int
    rates: dict[str, float] | None


class Lateness(TypedDict):
    """Lateness of hand-overs since the start and in the last minute, as counts by bound.

    The last count is of hand-overs above all bounds.  A quantile is the bound that it does not
    pass; null: no message was handed over, or the quantile is above all bounds.
    """

    bounds_ms: list[int]
    counts: list[int]
    minute: list[int]
    p50_ms: int | None
    p99_ms: int | None
    minute_p50_ms: int | None
    minute_p99_ms: int | None


class OverviewDisk(TypedDict):
    """Bytes of the disk; `headroom` until sends are refused.

    `used` is what log, hours, far buffers and runs contain: not what is allocated in advance, nor
    queues, indexes and checkpoints.
    """

    size: int
    free: int
    headroom: int
    used: int
    is_full: bool


class Overview(TypedDict):
    """One look at the broker, at most a second old."""

    now_ms: int
    now: str | None
    clock: str  # system or simulated
    name: str
    version: str
    epoch: int
    healthy: bool
    problems: int
    pending: int
    waiting: dict[str, int]
    next_due_ms: int | None
    next_due: str | None
    overdue_ms: int
    hot_seconds: list[HotSecond]
    rates: dict[str, float] | None
    lateness: Lateness | None
    topics: list[OverviewTopic]
    topics_total: int
    groups_total: int
    leases: int
    parked_polls: int
    loaded: int
    connections: dict[str, int]
    disk: OverviewDisk | None
    certificate_ends_ms: int | None
