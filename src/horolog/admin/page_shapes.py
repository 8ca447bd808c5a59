"""Shapes of what the page asks for more often than anybody else (`shapes` has the others)."""

from __future__ import annotations

from typing_extensions import TypedDict

Histogram = TypedDict(
    "Histogram",
    {
        "topic": str,
        "step": str,
        "zone": str,
        "from_ms": int,
        "from": str | None,
        "to_ms": int,
        "to": str | None,
        "total": int,
        "in_tier": int,
        "rows": list[tuple[int, int]],
    },
)
"""Counts of what waits in even steps: [start_ms, count]; each row ends where the next begins, the last at `to_ms`."""
