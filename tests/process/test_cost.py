"""P6 of the real core: what one message costs does not show how many are pending."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PENDING = (10_000, 150_000)
COSTS = ("schedule_us", "recall_us_100_a_turn", "recall_us_1_a_turn")


@pytest.mark.process
def test_p6_scheduling_and_recalling_cost_the_same_whatever_is_pending() -> None:
    """CPU time of one thread, so that other work beside it hardly shows; fifteen times as many pending."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.recall", "--sizes", *map(str, PENDING)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    measured = {
        (row["where"], row["pending"]): row for row in map(json.loads, done.stdout.splitlines())
    }
    for where in ("near", "far"):
        few, many = (measured[where, pending] for pending in PENDING)
        for cost in COSTS:
            assert many[cost] < 2.5 * few[cost], (where, cost, few[cost], many[cost])
        assert many["bulk_all"]["messages"] > 10 * few["bulk_all"]["messages"]
        assert many["bulk_all"]["a_second"] > few["bulk_all"]["a_second"] / 2.5
