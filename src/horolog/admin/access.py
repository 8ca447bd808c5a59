"""Access control of the admin API: by key and secret, or by token, of the access file's identities.

Administrators may do everything.  Other identities may open the page and call the endpoints that
are declared for users (`endpoints.Access`), as far as they have the rights that the endpoint asks
for; all other requests are refused here. Health is open to everyone, because a process supervisor
has no key.  The broker calls its own admin API to bring back messages that are due soon; it has a
token of its own for that, which nobody else knows (`OWN_TOKEN`).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence

import orjson
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from horolog.access.guard import Guard
from horolog.access.rules import ADMIN
from horolog.admin import page
from horolog.admin.answers import JSON
from horolog.admin.endpoints import Access, Endpoint
from horolog.admin.status import error_body, http_status
from horolog.errors import ErrorCode, HorologError

OWN_TOKEN = secrets.token_urlsafe(32)
"""The token of this process, for the broker's calls to its own admin API."""


class AccessCheck:
    """ASGI middleware: answer UNAUTHORIZED to unknown callers, FORBIDDEN to callers without rights.

    A request that passes has `request.state.identity`, unless it carries the broker's own token.
    """

    def __init__(self, app: ASGIApp, guard: Guard, endpoints: Sequence[Endpoint]) -> None:
        self._app = app
        self._guard = guard
        self._open = frozenset(each.path for each in endpoints if each.access is Access.OPEN)
        of_users = [each.route() for each in endpoints if each.access is Access.USERS]
        self._of_users = [*page.ROUTES, *of_users]  # the page's own files hold no secrets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and scope["path"] not in self._open:
            try:
                self._check(scope)
            except HorologError as refusal:
                headers = {}
                if refusal.code is ErrorCode.UNAUTHORIZED:
                    headers["www-authenticate"] = 'Basic realm="horolog", charset="UTF-8"'
                headers["connection"] = "close"  # the body of the request is not read
                await _answer(scope["path"], refusal, headers)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope).getlist("authorization")
        authorization = headers[0] if len(headers) == 1 else ""
        if hmac.compare_digest(authorization.encode(), f"Bearer {OWN_TOKEN}".encode()):
            return
        client = scope.get("client")
        identity = self._guard.identity_of_authorization(authorization, client[0] if client else "")
        if not any(route.matches(scope)[0] is Match.FULL for route in self._of_users):
            identity.check(ADMIN)
        scope.setdefault("state", {})["identity"] = identity


def _answer(path: str, refusal: HorologError, headers: dict[str, str]) -> Response:
    """Return a readable page if the refused request is for `/`, the error shape for other paths."""
    if path == "/":
        return page.refusal_page(refusal, http_status(refusal), headers)
    body = orjson.dumps(error_body(refusal))
    return Response(body, http_status(refusal), headers, media_type=JSON)
