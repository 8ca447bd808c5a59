"""Protection of the admin API against pages of other sites: checks of Host and Origin.

The API has no passwords by default and listens on 127.0.0.1, so any client that can reach it may do
everything.  A page in a browser on the same machine can reach it too: by a name that its owner lets
point to 127.0.0.1 (DNS rebinding), which shows in `Host`, or by plain requests across origins,
which show in `Origin` and `Sec-Fetch-Site`.  Both are refused.

A link from another site to the page itself (`/`) is allowed: the page is the same for every
visitor, does nothing when it is opened, and cannot be framed or read by the site that links to it.

Programs send neither `Origin` nor `Sec-Fetch-Site`, and in `Host` the address that they were given.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from horolog.admin.answers import JSON
from horolog.admin.status import error_body, http_status
from horolog.errors import ErrorCode, HorologError, refused

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_PORTS = {"http": 80, "https": 443}
_OWN_SITES = ("same-origin", "none")  # none: typed by the user


def _split(host: str, default_port: int) -> tuple[str, int]:
    """Return name and port of a host; port -1 if it is not a number."""
    name, colon, port = host.lower().rpartition(":")
    if not colon or port.endswith("]"):
        return host.lower(), default_port
    return name, int(port[:6]) if port.isascii() and port.isdigit() else -1


class HostCheck:
    """ASGI middleware: answer FORBIDDEN, with the allowed hosts, to requests of other sites' pages.

    names  further hosts: NAME for any port, or NAME:PORT
    """

    def __init__(self, app: ASGIApp, names: Sequence[str] = ()) -> None:
        self._app = app
        self._names = tuple(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and (refusal := self._refusal(scope)) is not None:
            body = orjson.dumps(error_body(refusal))
            await Response(body, http_status(refusal), media_type=JSON)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> HorologError | None:
        headers = Headers(scope=scope)
        own = self._own(scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_known(hosts[0], "http", own):
            return _forbidden("host", f"{', '.join(hosts) or 'none'!r} is not this broker", own)
        for origin in headers.getlist("origin"):
            scheme, _, host = origin.partition("://")
            if scheme not in _PORTS or not self._is_known(host, scheme, own):
                return _forbidden("origin", f"{origin!r} is another site", own)
        for site in headers.getlist("sec-fetch-site"):
            if site not in _OWN_SITES and not _is_link(scope, headers):
                return _forbidden("sec-fetch-site", f"{site!r}: sent by another site's page", own)
        return None

    def _own(self, scope: Scope) -> list[str]:
        """Return all allowed hosts; one without a port is allowed with any port."""
        address, port = scope.get("server") or ("127.0.0.1", None)
        bound = f"[{address}]" if ":" in address else address
        return [f"{name}:{port or 80}" for name in dict.fromkeys((bound, *LOOPBACK))] + [
            *self._names
        ]

    @staticmethod
    def _is_known(host: str, scheme: str, own: Sequence[str]) -> bool:
        name, port = _split(host, _PORTS[scheme])
        return name in own or f"{name}:{port}" in own


def _is_link(scope: Scope, headers: Headers) -> bool:
    """Return whether a browser window follows a link to the page, and nothing else is sent."""
    return (
        scope["path"] == "/"
        and scope["method"] == "GET"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def _forbidden(field: str, why: str, own: Sequence[str]) -> HorologError:
    allowed = ", ".join(own)
    return refused(
        field,
        f"{why}; allowed: {allowed} (--admin-hosts adds names)",
        allowed,
        code=ErrorCode.FORBIDDEN,
    )
