"""What Spark imports for `format("horolog")`: a package of this name with a class `DefaultSource`."""

from __future__ import annotations

from horolog.spark.source import HorologDataSource


class DefaultSource(HorologDataSource):
    """The data source `horolog`, found by Spark itself."""
