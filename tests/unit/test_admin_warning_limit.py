"""Requests to the admin port that are no HTTP: they are told once a second, and not each."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from starlette.applications import Starlette

from horolog.admin.server import ADMIN_HOST, AdminServer
from horolog.admin.status import error_from_body
from horolog.admin.warning_limit import UVICORN, WarningLimit
from horolog.errors import ErrorCode


async def _ask_badly(port: int, times: int) -> None:
    for _ in range(times):
        reader, writer = await asyncio.open_connection(ADMIN_HOST, port)
        writer.write(b"\xff\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\xff\r\n\r\n",
        "GET /v1/topics/ü HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
        b"GET / HTTP/1.1\r\nHost: localhost\r\nbad header: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"GET /" + bytes(100_000),
    ],
)
def test_what_is_no_http_is_refused_in_the_one_error_shape(request_bytes: bytes) -> None:
    async def story() -> bytes:
        app = Starlette()
        app.state.closing = asyncio.Event()
        server = AdminServer(app, 0)
        reader, writer = await asyncio.open_connection(ADMIN_HOST, await server.start())
        writer.write(request_bytes)
        answer = await reader.read()
        writer.close()
        await server.stop()
        return answer

    head, _, body = asyncio.run(story()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/json" in head.lower()
    assert b"connection: close" in head.lower()
    assert error_from_body(json.loads(body)).code is ErrorCode.BAD_REQUEST
    assert json.loads(body)["error"]["field"] == "request"


def test_a_bad_request_is_reported_and_the_next_ones_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        app = Starlette()
        app.state.closing = asyncio.Event()
        server = AdminServer(app, 0)
        await _ask_badly(await server.start(), 20)
        await server.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    lines = [each.getMessage() for each in caplog.records if "Invalid HTTP" in each.getMessage()]
    assert lines[0] == "Invalid HTTP request received."
    assert len(lines) < 20
    assert not any(isinstance(each, WarningLimit) for each in UVICORN.filters)


class _Later:
    """A loop of which only the calls for later are used."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, tuple[object, ...]]] = []

    def call_later(self, _delay_s: float, callback: object, *arguments: object) -> None:
        self.calls.append((callback, arguments))

    def pass_a_second(self) -> None:
        calls, self.calls = self.calls, []
        for callback, arguments in calls:
            assert callable(callback)
            callback(*arguments)


def test_what_was_held_back_is_counted_a_second_later(caplog: pytest.LogCaptureFixture) -> None:
    later = _Later()
    warning_limit = WarningLimit(later)  # type: ignore[arg-type]

    def passes(level: int, text: str) -> bool:
        return warning_limit.filter(
            logging.LogRecord("uvicorn.error", level, "", 0, text, (), None)
        )

    assert [passes(logging.WARNING, "bad") for _ in range(3)] == [True, False, False]
    assert passes(logging.ERROR, "bad"), "a fault of ours"
    with caplog.at_level(logging.WARNING):
        later.pass_a_second()
        assert caplog.messages == ["2 times more: bad"]
        assert not passes(logging.WARNING, "bad")
        later.pass_a_second()
        later.pass_a_second()
    assert caplog.messages == ["2 times more: bad", "1 times more: bad"]
    assert not later.calls, "nothing runs while nothing comes"
    assert passes(logging.WARNING, "bad")
