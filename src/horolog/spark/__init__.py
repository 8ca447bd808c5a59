"""horolog on Spark: the data source `horolog`, bulk load, and a session that is quiet.

Importing this does not import Spark; what needs it says so in one sentence when it is missing.
"""

from __future__ import annotations

from horolog.spark.bulk_load import BulkLoadResult, bulk_load
from horolog.spark.session import make_session

__all__ = ["BulkLoadResult", "bulk_load", "make_session"]
