"""What the demo prints: the table, the histogram of the day, the progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from day import clock_text
from ledger import Balance, percentile

BAR_WIDTH = 48
EIGHTHS = " ▏▎▍▌▋▊▉"


def lateness_text(values: list[int]) -> str:
    """p50 / p99 / max in milliseconds."""
    return " / ".join(f"{percentile(values, share):,}" for share in (0.5, 0.99, 1.0)) + " ms"


def summary(balance: Balance, crash: str) -> Table:
    """The table at the end; `crash` tells of the broker's."""
    table = Table(
        title="Boarding calls of 2013-03-08",
        title_justify="left",
        caption=crash,
        caption_justify="left",
        show_header=False,
        box=SIMPLE,
    )
    table.add_column(justify="left")
    table.add_column(justify="right")
    table.add_column(justify="left", style="dim")
    rows: list[tuple[str, object, str]] = [
        ("scheduled", balance.scheduled, "accepted by the broker"),
        ("recalled", balance.recalled, "taken back in time"),
        ("handed over", balance.handed_over, f"{balance.too_late} recalled too late"),
        ("still pending", balance.pending, "says the broker"),
        ("lost", balance.lost, ""),
        ("handed over twice", balance.twice, "by queue offset"),
        ("early", balance.early, "before the due time"),
    ]
    for name, number, remark in rows:
        table.add_row(name, f"{number:,}", remark)
    table.add_section()
    down = f"with {balance.due_while_down} due in the crash"
    for values, name, remark in (
        (balance.store_lateness_up_ms, "lateness of hand-over", "stored − due: p50/p99/max"),
        (balance.store_lateness_ms, "", down),
        (balance.arrival_lateness_up_ms, "until received", "received − due"),
        (balance.arrival_lateness_ms, "", down),
    ):
        table.add_row(name, lateness_text(values), remark)
    table.add_section()
    rows = [
        ("crash: unanswered", balance.answers_lost, "requests, repeated"),
        ("crash: copies", balance.copies, "of sends so repeated"),
        ("crash: redelivered", balance.redelivered, "same offset: lost ack"),
        ("crash: accepted late", balance.answered_late, "not in the lateness"),
    ]
    for name, number, remark in rows:
        table.add_row(name, f"{number:,}", remark)
    return table


def histogram(called: Iterable[int], recalled: Iterable[int]) -> list[str]:
    """Bars by hour of the airline's day, from minutes: handed over, and after them recalled."""
    handed = Counter(minute // 60 for minute in called)
    taken_back = Counter(minute // 60 for minute in recalled)
    hours = range(min(handed | taken_back, default=0), max(handed | taken_back, default=-1) + 1)
    most = max((handed[hour] + taken_back[hour] for hour in hours), default=1)
    lines = []
    for hour in hours:
        first = _bar(handed[hour] / most)
        second = "░" * round(taken_back[hour] / most * BAR_WIDTH)
        counts = f"{handed[hour]:>3}" + (f" + {taken_back[hour]}" if taken_back[hour] else "")
        lines.append(f"{clock_text(hour * 60):>7}  {first}{second} {counts}")
    return lines


def show(console: Console, balance: Balance, crash: str, bars: list[str]) -> None:
    """Print table, histogram and verdict."""
    console.print(summary(balance, crash))
    console.print("\nBy hour of the day, New York time: █ handed over, ░ recalled", highlight=False)
    for bar in bars:
        console.print(bar, highlight=False)
    console.print()
    if not balance.faults:
        console.print("[bold green]Everything adds up.[/]")
    for fault in balance.faults[:20]:
        console.print(f"[bold red]Does not add up:[/] {fault}")
    if len(balance.faults) > 20:
        console.print(f"… and {len(balance.faults) - 20} more")


def _bar(share: float) -> str:
    whole, eighth = divmod(round(share * BAR_WIDTH * 8), 8)
    return "█" * whole + EIGHTHS[eighth].strip()
