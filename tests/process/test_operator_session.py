"""An operator's commands against a real broker: `doctor`, `top` in a real terminal, `health`."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import forked
import pytest

from horolog.testing.broker import BrokerProcess, installed_command

pytestmark = pytest.mark.process

DEADLINE_S = 60.0


def run(words: list[str], admin: str = "http://127.0.0.1:1") -> subprocess.CompletedProcess[str]:
    return forked.run(
        [*installed_command(), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HOROLOG_ADMIN": admin, "COLUMNS": "80"},
    )


def top_in_ascii(admin: str) -> str:
    """A frame, as a locale prints it that has no other letters."""
    return subprocess.run(
        [sys.executable, "-m", "horolog", "top", "--once", "--admin", admin],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "60"},
    ).stdout


def doctor(*words: str, admin: str = "http://127.0.0.1:1") -> tuple[int, dict[str, dict[str, str]]]:
    """Exit code, and what is not ok by name."""
    ended = run(["doctor", "--json", *words], admin)
    report = json.loads(ended.stdout)
    assert report["well"] == (ended.returncode == 0)
    return ended.returncode, {c["name"]: c for c in report["checks"] if c["state"] != "ok"}


def test_doctor_and_one_frame() -> None:
    with BrokerProcess(clock="system") as broker:
        code, found = doctor(admin=broker.admin_url)
        assert code == 0
        assert set(found) <= {"files"}  # a note, where the machine's limit is low
        broker.create_topic("orders")
        run(["send", "orders", "x", "--in", "1h"], broker.admin_url)
        run(["send", "orders", "y", "--in", "10ms"], broker.admin_url)
        words = ["receive", "orders", "--group", "shop", "--wait", "20s"]
        assert run(words, broker.admin_url).stdout.endswith("y\n")
        code, found = doctor(admin=broker.admin_url)
        assert code == 1
        assert "1 group (shop 1) with messages" in found["groups"]["seen"]
        shown = run(["top", "--once"], broker.admin_url)
        assert shown.returncode == 0
        assert re.search(r"^orders +1\b", shown.stdout, re.MULTILINE)
        assert re.search(r"^shop +1 +1 +0$", shown.stdout, re.MULTILINE)
        assert re.search(r"^a second +[\d.]", shown.stdout, re.MULTILINE)
        assert max(map(len, shown.stdout.splitlines())) <= 80
        assert top_in_ascii(broker.admin_url).startswith("healthy")
        os.kill(broker.pid, signal.SIGSTOP)
        code, found = doctor(admin=broker.admin_url)
        os.kill(broker.pid, signal.SIGCONT)
        assert "stopped or overloaded" in found["broker"]["do"]
    assert "start it" in doctor()[1]["broker"]["do"]
    assert run(["top", "--once"]).returncode == 5


def test_doctor_of_a_stopped_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert "--data-dir" in doctor("--data-dir", str(tmp_path))[1]["directory"]["do"]
    with BrokerProcess(data) as broker:
        broker.create_topic("orders")
        code, found = doctor("--data-dir", str(data))
        assert (code, found["directory"]["state"]) == (1, "wrong")
        assert "leave out --data-dir," in found["directory"]["do"]
        assert broker.stop() == 0
    code, found = doctor("--data-dir", str(data))
    assert code == 0
    assert (
        "scheduled" not in run(["doctor", "--data-dir", str(data)]).stdout
    )  # it has not counted them
    assert found["clock"]["seen"].startswith("simulated")
    for path in (data / "shard-00" / "checkpoint").iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    code, found = doctor("--data-dir", str(data))
    assert (code, found["verify"]["state"]) == (1, "wrong")
    assert "checkpoint" in found["verify"]["seen"]


class Terminal:
    """80 columns and 24 lines, with `horolog top` in it."""

    def __init__(self, admin: str) -> None:
        self.screen = ""
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            command = [*installed_command(), "top", "--admin", admin]
            os.execve(command[0], command, {**os.environ, "TERM": "xterm-256color"})
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def until(self, text: str) -> None:
        """Read until the screen has shown this, from here on."""
        self.screen = ""
        end = time.monotonic() + DEADLINE_S
        while text not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.screen):
            ready, _, _ = select.select([self.descriptor], [], [], end - time.monotonic())
            assert ready, self.screen
            self.screen += os.read(self.descriptor, 65_536).decode()

    def press(self, key: str) -> None:
        os.write(self.descriptor, key.encode())

    def end(self) -> tuple[int, str]:
        """Exit code, and what it wrote last."""
        rest = ""
        while True:
            try:
                piece = os.read(self.descriptor, 65_536)
            except OSError:  # Linux says EIO when the other end has gone
                break
            rest += piece.decode()
        _, status = os.waitpid(self.pid, 0)
        os.close(self.descriptor)
        return os.waitstatus_to_exitcode(status), rest


@pytest.mark.slow
def test_top_in_a_terminal() -> None:
    with BrokerProcess(clock="system") as broker:
        broker.create_topic("orders")
        terminal = Terminal(broker.admin_url)
        terminal.until("0 pending")
        # A screen of its own, so that the shell's comes back
        assert "\x1b[?1049h" in terminal.screen
        terminal.until("q quit")
        run(["send", "orders", "x", "--in", "1h"], broker.admin_url)
        terminal.until("1 pending")
        terminal.press("s")
        terminal.until("now by name")
        os.kill(broker.pid, signal.SIGSTOP)
        terminal.until("NO ANSWER")
        os.kill(broker.pid, signal.SIGCONT)
        terminal.until("healthy")
        terminal.press("q")
        code, rest = terminal.end()
    assert code == 0
    assert "\x1b[?1049l" in rest
    assert "\x1b[?25h" in rest  # and the cursor
