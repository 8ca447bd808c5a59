"""Spark's classes for how many rows a micro-batch may read."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]


def limit_of(limit: ReadLimit | None) -> int:
    """Return the most rows of a micro-batch; 0: no limit."""
    return limit.max_rows if isinstance(limit, ReadMaxRows) else 0
