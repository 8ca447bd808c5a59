"""The session: what it needs is said in one sentence, and it starts quietly."""

from __future__ import annotations

import subprocess
import sys

import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.spark import java
from horolog.spark.java import find_java, java_version


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


def test_a_python_without_spark_is_told_so() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from horolog.spark.session import make_session\n"
        "from horolog.errors import HorologError\n"
        "try:\n    make_session('t')\nexcept HorologError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "pyspark is not installed; the jobs on Spark need: pip install 'horolog[spark]'\n"
    )


def test_importing_the_package_does_not_import_spark() -> None:
    code = "import sys, horolog.spark; print(sorted({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_session_counts_and_says_nothing(spark, capfd) -> None:
    assert spark.range(10).count() == 10
    assert capfd.readouterr() == ("", "")


def test_streams_of_this_machine_commit_without_other_processes(spark) -> None:
    manager = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass")
    assert manager.endswith(".FileSystemBasedCheckpointFileManager")
