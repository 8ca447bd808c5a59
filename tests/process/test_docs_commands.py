"""The commands of the start page and the guides are run, and the guides' Python compiles."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import forked
import pytest

from horolog.testing.broker import BrokerProcess, installed_command

pytestmark = pytest.mark.process

DOCS = Path(__file__).parents[2] / "docs"
HANDLE = re.compile(r"\bdjEg[A-Za-z0-9_=-]+")


def blocks(page: str, language: str) -> list[str]:
    """The page's code blocks of one language."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """The words of every `horolog` command but `serve`, without comments."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    found = [shlex.split(line, comments=True) for line in lines if line.startswith("horolog ")]
    return [words[1:] for words in found if words[1] not in {"serve", "inspect"}]


def run(broker: BrokerProcess, words: list[str]) -> str:
    ended = forked.run(
        [*installed_command(), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HOROLOG_ADMIN": broker.admin_url},
    )
    assert ended.returncode == 0, f"{words}: {ended.stderr}"
    return ended.stdout


def test_the_start_page() -> None:
    handle = ""
    said: dict[str, str] = {}
    with BrokerProcess(clock="system") as broker:
        for words in commands("start/README.md"):
            output = run(broker, [handle if word == "HANDLE" else word for word in words])
            found = HANDLE.search(output)
            handle = found[0] if found else handle
            said[words[0]] = output
    assert "stand up" in said["receive"]
    assert said["recall"].startswith("CANCELLED")
    assert re.search(r"^total +1$", said["pending"], re.MULTILINE)


def test_the_guide_to_the_simulated_clock() -> None:
    with BrokerProcess() as broker:
        said = {
            words[0]: run(broker, words) for words in commands("guides/test-your-application.md")
        }
    assert said["receive"].endswith("\n4711\n")


@pytest.mark.parametrize("page", sorted(path.name for path in (DOCS / "guides").glob("*.md")))
def test_python_of_the_guides_compiles(page: str) -> None:
    for block in blocks(f"guides/{page}", "python"):
        compile(block, page, "exec")


def test_the_guide_to_schedules(horolog_broker: BrokerProcess) -> None:
    said = {
        tuple(words[:2]): run(horolog_broker, words) for words in commands("guides/schedules.md")
    }
    assert "0 9 * * 1-5 (Europe/Berlin)" in said["schedule", "list"]
    assert said["schedule", "next"].count("T09:00:00+0") == 3
