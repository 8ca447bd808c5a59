"""Frames of `horolog top`: every width and height, hostile names, what is not told."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from horolog.cli.live.frame import Sort, frame
from horolog.cli.live.look import Look

NOW_MS = 1_772_964_000_000

LATENESS = {
    "bounds_ms": [1, 10, 5_000],
    "minute": [0, 80, 1, 1],
    "minute_p50_ms": 10,
    "minute_p99_ms": 5_000,
}


def looked(topics: int = 3, groups: int = 2, **changes: Any) -> Look:
    overview = {
        "now_ms": NOW_MS,
        "now": "2026-03-08T10:00:00.123Z",
        "clock": "system",
        "name": "broker-a",
        "version": "0.1.0",
        "epoch": 3,
        "healthy": True,
        "problems": 0,
        "pending": 1_234_567,
        "next_due_ms": NOW_MS + 1_500,
        "overdue_ms": 0,
        "leases": 7,
        "connections": {"grpc": 3, "remoting": 0},
        "disk": {"headroom": 1 << 40, "free": 1 << 41, "is_full": False},
        "lateness": None,
        "rates": {"scheduled": 1_234.4, "handed_over": 0.5, "received": 12.0},
        "topics": [{"topic": f"t{i}", "pending": 10 * i} for i in range(topics)],
        "topics_total": topics,
        "groups_total": groups,
        "parked_polls": 4,
        "loaded": 5,
    }
    rows = [{"group": f"g{i}", "waiting": i, "leased": 0, "members": i % 2} for i in range(groups)]
    return Look({**overview, **changes}, rows)


def drawn(look: Look, width: int = 80, height: int = 24, sort: Sort = Sort.PENDING) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    console.print(frame(look, width=width, height=height, sort=sort, keys=True))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_eighty_columns() -> None:
    lines = drawn(looked())
    assert lines[0] == "healthy   broker-a, horolog 0.1.0, epoch 3   2026-03-08 10:00:00 UTC"
    text = "\n".join(lines)
    assert "1,234,567 pending  next due in 1.5 s  3 topics  2 groups  4 polls waiting" in text
    assert "7 leases  grpc 3  remoting 0  room 1.0 TiB" in text.replace("\n", "  ")
    rates = next(line for line in lines if line.startswith("a second"))
    assert rates.split() == ["a", "second", "1,234", "0.5", "12"]
    order = [line.split()[0] for line in lines if line[:1] in "tg" and line[1:2].isdigit()]
    assert order == ["t2", "t1", "t0", "g1", "g0"]
    assert lines[-1] == "q quit   s sort (now by pending)"


@pytest.mark.parametrize("width", [20, 60, 80, 200])
@pytest.mark.parametrize("height", [10, 24, 60])
def test_it_fits(width: int, height: int) -> None:
    """No line is wider than the terminal; from 60 columns on all of it is as high at most."""
    look = looked(topics=500, groups=500, lateness=LATENESS)
    look.problems = ["x" * 500] * 9
    look.overview |= {"problems": 9, "healthy": False}
    lines = drawn(look, width, height)
    assert all(len(line) <= width for line in lines)
    if width >= 60 and height >= 24:
        assert len(lines) <= height
        assert any(line.startswith("… and 6 more: horolog broker") for line in lines)


def test_every_row_where_there_is_no_height() -> None:
    lines = drawn(looked(topics=50, groups=70), height=0, sort=Sort.NAME)
    assert sum(line.startswith("t") and line[1].isdigit() for line in lines) == 50
    assert sum(line.startswith("g") and line[1].isdigit() for line in lines) == 70


def test_what_the_broker_does_not_tell_is_left_out() -> None:
    lines = drawn(looked(rates=None, next_due_ms=None))
    assert "lateness" not in "\n".join(lines)
    rates = next(line for line in lines if line.startswith("a second"))
    assert rates.split() == ["a", "second"]


def test_lateness_as_a_line_of_bars() -> None:
    (line,) = [each for each in drawn(looked(lateness=LATENESS)) if each.startswith("lateness")]
    assert line == "lateness   p50 ≤ 10 ms   p99 ≤ 5.0 s   1 ms │ █▁▁│ > 5.0 s"
    still = {**LATENESS, "minute": [0, 0, 0, 0]}
    (line,) = [each for each in drawn(looked(lateness=still)) if each.startswith("lateness")]
    assert line == "lateness   nothing was handed over in the last minute"


def test_what_is_overdue_is_said() -> None:
    text = "\n".join(drawn(looked(overdue_ms=7_000)))
    assert "overdue 7.0 s" in text
    assert "next due" not in text


def test_no_answer_is_said_and_figures_stay() -> None:
    look = looked()
    look.silent = "no broker answers at http://127.0.0.1:8090 (timed out)"
    lines = drawn(look)
    assert lines[0].startswith("NO ANSWER   broker-a")
    assert lines[1].startswith("as it was; no broker answers at")
    assert any(line.startswith("t2") for line in lines)


def test_nothing_that_a_terminal_would_obey() -> None:
    """Markup and control sequences in names and problems are shown, not followed."""
    look = looked(topics=0, groups=0)
    look.overview["topics"] = [{"topic": "[red]x\x1b[2J\n", "pending": 1}]
    look.overview["problems"] = 1
    look.problems = ["\x1b]0;title\x07 [bold]"]
    text = "\n".join(drawn(look))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]x·[2J·" in text
    assert "problem: ·]0;title· [bold]" in text
