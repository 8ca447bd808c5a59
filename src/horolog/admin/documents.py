"""The OpenAPI 3.1 description of this API over HTTP."""

from __future__ import annotations

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
        request.app.state.openapi = orjson.dumps(describe(request.app.state.endpoints))
    return Response(request.app.state.openapi, media_type=JSON)
