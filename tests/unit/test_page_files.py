"""The page's files: what is served with which headers, and that no text is ever made into HTML."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx
import pytest

import horolog.page
from horolog.admin.app import make_app
from horolog.admin.page import HEADERS, files
from horolog.testing.engine import ScriptedEngine

ROOT = Path(horolog.page.__file__).parent
MODULES = sorted(ROOT.rglob("*.js"))
DANGEROUS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|document\.write|DOMParser|srcdoc"
    r"|\beval\(|new Function|javascript:|https?://(?!www\.w3\.org/2000/svg)|setAttribute\(\"style"
)


def get(path: str, **headers: str) -> httpx.Response:
    found: list[httpx.Response] = []

    async def run() -> None:
        transport = httpx.ASGITransport(make_app(ScriptedEngine(), broker_name="broker-a"))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8090"
        ) as client:
            found.append(await client.get(path, headers=headers))

    asyncio.run(asyncio.wait_for(run(), 10))
    return found[0]


def test_every_file_is_served_with_all_headers() -> None:
    for name, file in files().items():
        answer = get(f"/page/{name}")
        assert answer.status_code == 200
        assert answer.content == file.content
        assert answer.headers["content-type"] == file.media_type
        assert HEADERS.items() <= dict(answer.headers).items()


def test_the_page_names_all_modules_and_sheets() -> None:
    """So that the browser asks for all of them at once."""
    answer = get("/")
    assert answer.headers["content-type"].startswith("text/html")
    for path in [*MODULES, *ROOT.rglob("*.css")]:
        assert f'href="/page/{path.relative_to(ROOT).as_posix()}"' in answer.text


def test_the_policy_lets_nothing_in_from_elsewhere() -> None:
    policy = HEADERS["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "*" not in policy


def test_what_has_not_changed_is_not_sent_again() -> None:
    etag = get("/page/app.js").headers["etag"]
    again = get("/page/app.js", **{"if-none-match": etag})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == etag
    assert get("/page/app.js", **{"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize("form", ["W/{0}", '"other", W/{0}', "*", " * "])
def test_a_weak_tag_and_any_tag_are_as_good(form: str) -> None:
    """A proxy that compresses makes tags weak; RFC 9110 §13.1.2."""
    etag = get("/page/app.js").headers["etag"]
    again = get("/page/app.js", **{"if-none-match": form.format(etag)})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("given", ['W/"other"', '"*"', "", "W/", "w/{0}"])
def test_what_is_no_tag_of_it_is_sent_again(given: str) -> None:
    etag = get("/page/app.js").headers["etag"]
    answer = get("/page/app.js", **{"if-none-match": given.format(etag)})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/page/",
        "/page/nope.js",
        "/page/__init__.py",
        "/page/../admin/app.py",
        "/page/%2e%2e/admin/app.py",
        "/page//etc/passwd",
        "/index.html",
    ],
)
def test_what_is_no_file_of_the_page_is_not_there(path: str) -> None:
    answer = get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_module_makes_no_html_from_text(path: Path) -> None:
    """Elements come from core/dom.js alone, which puts text into text nodes."""
    assert not DANGEROUS.findall(path.read_text())
    assert len(path.read_text().splitlines()) <= 350


def test_the_html_and_the_sheets_have_nothing_inline() -> None:
    html = get("/").text
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=\"/page/)", html)
    for sheet in ROOT.rglob("*.css"):
        assert not re.search(r"@import|url\(", sheet.read_text()), sheet
