"""The OpenAPI 3.1 description of this API over HTTP."""

from __future__ import annotations

import asyncio

import orjson
from starlette.requests import Request
from starlette.responses import Response

from horolog.admin.answers import JSON
from horolog.admin.endpoints import endpoint
from horolog.admin.openapi import describe
from horolog.admin.requests import query


@endpoint("GET", "/openapi.json", media=JSON)
async def show_openapi(request: Request) -> Response:
    """GET /openapi.json: return this description."""
    query(request)
    if not hasattr(request.app.state, "openapi"):
        # A tenth of a second of work, once
        made = await asyncio.to_thread(describe, request.app.state.endpoints)
        request.app.state.openapi = orjson.dumps(made)
    return Response(request.app.state.openapi, media_type=JSON)
