"""One HTML file that holds a whole report: figures, plots as inline SVG, tables.

It has no script and loads nothing from the network.
"""

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
.narrow { display: none; }
@media (max-width: 640px) {
  main { padding: 18px 12px 40px; } section { padding: 14px; } h1 { font-size: 22px; }
  .cards { gap: 8px; } .card { padding: 10px 12px; } .card b { font-size: 19px; }
  .wide { display: none; } .narrow { display: block; }
  th, td { white-space: normal; padding: 5px 6px; }
  table.many, table.many tbody, table.many tr, table.many td { display: block; }
  table.many tr.head { display: none; }
  table.many tr { padding: 8px 0; border-bottom: 1px solid var(--line); }
  table.many td, table.many td.n { display: flex; justify-content: space-between; gap: 16px;
    padding: 2px 0; border: 0; text-align: right; white-space: normal; overflow-wrap: anywhere; }
  table.many td::before { content: attr(data-name); color: var(--soft); text-align: left;
    white-space: nowrap; }
  table.many td.none { display: none; } }
tr.sum td { font-weight: 600; border-top: 2px solid var(--line); }
.note { color: var(--soft); font-size: 13px; margin: 8px 0 0; }
footer { color: var(--soft); font-size: 13px; }
"""
_HEIGHT, _LEFT, _BOTTOM, _TOP = 240, 64, 34, 16
# Widths of a chart, which is drawn for a desk and for a phone; the page shows one of the two.
_WIDE, _NARROW = 960, 340
_BAR_WIDEST, _LABEL = 72, 84
_COLUMNS_MAX = 3  # a table of more columns is a list of rows on a phone


def page(title: str, sub: str, parts: Sequence[str], made: str) -> str:
    """Build the whole document."""
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
    """Build the first section, with the verdict."""
    tail = f"<p>{html.escape(more)}</p>" if more else ""
    state = "verdict bad" if bad else "verdict"
    return f'<section class="{state}"><p><b>{html.escape(sentence)}</b></p>{tail}</section>'


def cards(figures: Sequence[tuple[str, object, str]]) -> str:
    """Build cards side by side from (name, figure, class); the class is "", "bad" or "warn"."""
    made = [
        f'<div class="card {state}"><b>{html.escape(number(shown))}</b>'
        f"<span>{html.escape(name)}</span></div>"
        for name, shown, state in figures
    ]
    return f'<div class="cards">{"".join(made)}</div>'


def section(title: str, *parts: str, note: str = "") -> str:
    """Build a section with a heading."""
    tail = f'<p class="note">{html.escape(note)}</p>' if note else ""
    return f"<section><h2>{html.escape(title)}</h2>{''.join(parts)}{tail}</section>"


def table(head: Sequence[str], rows: Sequence[Sequence[object]], *, sums: bool = False) -> str:
    """Build a table with numbers aligned right; with `sums` the last row is styled as a sum."""
    if not rows:
        return '<p class="note">none</p>'
    right = [all(isinstance(row[i], int) for row in rows) for i in range(len(head))]

    def cell(tag: str, shown: object, place: int) -> str:
        states = ["n"] if right[place] else []
        states += ["none"] if shown == "" else []
        state = f' class="{" ".join(states)}"' if states else ""
        name = f' data-name="{html.escape(head[place])}"' if tag == "td" else ""
        return f"<{tag}{state}{name}>{html.escape(number(shown))}</{tag}>"

    top = "".join(cell("th", name, i) for i, name in enumerate(head))
    lines = ["".join(cell("td", shown, i) for i, shown in enumerate(row)) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines[: len(lines) - sums])
    body += "".join(f'<tr class="sum">{line}</tr>' for line in lines[len(lines) - sums :])
    kind = ' class="many"' if len(head) > _COLUMNS_MAX else ""
    return f'<div class="scroll"><table{kind}><tr class="head">{top}</tr>{body}</table></div>'


def number(shown: object) -> str:
    """Format an integer with commas between thousands, as on the terminal; else return the text."""
    return f"{shown:,}" if isinstance(shown, int) else str(shown)


def moment(epoch_ms: int, *, seconds: bool = True) -> str:
    """Format a time in UTC."""
    form = "%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M"
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime(form)


def duration(ms: int) -> str:
    """Format a duration for axes and summaries."""
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
    pale: Sequence[float] = (),
    hot: int = -1,
    titles: Sequence[str] = (),
) -> str:
    """Build a bar chart, drawn once for a wide page and once for a narrow one.

    labels  one a bar; only as many are drawn as there is room for
    pale    values of paler bars at the back, such as a maximum at the back of a median
    hot     index of the bar that is drawn in red
    """
    if not values:
        return '<p class="note">nothing to show</p>'
    drawn = [
        f'<div class="{kind}">{_chart(width, values, labels, pale, hot, titles)}</div>'
        for kind, width in (("wide", _WIDE), ("narrow", _NARROW))
    ]
    return "".join(drawn)


def _chart(
    width: int,
    values: Sequence[float],
    labels: Sequence[str],
    pale: Sequence[float],
    hot: int,
    titles: Sequence[str],
) -> str:
    top = max([*values, *pale, 1])
    step = _step(top)
    ceiling = step * -(-top // step)
    high, wide = _HEIGHT - _TOP - _BOTTOM, (width - _LEFT - 8) / len(values)
    parts = [f'<svg viewBox="0 0 {width} {_HEIGHT}" role="img" xmlns="http://www.w3.org/2000/svg">']
    line = 0.0
    while line <= ceiling:
        y = _TOP + high * (1 - line / ceiling)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{width - 8}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_short(line)}</text>'
        )
        line += step
    gap = max(wide * 0.15, wide - _BAR_WIDEST) if wide > 3 else 0.0
    for i, value in enumerate(values):
        x = _LEFT + i * wide + gap / 2
        if pale:
            parts.append(_bar("back", x, pale[i] / ceiling * high, wide - gap, high))
        title = f"<title>{html.escape(titles[i])}</title>" if titles else ""
        kind = "hot" if i == hot else "bar"
        parts.append(_bar(kind, x, value / ceiling * high, wide - gap, high, title))
    every = max(1, -(-len(labels) * _LABEL // (width - _LEFT)))
    for i in range(0, len(labels), every):
        x = _LEFT + (i + 0.5) * wide
        if x > width - _LABEL / 2:
            continue
        parts.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - 12}" text-anchor="middle">'
            f"{html.escape(labels[i])}</text>"
        )
    return "".join([*parts, "</svg>"])


def _bar(kind: str, x: float, tall: float, wide: float, high: float, title: str = "") -> str:
    y = _TOP + high - tall
    return (
        f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{max(wide, 0.5):.2f}"'
        f' height="{tall:.2f}">{title}</rect>'
    )


def _step(top: float) -> float:
    """Return a round distance between grid lines, of which there are at most five."""
    step = 1.0
    while top / step > 5:
        step *= 2.5 if str(step)[0] == "2" else 2
    return step


def _short(value: float) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.3g}"
