"""A fork of a process that has imported `horolog` is what a start of the installed script would be."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import pytest

from horolog.testing.broker import BrokerProcess, installed_command

pytestmark = pytest.mark.process

COMMANDS = [
    (["--version"], {}),
    ([], {}),
    (["topic", "list", "--no-such"], {}),
    (["topic", "list"], {"HOROLOG_ADMIN": "http://127.0.0.1:1"}),
    (["send", "reminders", "--body-file", "-", "--in", "soon"], {}),
    (["config", "show", "--config", "own.toml"], {"HOROLOG_LOG_LEVEL": "debug"}),
    (["inspect", "own.toml"], {"LANG": "C"}),
]


@pytest.mark.parametrize(("words", "more"), COMMANDS, ids=[str(i) for i in range(len(COMMANDS))])
def test_it_says_and_returns_the_same(tmp_path, words, more) -> None:
    """By its arguments, environment, directory and files."""
    (tmp_path / "own.toml").write_text('flush = "os"\n')
    seen = []
    ways: list[Callable[..., Any]] = [subprocess.run, forked.run]
    for way in ways:
        ended = way(
            [*installed_command(), *words],
            capture_output=True,
            text=True,
            input="é\n",
            timeout=60,
            check=False,
            cwd=tmp_path,
            env={**os.environ, **more},
        )
        seen.append((ended.returncode, ended.stdout, ended.stderr))
    assert seen[0] == seen[1]
    assert seen[0][1] + seen[0][2] != ""


def test_it_is_our_child_and_a_group_of_its_own() -> None:
    with BrokerProcess() as broker:
        status = Path(f"/proc/{broker.pid}/status").read_text()
        assert f"PPid:\t{os.getpid()}\n" in status
        assert os.getpgid(broker.pid) == os.getsid(broker.pid) == broker.pid
        assert broker.ready["pid"] == str(broker.pid)
        os.kill(broker.pid, signal.SIGKILL)
        assert broker.wait() == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            os.kill(broker.pid, 0)


def test_it_has_no_files_of_ours() -> None:
    with BrokerProcess() as forks:
        by_script = BrokerProcess()
        by_script._popen = subprocess.Popen  # type: ignore[misc]
        with by_script:
            counts = [len(os.listdir(f"/proc/{each.pid}/fd")) for each in (forks, by_script)]
    assert counts[0] <= counts[1]
