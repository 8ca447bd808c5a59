"""A broker that a signal has ended says so at its next start, and serves what it had."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from horolog.storage.crash_note import LAST_NAME, NAME
from horolog.testing.broker import BrokerProcess, installed_command

DEADLINE_S = 30


def said(*arguments: str) -> str:
    done = subprocess.run(
        [*installed_command(), *arguments], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_broker_that_could_not_read_a_mapped_file_serves_again(tmp_path: Path) -> None:
    """SIGBUS; what it does about the files then, tests/unit/test_unreadable.py has."""
    with BrokerProcess(tmp_path / "data") as broker:
        broker.create_topic("t")
        due_ms = broker.now_ms() + 3_600_000
        for i in range(3):
            body = {"topic": "t", "body": f"b{i}", "deliver_at_ms": due_ms}
            broker.admin.post("/v1/messages", body)
        os.kill(broker.pid, signal.SIGBUS)
        assert broker.wait() == -signal.SIGBUS
        assert "Bus error" in (broker.data_dir / NAME).read_text()
        broker.restart()
        assert "a signal ended the last process: Fatal Python error: Bus error" in broker.stderr()
        assert "Current thread" in (broker.data_dir / LAST_NAME).read_text()
        broker.advance("2h")
        received = broker.admin.post("/v1/receive", {"topic": "t", "group": "g", "limit": 9})
        assert sorted(each["body"] for each in received["messages"]) == ["b0", "b1", "b2"]
        broker.kill()
        assert (broker.data_dir / NAME).read_text() == "", "nothing can be said of a SIGKILL"
        broker.restart()
        assert "a signal ended" not in broker.stderr().rpartition("starting")[2]
        broker.stop()
        assert not (broker.data_dir / NAME).exists()
        (broker.data_dir / NAME).touch()  # as while it runs
        for command in ("verify", "inspect"):
            assert said(command, str(broker.data_dir))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_more_signals_do_not_change_the_exit_code(tmp_path: Path, number: signal.Signals) -> None:
    """Those that arrived after the broker had stopped, while Python ended, did."""
    with BrokerProcess(tmp_path / "data") as broker:
        process = broker._process
        assert process is not None
        deadline = time.monotonic() + DEADLINE_S
        while process.poll() is None and time.monotonic() < deadline:
            process.send_signal(number)
        assert process.returncode == 0
