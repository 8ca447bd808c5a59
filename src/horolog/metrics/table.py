"""Every metric, declared once: its name, type, unit, labels, help, and how to read its value.

Names follow Prometheus's conventions: `horolog_`, base units, counters end in `_total`.  Counters
begin with the process.  The docs page, the exposition and the tests are made from this table; a new
metric is a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from horolog.broker.counters import LATENESS_BOUNDS_MS, Count
from horolog.histogram import Histogram
from horolog.limits import PARKED_POLLS_MAX
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


class Metric(NamedTuple):
    """One family; its `name` is without `horolog_`, and for counters with `_total`."""

    name: str
    type: Type
    help: str
    labels: tuple[str, ...]
    read: Callable[[Present], Iterable[Row]]

    @property
    def full_name(self) -> str:
        """The name that Prometheus scrapes."""
        return PREFIX + self.name

    @property
    def unit(self) -> str:
        """The unit, seconds or bytes; "" for a count."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in ("seconds", "bytes") else ""


def _one(value: Callable[[Present], float]) -> Callable[[Present], list[Row]]:
    return lambda present: [Row((), value(present))]


def _core(name: str, scale: float = 1) -> Callable[[Present], list[Row]]:
    if scale == 1:
        return lambda present: [Row((), present.core[name])]
    return lambda present: [Row((), present.core[name] / scale)]


def _histogram(of: Callable[[Present], Histogram]) -> Callable[[Present], list[Row]]:
    def read(present: Present) -> list[Row]:
        found = of(present)
        return [Row((), Buckets(found.bounds, found.counts, found.total))]

    return read


def _by_topic(count: Count) -> Callable[[Present], list[Row]]:
    return lambda present: [Row((topic.name,), topic.counts[count]) for topic in present.topics]


def _lateness(present: Present) -> list[Row]:
    return [
        Row((topic.name,), Buckets(LATENESS_BOUNDS_S, topic.lateness, topic.lateness_ms / 1_000))
        for topic in present.topics
    ]


def _lease_lateness(present: Present) -> list[Row]:
    return [
        Row(
            (),
            Buckets(LATENESS_BOUNDS_S, present.lease_lateness, present.lease_lateness_ms / 1_000),
        )
    ]


def _by_group(place: int, scale: float = 1) -> Callable[[Present], list[Row]]:
    return lambda present: [Row(each[:2], int(each[place]) / scale) for each in present.groups]


def _by_door(of: Callable[[DoorFigures], int | None]) -> Callable[[Present], list[Row]]:
    def read(present: Present) -> list[Row]:
        found = [(name, of(door)) for name, door in present.doors.items()]
        return [Row((name,), value) for name, value in found if value is not None]

    return read


def _by_direction(
    of: Callable[[Present], tuple[int, int]], scale: float = 1
) -> Callable[[Present], list[Row]]:
    def read(present: Present) -> list[Row]:
        forwards, backwards = of(present)
        return [Row(("forwards",), forwards / scale), Row(("backwards",), backwards / scale)]

    return read


def _states(names: Sequence[str], of: Callable[[Present], str]) -> Callable[[Present], list[Row]]:
    return lambda present: [Row((name,), float(of(present) == name)) for name in names]


_C, _G, _H = Type.COUNTER, Type.GAUGE, Type.HISTOGRAM
_TOPIC, _DOOR, _GROUP = ("topic",), ("door",), ("group", "topic")

MESSAGES = (
    Metric("messages_sent_total", _C, "Messages accepted that consumers see at once, retries and dead letters included.", _TOPIC, _by_topic(Count.SENT)),
    Metric("messages_scheduled_total", _C, "Messages accepted to be handed over later.", _TOPIC, _by_topic(Count.SCHEDULED)),
    Metric("messages_handed_over_total", _C, "Scheduled messages handed over because they were due; for those handed over by request see messages_settled_total.", _TOPIC, _by_topic(Count.HANDED_OVER)),
    Metric("messages_expired_total", _C, "Scheduled messages not handed over because they were too late for the late policy.", _TOPIC, _by_topic(Count.EXPIRED)),
    Metric("messages_leased_total", _C, "Messages delivered by lease (receive, pop), every delivery counted.", _TOPIC, _by_topic(Count.LEASED)),
    Metric("messages_redelivered_total", _C, "Messages delivered by lease again, after their first delivery.", _TOPIC, _by_topic(Count.REDELIVERED)),
    Metric("messages_pulled_total", _C, "Messages delivered by offset (pull).", _TOPIC, _by_topic(Count.PULLED)),
    Metric("messages_acked_total", _C, "Messages that a group has consumed: by handle, or by a committed offset.", _TOPIC, _by_topic(Count.ACKED)),
    Metric("lease_changes_total", _C, "Leases whose end a consumer has changed: put back for later, or extended.", _TOPIC, _by_topic(Count.POSTPONED)),
    Metric("messages_settled_total", _C, "Scheduled messages that ended before or without becoming due: recalled, moved (rescheduled, or handed over by request), expired.", ("outcome",), lambda p: [Row((state,), n) for state, n in p.settled.items()]),
    Metric("messages_adopted_total", _C, "Scheduled messages of adopted transactions: bulk loads and promotions.", (), _core("adopted")),
    Metric("retries_total", _C, "Messages sent back by 4.x consumers and scheduled for another attempt.", (), _core("retries")),
    Metric("dead_letters_total", _C, "Messages that became dead letters of a group.", (), _core("dead_letters")),
    Metric("pending_messages", _G, "Messages that wait for their due time.", _TOPIC, lambda p: [Row((topic.name,), topic.pending) for topic in p.topics]),
    Metric("waiting_messages", _G, "Messages that wait for their due time, by where they are kept.", ("store",), lambda p: [Row((store,), n) for store, n in p.waiting.items()]),
    Metric("window_messages", _G, "Messages loaded that are due within the next ten seconds.", (), _core("loaded")),
)  # fmt: skip
LATENESS = (
    Metric("handover_lateness_seconds", _H, "Time from the due time of a message until consumers can see it.", _TOPIC, _lateness),
    Metric("lease_lateness_seconds", _H, "Time from the due time of a message until its first lease, all topics together.", (), _lease_lateness),
    Metric("overdue_seconds", _G, "How long the first message that is due and not handed over has been due.", (), _core("overdue_ms", 1_000)),
)  # fmt: skip
CONSUMERS = (
    Metric("group_lag_messages", _G, "Messages that a group has not consumed, leased ones included.", _GROUP, _by_group(2)),
    Metric("group_leased_messages", _G, "Messages that a group holds by lease.", _GROUP, _by_group(3)),
    Metric("group_oldest_seconds", _G, "Age of the oldest message that a group has not consumed, since it became visible; a lower bound.", _GROUP, _by_group(4, 1_000)),
    Metric("groups_left_out", _G, "Pairs of a group and a topic without metrics, because there are more pairs than metrics_groups.", (), _one(lambda p: p.groups_left_out)),
    Metric("leases", _G, "Leases that count towards leases_limit: live ones, and those that are over and whose message was not delivered again.", (), _core("leases")),
    Metric("leases_limit", _G, "The most leases that there may be.", (), _core("leases_max")),
    Metric("lease_expiries_total", _C, "Leases that ended without an ack, counted when a consumer next asks; then their messages are delivered again.", (), _core("expired_leases")),
    Metric("parked_polls", _G, "Receives and pulls that wait for messages.", (), _core("parked")),
    Metric("parked_polls_limit", _G, "The most receives and pulls that may wait for messages.", (), _one(lambda _: PARKED_POLLS_MAX)),
    Metric("topics", _G, "Topics.", (), _one(lambda p: p.topic_count)),
    Metric("groups", _G, "Consumer groups.", (), _one(lambda p: p.group_count)),
)  # fmt: skip
LOOP = (
    Metric("turn_seconds", _H, "Time of one turn of the core.", (), _histogram(lambda p: p.turn_s)),
    Metric("turn_commands", _H, "Commands in one turn.", (), _histogram(lambda p: p.commands)),
    Metric("commands_waiting", _G, "Commands that wait for a turn.", (), _one(lambda p: p.inputs)),
    Metric("commands_waiting_bytes", _G, "Bytes of messages in the commands that wait for a turn.", (), _one(lambda p: p.inputs_bytes)),
    Metric("commands_refused_total", _C, "Commands refused because too many commands or bytes waited for the disk.", (), _one(lambda p: p.inputs_refused)),
    Metric("log_write_seconds", _H, "Time of one write of the log.", (), _histogram(lambda p: p.write_s)),
    Metric("log_sync_seconds", _H, "Time of one sync of the log.", (), _histogram(lambda p: p.sync_s)),
    Metric("log_written_bytes_total", _C, "Bytes appended to the log.", (), _one(lambda p: p.log_written)),
    Metric("clock_seconds", _G, "The broker's wall clock, seconds of the epoch.", (), _one(lambda p: p.wall_ms / 1_000)),
    Metric("clock_simulated", _G, "1: the clock is simulated, and stands still unless it is moved.", (), _one(lambda p: p.is_simulated)),
    Metric("clock_steps_total", _C, "Steps of the wall clock that a turn noticed.", ("direction",), _by_direction(lambda p: p.clock_steps)),
    Metric("clock_stepped_seconds_total", _C, "Total size of the steps of the wall clock that a turn noticed.", ("direction",), _by_direction(lambda p: p.clock_stepped_ms, 1_000)),
)  # fmt: skip
STORAGE = (
    Metric("store_files", _G, "Files by kind: segments of the log, near hours, far buffers, runs, adopted runs.", ("kind",), lambda p: [Row((kind,), each.files) for kind, each in p.files.items()]),
    Metric("store_bytes", _G, "Bytes of files by kind: segments of the log, near hours, far buffers, runs, adopted runs.", ("kind",), lambda p: [Row((kind,), each.bytes) for kind, each in p.files.items()]),
    Metric("checkpoints_total", _C, "Checkpoints written.", (), _one(lambda p: p.checkpoints)),
    Metric("checkpoint_failures_total", _C, "Checkpoints that failed for want of disk space.", (), _one(lambda p: p.checkpoint_failures)),
    Metric("checkpoint_duration_seconds", _G, "How long the newest checkpoint took.", (), _one(lambda p: p.checkpoint_took_s)),
    Metric("checkpoint_age_seconds", _G, "Time since the newest checkpoint, or since the start; it grows while nothing is logged.", (), _one(lambda p: p.checkpoint_age_s)),
    Metric("checkpoint_lag_bytes", _G, "Bytes of log after the newest checkpoint, which a start replays.", (), _core("log_after_checkpoint")),
    Metric("disk_size_bytes", _G, "Size of the file system of the data directory, without the space reserved for the system.", (), _one(lambda p: p.disk.size)),
    Metric("disk_free_bytes", _G, "Free space of the file system of the data directory.", (), _one(lambda p: p.disk.free)),
    Metric("disk_needed_bytes", _G, "Disk space that must stay free for what was promised.", (), _one(lambda p: p.disk.needed)),
    Metric("disk_headroom_bytes", _G, "Bytes that may be written to the disk before sends are refused.", (), _one(lambda p: p.disk.headroom)),
    Metric("disk_full", _G, "1: sends are refused for want of space.", (), _one(lambda p: p.disk.is_full)),
    Metric("sends_refused_for_space_total", _C, "Requests that were refused for want of space.", (), _core("refused_for_space")),
    Metric("problems", _G, "Problems that health reports.", (), _core("problems")),
    Metric("repairs_total", _C, "Damaged messages and other damaged parts repaired since the data directory was created.", (), _core("repairs")),
    Metric("holes_total", _C, "Messages of the log that a reader met and could not read.", (), _core("holes")),
)  # fmt: skip
DOORS = (
    Metric("connections", _G, "Open connections.", _DOOR, _by_door(lambda d: d.connections)),
    Metric("connections_limit", _G, "The most connections that clients may have, all doors together.", (), _one(lambda p: p.connections_max)),
    Metric("connections_accepted_total", _C, "Connections accepted.", _DOOR, _by_door(lambda d: d.accepted)),
    Metric("connections_refused_total", _C, "Connections refused.", _DOOR, _by_door(lambda d: d.refused)),
    Metric("received_bytes_total", _C, "Bytes received from clients.", _DOOR, _by_door(lambda d: d.bytes_in)),
    Metric("transmitted_bytes_total", _C, "Bytes sent to clients.", _DOOR, _by_door(lambda d: d.bytes_out)),
    Metric("requests_under_way_bytes", _G, "Bytes of clients' requests that are not answered yet.", (), _one(lambda p: p.requests_bytes)),
    Metric("certificate_end_timestamp_seconds", _G, "When the certificate of --tls-cert ends, seconds of the epoch; absent without a certificate.", (), lambda p: [] if p.certificate_ends_s is None else [Row((), p.certificate_ends_s)]),
)  # fmt: skip
FEATURES = (
    Metric("transactions_open", _G, "Half messages whose producer has neither committed nor rolled them back.", (), _core("transactions")),
    Metric("transactions_begun_total", _C, "Half messages accepted.", (), _core("halves_begun")),
    Metric("transactions_ended_total", _C, "Transactions that ended: committed, rolled back, given up, lost.", ("outcome",), lambda p: [Row((how,), n) for how, n in p.halves_ended.items()]),
    Metric("transaction_checks_total", _C, "Checks: requests to producers for the outcome of a transaction.", (), _core("half_checks")),
    Metric("schedules", _G, "Recurring schedules.", ("state",), lambda p: [Row((state,), n) for state, n in p.schedules.items()]),
    Metric("schedule_problems", _G, "Recurring schedules that cannot plan their next firing.", (), _one(lambda p: p.schedule_problems)),
    Metric("schedule_firings_total", _C, "Messages that recurring schedules have planned.", (), _core("firings")),
    Metric("adoptions_total", _C, "Transactions adopted.", (), _core("adoptions")),
    Metric("tier_steps_total", _C, "Steps of offloads, and recalls of offloaded messages.", (), _core("tier_steps")),
    Metric("tier_unreadable", _G, "1: offloaded messages cannot be fetched.", (), _core("tier_unreadable")),
    Metric("backup_state", _G, "1 for the state of the newest backup since the start.", ("state",), _states(("none", "running", "done", "failed"), lambda p: p.backup)),
    Metric("backup_timestamp_seconds", _G, "When the newest successful backup since the start was made; 0: none was made.", (), _one(lambda p: p.backup_ms / 1_000)),
)  # fmt: skip
PROCESS = (
    Metric("build_info", Type.INFO, "Version and name of the broker.", ("version", "broker"), lambda p: [Row((p.version, p.broker_name), 1)]),
    Metric("start_time_seconds", _G, "When the broker was started, seconds of the epoch.", (), _one(lambda p: p.started_s)),
    Metric("epoch", _G, "The epoch of the data directory, which rises at every start.", (), _one(lambda p: p.epoch)),
    Metric("threads", _G, "Threads of the process.", (), _one(lambda p: p.threads)),
)  # fmt: skip

GROUPS = {
    "Messages": MESSAGES,
    "Lateness": LATENESS,
    "Consumers": CONSUMERS,
    "The loop, the log and the clock": LOOP,
    "Storage": STORAGE,
    "Doors": DOORS,
    "Transactions, schedules, adoptions, backups": FEATURES,
    "The process": PROCESS,
}
METRICS: tuple[Metric, ...] = tuple(metric for part in GROUPS.values() for metric in part)
OF_PROCESS = {
    "process_cpu_seconds_total": "User and system time.",
    "process_resident_memory_bytes": "Resident memory.",
    "process_virtual_memory_bytes": "Virtual memory.",
    "process_open_fds": "Open file descriptors.",
    "process_max_fds": "The most file descriptors that may be open.",
    "process_start_time_seconds": "When the process began, seconds of the epoch.",
}
"""Metrics that prometheus-client adds for any process, under the names that all programs use."""
