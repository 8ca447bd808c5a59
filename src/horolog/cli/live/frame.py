"""Drawing of one frame of `horolog top`: a function from answers and a size to lines.

It needs 60 columns; rows that do not fit a table's height are counted under the table.  The heading
of a figure has its name and unit; a figure that this broker does not send is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from horolog.cli.checkup.running import LATE_MS
from horolog.cli.live.look import Look
from horolog.cli.output import printable
from horolog.cli.progress import size_text
from horolog.units import counted

_RATES = {
    "sent": "sent",
    "scheduled": "scheduled",
    "handed_over": "handed over",
    "received": "received",
    "acked": "acked",
    "redelivered": "again",
    "expired": "too late",
}
_TOPIC_RATES = {"scheduled": "in/s", "handed_over": "out/s"}
_BARS = " ▁▂▃▄▅▆▇█"
_WIDE = 76  # columns that all rates need
_NARROW_RATES = 5
_FIXED_LINES = 16  # all lines but the rows of the two tables
_SHOWN_PROBLEMS = 3


class Sort(StrEnum):
    """The order of topics and groups."""

    PENDING = "pending"
    NAME = "name"

    def next(self) -> Sort:
        """Return the order that the key `s` switches to."""
        return Sort.NAME if self is Sort.PENDING else Sort.PENDING


def frame(look: Look, *, width: int, height: int, sort: Sort, keys: bool) -> RenderableType:
    """Return the whole screen.

    height  of the terminal; 0: show every row
    keys    whether there is a keyboard, whose keys are shown
    """
    overview = look.overview
    parts: list[RenderableType] = [_head(look, width)]
    parts.append(
        _line(f"as it was; {look.silent}", "red") if look.silent else _figures(overview, width)
    )
    parts += [Text(), _rates(overview, width)]
    lateness = overview.get("lateness")
    if lateness:
        parts.append(_lateness(lateness))
    for problem in look.problems[:_SHOWN_PROBLEMS]:
        parts.append(_line(f"problem: {problem}", "red"))
    if len(look.problems) > _SHOWN_PROBLEMS:
        parts.append(
            _line(f"… and {len(look.problems) - _SHOWN_PROBLEMS} more: horolog broker", "red")
        )
    taken = _FIXED_LINES + min(len(look.problems), _SHOWN_PROBLEMS + 1)
    rows = max((height - taken) // 2, 2) if height else 1 << 30
    parts += [Text(), *_topics(overview, sort, rows), Text(), *_groups(look.groups, sort, rows)]
    if keys:
        parts += [Text(), _line(f"q quit   s sort (now by {sort.value})", "dim")]
    return Group(*parts)


def _head(look: Look, width: int) -> Text:
    overview = look.overview
    if look.silent:
        state, style = "NO ANSWER", "bold red"
    elif overview["healthy"]:
        state, style = "healthy", "bold green"
    else:
        state, style = counted(int(overview["problems"]), "problem").upper(), "bold red"
    now = str(overview["now"]).partition(".")[0].replace("T", " ")
    clock = " simulated" if overview["clock"] == "simulated" else ""
    name = f"{overview['name']}, horolog {overview['version']}, epoch {overview['epoch']}"
    line = Text(no_wrap=True, overflow="ellipsis", end="\n")
    line.append(state, style)
    line.append(f"   {printable(name)}   {now} UTC{clock}")
    line.truncate(max(width, 20), overflow="ellipsis")
    return line


def _figures(overview: dict[str, Any], width: int) -> Text:
    facts = [f"{overview['pending']:,} pending"]
    if overview["overdue_ms"]:
        facts.append(f"overdue {_ms(overview['overdue_ms'])}")
    elif overview["next_due_ms"] is not None:
        facts.append(f"next due {_until(overview['next_due_ms'] - overview['now_ms'])}")
    facts.append(counted(int(overview["topics_total"]), "topic"))
    facts.append(counted(int(overview["groups_total"]), "group"))
    facts.append(f"{counted(int(overview['parked_polls']), 'poll')} waiting")
    facts.append(counted(int(overview["leases"]), "lease"))
    facts += [f"{name} {count:,}" for name, count in overview["connections"].items()]
    if disk := overview["disk"]:
        facts.append(f"room {size_text(int(disk['headroom']))}")
    lines = [facts[0]]
    for fact in facts[1:]:
        if len(lines[-1]) + 2 + len(fact) <= width:
            lines[-1] += f"  {fact}"
        else:
            lines.append(fact)
    return Text("\n".join(printable(line) for line in lines), no_wrap=True, overflow="ellipsis")


def _rates(overview: dict[str, Any], width: int) -> Table:
    """Return a table of rates per second; empty if there was no recent look before this one."""
    rates = overview["rates"] or {}
    table = _table(expand=False)
    table.add_column("")
    shown = list(_RATES)[: None if width >= _WIDE else _NARROW_RATES]
    for name in shown:
        table.add_column(_RATES[name], justify="right", no_wrap=True)
    table.add_row("a second", *(_rate(rates.get(name)) for name in shown))
    return table


def _lateness(lateness: dict[str, Any]) -> Text:
    """Return the lateness of the last minute; the bars count by bound, the last one above all."""
    p50, p99 = lateness["minute_p50_ms"], lateness["minute_p99_ms"]
    counts, bounds = lateness["minute"], lateness["bounds_ms"]
    if not any(counts):
        return _line("lateness   nothing was handed over in the last minute", "dim")
    bars = "".join(_bar(count, max(counts)) for count in counts)
    text = (
        f"lateness   p50 ≤ {_ms(p50)}   p99 ≤ {_ms(p99)}   {_ms(bounds[0])} │{bars}│ > "
        f"{_ms(bounds[-1])}"
    )
    return _line(text, "red" if p99 is None or p99 > LATE_MS else "")


def _topics(overview: dict[str, Any], sort: Sort, rows: int) -> list[RenderableType]:
    topics = _sorted(overview["topics"], sort, "topic", "pending")
    table = _table()
    table.add_column("topic", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("pending", justify="right")
    for heading in _TOPIC_RATES.values():
        table.add_column(heading, justify="right")
    for topic in topics[:rows]:
        rates = topic.get("rates") or {}
        figures = [_count(topic["pending"]), *(_rate(rates.get(name)) for name in _TOPIC_RATES)]
        table.add_row(Text(printable(topic["topic"])), *figures)
    return [table, *_more(int(overview["topics_total"]) - min(len(topics), rows), "topic")]


def _groups(groups: list[dict[str, Any]], sort: Sort, rows: int) -> list[RenderableType]:
    table = _table()
    table.add_column("group", no_wrap=True, overflow="ellipsis", ratio=1)
    for heading in ("waiting", "leased", "members"):
        table.add_column(heading, justify="right")
    listed = _sorted(groups, sort, "group", "waiting")
    for row in listed[:rows]:
        alone = row["waiting"] and not row["members"]
        table.add_row(
            Text(printable(row["group"])),
            _count(row["waiting"]),
            _count(row["leased"]),
            _count(row["members"]),
            style="yellow" if alone else "",
        )
    return [table, *_more(len(listed) - min(len(listed), rows), "group")]


def _sorted(rows: list[dict[str, Any]], sort: Sort, name: str, count: str) -> list[dict[str, Any]]:
    by: Callable[[dict[str, Any]], Any] = (
        (lambda row: row[name]) if sort is Sort.NAME else (lambda row: (-row[count], row[name]))
    )
    return sorted(rows, key=by)


def _more(count: int, noun: str) -> list[RenderableType]:
    return [_line(f"… and {counted(count, noun)} more", "dim")] if count > 0 else []


def _table(*, expand: bool = True) -> Table:
    return Table(box=None, expand=expand, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)


def _line(text: str, style: str) -> Text:
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _count(count: Any) -> str:
    return f"{count:,}" if isinstance(count, int) else ""


def _rate(rate: Any) -> str:
    if not isinstance(rate, int | float):
        return ""
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def _ms(ms: Any) -> str:
    if not isinstance(ms, int | float):
        return "–"
    return f"{ms / 1_000:,.1f} s" if ms >= 1_000 else f"{ms:.3g} ms"


def _bar(count: int, most: int) -> str:
    return _BARS[0] if count == 0 else _BARS[1 + (len(_BARS) - 2) * count // most]


def _until(ms: int) -> str:
    if ms <= 0:
        return "now" if ms > -1_000 else f"{-ms / 1_000:,.0f} s ago"
    for unit_ms, unit in ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute")):
        if ms >= 2 * unit_ms:
            return f"in {counted(ms // unit_ms, unit)}"
    return f"in {ms / 1_000:.1f} s" if ms < 10_000 else f"in {ms // 1_000} s"
