"""docs/guides/mqadmin.md names the codes that commands of `mqadmin` send; the doors answer or refuse them as it says."""

from __future__ import annotations

import re
from pathlib import Path

from horolog.protocol.remoting.codes import Code
from horolog.server.remoting.front import RemotingFront
from horolog.server.remoting.node import Node

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "mqadmin.md").read_text(encoding="utf-8")


def codes(title: str) -> set[Code]:
    """All in the last column of the table under a title."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows
    return {Code(int(code)) for row in rows for code in re.findall(r"\d+", row.split("|")[3])}


def test_what_works_is_answered_and_what_is_refused_is_not() -> None:
    answered = set(RemotingFront(Node(engine=None)).codes)  # type: ignore[arg-type]
    assert codes("What works") <= answered
    assert not codes("What is refused") & answered
