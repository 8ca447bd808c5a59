"""docs/reference/limits.md: every limit with its value and the reason in `horolog.limits`."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

from horolog import limits

_UNITS = {"MINUTE_MS", "SECOND_MS", "HOUR_MS", "DAY_MS", "KIB", "MIB"}
_HEADING = re.compile(r"# --- (.+?) -+$")
_TIMES = ((limits.HOUR_MS, "h"), (limits.MINUTE_MS, "min"), (limits.SECOND_MS, "s"))


def limit_rows(source: str) -> list[tuple[str, str, str, str]]:
    """Return (heading, name, value, reason) of every limit in `source`, in order."""
    comments = {
        token.start[0]: token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found = []
    heading, seen = "", 0
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name, end = node.targets[0].id, node.end_lineno or node.lineno
        for line in range(seen, node.lineno):
            title = _HEADING.match(comments.get(line, ""))
            heading = title[1] if title else heading
        reason = " ".join(
            comments[i].strip("# ") for i in range(node.lineno, end + 1) if i in comments
        )
        seen = end + 1
        if name not in _UNITS:
            expression = ast.unparse(node.value)
            found.append((heading, name, _value(name, getattr(limits, name), expression), reason))
    return found


def _value(name: str, value: int, expression: str) -> str:
    """Return a value with its unit, as far as the name or the expression tells it."""
    if name.endswith("_MS"):
        for unit_ms, unit in _TIMES:
            if value % unit_ms == 0:
                return f"{value // unit_ms} {unit}"
        return f"{value} ms"
    if name.endswith("BYTES") or "IB" in expression:
        mib = value % limits.MIB == 0
        return f"{value // (limits.MIB if mib else limits.KIB)} {'MiB' if mib else 'KiB'}"
    return str(value)


def limits_page(title: str) -> str:
    """Return the page; `title` has its first lines."""
    source = Path(limits.__file__).read_text(encoding="utf-8")
    lines = [title]
    last = None
    for heading, name, value, reason in limit_rows(source):
        if heading != last:
            lines += ["", f"## {heading[:1].upper()}{heading[1:]}", ""]
            lines += ["| limit | value | reason, meaning |", "|---|---|---|"]
            last = heading
        lines.append(f"| `{name}` | {value} | {reason} |")
    return "\n".join(lines) + "\n"
