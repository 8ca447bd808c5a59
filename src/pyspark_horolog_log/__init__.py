"""What Spark imports for `format("horolog_log")`: a package of this name with a class `DefaultSource`."""

from __future__ import annotations

from horolog.pipeline.log_source import LogSource


class DefaultSource(LogSource):
    """The commit log as a table, found by Spark itself."""
