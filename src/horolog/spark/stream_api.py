"""How much a micro-batch may read, as Spark asks for it."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]


def limit_of(limit: ReadLimit | None) -> int:
    """Rows of a micro-batch; 0: no limit."""
    return limit.max_rows if isinstance(limit, ReadMaxRows) else 0
