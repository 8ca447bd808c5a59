"""The demo on real input: its figures are the published ones, and three hours of it add up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = ROOT / "examples" / "flights"
CLIENT_PYTHON = ROOT / ".venv-client" / "bin" / "python"
WITHIN_S = 120.0
WITH_SPARK_S = 300.0


def demo(work_dir: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(FLIGHTS / "run.py"), "--work-dir", str(work_dir), *arguments]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def alive(work_dir: Path) -> list[str]:
    """Command lines of processes that name this work directory, or whose HOME it is."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            output = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue  # it has ended
        if os.fsencode(work_dir) in output:
            found.append(output[:200].replace(b"\0", b" ").decode(errors="replace"))
    return found


def test_the_day_has_its_published_figures() -> None:
    output = subprocess.run(
        [CLIENT_PYTHON, FLIGHTS / "day.py"], check=True, capture_output=True, timeout=WITHIN_S
    )
    flights = json.loads(output.stdout)
    delays = [flight["delay_min"] for flight in flights if flight["delay_min"] is not None]
    assert len(flights) == 979
    assert len({flight["key"] for flight in flights}) == 979
    assert len(flights) - len(delays) == 180
    assert round(sum(delays) / len(delays), 1) == 83.5


@pytest.mark.slow
@pytest.mark.process
def test_three_hours_of_the_demo_add_up(tmp_path: Path) -> None:
    running = demo(tmp_path / "demo", "--hours", "14-17")
    try:
        output, _ = running.communicate(timeout=WITH_SPARK_S)
    finally:
        running.kill()
    assert running.returncode == 0, output
    assert "Everything adds up." in output
    assert "The audit agrees with the consumer." in output
    report = output.splitlines()[-1].removeprefix("report: ")
    assert "No fault" in Path(report).read_text(encoding="utf-8")
    assert "killed with SIGKILL" in output
    assert alive(tmp_path) == []


@pytest.mark.process
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    running = demo(tmp_path / "demo", "--hours", "14-17")
    try:
        assert running.stdout is not None
        first = [running.stdout.readline() for _ in range(2)]  # the second: all processes run
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=WITHIN_S)
    finally:
        running.kill()
    assert running.returncode == 130, "".join(first) + output
    assert "interrupted" in output
    assert alive(tmp_path) == []
