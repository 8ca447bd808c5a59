"""Pages on internals name files, classes and methods, and the code names pages: these must be there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "internals").glob("*.md"))]
FILES = [path for part in ("src/horolog", "tests") for path in (ROOT / part).rglob("*.py")]
NAMED = re.compile(r"`([^`\s]+)`")
PAGE = re.compile(r"\bdocs/[\w/-]+\.(?:md|json|toml|png|svg)\b")
METHOD = re.compile(r"([A-Z]\w*)\.([a-z]\w*)(?:\(\))?")


@pytest.fixture(scope="module")
def sources() -> list[str]:
    return [path.read_text() for path in FILES]


def is_there(named: str, sources: list[str]) -> bool:
    """Whether a file, or a class and a method of it, is in the code; so is what is neither."""
    if method := METHOD.fullmatch(named):
        heads = f"class {method[1]}(", f"class {method[1]}:"
        having = [source for source in sources if heads[0] in source or heads[1] in source]
        member = re.compile(rf"(?:\bdef |^    |self\.){method[2]}\b", re.MULTILINE)
        return not having or any(member.search(source) for source in having)
    if named.endswith(".py") and "*" not in named:
        return any(f"/{path}".endswith(f"/{named}") for path in FILES)
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path, sources: list[str]) -> None:
    lost = [named for named in NAMED.findall(page.read_text()) if not is_there(named, sources)]
    assert not lost


def test_pages_that_the_code_names_are_there(sources: list[str]) -> None:
    named = {found for source in sources for found in PAGE.findall(source)}
    assert len(named) > 5
    assert sorted(path for path in named if not (ROOT / path).is_file()) == []
