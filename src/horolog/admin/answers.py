"""The one success shape, {"result": {…}}; the caller's rights and the app's state for endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import orjson
from starlette.requests import Request
from starlette.responses import Response

from horolog.access.rules import ADMIN, Identity, Need
from horolog.server.running import RunningEngine

JSON = "application/json"
_Item = TypeVar("_Item")
_BYTES_AT_ONCE = 1 << 20  # of JSON, made at a time: some 3 ms
_VIEWS_AT_ONCE = 256  # items made into JSON at a time, fewer if they are large


def answer(result: Mapping[str, Any], status: int = 200) -> Response:
    """Return {"result": result} as JSON."""
    return Response(orjson.dumps({"result": result}), status, media_type=JSON)


async def listed(
    items: Iterable[_Item], view: Callable[[_Item], object], *, at_once: int = _VIEWS_AT_ONCE
) -> orjson.Fragment:
    """Return the views of many items as JSON; others are served between some and the next."""
    pieces: list[bytes] = []
    left = _BYTES_AT_ONCE
    for each in items:
        pieces.append(orjson.dumps(view(each)))
        left -= _BYTES_AT_ONCE // at_once + len(pieces[-1])
        if left <= 0:
            await asyncio.sleep(0)
            left = _BYTES_AT_ONCE
    return orjson.Fragment(b"[" + b",".join(pieces) + b"]")


def require(request: Request, *needs: Need) -> None:
    """Raise FORBIDDEN unless the caller has all `needs`.

    Without needs, or if one of them has an empty name, only administrators pass.  Call it before
    anything is read or changed: without it `engine_of` refuses callers that are no administrators.
    """
    identity = identity_of(request)
    if identity is not None:
        identity.check(needs if needs and all(need.name for need in needs) else ADMIN)
        request.state.allowed = True


def admit_known_caller(request: Request) -> None:
    """Admit any known caller; the endpoint then checks each item of its answer with `may`."""
    if identity_of(request) is not None:
        request.state.allowed = True


def is_admin(request: Request) -> bool:
    """Return whether the caller may do everything."""
    identity = identity_of(request)
    return identity is None or identity.is_admin


def may(request: Request, need: Need) -> bool:
    """Return whether the caller has a right; without access control every caller has all rights."""
    identity = identity_of(request)
    return identity is None or identity.has((need,))


def identity_of(request: Request) -> Identity | None:
    """Return the identity of the caller; None without access control."""
    return cast("Identity | None", getattr(request.state, "identity", None))


def check_allowed(request: Request) -> None:
    """Raise FORBIDDEN for a caller that is no administrator and was not admitted before."""
    identity = identity_of(request)
    if identity is not None and not getattr(request.state, "allowed", False):
        identity.check(ADMIN)


def engine_of(request: Request) -> RunningEngine:
    """Return the engine that this app serves; FORBIDDEN as `check_allowed`."""
    check_allowed(request)
    return cast("RunningEngine", request.app.state.engine)


def settings_lock(request: Request) -> asyncio.Lock:
    """Return the lock of requests that read settings, and write them with some changed.

    Without it, two such requests at once could both succeed, and one change would be lost.
    """
    return cast("asyncio.Lock", request.app.state.settings_lock)


def broker_name(request: Request) -> str:
    """Return the broker's name, as in routes and recall handles."""
    return str(request.app.state.broker_name)
