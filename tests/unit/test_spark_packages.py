"""What lacks a package of the extra, or has too old a Spark, says so in one sentence; nothing is imported before."""

from __future__ import annotations

import subprocess
import sys

import pyspark
import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.spark.packages import need_spark
from horolog.spark.source import HorologDataSource

COMMANDS = [
    ["load", "a.csv", "--topic", "t", "--deliver-at", "at"],
    ["audit", "d"],
    ["forecast", "d"],
    ["rebuild", "d", "--out", "new"],
    ["offload", "lake"],
    ["offload", "lake", "--abort"],
    ["promote"],
]
WITHOUT = """
import sys
from horolog.cli.main import run
for name in sys.argv[1].split(","):
    sys.modules[name] = None
for words in {commands}:
    print(run(["pipeline", *words]), file=sys.stderr)
"""


def lines_without(packages: str) -> list[str]:
    code = WITHOUT.format(commands=COMMANDS)
    command = [sys.executable, "-c", code, packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_a_wheel_without_the_extra_says_what_to_install() -> None:
    lines = lines_without("pyspark,pyarrow,pandas,deltalake")
    assert lines[1::2] == ["2"] * len(COMMANDS)
    for line in lines[::2]:
        assert line.endswith(
            " is not installed; the jobs on Spark need: pip install 'horolog[spark]'"
        )


@pytest.mark.parametrize("version", ["4.0.1", "4.1.4", "4.2.0", "3.5.8"])
def test_an_older_spark_is_refused(version, monkeypatch) -> None:
    """On 4.0 writes would fail, on 4.1 `maxOffsetsPerTrigger` would say nothing."""
    monkeypatch.setattr(pyspark, "__version__", version)
    for first_use in (need_spark, lambda: HorologDataSource({})):
        with pytest.raises(HorologError) as error:
            first_use()
        assert error.value.code is ErrorCode.EXTRA_MISSING
        assert error.value.message == (
            f"pyspark {version} is installed; horolog needs 4.3 or newer: pip install 'horolog[spark]'"
        )


@pytest.mark.parametrize("version", ["4.3.0", "4.3.1.dev0", "4.10.0", "5.0.0"])
def test_a_newer_one_is_not(version, monkeypatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    need_spark()
