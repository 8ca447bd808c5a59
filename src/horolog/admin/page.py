"""The files of the page at `/` and `/page/…`, read once, and the headers that protect it.

A page shows text that strangers have put into messages and names, so nothing but its own modules
may run in it.  The policy below lets the browser load nothing from elsewhere, run no inline script,
parse no text as HTML (trusted types without a policy), and lets no other site frame the page.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import horolog.page
from horolog.errors import ErrorCode, HorologError, refused

POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src "
    "'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",  # for browsers that do not know frame-ancestors
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # ask again each time, answered with 304: an upgrade shows at once
}
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_INDEX = "index.html"
# Placeholder in the index for links to all sheets and modules, which then load in parallel.
_LINKS = b"<!-- links -->"


class File(NamedTuple):
    """One file as it is served."""

    content: bytes
    media_type: str
    etag: str


@cache
def files() -> Mapping[str, File]:
    """Return all files by their path below /page/; other paths do not exist."""
    root = Path(horolog.page.__file__).parent
    found = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.suffix in MEDIA_TYPES
    }
    found[_INDEX] = found[_INDEX].replace(_LINKS, _links(found))
    return {
        name: File(content, MEDIA_TYPES[Path(name).suffix], _etag(content))
        for name, content in found.items()
    }


def _links(found: Mapping[str, bytes]) -> bytes:
    sheets = [
        f'<link rel="stylesheet" href="/page/{name}">' for name in found if name.endswith(".css")
    ]
    modules = [
        f'<link rel="modulepreload" href="/page/{name}">' for name in found if name.endswith(".js")
    ]
    return "\n".join(sheets + modules).encode()


def _etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


async def index(request: Request) -> Response:
    """GET /: serve the page, the same for every view, whose name comes after the #."""
    return _file(request, _INDEX)


async def part(request: Request) -> Response:
    """GET /page/{path}: serve one file of the page."""
    return _file(request, request.path_params["path"])


def _file(request: Request, name: str) -> Response:
    found = files().get(name)
    if found is None:
        raise refused("path", f"there is no {request.url.path}", code=ErrorCode.NOT_FOUND)
    headers = HEADERS | {"etag": found.etag}
    if _is_known(found.etag, request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers=headers | {"content-type": found.media_type})


def _is_known(etag: str, if_none_match: str) -> bool:
    """Return whether the client has this version: `*`, or a weakly equal tag (RFC 9110 §13.1.2)."""
    tags = {each.strip().removeprefix("W/") for each in if_none_match.split(",")}
    return etag in tags or tags == {"*"}


_REFUSAL = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>horolog</title><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"></head>
<body><main><h1>Nobody is logged in</h1>
<p>Reload this page, and give an access key and its secret.</p><p>{detail}</p></main></body>
</html>
"""


def refusal_page(refusal: HorologError, status: int, headers: Mapping[str, str]) -> Response:
    """Return the page for a visitor that is not logged in."""
    content = _REFUSAL.format(detail=html.escape(refusal.message))
    return Response(content, status, {**HEADERS, **headers}, media_type=MEDIA_TYPES[".html"])


ROUTES = (
    Route("/", index, methods=["GET"]),
    Route("/page/{path:path}", part, methods=["GET"]),
)
