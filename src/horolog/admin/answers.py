"""The one success shape, {"result": {…}}, and what every endpoint finds in the app's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson
from starlette.requests import Request
from starlette.responses import Response

from horolog.access.rules import ADMIN, Identity, Need
from horolog.server.running import RunningEngine

JSON = "application/json"


def answer(result: Mapping[str, Any], status: int = 200) -> Response:
    """{"result": result} as JSON."""
    return Response(orjson.dumps({"result": result}), status, media_type=JSON)


def allow(request: Request, *needs: Need) -> None:
    """FORBIDDEN unless who asks has these rights; without a name of what they are for, only for administrators.

    Call it before anything is read or changed: who is no administrator gets no engine before (`engine_of`).
    """
    identity = identity_of(request)
    if identity is not None:
        identity.check(needs if needs and all(need.name for need in needs) else ADMIN)
        request.state.allowed = True


def let_in(request: Request) -> None:
    """Let in who is known, whatever its rights: of what it is told about, the function asks `may`."""
    if identity_of(request) is not None:
        request.state.allowed = True


def is_admin(request: Request) -> bool:
    """Whether who asks may do everything."""
    identity = identity_of(request)
    return identity is None or identity.is_admin


def may(request: Request, need: Need) -> bool:
    """Whether who asks has a right; everybody has all where nobody has to say who it is."""
    identity = identity_of(request)
    return identity is None or identity.has((need,))


def identity_of(request: Request) -> Identity | None:
    """Who asks; None where nobody has to say so."""
    return cast("Identity | None", getattr(request.state, "identity", None))


def check_allowed(request: Request) -> None:
    """FORBIDDEN for who is no administrator, unless `allow` has let it in."""
    identity = identity_of(request)
    if identity is not None and not getattr(request.state, "allowed", False):
        identity.check(ADMIN)


def engine_of(request: Request) -> RunningEngine:
    """The engine this app was made for."""
    check_allowed(request)
    return cast("RunningEngine", request.app.state.engine)


def broker_name(request: Request) -> str:
    """The broker's name, as in routes and recall handles."""
    return str(request.app.state.broker_name)
