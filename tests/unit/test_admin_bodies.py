"""Bodies of admin requests that come slowly, are large, or end in the middle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from horolog.admin.app import make_app
from horolog.admin.bodies import Bodies
from horolog.limits import ADMIN_SMALL_BODY
from horolog.testing.engine import ScriptedEngine

BODY = b'{"name": "reminders"}'


def ask(bodies: Bodies, content: list[AsyncIterator[bytes]]) -> list[httpx.Response]:
    """POST /v1/topics with each of these, at once."""

    async def run() -> list[httpx.Response]:
        app = make_app(ScriptedEngine(), broker_name="broker-a")
        app.state.bodies = bodies
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
            headers = {"content-type": "application/json"}
            calls = [client.post("/v1/topics", content=each, headers=headers) for each in content]
            return await asyncio.gather(*calls)

    return asyncio.run(asyncio.wait_for(run(), 20))


async def pieces(*content: bytes, until: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    for piece in content:
        yield piece
    if until is not None:
        await until.wait()


def test_a_body_that_never_ends_is_refused_in_time() -> None:
    """And the connection is closed, for the rest of it is not read."""
    (answer,) = ask(Bodies(wait_s=0.05), [pieces(BODY, until=asyncio.Event())])
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == "request"
    assert answer.json()["error"]["limit"] == "0.05 s"
    assert answer.headers["connection"] == "close"


def test_json_that_is_no_object_is_refused_as_that() -> None:
    """And not in the words of the library that reads it."""
    (answer,) = ask(Bodies(wait_s=5), [pieces(b"[1]")])
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "request: not a JSON object"


def test_large_bodies_share_a_bound_and_small_ones_need_none() -> None:
    large = b" " * (ADMIN_SMALL_BODY + 1)
    waits = asyncio.Event()
    bodies = Bodies(wait_s=0.2, bytes_max=len(large) + 100)
    first, second, small = ask(
        bodies, [pieces(large, until=waits), pieces(large, BODY), pieces(BODY)]
    )
    assert first.status_code == 400  # late
    assert second.status_code == 429
    assert second.json()["error"]["code"] == "too_many_requests"
    assert second.headers["connection"] == "close"
    assert small.status_code == 201
    assert "connection" not in small.headers
    (again,) = ask(bodies, [pieces(large, large, BODY)])
    assert again.status_code == 201  # one alone may be as large as the limit of a request


def test_a_client_that_hangs_up_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "horolog.admin")

    async def run() -> None:
        app = make_app(ScriptedEngine(), broker_name="broker-a")
        events = [
            {"type": "http.request", "body": b"{", "more_body": True},
            {"type": "http.disconnect"},
        ]

        async def receive() -> Any:
            return events.pop(0)

        async def send(event: Any) -> None:
            del event

        headers = [(b"host", b"admin"), (b"content-type", b"application/json")]
        scope = {
            "type": "http", "method": "POST", "path": "/v1/topics", "query_string": b"",
            "server": ("admin", None), "headers": headers,
        }  # fmt: skip
        await app(scope, receive, send)

    asyncio.run(asyncio.wait_for(run(), 10))
    assert [record.getMessage() for record in caplog.records] == ["client hung up path=/v1/topics"]
    assert caplog.records[0].exc_info is None
