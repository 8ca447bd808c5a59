"""A load that a signal ends: nothing is scheduled, and no file stays."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from horolog.testing.broker import BrokerProcess, installed_command

pytestmark = pytest.mark.process
DEADLINE_S = 120


def until_staged(broker: BrokerProcess, load: subprocess.Popen[bytes]) -> None:
    """Wait until the load has staged rows."""
    deadline = time.monotonic() + DEADLINE_S
    staging = broker.data_dir / "shard-00" / "staging"
    while not list(staging.glob("*/*.run")):
        assert time.monotonic() < deadline, "the load stages nothing"
        with suppress(subprocess.TimeoutExpired):
            pytest.fail(f"the load has ended with {load.wait(0.01)}")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_signal_ends_a_load_without_a_trace(
    broker: BrokerProcess, tmp_path: Path, number: signal.Signals
) -> None:
    broker.create_topic("t")
    file, temporary = tmp_path / "x.csv", tmp_path / "tmp"
    temporary.mkdir()
    soon = broker.now_ms() + 3_600_000
    rows = (f"b{i},{soon + i}" for i in range(400_000))
    file.write_text("\n".join(["text,at", *rows]))
    words = ["pipeline", "load", str(file), "--topic", "t", "--deliver-at", "at", "--body", "text"]
    words += ["--deliver-at-unit", "ms", "--job-id", "j", "--admin", broker.admin_url]
    with subprocess.Popen(
        [*installed_command(), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as load:
        until_staged(broker, load)
        load.send_signal(number)
        _, error = load.communicate(timeout=DEADLINE_S)
    assert load.returncode == 130, error.decode()
    assert b"Traceback" not in error
    assert not list((broker.data_dir / "shard-00" / "staging").glob("*/*"))
    assert not list(temporary.glob("horolog-*"))
    broker.advance("2h")
    assert broker.admin.post("/v1/receive", {"topic": "t", "group": "g"})["messages"] == []
