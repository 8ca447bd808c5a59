"""The tables of docs/reference/refusals.md, which must match the answers of the doors."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "refusals.md"


def differences(title: str, rows: Sequence[Sequence[str]]) -> str:
    """Return the changes that the table under a title needs; "" if there are none."""
    made = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    found = _lines(title)
    return "\n".join(unified_diff(found, made, lineterm="", n=0))


def rows_of(title: str) -> list[list[str]]:
    """Return the cells of the table under a title."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in _lines(title)]


def _lines(title: str) -> list[str]:
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]
