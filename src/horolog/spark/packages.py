"""The packages of the extra `spark`: whether they are there, and new enough, said in one sentence."""

from __future__ import annotations

import importlib
import re

from horolog.errors import ErrorCode, HorologError

SPARK_MIN = (4, 3)
"""What is tested.  4.0 has no Arrow writer for streams, so that writes fail; 4.1 asks a stream for its offsets without a
limit, so that `maxOffsetsPerTrigger` and `maxRowsPerTrigger` would say nothing; 4.2 nobody has tried."""
_EXTRA = "horolog[spark]"


def need_spark() -> None:
    """EXTRA_MISSING unless what jobs on Spark need is installed."""
    need("pandas", "pyarrow", "pyspark")
    check_version()


def need_lake() -> None:
    """EXTRA_MISSING unless what reads and writes tables without Spark is installed."""
    need("pyarrow", "deltalake")


def need(*packages: str) -> None:
    """EXTRA_MISSING that names the first of these packages that cannot be imported."""
    for name in packages:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise HorologError(
                ErrorCode.EXTRA_MISSING,
                f"{error.name or name} is not installed; the jobs on Spark need: pip install '{_EXTRA}'",
                field=_EXTRA,
            ) from None


def check_version() -> None:
    """EXTRA_MISSING if the installed Spark is older than what is tested."""
    import pyspark

    found = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
    if found < SPARK_MIN:
        wanted = ".".join(map(str, SPARK_MIN))
        raise HorologError(
            ErrorCode.EXTRA_MISSING,
            f"pyspark {pyspark.__version__} is installed; horolog needs {wanted} or newer: pip install '{_EXTRA}'",
            field=_EXTRA,
            limit=f"pyspark {wanted}",
        )
