"""The session on the README's first screen is run, and prints what is shown there.

Not the very same text: ids and times differ from run to run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("installed")]

ROOT = Path(__file__).parents[2]
SHAPES = (
    (re.compile(r"\b0[0-9A-F]{33}\b"), "<id>"),
    (re.compile(r"\d{4}-\d{2}-\d{2}T[0-9:.]+Z"), "<time>"),
)
MESSAGE_ID = re.compile(r'"message_id":"([0-9A-F]+)"')
HANDLE = re.compile(r"\bdjEg[A-Za-z0-9_=-]+")


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
    """Command by command, as a shell runs them, against a broker with the system clock."""
    steps = session(ROOT / "README.md")
    commands = [words for step, _ in steps if (words := step.split())[0] == "horolog"]
    assert {words[1] for words in commands} == {"topic", "send", "recall", "receive", "pending"}
    with BrokerProcess(clock="system") as broker:
        environment = {**os.environ, "HOROLOG_ADMIN": broker.admin_url}
        folder = str(Path(sys.executable).parent)
        environment["PATH"] = os.pathsep.join([folder, environment.get("PATH", "")])
        for command, expected in steps:
            ended = subprocess.run(
                command,
                shell=True,
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env=environment,
            )
            assert ended.returncode == 0, ended.stderr
            assert shape(ended.stdout) == shape(expected), command


def test_the_first_screen_is_short() -> None:
    """No line of the README's session is wider than a page shows without scrolling."""
    steps = session(ROOT / "README.md")
    lines = [line for command, output in steps for line in [command, *output.splitlines()]]
    assert max(map(len, lines)) <= 88


@pytest.mark.parametrize(
    "page",
    [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))],
    ids=lambda page: page.name,
)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of the docs, the README and what stands beside it: its file, and its heading."""
    for target, heading in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text("utf-8")):
        if "://" not in target:
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page}: {target}"
            assert not heading or heading in anchors(linked), f"{page}: {target}#{heading}"


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: those that GitHub makes of its headings, and those that it sets itself."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    found = set(re.findall(r'<a id="([^"]+)"', text))
    times: Counter[str] = Counter()
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        found.add(f"{anchor}-{times[anchor]}" if times[anchor] else anchor)
        times[anchor] += 1
    return found


@pytest.mark.parametrize("page", ["README.md", "docs/start/testing.md"])
def test_python_blocks_compile(page: str) -> None:
    """At least that; the example that they are taken from is run by its own test."""
    for block in re.findall(
        r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL
    ):
        compile(block, page, "exec")


def test_http_examples_of_the_reference(horolog_broker: BrokerProcess) -> None:
    """Every curl line of docs/reference/http.md, in order, as a shell runs it; each one must succeed.

    $HANDLE is the recall handle of the message that was sent last, $ID its id.
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
        answers = ('{"result":', "HLQR", '{"openapi":')
        assert ended.stdout.startswith(answers), block + "\n" + ended.stdout[:500]
        for message_id in MESSAGE_ID.findall(ended.stdout):
            environment["ID"] = message_id
        for handle in HANDLE.findall(ended.stdout):
            environment["HANDLE"] = handle
