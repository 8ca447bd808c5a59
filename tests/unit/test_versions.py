"""The version is the same wherever it is written."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from horolog import __version__
from horolog.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
MINOR = ".".join(__version__.split(".")[:2])


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def test_the_command_says_the_version_of_the_package() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"horolog {__version__}\n"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[([0-9.]+|Unreleased)\]", text, re.MULTILINE)
    assert next(each for each in headings if each != "Unreleased") == __version__


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "decisions").glob("0*.md")), ids=lambda path: path.stem
)
def test_a_decision_names_a_version_that_there_is(path: Path) -> None:
    """In its first paragraph, so that a reader knows since when it holds."""
    found = re.search(r"^\*Version ([0-9.]+)\.\*", path.read_text(), re.MULTILINE)
    assert found, "no version"
    assert numbers(found[1]) <= numbers(MINOR)


def test_the_readme_speaks_of_this_version() -> None:
    assert f"Version {MINOR}" in (ROOT / "README.md").read_text()
