"""What Spark imports for `format("horolog_pending")`: a package of this name with a class `DefaultSource`."""

from __future__ import annotations

from horolog.pipeline.pending_source import PendingSource


class DefaultSource(PendingSource):
    """What waits as a table, found by Spark itself."""
