"""docs/reference says what the code says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from horolog.admin import page
from horolog.admin.app import ENDPOINTS, ROUTES
from horolog.admin.openapi import describe
from horolog.cli.reference import PAGES
from horolog.errors import ErrorCode

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


def test_every_route_is_in_the_openapi_description() -> None:
    """With its path parameters, and all that may be given; but for the page's own files."""
    paths = describe(ENDPOINTS)["paths"]
    described = {f"{method.upper()} {path}" for path, each in paths.items() for method in each}
    served = {
        f"{method} {route.path}"
        for route in ROUTES
        if route not in page.ROUTES
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert described == served
    for path, operations in paths.items():
        for operation in operations.values():
            named = {
                each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"
            }
            assert named == set(re.findall(r"{(\w+)}", path))


def test_every_code_of_a_refusal_is_in_the_openapi_description() -> None:
    document = describe(ENDPOINTS)
    error = document["components"]["schemas"]["Error"]["properties"]["error"]
    assert error["properties"]["code"]["enum"] == [code.value for code in ErrorCode]
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert references == document["components"]["schemas"].keys()


def test_operations_have_different_names() -> None:
    """As generators of clients want."""
    operations = [
        operation["operationId"]
        for each in describe(ENDPOINTS)["paths"].values()
        for operation in each.values()
    ]
    assert len(set(operations)) == len(operations)
