"""A SparkSession that logs little and stays on this machine unless asked.

A missing Java, package or master is named in one sentence.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from horolog.errors import ErrorCode, refused
from horolog.spark.failures import sentence_of
from horolog.spark.java import find_java
from horolog.spark.packages import need_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
_HERE = ("local", "spark://127.", "spark://localhost")
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
    # Tests and users make only temporary views of a data source: no catalog is needed.
    "spark.sql.catalogImplementation": "in-memory",
}
_HERE_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_MASTER, _NAME, _MEMORY = "spark.master", "spark.app.name", "spark.driver.memory"
_DRIVER_MEMORY = "2g"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set when spark-submit has started the JVM
_NO_NAME = "pyspark-shell"  # Spark's name of an application without one
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_FILE_SYSTEM_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def make_session(
    app_name: str,
    *,
    master: str = "",
    conf: Mapping[str, str] | None = None,
    ui: bool = False,
    progress: bool = False,
    log_level: str = "ERROR",
) -> SparkSession:
    """Return the session for a job.

    master    "": this machine with all cores; else spark://…, yarn, k8s://… or local[n]
    conf      settings of Spark that win over all others
    ui        serve Spark's web page
    progress  show Spark's own progress bar on a terminal
    Settings of spark-submit, spark-defaults.conf or a running session are kept, the master
    included; only settings without a value are set here.
    Errors: EXTRA_MISSING, JAVA_MISSING, SPARK_FAILED; CONFIG for a server of Spark Connect.
    """
    need_spark()
    if master.startswith("sc://"):
        raise refused(
            "--master",
            f"{master} is a server of Spark Connect; the jobs need spark://…, yarn, k8s://… or "
            "local[n]",
            code=ErrorCode.CONFIG,
        )
    # Workers must be this Python: another one would not find horolog.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    own = dict(conf or {})
    try:
        given = _given(own, quiet=not progress) | own
        master = master or given.get(_MASTER, LOCAL)
        settings = {
            name: setting
            for name, setting in _settings(master, app_name, ui=ui, progress=progress).items()
            if name not in given
        }
        settings |= own | {_MASTER: master}
        builder = SparkSession.builder
        for name, setting in settings.items():
            builder = builder.config(name, setting)
        session = builder.getOrCreate()
        _make_active(session)
    except (PySparkException, Py4JError, OSError) as error:
        raise refused(
            "--master",
            f"Spark did not start at {master or LOCAL}: {sentence_of(error)}",
            code=ErrorCode.SPARK_FAILED,
        ) from error
    if "spark.log.level" not in given:
        session.sparkContext.setLogLevel(log_level)
    _say_errors_once()
    if master.startswith(_HERE):
        _commit_quickly(session)
    return session


def _make_active(session: SparkSession) -> None:
    """Make the session active in the calling thread; the builder does so in its first thread only.

    In a thread without an active session a write does not find data sources in Python.
    """
    jvm = session._jvm
    assert jvm is not None
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)


def _running() -> SparkSession | None:
    """Return the session of this process, which may be active in other threads only."""
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        return None
    try:
        return SparkSession.active()
    except PySparkRuntimeError:  # there is a context without a session
        return None


def _say_errors_once() -> None:
    """Disable PySpark's loggers of wrong queries.

    A wrong query raises an exception; PySpark also logs it, with 8 kB of Java's stack on stderr.
    """
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS:
        PySparkLogger.getLogger(name).disabled = True


def _commit_quickly(session: SparkSession) -> None:
    """Write the logs of streaming queries without starting a process for each look at a file.

    Spark's first choice asks Hadoop's FileContext, which runs programs such as `readlink` for local
    files: a micro-batch takes 0.2 s more.  The manager that is set here writes and renames the same
    files.
    """
    if session.conf._jconf.contains(_MANAGER):
        return
    from py4j.protocol import Py4JError

    jvm = session._jvm
    assert jvm is not None
    try:
        jvm.java.lang.Class.forName(_FILE_SYSTEM_MANAGER)
    except Py4JError:
        return  # a later Spark may have moved the class, and its first choice is only slower
    session.conf.set(_MANAGER, _FILE_SYSTEM_MANAGER)


def _settings(master: str, app_name: str, *, ui: bool, progress: bool) -> dict[str, str]:
    settings = dict(_SETTINGS)
    settings[_NAME] = app_name
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


def _given(own: Mapping[str, str], *, quiet: bool) -> dict[str, str]:
    """Return the settings of spark-submit, of Spark's defaults, or of the running session.

    Starts the JVM if none runs.
    own  settings that the JVM must be started with
    """
    from pyspark import SparkConf, SparkContext

    running = _running()
    if running is not None:
        return {**dict(running.sparkContext.getConf().getAll()), **running.conf.getAll}
    if SparkContext._gateway is None:
        _start(own, quiet=quiet)
    given = dict(SparkConf().getAll())
    if given.get(_NAME) == _NO_NAME:
        del given[_NAME]
    return given


def _start(own: Mapping[str, str], *, quiet: bool) -> None:
    """Start the JVM, or connect to the JVM of spark-submit.

    quiet  write the JVM's stderr to a temporary file, because the JVM prints greetings and warnings
           there; failures reach the caller as exceptions
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if _SUBMITTED in os.environ:
        SparkContext._ensure_initialized()
        return
    os.environ["JAVA_HOME"] = str(find_java())
    conf = SparkConf(loadDefaults=False)
    if _MEMORY not in names_in_defaults():
        conf.set(_MEMORY, _DRIVER_MEMORY)
    for name, setting in own.items():
        conf.set(name, setting)
    if not quiet:
        SparkContext._ensure_initialized(conf=conf)
        return
    with open(Path(_temporary("spark")) / "stderr", "wb") as log:
        gateway = launch_gateway(conf, {"stderr": log})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)


def names_in_defaults() -> set[str]:
    """Return the names of the settings in spark-defaults.conf.

    Only Spark itself reads their values, but the JVM's memory must be chosen before Spark starts.
    """
    home = os.environ.get("SPARK_HOME", "")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    if not folder:
        return set()
    try:
        lines = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return {re.split(r"[\s=]", line.strip(), maxsplit=1)[0] for line in lines}
