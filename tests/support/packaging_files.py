"""The files of packaging/, as the tests of packages read them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
UNIT = PACKAGING / "horolog.service"


def unit_values(key: str) -> list[str]:
    """Return all values of one key of the systemd unit, in order."""
    found = re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert found, f"{UNIT}: no {key}="
    return found


def stages() -> list[list[tuple[str, str]]]:
    """Return the Containerfile's stages: (instruction, its arguments on one line)."""
    text = (PACKAGING / "Containerfile").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    found: list[list[tuple[str, str]]] = []
    for line in joined.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            found.append([])
        if word:
            found[-1].append((word, " ".join(rest.split())))
    return found


def instruction(stage: list[tuple[str, str]], word: str) -> list[str]:
    """Return the arguments of every instruction of that name in a stage."""
    return [rest for name, rest in stage if name == word]


def environment(stage: list[tuple[str, str]]) -> dict[str, str]:
    """Return the variables that ENV sets."""
    words = [word for rest in instruction(stage, "ENV") for word in shlex.split(rest)]
    return dict(word.split("=", 1) for word in words)


def pins(lock: str) -> set[str]:
    """Return `name==version` of every package of a lock file; some have several, by Python version."""
    text = (ROOT / "requirements" / lock).read_text()
    return set(re.findall(r"^([A-Za-z0-9._-]+==[^ ;]+)", text, re.MULTILINE))
