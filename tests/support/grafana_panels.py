"""The contents of the dashboard for Grafana: rows of panels, and the query of every line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_ON = 'job="$job",instance=~"$instance"'
_HALF, _THIRD = 12, 8


class Query(NamedTuple):
    """The query of one or several lines of a panel."""

    expression: str  # ON is replaced by the chosen labels
    legend: str


class Panel(NamedTuple):
    """A graph or a single figure."""

    title: str
    help: str
    unit: str
    queries: Sequence[Query]
    width: int = _HALF
    kind: str = "lines"


def _rate(name: str, by: str = "") -> str:
    inner = f"rate(horolog_{name}{{ON}}[$__rate_interval])"
    return f"sum by ({by or 'instance'}) ({inner})"


def _quantile(part: float, name: str, by: str = "") -> str:
    labels = "le, " + by if by else "le"
    inner = f"sum by ({labels}) (rate(horolog_{name}_bucket{{ON}}[$__rate_interval]))"
    return f"histogram_quantile({part}, {inner})"


def _quantiles(name: str) -> list[Query]:
    return [
        Query(_quantile(0.5, name), "p50"),
        Query(_quantile(0.99, name), "p99"),
        Query(_quantile(0.999, name), "p99.9"),
    ]


def _gauge(name: str, legend: str = "", labels: str = "") -> Query:
    return Query(f"horolog_{name}{{ON{labels}}}", f"{legend} {{{{instance}}}}".strip())


def _rate_of_each(name: str, legend: str = "") -> Query:
    return Query(_rate(name), f"{legend} {{{{instance}}}}".strip())


ROWS: dict[str, list[Panel]] = {
    "Now": [
        Panel("Up", "Brokers that answer.", "short", [Query("sum(up{ON})", "up")], 4, "number"),
        Panel(
            "Pending",
            "Messages that wait for their due time.",
            "short",
            [Query("sum(horolog_waiting_messages{ON})", "pending")],
            4,
            "number",
        ),
        Panel(
            "Hand-over late (p99)",
            "Time from the due time of a message until consumers can see it.",
            "s",
            [Query(_quantile(0.99, "handover_lateness_seconds"), "p99")],
            4,
            "number",
        ),
        Panel(
            "Overdue",
            "How long the first message that is due and not handed over has been due.",
            "s",
            [Query("max(horolog_overdue_seconds{ON})", "overdue")],
            4,
            "number",
        ),
        Panel(
            "Problems",
            "Problems that /healthz reports.",
            "short",
            [Query("sum(horolog_problems{ON})", "problems")],
            4,
            "number",
        ),
        Panel(
            "Head-room",
            "Bytes that may be written before sends are refused.",
            "bytes",
            [Query("min(horolog_disk_headroom_bytes{ON})", "head-room")],
            4,
            "number",
        ),
    ],
    "Messages": [
        Panel(
            "Taken in",
            "Messages a second: visible at once, and scheduled.",
            "ops",
            [
                _rate_of_each("messages_sent_total", "sent"),
                _rate_of_each("messages_scheduled_total", "scheduled"),
            ],
        ),
        Panel(
            "Given out",
            "Messages a second: handed over, leased, pulled, acknowledged, delivered again.",
            "ops",
            [
                _rate_of_each("messages_handed_over_total", "handed over"),
                _rate_of_each("messages_leased_total", "leased"),
                _rate_of_each("messages_pulled_total", "pulled"),
                _rate_of_each("messages_acked_total", "acked"),
                _rate_of_each("messages_redelivered_total", "redelivered"),
            ],
        ),
        Panel(
            "Scheduled by topic",
            "Messages a second, of the ten busiest topics.",
            "ops",
            [Query(f"topk(10, {_rate('messages_scheduled_total', 'topic')})", "{{topic}}")],
        ),
        Panel(
            "Pending by topic",
            "Messages that wait for their due time.",
            "short",
            [Query("topk(10, sum by (topic) (horolog_pending_messages{ON}))", "{{topic}}")],
        ),
    ],
    "Lateness": [
        Panel(
            "Hand-over lateness",
            "Messages by how late they were handed over.",
            "s",
            [
                Query(
                    "sum by (le) (increase(horolog_handover_lateness_seconds_bucket{ON}[$__rate_interval]))",
                    "{{le}}",
                )
            ],
            _HALF,
            "heat",
        ),
        Panel(
            "Hand-over lateness, quantiles",
            "Upper bounds: those of the buckets.",
            "s",
            _quantiles("handover_lateness_seconds"),
        ),
        Panel(
            "Hand-over lateness by topic (p99)",
            "The ten topics with the highest lateness.",
            "s",
            [
                Query(
                    f"topk(10, {_quantile(0.99, 'handover_lateness_seconds', 'topic')})",
                    "{{topic}}",
                )
            ],
        ),
        Panel(
            "Lateness at the first lease",
            "Time from the due time of a message until a consumer has it.",
            "s",
            _quantiles("lease_lateness_seconds"),
        ),
    ],
    "Consumers": [
        Panel(
            "Lag",
            "Messages that a group has not consumed.",
            "short",
            [
                Query(
                    "topk(10, horolog_group_lag_messages{ON})",
                    "{{group}} · {{topic}} · {{instance}}",
                )
            ],
        ),
        Panel(
            "Oldest message",
            "Age of the oldest message that a group has not consumed, since it became visible.",
            "s",
            [
                Query(
                    "topk(10, horolog_group_oldest_seconds{ON})",
                    "{{group}} · {{topic}} · {{instance}}",
                )
            ],
        ),
        Panel(
            "Leases and polls",
            "Live leases, and receives and pulls that wait for messages.",
            "short",
            [_gauge("leases", "leases"), _gauge("parked_polls", "waiting polls")],
            _THIRD,
        ),
        Panel(
            "Failures",
            "Expired leases, retries, dead letters and messages that were too late, a second.",
            "ops",
            [
                _rate_of_each("lease_expiries_total", "expired leases"),
                _rate_of_each("retries_total", "retries"),
                _rate_of_each("dead_letters_total", "dead letters"),
                _rate_of_each("messages_expired_total", "too late"),
            ],
            _THIRD,
        ),
        Panel(
            "Recalled and moved",
            "Scheduled messages a second that ended without becoming due.",
            "ops",
            [Query(_rate("messages_settled_total", "outcome"), "{{outcome}}")],
            _THIRD,
        ),
    ],
    "Loop and log": [
        Panel("Turn", "Time of one turn of the core.", "s", _quantiles("turn_seconds"), _THIRD),
        Panel("Sync", "Time of one sync of the log.", "s", _quantiles("log_sync_seconds"), _THIRD),
        Panel(
            "Commands of a turn",
            "How many commands share a turn, on average.",
            "short",
            [
                Query(
                    "sum by (instance) (rate(horolog_turn_commands_sum{ON}[$__rate_interval])) / "
                    "sum by (instance) (rate(horolog_turn_commands_count{ON}[$__rate_interval]))",
                    "{{instance}}",
                )
            ],
            _THIRD,
        ),
        Panel(
            "Log",
            "Bytes a second.",
            "Bps",
            [_rate_of_each("log_written_bytes_total")],
            _THIRD,
        ),
        Panel(
            "Waiting for a turn",
            "Commands that wait for a turn, and commands refused a second.",
            "short",
            [
                _gauge("commands_waiting", "waiting"),
                _rate_of_each("commands_refused_total", "refused a second"),
            ],
            _THIRD,
        ),
        Panel(
            "Steps of the clock",
            "Seconds by which the wall clock was stepped in five minutes.",
            "s",
            [
                Query(
                    "sum by (direction) (increase(horolog_clock_stepped_seconds_total{ON}[5m]))",
                    "{{direction}}",
                )
            ],
            _THIRD,
        ),
    ],
    "Storage": [
        Panel(
            "Bytes",
            "Files of the broker.",
            "bytes",
            [Query("sum by (kind) (horolog_store_bytes{ON})", "{{kind}}")],
            _THIRD,
        ),
        Panel(
            "Disk",
            "Bytes free, bytes needed for what was promised, and head-room.",
            "bytes",
            [
                _gauge("disk_free_bytes", "free"),
                _gauge("disk_needed_bytes", "needed"),
                _gauge("disk_headroom_bytes", "head-room"),
            ],
            _THIRD,
        ),
        Panel(
            "Where pending messages are",
            "Near: due within a day. Far: later. Tier: offloaded.",
            "short",
            [Query("sum by (store) (horolog_waiting_messages{ON})", "{{store}}")],
            _THIRD,
        ),
        Panel(
            "Checkpoint",
            "Age of the newest checkpoint, and how long it took.",
            "s",
            [
                _gauge("checkpoint_age_seconds", "age"),
                _gauge("checkpoint_duration_seconds", "took"),
            ],
        ),
        Panel(
            "Log after the checkpoint",
            "Bytes of log that a start replays.",
            "bytes",
            [_gauge("checkpoint_lag_bytes")],
        ),
    ],
    "Doors and process": [
        Panel("Connections", "Open now.", "short", [_gauge("connections", "{{door}}")], _THIRD),
        Panel(
            "Bytes of clients",
            "Bytes in and out, a second.",
            "Bps",
            [
                Query(_rate("received_bytes_total", "door"), "in {{door}}"),
                Query(_rate("transmitted_bytes_total", "door"), "out {{door}}"),
            ],
            _THIRD,
        ),
        Panel(
            "Refused connections",
            "Connections refused a second.",
            "ops",
            [Query(_rate("connections_refused_total", "door"), "{{door}}")],
            _THIRD,
        ),
        Panel(
            "Processor",
            "Processor cores in use.",
            "short",
            [Query("rate(process_cpu_seconds_total{ON}[$__rate_interval])", "{{instance}}")],
            _THIRD,
        ),
        Panel(
            "Memory",
            "Resident memory.",
            "bytes",
            [Query("process_resident_memory_bytes{ON}", "{{instance}}")],
            _THIRD,
        ),
        Panel(
            "Transactions and schedules",
            "Open transactions, and active recurring schedules.",
            "short",
            [
                _gauge("transactions_open", "open transactions"),
                _gauge("schedules", "schedules", ',state="active"'),
            ],
            _THIRD,
        ),
    ],
}


def expressions(**chosen: str) -> dict[str, list[str]]:
    """Return title → the queries of each panel, as Grafana sends them with the `chosen` values."""
    found = {}
    for panels in ROWS.values():
        for panel in panels:
            texts = [chosen_by(query.expression) for query in panel.queries]
            for name, value in chosen.items():
                texts = [text.replace(f"${name}", value) for text in texts]
            found[panel.title] = texts
    return found


def chosen_by(expression: str) -> str:
    return expression.replace("ON", _ON)
