"""Spark's interface of stream sources, the parts that Spark 4.0 and 4.1 do not have included.

There `latestOffset` is called without arguments, and nothing limits a micro-batch.
"""

from __future__ import annotations

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:

    class ReadLimit:  # type: ignore[no-redef]
        """How much of a stream to read."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Everything."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """At most so many rows."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A source that can end at what there is now."""


__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]


def limit_of(limit: ReadLimit | None) -> int:
    """Rows of a micro-batch; 0: no limit."""
    return limit.max_rows if isinstance(limit, ReadMaxRows) else 0
