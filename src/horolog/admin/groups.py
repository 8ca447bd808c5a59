"""Consumer groups over HTTP: how they consume."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horolog.admin.answers import answer, engine_of
from horolog.admin.requests import GroupBody, query, read_body
from horolog.protocol.queue_commands import FindGroup, GroupSettings, GroupView, PutGroup
from horolog.protocol.rocketmq.names import check_group


async def show_group(request: Request) -> Response:
    """GET /v1/groups/{group}; 404 for one that does not exist."""
    query(request)
    group = check_group(request.path_params["group"])
    return answer(_view(await engine_of(request).submit(FindGroup(group))))


async def put_group(request: Request) -> Response:
    """PUT /v1/groups/{group}: make it, or change what is given; everything else stays as it is."""
    group = check_group(request.path_params["group"])
    wanted = await read_body(request, GroupBody)
    engine = engine_of(request)
    found: GroupView = await engine.submit(PutGroup(group))
    before: GroupSettings = found.settings
    settings = replace(
        before,
        orderly=before.orderly if wanted.orderly is None else wanted.orderly,
        retry_max=before.retry_max if wanted.retry_max is None else wanted.retry_max,
    )
    return answer(_view(await engine.submit(PutGroup(group, settings))))


def _view(view: GroupView) -> dict[str, Any]:
    return {
        "group": view.name,
        "orderly": view.settings.orderly,
        "retry_max": view.settings.retry_max,
    }
