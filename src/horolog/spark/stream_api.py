"""Spark's classes for how many rows a micro-batch may read."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]


def read_limit(rows: int) -> ReadLimit:
    """Return the limit of a micro-batch of so many rows; 0: no limit."""
    return ReadMaxRows(rows) if rows else ReadAllAvailable()


def limit_of(limit: ReadLimit | None) -> int:
    """Return the most rows of a micro-batch; 0: no limit."""
    return limit.max_rows if isinstance(limit, ReadMaxRows) else 0
