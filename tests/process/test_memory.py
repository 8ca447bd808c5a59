"""P4 of the real process: what is pending does not show in its memory, nor in its open files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PENDING = (10_000, 1_000_000)


@pytest.mark.process
def test_p4_memory_and_open_files_do_not_grow_with_what_is_pending() -> None:
    command = [sys.executable, "-m", "benchmarks.scale", "--no-plot", "--pending"]
    done = subprocess.run(
        [*command, *map(str, PENDING)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    few, many = (json.loads(line) for line in done.stdout.splitlines())
    assert (few["pending"], many["pending"]) == PENDING
    assert many["bytes"] > 50 * few["bytes"]
    assert many["anon_mb"] < few["anon_mb"] + 16
    assert many["descriptors"] < few["descriptors"] + 8
