"""The admin API as a Starlette app; docs/reference/http.md describes each path.

Every answer is {"result": {…}} or {"error": {code, message, field, limit, retriable}}, also after
unexpected errors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route

from horolog.access.guard import Guard
from horolog.admin import (
    adoptions,
    backup,
    broker,
    clients,
    dead_letters,
    documents,
    groups,
    histogram,
    history,
    messages,
    metrics,
    offloads,
    overview,
    page,
    pending,
    recalls,
    schedules,
    search,
    topics,
)
from horolog.admin.access import AccessCheck
from horolog.admin.answers import JSON
from horolog.admin.bodies import Bodies
from horolog.admin.endpoints import endpoints_of
from horolog.admin.hosts import HostCheck
from horolog.admin.shared import Shared
from horolog.admin.status import error_body, http_status
from horolog.errors import ErrorCode, HorologError, first_line
from horolog.limits import ADMIN_READS_AT_ONCE
from horolog.metrics.exposition import Exposition
from horolog.server.connected import KnowsClients
from horolog.server.running import RunningEngine

log = logging.getLogger("horolog.admin")

MODULES = (
    broker,
    metrics,
    overview,
    topics,
    pending,
    histogram,
    messages,
    search,
    history,
    recalls,
    groups,
    clients,
    dead_letters,
    schedules,
    backup,
    adoptions,
    offloads,
    documents,
)
"""Modules with the functions that answer requests, each below its declaration (`endpoints`)."""
ENDPOINTS = endpoints_of(MODULES)
ROUTES = (*page.ROUTES, *(each.route() for each in ENDPOINTS))


def make_app(
    engine: RunningEngine,
    *,
    broker_name: str,
    hosts: Sequence[str] = (),
    guard: Guard | None = None,
    doors: Sequence[KnowsClients] = (),
    exposition: Exposition | None = None,
) -> Starlette:
    """Build the app that serves `engine`; `broker_name` goes into recall handles.

    hosts  names to allow in `Host`, besides the address that is served and those of this machine

    guard  checks who may ask; None: everybody may

    doors  doors whose connected clients are shown

    exposition  the metrics; None: there are none

    Set `app.state.closing` before the server that runs the app stops: this ends parked polls.
    """
    app = Starlette(
        routes=list(ROUTES),
        middleware=[
            Middleware(HostCheck, names=hosts),
            *(
                [Middleware(AccessCheck, guard=guard, endpoints=ENDPOINTS)]
                if guard is not None
                else ()
            ),
        ],
        exception_handlers={
            HorologError: _refused,
            HTTPException: _not_routed,
            ClientDisconnect: _hung_up,
            OSError: _no_file,
            Exception: _broken,
        },
    )
    app.router.redirect_slashes = False
    app.state.engine = engine
    app.state.endpoints = ENDPOINTS
    app.state.broker_name = broker_name
    app.state.doors = doors
    app.state.closing = asyncio.Event()
    app.state.bodies = Bodies()
    app.state.settings_lock = asyncio.Lock()
    app.state.reads = asyncio.Semaphore(ADMIN_READS_AT_ONCE)
    app.state.exposition = exposition
    app.state.histograms = Shared(1.0)
    app.state.overview = overview.Overview(
        engine, broker_name, None if exposition is None else exposition.figures
    )
    return app


def _error(error: HorologError, status: int) -> Response:
    return Response(orjson.dumps(error_body(error)), status, media_type=JSON)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HorologError)
    answer = _error(error, http_status(error))
    if getattr(request.state, "hang_up", False):
        answer.headers["connection"] = "close"
    return answer


async def _hung_up(request: Request, error: Exception) -> Response:
    """Answer a request whose client went away while its body was read; nobody reads this answer."""
    del error
    log.info("client hung up path=%s", request.url.path)
    return Response(status_code=400)


async def _not_routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        refusal = HorologError(
            ErrorCode.NOT_FOUND, f"path: there is no {request.url.path}", field="path"
        )
        return _error(refusal, error.status_code)
    refusal = HorologError(
        ErrorCode.BAD_REQUEST,
        f"method: {request.method} is not allowed on {request.url.path}",
        field="method",
    )
    answer = _error(refusal, error.status_code)
    if error.status_code == 405:
        answer.headers["allow"] = ", ".join(_methods_of(request))
    return answer


def _methods_of(request: Request) -> list[str]:
    """Return the HTTP methods that this path accepts."""
    found: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found)


async def _no_file(request: Request, error: Exception) -> Response:
    """Answer DISK_FAILED for a file of the data directory that is gone or cannot be read.

    That is a failure of the environment, not a bug.
    """
    assert isinstance(error, OSError)
    where = f"{error.filename}: " if error.filename else ""
    failed = HorologError(ErrorCode.DISK_FAILED, f"{where}{error.strerror or first_line(error)}")
    log.error("request failed path=%s %s", request.url.path, failed)
    return _error(failed, http_status(failed))


async def _broken(request: Request, error: Exception) -> Response:
    log.error("request failed path=%s", request.url.path, exc_info=error)
    refusal = HorologError(ErrorCode.INTERNAL, f"internal error: {type(error).__name__}")
    return _error(refusal, 500)
