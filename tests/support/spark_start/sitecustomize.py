"""Python runs this at its start where the directory is in PYTHONPATH: that of the JVM in which tests run Spark.

Spark forks a worker for each look at a data source from a daemon that has imported nothing, and each one spends a second
on pandas, pyarrow and us.  Here the daemon imports them, once.
"""

from __future__ import annotations

import sys


def import_all() -> None:
    """What a worker imports."""
    import os

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads do not outlive a fork
    import pandas
    import pyarrow.parquet
    import pyspark.worker

    import horolog.spark.reading
    import horolog.spark.source
    import horolog.spark.writing
    import pyspark_horolog

    del pandas, pyarrow, pyspark, pyspark_horolog, horolog


if "pyspark.daemon" in sys.orig_argv:
    import_all()
