"""The day as one picture: bars by hour, the moment of the kill, and the figures that matter, as an SVG."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Sequence

from day import clock_text
from ledger import Balance, percentile

WIDTH, HEIGHT = 960, 420
LEFT, RIGHT, TOP, BOTTOM = 28, 28, 184, 44
STYLE = """
text { font: 14px system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; fill: #5b6b7b; }
.title { font-size: 22px; font-weight: 600; fill: #1d2733; }
.figure { font-size: 30px; font-weight: 600; fill: #1d2733; }
.zero { fill: #2c7a4b; } .called { fill: #2f6fb0; } .recalled { fill: #a9c8e8; }
.kill { stroke: #b3322b; stroke-width: 2; stroke-dasharray: 5 4; } .killed { fill: #b3322b; }
"""


def day_picture(
    balance: Balance, called: Iterable[int], recalled: Iterable[int], kill: tuple[int, str]
) -> str:
    """The whole day as an SVG document; the arguments are those of `picture`."""
    title = f"A stormy day: {balance.scheduled:,} boarding calls scheduled"
    figures = [
        (f"{balance.handed_over:,}", "handed over"),
        (f"{balance.recalled:,}", "recalled in time"),
        (f"{balance.lost:,}", "lost"),
        (f"{balance.twice:,}", "handed over twice"),
        (f"{balance.early:,}", "early"),
        (f"{percentile(balance.store_lateness_up_ms, 0.99):,} ms", "late, p99, while up"),
    ]
    return picture(title, figures, called, recalled, kill)


def picture(
    title: str,
    figures: Sequence[tuple[str, str]],
    called: Iterable[int],
    recalled: Iterable[int],
    kill: tuple[int, str],
) -> str:
    """An SVG document.

    figures   (value, name) in a row above the bars; a value of "0" is shown in green
    called    minutes of the day at which a call was handed over
    recalled  minutes at which a recalled one would have been due
    kill      minute at which the broker was killed, and what to write there
    """
    handed = Counter(minute // 60 for minute in called)
    taken_back = Counter(minute // 60 for minute in recalled)
    first, last = min(handed | taken_back, default=0), max(handed | taken_back, default=0)
    most = max((handed[hour] + taken_back[hour] for hour in range(first, last + 1)), default=1)
    step = (WIDTH - LEFT - RIGHT) / (last - first + 1)
    floor, tall = HEIGHT - BOTTOM, HEIGHT - BOTTOM - TOP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="12" fill="#ffffff"/>',
        f'<text class="title" x="{LEFT}" y="42">{html.escape(title)}</text>',
    ]
    for place, (value, name) in enumerate(figures):
        x = LEFT + place * (WIDTH - LEFT - RIGHT) / len(figures)
        state = "figure zero" if value == "0" else "figure"
        parts.append(f'<text class="{state}" x="{x:.0f}" y="100">{html.escape(value)}</text>')
        parts.append(f'<text x="{x:.0f}" y="122">{html.escape(name)}</text>')
    for hour in range(first, last + 1):
        x, y = LEFT + (hour - first) * step, float(floor)
        for kind, count in (("called", handed[hour]), ("recalled", taken_back[hour])):
            high = count / most * tall
            y -= high
            parts.append(
                f'<rect class="{kind}" x="{x + 3:.1f}" y="{y:.1f}" width="{step - 6:.1f}"'
                f' height="{high:.1f}"/>'
            )
        if (hour - first) % 2 == 0:
            label = clock_text(hour * 60).partition("+")[0]
            parts.append(
                f'<text x="{x + step / 2:.1f}" y="{floor + 20}" text-anchor="middle">{label}</text>'
            )
    minute, words = kill
    x = LEFT + (minute / 60 - first) * step
    parts.append(
        f'<line class="kill" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 26}" y2="{floor}"/>'
        f'<text class="killed" x="{x - 8:.1f}" y="{TOP - 14}" text-anchor="end">'
        f"{html.escape(words)}</text>"
    )
    legend = (("called", "handed over, by hour of the due time"), ("recalled", "recalled in time"))
    for place, (kind, words) in enumerate(legend):
        x = WIDTH - RIGHT - 270
        y = 34 + place * 20
        parts.append(f'<rect class="{kind}" x="{x}" y="{y - 11}" width="12" height="12"/>')
        parts.append(f'<text x="{x + 20}" y="{y}">{words}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
