"""GET /metrics: the metrics of the broker for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from starlette.requests import Request
from starlette.responses import Response

from horolog.admin.endpoints import endpoint
from horolog.admin.requests import query
from horolog.errors import ErrorCode, refused

if TYPE_CHECKING:
    from horolog.metrics.exposition import Exposition


def _exposition_of(request: Request) -> Exposition:
    found = request.app.state.exposition
    if found is None:
        raise refused("path", "this process counts nothing", code=ErrorCode.NOT_FOUND)
    return cast("Exposition", found)


@endpoint("GET", "/metrics", media="text/plain", codes=(ErrorCode.NOT_FOUND,))
async def show_metrics(request: Request) -> Response:
    """GET /metrics: return the metrics in the text format of Prometheus, or as OpenMetrics."""
    query(request)
    text, content_type = await _exposition_of(request).text(request.headers.get("accept", ""))
    return Response(text, headers={"content-type": content_type, "cache-control": "no-store"})
