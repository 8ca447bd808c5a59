"""The report of an audit: an HTML page, and a few lines for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from horolog import __version__
from horolog.pipeline import report
from horolog.pipeline.audit_tables import percentiles
from horolog.units import counted

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
NO_HAND_OVERS = "no hand-overs"
NOTHING = f'<p class="note">{NO_HAND_OVERS}</p>'
_BARS = 120
_ROWS = 200
_FILES = 5  # named in the notes


def sentence(result: AuditResult) -> str:
    """Return the verdict in one sentence."""
    if not result.faults:
        hand_overs = counted(result.total("handed_over"), "hand-over")
        return f"No fault: {hand_overs} of {counted(due_in(result), 'scheduled message')}."
    parts = [f"{report.number(n)} {NAMES[fault]}" for fault, n in result.counts.items()]
    if result.damaged:
        stretches = counted(
            len(result.damaged), "damaged stretch of the log", "damaged stretches of the log"
        )
        parts.append(stretches)
    if result.files:
        parts.append(counted(len(result.files), "damaged file"))
    return f"{counted(result.faults, 'fault')}: {', '.join(parts)}."


def due_in(result: AuditResult) -> int:
    """Count the messages that came in to be due later, by sends and by adoption."""
    return result.total("scheduled") + result.total("adopted")


def balance(result: AuditResult) -> list[tuple[str, int]]:
    """Return what came in and what became of it; the last row counts the rest.

    The rest is waiting, or among the findings.
    """
    rows = [
        ("scheduled by sends and small loads", result.total("scheduled")),
        ("adopted from files of bulk loads", result.total("adopted")),
    ]
    if result.forgotten:
        rows.append(("settled, but scheduled before the log begins", result.forgotten))
    rows += [
        ("handed over", -result.total("handed_over")),
        ("recalled", -result.total("recalled")),
        ("moved to another due time", -result.total("moved")),
        ("too late: dropped, or dead letters", -result.total("expired")),
    ]
    return [*rows, ("left: waiting, or among the findings", sum(n for _, n in rows))]


def notes(result: AuditResult) -> list[str]:
    """Return remarks on what is no fault but worth knowing."""
    found = []
    if result.overdue:
        one = result.overdue == 1
        found.append(
            f"{counted(result.overdue, 'message')} {'is' if one else 'are'} due and not handed"
            f" over yet; the broker has {'it' if one else 'them'}"
        )
    if result.forgotten:
        found.append(
            f"{counted(result.forgotten, 'hand-over or recall', 'hand-overs or recalls')}:"
            " schedule no longer in the log"
            f" (it begins at log position {report.number(result.log_start)})"
        )
    found += [
        f"{file.path}: {file.why}; by the checkpoint {counted(file.waiting, 'message')} wait in it"
        for file in result.files[:_FILES]
    ]
    return found


def overall(result: AuditResult) -> list[int]:
    """Return p50, p95, p99 and max lateness of all hand-overs in ms; empty if there were none."""
    late = result.histogram["late_ms"].to_numpy()
    counts = result.histogram["hand_overs"].to_numpy()
    if not counts.sum():
        return []
    most = max(result.lateness["max_ms"].to_pylist(), default=0)
    return [*percentiles(late, counts), most]


def _lateness_words(result: AuditResult) -> str:
    if not (values := overall(result)):
        return NO_HAND_OVERS
    return ", ".join(
        f"{name} {report.duration(ms)}"
        for name, ms in zip(("p50", "p95", "p99", "most"), values, strict=True)
    )


def audit_page(result: AuditResult) -> str:
    """Build the whole HTML report."""
    late = [report.duration(ms) for ms in overall(result)]
    figures = [
        ("scheduled by sends and small loads", result.total("scheduled"), ""),
        ("adopted from files of bulk loads", result.total("adopted"), ""),
        ("handed over", result.total("handed_over"), ""),
        ("recalled or moved", result.total("recalled") + result.total("moved"), ""),
        ("too late", result.total("expired"), ""),
        ("faults", result.faults, "bad" if result.faults else ""),
        ("due, not handed over yet", result.overdue, "warn" if result.overdue else ""),
        ("late, median", late[0] if late else NO_HAND_OVERS, ""),
        ("late, p99", late[2] if late else NO_HAND_OVERS, ""),
        ("late, most", late[3] if late else NO_HAND_OVERS, ""),
    ]
    parts = [
        report.verdict(sentence(result), "; ".join(notes(result)), bad=result.faults > 0),
        report.cards(figures),
        _findings(result),
        _balance(result),
        _lateness(result),
        _histogram(result),
        _funnel(result),
        _totals(result),
    ]
    sub = (
        f"{result.data_dir} · log positions {report.number(result.log_start)} to "
        f"{report.number(result.log_end)} · {counted(result.records, 'record')} · up to "
        f"{report.moment(result.horizon_ms)} UTC"
    )
    return report.page("Proof of delivery", sub, parts, f"horolog {__version__}, pipeline audit")


def _findings(result: AuditResult) -> str:
    if not result.faults and not result.overdue:
        return ""
    rows: list[tuple[object, ...]] = [
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
    damaged: list[tuple[object, ...]] = [
        ("damaged", "", "", "", "", first, stop) for first, stop in result.damaged[:_ROWS]
    ]
    damaged += [
        (f"damaged: {file.path}: {file.why}", "", "", "", "", "", "")
        for file in result.files[:_ROWS]
    ]
    note = f"The first {_ROWS}; all of them stand in findings.parquet."
    return report.section("Findings", report.table(head, [*damaged, *rows]), note=note)


def _balance(result: AuditResult) -> str:
    rows = balance(result)
    return report.section(
        "Balance",
        report.table(("came in, less what went out", "messages"), rows, sums=True),
        note="A message that was moved to another due time came in once more with that one.",
    )


def _lateness(result: AuditResult) -> str:
    rows = result.lateness.to_pylist()
    if not rows:
        return report.section("Hand-overs by hour", NOTHING)
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
        f"{label}: {counted(n, 'hand-over')}, p99 {report.duration(a)}, most {report.duration(b)}"
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
                report.bars(p99, labels, pale=most, titles=titles),
                report.table(head, cells),
                note="Dark: p99 of the worst topic; pale: the latest hand-over. By the hour of the"
                " due time, the latest first. Exact below 1.024 s, within 0.2 % above.",
            ),
        ]
    )


def _histogram(result: AuditResult) -> str:
    if not overall(result):
        return ""
    late = result.histogram["late_ms"].to_numpy()
    counts = result.histogram["hand_overs"].to_numpy()
    edges = [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000, 600_000]
    place = np.searchsorted(edges, late, side="right") - 1
    values = np.bincount(place, weights=counts, minlength=len(edges)).tolist()
    last = max((i for i, n in enumerate(values) if n), default=0)
    labels = [f"≥ {report.duration(edge)}" if edge else "0" for edge in edges]
    return report.section(
        "Lateness of all hand-overs",
        report.bars(values[: last + 1], labels[: last + 1]),
        note=f"Hand-over store time minus due time: {_lateness_words(result)}.",
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
    """Print the summary on a terminal."""
    from rich.table import Table

    colour = "bold red" if result.faults else "bold green"
    console.print(sentence(result), style=colour, highlight=False)
    grid = Table.grid(padding=(0, 2))
    rows = balance(result)
    width = max(len(report.number(n)) for _, n in rows)
    lines = [
        *((name, f"{n:>{width},}") for name, n in rows),
        ("lateness", _lateness_words(result)),
        (
            "log",
            f"{report.number(result.log_start)} to {report.number(result.log_end)},"
            f" {counted(result.records, 'record')}",
        ),
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
