"""Exchanges with the admin API over ASGI, in front of a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from horolog.admin.app import make_app
from horolog.testing.engine import ScriptedEngine

Use = Callable[[httpx.AsyncClient, ScriptedEngine], Awaitable[None]]


def serve(use: Use, *, simulated: bool = True) -> None:
    """Run `use` with a client of the admin API in front of a scripted engine."""

    async def run() -> None:
        engine = ScriptedEngine(simulated=simulated)
        transport = httpx.ASGITransport(
            make_app(engine, broker_name="broker-a"), raise_app_exceptions=False
        )
        async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
            await use(client, engine)

    asyncio.run(asyncio.wait_for(run(), 10))


def exchange(
    method: str,
    path: str,
    body: object = None,
    script: Callable[[ScriptedEngine], None] | None = None,
) -> tuple[int, Any, ScriptedEngine]:
    """Make one request; return status, JSON, and the engine with the commands it was given."""
    found: list[Any] = []

    async def use(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
        if script is not None:
            script(engine)
        response = await client.request(method, path, json=body)
        assert response.headers["content-type"] == "application/json"
        found.extend([response.status_code, response.json(), engine])

    serve(use)
    return found[0], found[1], found[2]


def answering(kind: type, result: object) -> Callable[[ScriptedEngine], None]:
    """Return a script that changes one answer of the engine."""
    return lambda engine: engine.answers.update({kind: result})
