"""The session: what it needs is said in one sentence, and it starts quietly."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.errors import AnalysisException

from horolog.errors import ErrorCode, HorologError
from horolog.spark import java
from horolog.spark.bulk_load import bulk_load
from horolog.spark.delta_append import DeltaAppend
from horolog.spark.java import find_java, java_version
from horolog.spark.session import make_session, names_in_defaults
from horolog.spark.shared_place import prove_shared


def fake_java(home, version):
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    script.chmod(0o755)
    return home


def test_java_home_comes_first(tmp_path, monkeypatch) -> None:
    home = fake_java(tmp_path / "jdk", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == home
    assert java_version(home / "bin" / "java") == 21


def test_old_java_is_passed_over_and_named(tmp_path, monkeypatch) -> None:
    home = fake_java(tmp_path / "jdk", "11.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_PLACES", ())
    with pytest.raises(HorologError) as refused:
        find_java()
    assert refused.value.code is ErrorCode.JAVA_MISSING
    assert "Java 17 or newer" in refused.value.message
    assert f"{home} is Java 11" in refused.value.message
    assert "\n" not in refused.value.message


def test_a_java_in_the_usual_places_is_found(tmp_path, monkeypatch) -> None:
    home = fake_java(tmp_path / "jvm" / "java-17", "17.0.1")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_PLACES", (f"{tmp_path}/jvm/*",))
    assert find_java() == home


ASKS = """
import sys
from horolog.spark.session import make_session
session = make_session("ours", ui=False, conf={"spark.sql.shuffle.partitions": "7"})
for name in sys.argv[1:]:
    print(name, session.sparkContext.getConf().get(name) or session.conf.get(name))
session.stop()
"""


# Half of the life of such a JVM is spent on compiling; it says on stderr what it has picked up.
SHORT_LIVED = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def settings_under(arguments, names, tmp_path, **environment) -> dict[str, str]:
    """What a script finds set that makes its session here."""
    script = tmp_path / "asks.py"
    script.write_text(ASKS)
    done = subprocess.run(
        [*arguments, str(script), *names],
        capture_output=True,
        text=True,
        timeout=180,
        env=os.environ
        | {"JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable}
        | SHORT_LIVED
        | environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def test_what_spark_submit_says_is_left_as_it_is(tmp_path) -> None:
    """Only what it does not say is ours; what the caller says wins over both."""
    said = {
        "spark.master": "local[3]",
        "spark.app.name": "theirs",
        "spark.driver.memory": "700m",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.ui.showConsoleProgress": "true",
        "spark.sql.warehouse.dir": f"file:{tmp_path}/theirs",
    }
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    flags = ["--master", said["spark.master"], "--name", said["spark.app.name"]]
    for name in list(said)[2:]:
        flags += ["--conf", f"{name}={said[name]}"]
    flags += ["--conf", "spark.sql.shuffle.partitions=5"]
    ours = {
        "spark.sql.shuffle.partitions": "7",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
    }
    found = settings_under([submit, *flags], [*said, *ours], tmp_path)
    assert found == said | ours


def test_names_in_the_defaults_of_spark_are_known_before_it_starts(tmp_path, monkeypatch) -> None:
    lines = ["# ours", "spark.driver.memory 600m", "  spark.ui.enabled=false", "", "spark.x\ty"]
    (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert {"spark.driver.memory", "spark.ui.enabled", "spark.x"} <= names_in_defaults()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "none"))
    assert names_in_defaults() == set()


@pytest.mark.slow
def test_defaults_of_spark_are_left_as_they_are(tmp_path) -> None:
    said = {"spark.driver.memory": "600m", "spark.sql.session.timeZone": "Asia/Tokyo"}
    lines = ["# ours", *(f"{name} {setting}" for name, setting in said.items())]
    (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))
    ours = {"spark.app.name": "ours", "spark.master": "local[*]", "spark.ui.enabled": "false"}
    names = [*said, *ours]
    found = settings_under([sys.executable], names, tmp_path, SPARK_CONF_DIR=str(tmp_path))
    assert found == said | ours


def test_importing_the_package_does_not_import_spark() -> None:
    code = "import sys, horolog.spark; print(sorted({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_session_counts_and_says_nothing(spark, capfd) -> None:
    assert spark.range(10).count() == 10
    assert capfd.readouterr() == ("", "")


def test_settings_of_a_running_session_are_kept_in_every_thread(spark) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(make_session, "another name").result() is spark
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_wrong_query_is_an_exception_and_nothing_on_stderr(spark) -> None:
    """PySpark's own logger writes 8 kB of Java's stack there; pytest's handlers would hide it."""
    logger, seen = logging.getLogger("SQLQueryContextLogger"), logging.Handler()
    records: list[logging.LogRecord] = []
    seen.emit = records.append  # type: ignore[method-assign]
    logger.addHandler(seen)
    try:
        with pytest.raises(AnalysisException):
            spark.range(1).selectExpr("nowhere")
    finally:
        logger.removeHandler(seen)
    assert records == []


def test_streams_of_this_machine_commit_without_other_processes(spark) -> None:
    manager = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass")
    assert manager.endswith(".FileSystemBasedCheckpointFileManager")


def test_a_server_of_spark_connect_is_refused() -> None:
    with pytest.raises(HorologError, match="--master: sc://host:1 is a server of Spark Connect"):
        make_session("any", master="sc://host:1")


def test_jobs_refuse_a_session_without_a_jvm() -> None:
    """As those of Spark Connect are; such an attribute raises an AttributeError there."""
    without: Any = SimpleNamespace()
    frame: Any = SimpleNamespace(sparkSession=without)
    with pytest.raises(HorologError, match="spark: a bulk load does not run in a session of Spark"):
        bulk_load(frame, broker="http://127.0.0.1:1", topic="t")
    with pytest.raises(HorologError, match="this job does not run in a session of Spark Connect"):
        prove_shared(without, "/tmp", "--out")
    with pytest.raises(HorologError, match="query: Spark tells no query id here; name the query"):
        DeltaAppend("/tmp/none")(frame, 0)
