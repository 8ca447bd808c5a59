"""What a metric is, and the ways to read its value from the values of one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from horolog.broker.counters import LATENESS_BOUNDS_MS, Count
from horolog.histogram import Histogram
from horolog.metrics.group_figures import GroupFigures
from horolog.metrics.present import DoorFigures, Present

PREFIX = "horolog_"
LATENESS_BOUNDS_S = tuple(bound / 1_000 for bound in LATENESS_BOUNDS_MS)


class Type(StrEnum):
    """Types of metrics, named as Prometheus does."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Buckets(NamedTuple):
    """The value of a histogram; counts are not cumulated, and one more than the bounds."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


class Row(NamedTuple):
    """A series: the values of its labels, and its value."""

    labels: tuple[str, ...]
    value: float | Buckets


Read = Callable[[Present], Iterable[Row]]


class Metric(NamedTuple):
    """One family; its `name` is without `horolog_`, and for counters with `_total`."""

    name: str
    type: Type
    labels: tuple[str, ...]
    read: Read
    help: str

    @property
    def full_name(self) -> str:
        """The name that Prometheus scrapes."""
        return PREFIX + self.name

    @property
    def unit(self) -> str:
        """The unit, seconds or bytes; "" for a count."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in ("seconds", "bytes") else ""


# --- one series ---------------------------------------------------------------------------------


def one(value: Callable[[Present], float]) -> Read:
    """Read a value without labels."""
    return lambda present: [Row((), value(present))]


def core(name: str, scale: float = 1) -> Read:
    """Read a counter or gauge of the core, divided by `scale`."""
    if scale == 1:
        return lambda present: [Row((), present.core[name])]
    return lambda present: [Row((), present.core[name] / scale)]


def histogram(of: Callable[[Present], Histogram]) -> Read:
    """Read a histogram of the loop."""

    def read(present: Present) -> list[Row]:
        found = of(present)
        return [Row((), Buckets(found.bounds, found.counts, found.total))]

    return read


def lease_lateness(present: Present) -> list[Row]:
    """Read the lateness of first leases."""
    total_s = present.lease_lateness_ms / 1_000
    return [Row((), Buckets(LATENESS_BOUNDS_S, present.lease_lateness, total_s))]


# --- a series for each label --------------------------------------------------------------------


def by_label(of: Callable[[Present], Mapping[str, int]]) -> Read:
    """Read values by their one label."""
    return lambda present: [Row((label,), value) for label, value in of(present).items()]


def by_topic(count: Count) -> Read:
    """Read a count of every topic."""
    return lambda present: [Row((topic.name,), topic.counts[count]) for topic in present.topics]


def lateness(present: Present) -> list[Row]:
    """Read the lateness of the hand-overs of every topic."""
    return [
        Row((topic.name,), Buckets(LATENESS_BOUNDS_S, topic.lateness, topic.lateness_ms / 1_000))
        for topic in present.topics
    ]


def by_group(of: Callable[[GroupFigures], int], scale: float = 1) -> Read:
    """Read a figure of every pair of a group and a topic, divided by `scale`."""
    return lambda present: [
        Row((each.group, each.topic), of(each) / scale) for each in present.groups
    ]


def by_door(of: Callable[[DoorFigures], int | None]) -> Read:
    """Read a figure of every door that counts it."""

    def read(present: Present) -> list[Row]:
        found = [(name, of(door)) for name, door in present.doors.items()]
        return [Row((name,), value) for name, value in found if value is not None]

    return read


def by_direction(of: Callable[[Present], tuple[int, int]], scale: float = 1) -> Read:
    """Read a pair of figures, forwards and backwards, divided by `scale`."""

    def read(present: Present) -> list[Row]:
        forwards, backwards = of(present)
        return [Row(("forwards",), forwards / scale), Row(("backwards",), backwards / scale)]

    return read


def states(names: Sequence[str], of: Callable[[Present], str]) -> Read:
    """Read 1 for the present state, and 0 for the others."""
    return lambda present: [Row((name,), float(of(present) == name)) for name in names]
