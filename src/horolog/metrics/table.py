"""Every metric, declared once: its name, type, labels, how to read its value, and its help.

Names follow Prometheus's conventions: `horolog_`, base units, counters end in `_total`.  Counters
begin with the process, but for `repairs_total`.  The docs page, the exposition and the tests are
made from this table; a new metric is a row here.
"""

from __future__ import annotations

from horolog.broker.counters import Count
from horolog.limits import PARKED_POLLS_MAX
from horolog.metrics.metric import (
    Metric,
    Row,
    Type,
    by_direction,
    by_door,
    by_group,
    by_label,
    by_topic,
    core,
    histogram,
    lateness,
    lease_lateness,
    one,
    states,
)

_C, _G, _H = Type.COUNTER, Type.GAUGE, Type.HISTOGRAM
_TOPIC, _DOOR, _GROUP = ("topic",), ("door",), ("group", "topic")

MESSAGES = (
    Metric("messages_sent_total", _C, _TOPIC, by_topic(Count.SENT),
        "Messages accepted that consumers see at once, retries and dead letters included."),
    Metric("messages_scheduled_total", _C, _TOPIC, by_topic(Count.SCHEDULED),
        "Messages accepted to be handed over later."),
    Metric("messages_handed_over_total", _C, _TOPIC, by_topic(Count.HANDED_OVER),
        "Scheduled messages handed over because they were due; for those handed over by request "
        "see messages_settled_total."),
    Metric("messages_expired_total", _C, _TOPIC, by_topic(Count.EXPIRED),
        "Scheduled messages not handed over because they were too late for the late policy."),
    Metric("messages_leased_total", _C, _TOPIC, by_topic(Count.LEASED),
        "Messages delivered by lease (receive, pop), every delivery counted."),
    Metric("messages_redelivered_total", _C, _TOPIC, by_topic(Count.REDELIVERED),
        "Messages delivered by lease again, after their first delivery."),
    Metric("messages_pulled_total", _C, _TOPIC, by_topic(Count.PULLED),
        "Messages delivered by offset (pull)."),
    Metric("messages_acked_total", _C, _TOPIC, by_topic(Count.ACKED),
        "Messages that a group has consumed: by handle, or by a committed offset."),
    Metric("lease_changes_total", _C, _TOPIC, by_topic(Count.POSTPONED),
        "Leases whose end a consumer has changed: put back for later, or extended."),
    Metric("messages_settled_total", _C, ("outcome",), by_label(lambda p: p.settled),
        "Scheduled messages that ended before or without becoming due: recalled, moved "
        "(rescheduled, or handed over by request), expired."),
    Metric("messages_adopted_total", _C, (), core("adopted"),
        "Scheduled messages of adopted transactions: bulk loads and promotions."),
    Metric("retries_total", _C, (), core("retries"),
        "Messages sent back by 4.x consumers and scheduled for another attempt."),
    Metric("dead_letters_total", _C, (), core("dead_letters"),
        "Messages that became dead letters of a group."),
    Metric("pending_messages", _G, _TOPIC,
        by_label(lambda p: {topic.name: topic.pending for topic in p.topics}),
        "Messages that wait for their due time."),
    Metric("waiting_messages", _G, ("store",), by_label(lambda p: p.waiting),
        "Messages that wait for their due time, by where they are kept."),
    Metric("window_messages", _G, (), core("loaded"),
        "Messages loaded that are due within the next ten seconds."),
)  # fmt: skip
LATENESS = (
    Metric("handover_lateness_seconds", _H, _TOPIC, lateness,
        "Time from the due time of a message until consumers can see it."),
    Metric("lease_lateness_seconds", _H, (), lease_lateness,
        "Time from the due time of a message until its first lease, all topics together."),
    Metric("overdue_seconds", _G, (), core("overdue_ms", 1_000),
        "How long the first message that is due and not handed over has been due."),
)  # fmt: skip
CONSUMERS = (
    Metric("group_lag_messages", _G, _GROUP, by_group(lambda g: g.lag),
        "Messages that a group has not consumed, leased ones included."),
    Metric("group_leased_messages", _G, _GROUP, by_group(lambda g: g.leased),
        "Messages that a group holds by lease."),
    Metric("group_oldest_seconds", _G, _GROUP, by_group(lambda g: g.oldest_ms, 1_000),
        "Age of the oldest message that a group has not consumed, since it became visible; a "
        "lower bound."),
    Metric("groups_left_out", _G, (), one(lambda p: p.groups_left_out),
        "Pairs of a group and a topic without metrics, because there are more pairs than "
        "metrics_groups."),
    Metric("leases", _G, (), core("leases"),
        "Leases that count towards leases_limit: live ones, and those that are over and whose "
        "message was not delivered again."),
    Metric("leases_limit", _G, (), core("leases_max"),
        "The most leases that there may be."),
    Metric("lease_expiries_total", _C, (), core("expired_leases"),
        "Leases that ended without an ack, counted when a consumer next asks; then their "
        "messages are delivered again."),
    Metric("parked_polls", _G, (), core("parked"),
        "Receives and pulls that wait for messages."),
    Metric("parked_polls_limit", _G, (), one(lambda _: PARKED_POLLS_MAX),
        "The most receives and pulls that may wait for messages."),
    Metric("topics", _G, (), one(lambda p: p.topic_count),
        "Topics."),
    Metric("groups", _G, (), one(lambda p: p.group_count),
        "Consumer groups."),
)  # fmt: skip
LOOP = (
    Metric("turn_seconds", _H, (), histogram(lambda p: p.turn_s),
        "Time of one turn of the core."),
    Metric("turn_commands", _H, (), histogram(lambda p: p.commands),
        "Commands in one turn."),
    Metric("commands_waiting", _G, (), one(lambda p: p.inputs),
        "Commands that wait for a turn."),
    Metric("commands_waiting_bytes", _G, (), one(lambda p: p.inputs_bytes),
        "Bytes of messages in the commands that wait for a turn."),
    Metric("commands_refused_total", _C, (), one(lambda p: p.inputs_refused),
        "Commands refused because too many commands or bytes waited for the disk."),
    Metric("log_write_seconds", _H, (), histogram(lambda p: p.write_s),
        "Time of one write of the log."),
    Metric("log_sync_seconds", _H, (), histogram(lambda p: p.sync_s),
        "Time of one sync of the log."),
    Metric("log_under_way_seconds", _G, (), one(lambda p: p.log_under_way_s),
        "How long the write of the log that is under way has taken, with its sync; 0: none is."),
    Metric("log_written_bytes_total", _C, (), one(lambda p: p.log_written),
        "Bytes appended to the log."),
    Metric("clock_seconds", _G, (), one(lambda p: p.wall_ms / 1_000),
        "The broker's wall clock, seconds of the epoch."),
    Metric("clock_simulated", _G, (), one(lambda p: p.is_simulated),
        "1: the clock is simulated, and stands still unless it is moved."),
    Metric("clock_steps_total", _C, ("direction",), by_direction(lambda p: p.clock_steps),
        "Steps of the wall clock that a turn noticed."),
    Metric("clock_stepped_seconds_total", _C, ("direction",),
        by_direction(lambda p: p.clock_stepped_ms, 1_000),
        "Total size of the steps of the wall clock that a turn noticed."),
)  # fmt: skip
STORAGE = (
    Metric("store_files", _G, ("kind",),
        by_label(lambda p: {kind: each.files for kind, each in p.files.items()}),
        "Files by kind: segments of the log with frames, near hours, far buffers, runs, adopted "
        "runs."),
    Metric("store_bytes", _G, ("kind",),
        by_label(lambda p: {kind: each.bytes for kind, each in p.files.items()}),
        "Bytes by kind that the files of store_files contain, without what is allocated in "
        "advance."),
    Metric("checkpoints_total", _C, (), one(lambda p: p.checkpoints),
        "Checkpoints written."),
    Metric("checkpoint_failures_total", _C, (), one(lambda p: p.checkpoint_failures),
        "Checkpoints that failed for want of disk space."),
    Metric("checkpoint_duration_seconds", _G, (), one(lambda p: p.checkpoint_took_s),
        "How long the newest checkpoint took."),
    Metric("checkpoint_age_seconds", _G, (), one(lambda p: p.checkpoint_age_s),
        "Time since the newest checkpoint, or since the start; it grows while nothing is logged."),
    Metric("checkpoint_lag_bytes", _G, (), core("log_after_checkpoint"),
        "Bytes of log after the newest checkpoint, which a start replays."),
    Metric("disk_size_bytes", _G, (), one(lambda p: p.disk.size),
        "Size of the file system of the data directory, without the space reserved for the "
        "system."),
    Metric("disk_free_bytes", _G, (), one(lambda p: p.disk.free),
        "Free space of the file system of the data directory."),
    Metric("disk_needed_bytes", _G, (), one(lambda p: p.disk.needed),
        "Disk space that must stay free for what was promised."),
    Metric("disk_headroom_bytes", _G, (), one(lambda p: p.disk.headroom),
        "Bytes that may be written to the disk before sends are refused."),
    Metric("disk_full", _G, (), one(lambda p: p.disk.is_full),
        "1: sends are refused for want of space."),
    Metric("sends_refused_for_space_total", _C, (), core("refused_for_space"),
        "Requests that were refused for want of space."),
    Metric("problems", _G, (), core("problems"),
        "Problems that health reports."),
    Metric("repairs_total", _C, (), core("repairs"),
        "Damaged messages and other damaged parts repaired since the data directory was created."),
    Metric("holes_total", _C, (), core("holes"),
        "Messages of the log that a reader met and could not read."),
)  # fmt: skip
DOORS = (
    Metric("connections", _G, _DOOR, by_door(lambda d: d.connections),
        "Open connections."),
    Metric("connections_limit", _G, (), one(lambda p: p.connections_max),
        "The most connections that clients may have, all doors together."),
    Metric("connections_accepted_total", _C, _DOOR, by_door(lambda d: d.accepted),
        "Connections accepted."),
    Metric("connections_refused_total", _C, _DOOR, by_door(lambda d: d.refused),
        "Connections refused."),
    Metric("received_bytes_total", _C, _DOOR, by_door(lambda d: d.bytes_in),
        "Bytes received from clients."),
    Metric("transmitted_bytes_total", _C, _DOOR, by_door(lambda d: d.bytes_out),
        "Bytes sent to clients."),
    Metric("requests_under_way_bytes", _G, (), one(lambda p: p.requests_bytes),
        "Bytes of clients' requests that are not answered yet."),
    Metric("certificate_end_timestamp_seconds", _G, (),
        lambda p: [] if p.certificate_ends_s is None else [Row((), p.certificate_ends_s)],
        "When the certificate of --tls-cert ends, seconds of the epoch; absent without a "
        "certificate."),
)  # fmt: skip
FEATURES = (
    Metric("transactions_open", _G, (), core("transactions"),
        "Half messages whose producer has neither committed nor rolled them back."),
    Metric("transactions_begun_total", _C, (), core("halves_begun"),
        "Half messages accepted."),
    Metric("transactions_ended_total", _C, ("outcome",), by_label(lambda p: p.halves_ended),
        "Transactions that ended: committed, rolled back, given up, lost."),
    Metric("transaction_checks_total", _C, (), core("half_checks"),
        "Checks: requests to producers for the outcome of a transaction."),
    Metric("schedules", _G, ("state",), by_label(lambda p: p.schedules),
        "Recurring schedules."),
    Metric("schedule_problems", _G, (), one(lambda p: p.schedule_problems),
        "Recurring schedules that cannot plan their next firing."),
    Metric("schedule_firings_total", _C, (), core("firings"),
        "Messages that recurring schedules have planned."),
    Metric("adoptions_total", _C, (), core("adoptions"),
        "Transactions adopted."),
    Metric("tier_steps_total", _C, (), core("tier_steps"),
        "Steps of offloads, and recalls of offloaded messages."),
    Metric("tier_unreadable", _G, (), core("tier_unreadable"),
        "1: offloaded messages cannot be fetched."),
    Metric("backup_state", _G, ("state",),
        states(("none", "running", "done", "failed"), lambda p: p.backup),
        "1 for the state of the newest backup since the start."),
    Metric("backup_timestamp_seconds", _G, (), one(lambda p: p.backup_ms / 1_000),
        "When the newest successful backup since the start was made; 0: none was made."),
)  # fmt: skip
PROCESS = (
    Metric("build_info", Type.INFO, ("version", "broker"),
        lambda p: [Row((p.version, p.broker_name), 1)],
        "Version and name of the broker."),
    Metric("start_time_seconds", _G, (), one(lambda p: p.started_s),
        "When the broker was started, seconds of the epoch."),
    Metric("epoch", _G, (), one(lambda p: p.epoch),
        "The epoch of the data directory, which rises at every start."),
    Metric("threads", _G, (), one(lambda p: p.threads),
        "Threads of the process."),
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
