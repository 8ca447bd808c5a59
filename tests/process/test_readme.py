"""The session on the README's first screen is run, and prints what is shown there.

Not the very same text: ids, times and handles differ from run to run.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from horolog.testing.broker import BrokerProcess, installed_command

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
SHAPES = (
    (re.compile(r"\b0[0-9A-F]{33}\b"), "<id>"),
    (re.compile(r"\bdjEg[A-Za-z0-9_=-]+"), "<handle>"),
    (re.compile(r"\d{4}-\d{2}-\d{2}T[0-9:.]+Z"), "<time>"),
    (re.compile(r"(port|pid|epoch)=\d+"), r"\1=<number>"),
    (re.compile(r"data-dir=\S+"), "data-dir=<path>"),
)
HANDLE = SHAPES[1][0]


def session(page: Path) -> list[tuple[str, str]]:
    """(command, output) of the page's console blocks."""
    steps: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = step.partition("\n")
            steps.append((command, output))
    return steps


def shape(text: str) -> str:
    """The text with everything that differs from run to run replaced."""
    for pattern, name in SHAPES:
        text = pattern.sub(name, text)
    return text


def test_the_readme_session() -> None:
    """Command by command against a broker with the system clock.

    Recall handles are those of this run.
    """
    steps = session(ROOT / "README.md")
    assert {command.split()[1] for command, _ in steps} == {
        "serve", "topic", "send", "pending", "receive", "recall",
    }  # fmt: skip
    handles: dict[str, str] = {}
    with BrokerProcess(clock="system") as broker:
        ready = "horolog ready " + " ".join(f"{name}={told}" for name, told in broker.ready.items())
        environment = {**os.environ, "HOROLOG_ADMIN": broker.admin_url}
        for command, expected in steps:
            if command.startswith("horolog serve"):
                assert shape(ready + "\n") == shape(expected)
                continue
            words = [handles.get(word, word) for word in shlex.split(command)[1:]]
            ended = subprocess.run(
                [*installed_command(), *words],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env=environment,
            )
            assert ended.returncode == 0, ended.stderr
            assert shape(ended.stdout) == shape(expected), command
            handles.update(zip(HANDLE.findall(expected), HANDLE.findall(ended.stdout), strict=True))


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of the README and the docs."""
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("page", ["README.md", "docs/start/testing.md"])
def test_python_blocks_compile(page: str) -> None:
    """At least that; the example that they are taken from is run by its own test."""
    for block in re.findall(
        r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL
    ):
        compile(block, page, "exec")


def test_http_examples_of_the_reference(horolog_broker: BrokerProcess) -> None:
    """Every curl line of docs/reference/http.md, in order, as a shell runs it; each one must succeed.

    $HANDLE is the recall handle of the message that was sent last.
    """
    page = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(curl .*?)\n```", page)
    assert len(blocks) > 5
    environment = {**os.environ, "ADMIN": horolog_broker.admin_url}
    for block in blocks:
        ended = subprocess.run(
            ["sh", "-c", block],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=environment,
        )
        assert ended.stdout.startswith(('{"result":', "HLQR")), block + "\n" + ended.stdout
        for handle in HANDLE.findall(ended.stdout):
            environment["HANDLE"] = handle
