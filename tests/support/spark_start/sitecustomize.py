"""Imports that Python runs at its start for the daemon of the JVM in which tests run Spark.

This directory is in the PYTHONPATH of that JVM. For each look at a data source, Spark forks a
worker from a daemon that has imported nothing, and each worker spends a second on pandas, pyarrow
and horolog. Here the daemon imports them, once.
"""

from __future__ import annotations

import sys


def import_all() -> None:
    """Import what a worker imports."""
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
    # A worker forgets what archives contain, and pkgutil of Python 3.13 lists only archives whose
    # content is known; an importer made again reads it.
    sys.path_importer_cache.clear()


if "pyspark.daemon" in sys.orig_argv:
    import_all()
