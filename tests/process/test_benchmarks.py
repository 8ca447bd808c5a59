"""What `make bench` runs still runs: every part of it, with few messages."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("schedule", "year", "hand_over", "lateness", "filters", "ready")
ELSEWHERE = ("__init__", "client_sends")  # runs where the official Python client is installed
NAMES = sorted(
    path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem not in ELSEWHERE
)


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_can_be_imported(name: str) -> None:
    assert import_module(f"benchmarks.{name}").__doc__


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_the_benchmarks_runs(part: str) -> None:
    command = [sys.executable, "-m", "benchmarks", "--only", part, "--n", "2000", "--seconds", "1"]
    done = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert json.loads(line).get("early", 0) == 0, line


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    "command",
    [
        ["sends", "--messages", "2048"],
        ["grpc_sends", "--messages", "64", "--chunks", "1", "8"],
        ["grpc_sends", "--messages", "256", "--chunks", "2", "--batch", "32"],
    ],
    ids=" ".join,
)
def test_a_benchmark_of_one_process_runs(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{command[0]}", *command[1:]],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert all(json.loads(line)["per_second"] > 0 for line in done.stdout.splitlines())
