"""docs/reference says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from horolog.admin.app import ROUTES
from horolog.cli.reference import PAGES

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("page", PAGES)
def test_a_made_page_is_as_made(page: str) -> None:
    """If this fails: python -m horolog.cli.reference docs/reference."""
    assert (REFERENCE / page).read_text(encoding="utf-8") == PAGES[page]()


def test_every_path_of_the_admin_api_is_described() -> None:
    """One heading a route, and no other."""
    described = re.findall(r"^## ([A-Z]+ /\S*)$", (REFERENCE / "http.md").read_text(), re.MULTILINE)
    served = {
        f"{method} {route.path}"
        for route in ROUTES
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert sorted(described) == sorted(served)
