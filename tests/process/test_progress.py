"""Progress of long commands: a bar on a terminal, nothing elsewhere, and the result or error of what was asked."""

from __future__ import annotations

import os
import pty
import subprocess
import threading
from pathlib import Path

import pytest
from forked import Forked, run

from horolog.cli.progress import watched
from horolog.testing.broker import BrokerProcess, installed_command
from horolog.units import format_time_ms


def test_what_takes_long_is_looked_at_meanwhile() -> None:
    looks = []
    enough = threading.Event()

    def look() -> None:
        looks.append(len(looks))
        if len(looks) == 3:
            enough.set()

    assert watched(lambda: enough.wait(60), look, every_s=0.001) is True
    assert looks[:3] == [0, 1, 2]


def test_an_error_is_the_callers() -> None:
    def refuse() -> None:
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        watched(refuse, lambda: None)


def on_terminal(words: list[str]) -> tuple[str, str]:
    """What a command writes to stdout, and to a stderr that is a terminal."""
    ours, theirs = pty.openpty()
    process = Forked(
        [*installed_command(), *words], stdout=subprocess.PIPE, stderr=theirs, text=True
    )
    os.close(theirs)
    screen = b""
    while True:
        try:
            screen += os.read(ours, 65_536)
        except OSError:  # Linux says EIO when the other end has gone
            break
    os.close(ours)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, screen
    return output, screen.decode()


@pytest.mark.process
def test_a_bar_on_a_terminal_and_nothing_elsewhere(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.create_topic("orders")
        for i in range(3):
            wanted = {"topic": "orders", "body": f"{i}", "in_ms": 60_000}
            broker.admin.post("/v1/messages", wanted)
        now_ms = broker.now_ms()
        ends = (format_time_ms(now_ms), format_time_ms(now_ms + 120_000))
        window = ["--topic", "orders", "--from", ends[0], "--to", ends[1]]
        words = ["recall", *window, "--yes", "--admin", broker.admin_url]
        output, screen = on_terminal(words)
        assert output == "CANCELLED: 3 messages will not be handed over\n"
        assert "recall" in screen
        words = ["backup", str(tmp_path / "backup"), "--admin", broker.admin_url]
        assert "backing up" in on_terminal(words)[1]
        assert broker.stop() == 0
    assert "verifying" in on_terminal(["verify", str(tmp_path / "data")])[1]
    restore = ["restore", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "again")]
    assert "restoring" in on_terminal(restore)[1]
    words = ["verify", str(tmp_path / "again")]
    done = run([*installed_command(), *words], capture_output=True, text=True, check=True)
    assert done.stderr == ""
