"""The one success shape, {"result": {…}}, and what every endpoint finds in the app's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson
from starlette.requests import Request
from starlette.responses import Response

from horolog.server.running import RunningEngine

JSON = "application/json"


def answer(result: Mapping[str, Any], status: int = 200) -> Response:
    """{"result": result} as JSON."""
    return Response(orjson.dumps({"result": result}), status, media_type=JSON)


def engine_of(request: Request) -> RunningEngine:
    """The engine this app was made for."""
    return cast("RunningEngine", request.app.state.engine)


def broker_name(request: Request) -> str:
    """The broker's name, as in routes and recall handles."""
    return str(request.app.state.broker_name)
