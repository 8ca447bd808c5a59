"""Who may call the admin API: administrators of the access file, by key and secret or by token.

/healthz is told to everybody, for what watches a process has no key.  A process that the broker itself starts to
fetch what is late has a token of its own, which only they know (`OWN_TOKEN`).
"""

from __future__ import annotations

import hmac
import secrets

import orjson
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from horolog.access.guard import Guard
from horolog.access.rules import ADMIN
from horolog.admin.answers import JSON
from horolog.admin.status import error_body, http_status
from horolog.errors import ErrorCode, HorologError

OPEN_PATHS = frozenset({"/healthz"})
OWN_TOKEN = secrets.token_urlsafe(32)
"""Of this process; in the environment of those that it starts."""


class AccessCheck:
    """ASGI middleware: UNAUTHORIZED or FORBIDDEN for whoever is no administrator."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            try:
                self._check(scope)
            except HorologError as refusal:
                headers = {}
                if refusal.code is ErrorCode.UNAUTHORIZED:
                    headers["www-authenticate"] = 'Basic realm="horolog", charset="UTF-8"'
                headers["connection"] = "close"  # its body is not read
                body = orjson.dumps(error_body(refusal))
                answer = Response(body, http_status(refusal), headers, media_type=JSON)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope).getlist("authorization")
        authorization = headers[0] if len(headers) == 1 else ""
        if hmac.compare_digest(authorization.encode(), f"Bearer {OWN_TOKEN}".encode()):
            return
        client = scope.get("client")
        self._guard.of_authorization(authorization, client[0] if client else "").check(ADMIN)
