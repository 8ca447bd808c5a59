"""Completion in a real bash: installed as a user does it, names asked of a running broker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer._completion_shared import get_completion_script

from horolog.cli import main
from horolog.cli.completion import TIMEOUT_S, names, predecessor
from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.process


def bash(script: str, home: Path, admin: str) -> str:
    """What bash prints."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    ended = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "HOME": str(home), "PATH": path, "HOROLOG_ADMIN": admin},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def completed(words: str, home: Path, admin: str) -> list[str]:
    """What a user who has typed these words, the last one not to its end, is offered."""
    script = f"""
        source ~/.bash_completions/horolog.sh
        COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        $(complete -p horolog | sed 's/.*-F \\([^ ]*\\).*/\\1/') horolog
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return bash(script, home, admin).split()


@pytest.mark.slow
def test_bash_completes_names_of_the_broker(tmp_path: Path) -> None:
    # The command after it keeps bash from turning into horolog, which looks for the shell that has called it.
    bash("horolog --install-completion; true", tmp_path, "")
    assert "horolog.sh" in (tmp_path / ".bashrc").read_text()
    with BrokerProcess() as broker:
        for name in ("orders", "orders-eu", "reminders"):
            broker.create_topic(name)
        broker.admin.put("/v1/groups/shop", {})

        def offered(words: str) -> list[str]:
            return completed(words, tmp_path, broker.admin_url)

        assert offered("horolog sen") == ["send"]
        assert offered("horolog send or") == ["orders", "orders-eu"]
        assert offered("horolog receive reminders --group s") == ["shop"]
        assert offered("horolog topic describe r") == ["reminders"]
        assert offered("horolog group show ''") == ["shop"]
        assert offered("horolog topic create or") == []
    assert completed("horolog send or", tmp_path, broker.admin_url) == []


def test_the_first_tab_in_a_zsh_is_not_lost() -> None:
    """The script that is loaded then registers itself, as typer's does, and completes at once."""
    assert main.app.info.name == "horolog"
    names_of = {"prog_name": "horolog", "complete_var": "_HOROLOG_COMPLETE"}
    script = get_completion_script(**names_of, shell="zsh")
    assert "compdef _horolog_completion horolog" in script
    assert script.rstrip().endswith('_horolog_completion "$@"\nfi')


def test_pages_begin_before_the_names() -> None:
    """Of a thousand topics the ones that are wanted come first."""
    for incomplete in ("a", "orders", "%RETRY%g", "x-", "x_", "A", "0", "a|"):
        start = predecessor(incomplete)
        assert start < incomplete
        for after in ("", "-", "0", "a", "z", "|"):
            assert start < incomplete + after


def test_nobody_waits_for_a_broker_that_says_nothing() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        begun = time.monotonic()
        assert names("topics", f"http://127.0.0.1:{silent.getsockname()[1]}", "or") == []
        assert time.monotonic() - begun < TIMEOUT_S + 10
    assert names("topics", "no url", "or") == []
