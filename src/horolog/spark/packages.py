"""Checks that the packages of the extra `spark` are installed and new enough.

A missing or old package is named in one sentence.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

from horolog.errors import ErrorCode, HorologError, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_MIN = (4, 3)
"""Oldest version of Spark that is tested.

4.0 has no Arrow writer for streams, so writes fail.  4.1 asks a stream for its offsets without a
limit, so `maxOffsetsPerTrigger` and `maxRowsPerTrigger` have no effect.  4.2 was never tested.
"""
_EXTRA = "horolog[spark]"


def need_spark() -> None:
    """Raise EXTRA_MISSING unless the packages that jobs on Spark need are installed."""
    need("pandas", "pyarrow", "pyspark")
    check_version()


def need_jvm(session: SparkSession, what: str) -> None:
    """Raise CONFIG for a session of Spark Connect, which has no JVM in this process.

    what  the job that needs one
    """
    if not hasattr(session, "_jsparkSession"):
        raise refused(
            "spark",
            f"{what} does not run in a session of Spark Connect: run it with spark-submit, or in a "
            "session of make_session; format('horolog') reads and writes in both",
            code=ErrorCode.CONFIG,
        )


def need_lake() -> None:
    """Raise EXTRA_MISSING unless the packages for tables without Spark are installed."""
    need("pyarrow", "deltalake")


def need(*packages: str) -> None:
    """Raise EXTRA_MISSING that names the first of the packages that cannot be imported."""
    for name in packages:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise HorologError(
                ErrorCode.EXTRA_MISSING,
                f"{error.name or name} is not installed; the jobs on Spark need: pip install "
                f"'{_EXTRA}'",
                field=_EXTRA,
            ) from None


def check_version() -> None:
    """Raise EXTRA_MISSING if the installed Spark is older than the tested versions."""
    import pyspark

    found = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
    if found < SPARK_MIN:
        wanted = ".".join(map(str, SPARK_MIN))
        raise HorologError(
            ErrorCode.EXTRA_MISSING,
            f"pyspark {pyspark.__version__} is installed; horolog needs {wanted} or newer: pip "
            f"install '{_EXTRA}'",
            field=_EXTRA,
            limit=f"pyspark {wanted}",
        )
