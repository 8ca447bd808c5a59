"""Topics and groups of a log, by the last record of each.

A deleted topic or group is left out, but its id stays taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from horolog.pipeline.audit_tables import Sums, json_of


class Named(NamedTuple):
    """Registry rows of a checkpoint by id, the highest id ever assigned, and deleted rows."""

    rows: dict[int, dict[str, Any]]
    last: int
    dropped: list[dict[str, Any]]


def named(sums: Sums, metric: str) -> Named:
    """Read the records of topics (`topic`) or groups (`group`), each the whole state of one."""
    rows: dict[int, dict[str, Any]] = {}
    last, dropped = 0, []
    for each in sorted(sums.rows_of_metric(metric), key=lambda row: int(row["a"])):
        row = json_of(each["text"])
        number = row["number"]
        last = max(last, number)
        before = rows.pop(number, {})  # rows are in the order of the newest records
        if row.get("deleted"):
            gone = {"number": number, "name": row["name"], "queues": before.get("queues", 0)}
            dropped.append(gone | {"position": int(each["a"])})
        else:
            rows[number] = row
    return Named(rows, last, dropped)


def without_deleted(
    columns: dict[str, list[tuple[Any, ...]]], groups: Named, topics: Named
) -> dict[str, list[tuple[Any, ...]]]:
    """Return rows of progress, which begin with group and topic, without deleted ones."""
    return {
        name: [row for row in rows if row[0] in groups.rows and row[1] in topics.rows]
        for name, rows in columns.items()
    }
