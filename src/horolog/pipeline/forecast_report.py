"""The report of a forecast: an HTML page, and a few lines for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horolog import __version__
from horolog.limits import DAY_MS, HOUR_MS
from horolog.pipeline import report
from horolog.units import counted

if TYPE_CHECKING:
    from rich.console import Console

    from horolog.pipeline.forecast import Forecast

_BARS = 400
_ROWS = 200
_WIDTHS = (60_000, 5 * 60_000, 15 * 60_000, HOUR_MS, 6 * HOUR_MS, DAY_MS, 7 * DAY_MS, 28 * DAY_MS)


def sentence(result: Forecast) -> str:
    """Return the forecast in one sentence."""
    within = "" if result.to_ms is None else f" before {report.moment(result.to_ms)} UTC"
    return f"{counted(result.total, 'message')} {'waits' if result.total == 1 else 'wait'}{within}."


def load_of(result: Forecast, topic: str = "") -> tuple[list[int], list[int], int]:
    """Return (start of each stretch, messages in it, its width) in ms, for one topic or for all.

    There are at most some 400 stretches.
    """
    sums: dict[int, int] = {}
    rows = [row for row in result.minutes.to_pylist() if topic in ("", row["topic"])]
    if not rows:
        return [], [], _WIDTHS[0]
    first, last = (pick(row["minute_ms"] for row in rows) for pick in (min, max))
    width = next((each for each in _WIDTHS if (last - first) // each < _BARS), _WIDTHS[-1])
    for row in rows:
        start = row["minute_ms"] // width * width
        sums[start] = sums.get(start, 0) + row["messages"]
    starts = list(range(first // width * width, last // width * width + 1, width))
    return starts, [sums.get(start, 0) for start in starts], width


def forecast_page(result: Forecast) -> str:
    """Build the whole HTML report."""
    hottest = result.hottest.to_pylist()
    peak = hottest[0] if hottest else {"second_ms": 0, "messages": 0}
    figures = [
        ("messages wait", result.total, ""),
        *(
            [
                ("of them on the broker's disk", result.total - result.in_lake, ""),
                ("of them in the lake", result.in_lake, ""),
            ]
            if result.in_lake
            else []
        ),
        ("due, not handed over yet", result.overdue, "warn" if result.overdue else ""),
        ("in the hottest second", peak["messages"], ""),
        ("topics", len(result.topics), ""),
    ]
    parts = [
        report.verdict(sentence(result), _hot(result), bad=False),
        report.cards(figures),
        _load(result),
        _hottest(result),
        _topics(result),
    ]
    sub = f"{result.data_dir} · now {report.moment(result.now_ms)} UTC"
    return report.page("Due load ahead", sub, parts, f"horolog {__version__}, pipeline forecast")


def _hot(result: Forecast) -> str:
    rows = result.hottest.to_pylist()
    if not rows:
        return ""
    second = report.moment(rows[0]["second_ms"])
    return f"The hottest second is {second} UTC: {counted(rows[0]['messages'], 'message')}."


def _load(result: Forecast) -> str:
    parts = []
    topics = ["", *result.topics["topic"].to_pylist()] if len(result.topics) > 1 else [""]
    for topic in topics[:7]:
        starts, counts, width = load_of(result, topic)
        labels = [report.moment(start, seconds=False) for start in starts]
        short = [label[5:] if width < DAY_MS else label[:10] for label in labels]
        titles = [f"{label}: {report.number(n)}" for label, n in zip(labels, counts, strict=True)]
        hot = counts.index(max(counts)) if counts else -1
        name = f"Messages due in each {report.duration(width)}"
        parts.append(
            report.section(
                f"{name}{f', topic {topic}' if topic else ''}",
                report.bars(counts, short, titles=titles, hot=hot),
                note="" if topic else "By the minute, and by topic: minutes.parquet.",
            )
        )
    return "".join(parts)


def _hottest(result: Forecast) -> str:
    rows = [(report.moment(r["second_ms"]), r["messages"]) for r in result.hottest.to_pylist()]
    return report.section("The hottest seconds", report.table(("second (UTC)", "messages"), rows))


def _topics(result: Forecast) -> str:
    rows = [
        (
            row["topic"],
            row["messages"],
            report.moment(row["first_ms"]),
            report.moment(row["last_ms"]),
        )
        for row in sorted(result.topics.to_pylist(), key=lambda row: -row["messages"])[:_ROWS]
    ]
    return report.section("Topics", report.table(("topic", "messages", "first", "last"), rows))


def show(console: Console, result: Forecast) -> None:
    """Print the summary on a terminal."""
    console.print(sentence(result), style="bold", highlight=False)
    if result.overdue:
        console.print(f"{report.number(result.overdue)} of them due already", style="yellow")
    starts, counts, width = load_of(result)
    top = max(counts, default=1)
    busiest = sorted(zip(counts, starts, strict=True), reverse=True)[:12]
    for start, n in sorted((start, n) for n, start in busiest):
        if not n:
            continue  # perhaps only three of some 400 stretches have messages
        bar = "█" * max(1, round(24 * n / top))
        console.print(f"  {report.moment(start, seconds=False)}  {n:>12,}  {bar}", highlight=False)
    console.print(f"  the busiest stretches of {report.duration(width)}", style="dim")
    if hot := _hot(result):
        console.print(hot, highlight=False)
