"""One HTML file that holds everything: figures, plots as inline SVG, tables.  No script, no network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import UTC, datetime

STYLE = """
:root { --ink: #1d2733; --soft: #667585; --line: #dde3ea; --paper: #ffffff; --page: #f4f6f9;
  --blue: #2f6fb0; --light: #a9c8e8; --red: #b3322b; --green: #2c7a4b; --amber: #b26a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ef; --soft: #97a5b4; --line: #323d4a;
  --paper: #1b232c; --page: #12181f; --blue: #6ba7e0; --light: #35567a; --red: #ef7d74;
  --green: #68c08b; --amber: #e0a64b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 0 0 12px; }
.sub { color: var(--soft); margin: 0 0 20px; overflow-wrap: anywhere; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
  padding: 20px; margin: 0 0 18px; }
.verdict { border-left: 6px solid var(--green); } .verdict.bad { border-left-color: var(--red); }
.verdict p { margin: 0; font-size: 17px; } .verdict p + p { color: var(--soft); font-size: 14px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px;
  margin-bottom: 18px; }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 14px; }
.card b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 13px; }
.card.bad b { color: var(--red); } .card.warn b { color: var(--amber); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { padding: 5px 10px; border-bottom: 1px solid var(--line); text-align: left;
  white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font-size: 12px; } svg .bar { fill: var(--blue); }
svg .back { fill: var(--light); } svg .grid { stroke: var(--line); }
svg .hot { fill: var(--red); }
.note { color: var(--soft); font-size: 13px; margin: 8px 0 0; }
footer { color: var(--soft); font-size: 13px; }
"""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 960, 240, 64, 34, 16
_BAR_WIDEST, _LABEL = 72, 84


def page(title: str, sub: str, parts: Sequence[str], made: str) -> str:
    """The whole document."""
    body = "\n".join(parts)
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style></head><body><main>\n"
        f'<h1>{html.escape(title)}</h1><p class="sub">{html.escape(sub)}</p>\n'
        f"{body}\n<footer>{html.escape(made)}</footer></main></body></html>\n"
    )


def verdict(sentence: str, more: str = "", *, bad: bool) -> str:
    """The first thing to read."""
    tail = f"<p>{html.escape(more)}</p>" if more else ""
    state = "verdict bad" if bad else "verdict"
    return f'<section class="{state}"><p><b>{html.escape(sentence)}</b></p>{tail}</section>'


def cards(figures: Sequence[tuple[str, object, str]]) -> str:
    """(name, figure, class) side by side; the class is "", "bad" or "warn"."""
    made = [
        f'<div class="card {state}"><b>{html.escape(number(shown))}</b>'
        f"<span>{html.escape(name)}</span></div>"
        for name, shown, state in figures
    ]
    return f'<div class="cards">{"".join(made)}</div>'


def section(title: str, *parts: str, note: str = "") -> str:
    """A part with a heading."""
    tail = f'<p class="note">{html.escape(note)}</p>' if note else ""
    return f"<section><h2>{html.escape(title)}</h2>{''.join(parts)}{tail}</section>"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Numbers to the right."""
    if not rows:
        return '<p class="note">none</p>'
    right = [all(isinstance(row[i], int) for row in rows) for i in range(len(head))]

    def cell(tag: str, shown: object, place: int) -> str:
        state = ' class="n"' if right[place] else ""
        return f"<{tag}{state}>{html.escape(number(shown))}</{tag}>"

    top = "".join(cell("th", name, i) for i, name in enumerate(head))
    body = "".join(
        f"<tr>{''.join(cell('td', shown, i) for i, shown in enumerate(row))}</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{top}</tr>{body}</table></div>'


def number(shown: object) -> str:
    """Thousands apart."""
    return f"{shown:,}".replace(",", "\u202f") if isinstance(shown, int) else str(shown)


def moment(epoch_ms: int, *, seconds: bool = True) -> str:
    """UTC."""
    form = "%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M"
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime(form)


def duration(ms: int) -> str:
    """For axes and summaries."""
    if abs(ms) < 1_000:
        return f"{ms} ms"
    for unit, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if abs(ms) >= unit:
            return f"{ms / unit:.3g} {name}"
    return f"{ms / 1000:.3g} s"


def bars(
    values: Sequence[float],
    labels: Sequence[str],
    *,
    behind: Sequence[float] = (),
    unit: str = "",
    hot: int = -1,
    titles: Sequence[str] = (),
) -> str:
    """A bar chart.

    labels  one a bar; only as many are written as there is room for
    behind  paler bars behind them, such as a maximum behind a median
    hot     the bar that is shown in red
    """
    if not values:
        return '<p class="note">nothing to show</p>'
    top = max([*values, *behind, 1])
    step = _step(top)
    ceiling = step * -(-top // step)
    high, wide = _HEIGHT - _TOP - _BOTTOM, (_WIDTH - _LEFT - 8) / len(values)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" xmlns="http://www.w3.org/2000/svg">'
    ]
    line = 0.0
    while line <= ceiling:
        y = _TOP + high * (1 - line / ceiling)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_short(line)}{unit}</text>'
        )
        line += step
    gap = max(wide * 0.15, wide - _BAR_WIDEST) if wide > 3 else 0.0
    for i, value in enumerate(values):
        x = _LEFT + i * wide + gap / 2
        if behind:
            parts.append(_bar("back", x, behind[i] / ceiling * high, wide - gap, high))
        told = f"<title>{html.escape(titles[i])}</title>" if titles else ""
        kind = "hot" if i == hot else "bar"
        parts.append(_bar(kind, x, value / ceiling * high, wide - gap, high, told))
    every = max(1, -(-len(labels) * _LABEL // (_WIDTH - _LEFT)))
    for i in range(0, len(labels), every):
        x = _LEFT + (i + 0.5) * wide
        if x > _WIDTH - _LABEL / 2:
            continue
        parts.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - 12}" text-anchor="middle">'
            f"{html.escape(labels[i])}</text>"
        )
    return "".join([*parts, "</svg>"])


def _bar(kind: str, x: float, tall: float, wide: float, high: float, told: str = "") -> str:
    y = _TOP + high - tall
    return (
        f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{max(wide, 0.5):.2f}"'
        f' height="{tall:.2f}">{told}</rect>'
    )


def _step(top: float) -> float:
    """A round distance between lines, of which there are at most five."""
    step = 1.0
    while top / step > 5:
        step *= 2.5 if str(step)[0] == "2" else 2
    return step


def _short(value: float) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.3g}"
