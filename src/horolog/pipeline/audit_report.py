"""The audit as a page, and as a few lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from horolog import __version__
from horolog.pipeline import report
from horolog.pipeline.audit_tables import percentiles

if TYPE_CHECKING:
    from rich.console import Console

    from horolog.pipeline.audit import AuditResult

NAMES = {
    "lost": "lost",
    "duplicate": "handed over twice",
    "duplicate_id": "same message id twice",
    "early": "early",
    "late": "too late",
    "never_scheduled": "never scheduled",
    "after_recall": "handed over though recalled",
    "altered": "not as scheduled",
    "quarantined": "quarantined",
    "unproven": "not provable",
}
_BARS = 120
_ROWS = 200


def sentence(result: AuditResult) -> str:
    """The verdict."""
    handed, planned = result.total("handed_over"), scheduled(result)
    if not result.faults:
        return f"No fault: {handed:,} hand-overs of {planned:,} scheduled messages."
    told = [f"{n:,} {NAMES[fault]}" for fault, n in result.counts.items()]
    if result.damaged:
        told.append(f"{len(result.damaged):,} damaged stretches of the log")
    return f"{result.faults:,} faults: {', '.join(told)}."


def scheduled(result: AuditResult) -> int:
    """Through the log and by adoption."""
    return result.total("scheduled") + result.total("adopted")


def notes(result: AuditResult) -> list[str]:
    """What is no fault, and ought to be known."""
    told = []
    if result.overdue:
        told.append(
            f"{result.overdue:,} messages are due and not handed over yet; the broker has them"
        )
    if result.forgotten:
        told.append(
            f"{result.forgotten:,} hand-overs or recalls: schedule no longer in the log"
            f" (it begins at log position {result.log_start:,})"
        )
    return told


def overall(result: AuditResult) -> list[int]:
    """p50, p95, p99 and max lateness of all hand-overs."""
    late = result.histogram["late_ms"].to_numpy()
    counts = result.histogram["hand_overs"].to_numpy()
    most = max(result.lateness["max_ms"].to_pylist(), default=0)
    return [*percentiles(late, counts), most]


def audit_page(result: AuditResult) -> str:
    """The whole report."""
    settled = result.total("recalled") + result.total("moved")
    p50, p95, p99, most = overall(result)
    figures = [
        ("scheduled", scheduled(result), ""),
        ("handed over", result.total("handed_over"), ""),
        ("recalled or moved", settled, ""),
        ("faults", result.faults, "bad" if result.faults else ""),
        ("due, not handed over yet", result.overdue, "warn" if result.overdue else ""),
        ("late, median", report.duration(p50), ""),
        ("late, p99", report.duration(p99), ""),
        ("late, most", report.duration(most), ""),
    ]
    parts = [
        report.verdict(sentence(result), "; ".join(notes(result)), bad=result.faults > 0),
        report.cards(figures),
        _findings(result),
        _lateness(result),
        _histogram(result, (p50, p95, p99)),
        _funnel(result),
        _totals(result),
    ]
    sub = (
        f"{result.data_dir} · log positions {result.log_start:,} to {result.log_end:,} ·"
        f" {result.records:,} records · up to {report.moment(result.horizon_ms)} UTC"
    )
    return report.page("Proof of delivery", sub, parts, f"horolog {__version__}, pipeline audit")


def _findings(result: AuditResult) -> str:
    if not result.faults and not result.overdue:
        return ""
    rows = [
        (
            NAMES.get(row["fault"], row["fault"]),
            row["topic"],
            row["message_id"] or "",
            report.moment(row["due_ms"]) if row["due_ms"] is not None else "",
            "" if row["late_ms"] is None else report.duration(row["late_ms"]),
            row["origin"],
            row["position"],
        )
        for row in result.findings.to_pylist()[:_ROWS]
    ]
    head = ("what", "topic", "message id", "due (UTC)", "late", "origin", "log position")
    damaged = [("damaged", "", "", "", "", first, stop) for first, stop in result.damaged[:_ROWS]]
    note = f"The first {_ROWS}; all of them stand in findings.parquet."
    return report.section("Findings", report.table(head, [*damaged, *rows]), note=note)


def _lateness(result: AuditResult) -> str:
    rows = result.lateness.to_pylist()
    by_hour: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        by_hour.setdefault(row["hour_ms"], []).append(row)
    hours = sorted(by_hour)
    groups = np.array_split(np.array(hours, np.int64), min(_BARS, max(1, len(hours))))
    shown = [group.tolist() for group in groups if len(group)]
    p99 = [max(row["p99_ms"] for hour in group for row in by_hour[hour]) for group in shown]
    most = [max(row["max_ms"] for hour in group for row in by_hour[hour]) for group in shown]
    count = [sum(row["hand_overs"] for hour in group for row in by_hour[hour]) for group in shown]
    labels = [report.moment(group[0], seconds=False)[5:] for group in shown]
    titles = [
        f"{label}: {n:,} hand-overs, p99 {report.duration(a)}, most {report.duration(b)}"
        for label, n, a, b in zip(labels, count, p99, most, strict=True)
    ]
    head = ("topic", "hour (UTC)", "hand-overs", "p50 ms", "p95 ms", "p99 ms", "most ms")
    cells = [
        (
            row["topic"],
            report.moment(row["hour_ms"], seconds=False),
            row["hand_overs"],
            row["p50_ms"],
            row["p95_ms"],
            row["p99_ms"],
            row["max_ms"],
        )
        for row in sorted(rows, key=lambda row: -row["max_ms"])[:_ROWS]
    ]
    return "".join(
        [
            report.section("Hand-overs by hour", report.bars(count, labels, titles=titles)),
            report.section(
                "Lateness by hour, milliseconds",
                report.bars(p99, labels, behind=most, titles=titles),
                report.table(head, cells),
                note="Dark: p99 of the worst topic; pale: the latest hand-over. By the hour of the"
                " due time, the latest first. Exact below 1.024 s, within 0.2 % above.",
            ),
        ]
    )


def _histogram(result: AuditResult, percents: Sequence[int]) -> str:
    late = result.histogram["late_ms"].to_numpy()
    counts = result.histogram["hand_overs"].to_numpy()
    edges = [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000, 600_000]
    place = np.searchsorted(edges, late, side="right") - 1
    values = np.bincount(place, weights=counts, minlength=len(edges)).tolist()
    last = max((i for i, n in enumerate(values) if n), default=0)
    labels = [f"≥ {report.duration(edge)}" if edge else "0" for edge in edges]
    p50, p95, p99 = (report.duration(ms) for ms in percents)
    return report.section(
        "Lateness of all hand-overs",
        report.bars(values[: last + 1], labels[: last + 1]),
        note=f"Hand-over store time minus due time: p50 {p50}, p95 {p95}, p99 {p99}.",
    )


def _funnel(result: AuditResult) -> str:
    rows = result.funnel.to_pylist()
    if not rows:
        return ""
    head = ("group", "topic", "what", "messages")
    cells = [
        (
            row["group"],
            row["topic"],
            f"given out, attempt {row['attempt']}" if row["attempt"] else "acknowledged",
            row["messages"],
        )
        for row in sorted(rows, key=lambda row: (row["group"], row["topic"], row["attempt"] or 99))
    ]
    return report.section(
        "Retries",
        report.table(head, cells),
        note="What the log says of leases: how many messages were given out a first, second … time,"
        " and how many were acknowledged.",
    )


def _totals(result: AuditResult) -> str:
    names = result.totals.column_names
    cells = [tuple(row[name] for name in names) for row in result.totals.to_pylist()]
    return report.section("Totals", report.table([name.replace("_", " ") for name in names], cells))


def show(console: Console, result: AuditResult) -> None:
    """The summary on a terminal."""
    from rich.table import Table

    p50, p95, p99, most = (report.duration(ms) for ms in overall(result))
    colour = "bold red" if result.faults else "bold green"
    console.print(sentence(result), style=colour, highlight=False)
    grid = Table.grid(padding=(0, 2))
    lines = [
        ("scheduled", f"{scheduled(result):,} ({result.total('adopted'):,} of them adopted)"),
        ("handed over", f"{result.total('handed_over'):,}"),
        ("recalled, moved", f"{result.total('recalled'):,}, {result.total('moved'):,}"),
        ("lateness", f"p50 {p50}, p95 {p95}, p99 {p99}, most {most}"),
        ("log", f"{result.log_start:,} to {result.log_end:,}, {result.records:,} records"),
        ("up to", f"{report.moment(result.horizon_ms)} UTC"),
    ]
    for name, shown in lines:
        grid.add_row(f"[dim]{name}[/]", shown)
    console.print(grid, highlight=False)
    for note in notes(result):
        console.print(note, style="yellow", highlight=False)
    for row in result.findings.to_pylist()[:10]:
        due = report.moment(row["due_ms"]) if row["due_ms"] is not None else "?"
        console.print(
            f"  {row['fault']}: {row['topic']} {row['message_id'] or ''} due {due},"
            f" origin {row['origin']}:{row['origin_row']}",
            highlight=False,
            markup=False,
        )
