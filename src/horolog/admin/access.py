"""Who may call the admin API: by key and secret, or by token, of an identity of the access file.

Administrators may do everything.  Others may open the page, and ask what is declared for users (`endpoints.Access`),
with the rights that the function there asks for; all else is refused here.  Health is told to everybody, for what
watches a process has no key.  A process that the broker itself starts to fetch what is late has a token of its own,
which only they know (`OWN_TOKEN`).
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
"""Of this process; in the environment of those that it starts."""


class AccessCheck:
    """ASGI middleware: UNAUTHORIZED for who is nobody, FORBIDDEN for who may not ask at all.

    What is let pass has `request.state.identity`, unless it is of the broker itself.
    """

    def __init__(self, app: ASGIApp, guard: Guard, endpoints: Sequence[Endpoint]) -> None:
        self._app = app
        self._guard = guard
        self._open = frozenset(each.path for each in endpoints if each.access is Access.OPEN)
        of_users = [each.route() for each in endpoints if each.access is Access.USERS]
        self._of_users = [*page.ROUTES, *of_users]  # of the page's files nothing is secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and scope["path"] not in self._open:
            try:
                self._check(scope)
            except HorologError as refusal:
                headers = {}
                if refusal.code is ErrorCode.UNAUTHORIZED:
                    headers["www-authenticate"] = 'Basic realm="horolog", charset="UTF-8"'
                headers["connection"] = "close"  # its body is not read
                await _answer(scope["path"], refusal, headers)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope).getlist("authorization")
        authorization = headers[0] if len(headers) == 1 else ""
        if hmac.compare_digest(authorization.encode(), f"Bearer {OWN_TOKEN}".encode()):
            return
        client = scope.get("client")
        identity = self._guard.of_authorization(authorization, client[0] if client else "")
        if not any(route.matches(scope)[0] is Match.FULL for route in self._of_users):
            identity.check(ADMIN)
        scope.setdefault("state", {})["identity"] = identity


def _answer(path: str, refusal: HorologError, headers: dict[str, str]) -> Response:
    """Words for whoever opens the page in a browser, the error shape for all others."""
    if path == "/":
        return page.refusal_page(refusal, http_status(refusal), headers)
    body = orjson.dumps(error_body(refusal))
    return Response(body, http_status(refusal), headers, media_type=JSON)
