"""A SparkSession that is quiet, stays on this machine unless asked, and says clearly what it lacks."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from horolog.errors import ErrorCode, HorologError
from horolog.spark.failures import sentence_of
from horolog.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
_HERE = ("local", "spark://127.", "spark://localhost")
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
    # A temporary view of a data source is what tests and people make; no catalog beside it.
    "spark.sql.catalogImplementation": "in-memory",
}
_HERE_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
}
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_MANAGERS = (  # of Spark 4.1 and later, and of 4.0
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
)


def need_spark() -> None:
    """EXTRA_MISSING unless the packages of the extra `spark` are installed."""
    try:
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise HorologError(
            ErrorCode.EXTRA_MISSING,
            f"{error.name} is not installed; the jobs on Spark need: pip install 'horolog[spark]'",
            field="horolog[spark]",
        ) from None


def make_session(
    app_name: str,
    *,
    master: str = "",
    conf: Mapping[str, str] | None = None,
    ui: bool = False,
    progress: bool = False,
    log_level: str = "ERROR",
) -> SparkSession:
    """The session for a job.

    master    "" is this machine, all cores; else spark://…, yarn, k8s://… or local[n]
    conf      settings of Spark that win over ours
    ui        Spark's web page
    progress  Spark's own progress bar on a terminal
    Errors: EXTRA_MISSING, JAVA_MISSING, SPARK_FAILED.
    """
    need_spark()
    os.environ["JAVA_HOME"] = str(find_java())
    # Workers must be this Python: another one would not find horolog.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    master = master or LOCAL
    settings = _settings(master, ui=ui, progress=progress) | dict(conf or {})
    try:
        if not progress:
            _start_quietly(settings)
        builder = SparkSession.builder.master(master).appName(app_name)
        for name, setting in settings.items():
            builder = builder.config(name, setting)
        session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise HorologError(
            ErrorCode.SPARK_FAILED,
            f"--master: Spark did not start at {master}: {sentence_of(error)}",
            field="--master",
        ) from error
    session.sparkContext.setLogLevel(log_level)
    if master.startswith(_HERE):
        _commit_quickly(session)
    return session


def _commit_quickly(session: SparkSession) -> None:
    """Write the logs of streaming queries without starting a process for each look at a file.

    Spark's first choice asks Hadoop's FileContext, which runs `readlink` and its like for files of this machine: a
    micro-batch takes 0.2 s more.  The other one writes and renames the same files.
    """
    if session.conf._jconf.contains(_MANAGER):
        return
    from py4j.protocol import Py4JError

    jvm = session._jvm
    assert jvm is not None
    for name in _MANAGERS:
        try:
            jvm.java.lang.Class.forName(name)
        except Py4JError:
            continue
        session.conf.set(_MANAGER, name)
        return


def _settings(master: str, *, ui: bool, progress: bool) -> dict[str, str]:
    settings = dict(_SETTINGS)
    if master.startswith(_HERE):
        settings |= _HERE_SETTINGS
    settings["spark.ui.enabled"] = str(ui).lower()
    settings["spark.ui.showConsoleProgress"] = str(progress).lower()
    settings["spark.sql.warehouse.dir"] = _temporary("warehouse")
    return settings


def _temporary(name: str) -> str:
    made = tempfile.mkdtemp(prefix=f"horolog-{name}-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def _start_quietly(settings: Mapping[str, str]) -> None:
    """Start the JVM with its stderr in a temporary file, unless one runs: it greets and warns there.

    What goes wrong reaches the caller as an exception.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False)
    for name, setting in settings.items():
        conf.set(name, setting)
    with open(Path(_temporary("spark")) / "stderr", "wb") as log:
        gateway = launch_gateway(conf, {"stderr": log})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)
