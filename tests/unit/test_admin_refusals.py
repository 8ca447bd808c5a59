"""The admin API over ASGI: broker and clock, and what it refuses (P11)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from admin_api import answering, exchange, serve

from horolog.admin.app import make_app
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    DescribeBroker,
    DescribeTopic,
)
from horolog.server.open_broker import open_engine
from horolog.testing.engine import ScriptedEngine


def test_broker_and_clock() -> None:
    """Figures, and a simulated clock that is moved."""
    assert exchange("GET", "/v1/broker")[1]["result"]["epoch"] == 3
    assert exchange("GET", "/v1/clock")[1]["result"]["kind"] == "simulated"
    _, answer, _ = exchange("POST", "/v1/clock/advance", {"by_ms": 86_400_000})
    assert answer["result"]["wall"] == "2026-03-09T10:00:00.000Z"


def test_the_system_clock_is_not_moved() -> None:
    """403, with the flag that would allow it."""

    async def use(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
        response = await client.post("/v1/clock/advance", json={"by_ms": 1})
        assert response.status_code == 403
        assert "--clock simulated" in response.json()["error"]["message"]

    serve(use, simulated=False)


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "/v1/topics", {"name": "a", "queues": 0}, "queues"),
        ("POST", "/v1/topics", {"name": "a", "queues": "5"}, "queues"),
        ("POST", "/v1/topics", {"name": "a", "type": "round"}, "type"),
        ("POST", "/v1/topics", {"name": "a b"}, "name"),
        ("POST", "/v1/topics", {"queues": 1}, "name"),
        ("POST", "/v1/topics", {"name": "a", "colour": 1}, "colour"),
        ("POST", "/v1/topics", [1], "request"),
        ("PATCH", "/v1/topics/a", {"queues": 0}, "queues"),
        ("PATCH", "/v1/topics/a", {}, "queues"),
        ("PATCH", "/v1/topics/a", {"queues": 1, "type": "delay"}, "type"),
        ("PATCH", "/v1/topics/a%20b", {"queues": 1}, "topic"),
        ("POST", "/v1/messages", {"topic": "a"}, "body"),
        ("POST", "/v1/messages", {"topic": "a", "body": ""}, "body"),
        ("POST", "/v1/messages", {"topic": "a", "body": "x", "body_base64": "eA=="}, "body"),
        ("POST", "/v1/messages", {"topic": "a", "body_base64": "?"}, "body_base64"),
        ("POST", "/v1/messages", {"topic": "a", "body_base64": "\u00e4"}, "body_base64"),
        ("POST", "/v1/messages", {"topic": "a", "body": "x", "in_ms": -1}, "in_ms"),
        (
            "POST",
            "/v1/messages",
            {"topic": "a", "body": "x", "in_ms": 1, "deliver_at_ms": 1},
            "in_ms",
        ),
        ("POST", "/v1/messages", {"topic": "a", "body": "x", "tag": "a|b"}, "tag"),
        ("POST", "/v1/messages", {"topic": "a", "body": "x", "keys": [1]}, "keys.0"),
        ("POST", "/v1/groups/g/dead-letters/redrive", {"from": "0-²"}, "from"),
        ("POST", "/v1/groups/g/dead-letters/redrive", {"from": "0-" + "1" * 19}, "from"),
        ("POST", "/v1/recall", {}, "handle"),
        ("POST", "/v1/recall", {"handle": "x", "topic": "a"}, "handle"),
        ("POST", "/v1/recall/key", {"topic": "a", "key": ""}, "key"),
        ("POST", "/v1/recall/key", {"topic": "a b", "key": "k"}, "topic"),
        ("POST", "/v1/recall/window", {"topic": "a", "from_ms": -1, "to_ms": 1}, "from_ms"),
        ("POST", "/v1/recall/window", {"topic": "a", "from_ms": 1}, "to_ms"),
        ("POST", "/v1/recall/window", {"topic": "a", "from_ms": 1, "to_ms": 2, "tag": ""}, "tag"),
        (
            "POST",
            "/v1/hand-over/window",
            {"topic": "a", "from_ms": 1, "to_ms": 2, "tag": ""},
            "tag",
        ),
        (
            "POST",
            "/v1/reschedule/window",
            {"topic": "a", "from_ms": 1, "to_ms": 2, "tag": "", "new_deliver_at_ms": 9},
            "tag",
        ),
        ("POST", "/v1/messages", {"topic": "a", "body": "x", "tag": ""}, "tag"),
        ("POST", "/v1/reschedule", {"in_ms": 1}, "handle"),
        (
            "POST",
            "/v1/reschedule",
            {"topic": "a", "message_id": "m", "deliver_at_ms": 1},
            "new_deliver_at_ms",
        ),
        (
            "POST",
            "/v1/reschedule",
            {
                "topic": "a",
                "message_id": "m",
                "deliver_at_ms": 1,
                "in_ms": 1,
                "new_deliver_at_ms": 1,
            },
            "new_deliver_at_ms",
        ),
        ("GET", "/v1/messages/find?topic=a", None, "topic"),
        ("GET", "/v1/messages/find?topic=a&id=", None, "id"),
        ("GET", "/v1/messages/find?topic=a&id=m&key=k", None, "topic"),
        ("GET", "/v1/pending?by=year", None, "by"),
        ("GET", "/v1/pending?by=second", None, "by"),
        ("GET", "/v1/pending?by=day&hour=1", None, "by"),
        ("POST", "/v1/receive", {"topic": "a", "group": "g", "limit": 33}, "limit"),
        ("POST", "/v1/receive", {"topic": "a", "group": "g", "invisible_ms": 1}, "invisible_ms"),
        ("POST", "/v1/receive", {"topic": "a", "group": "g", "filter": "||"}, "filter"),
        ("POST", "/v1/ack", {"topic": "a", "group": "g", "receipt_handles": []}, "receipt_handles"),
        ("POST", "/v1/clock/advance", {"by_ms": -1}, "by_ms"),
        ("POST", "/v1/clock/advance", {"by_ms": 1e300}, "by_ms"),
        ("GET", "/v1/pending?hour=now", None, "hour"),
        ("GET", "/v1/pending?colour=red", None, "colour"),
        ("GET", "/v1/pending?hour=1&hour=2", None, "hour"),
        ("GET", "/v1/pending/messages?limit=0", None, "limit"),
        ("GET", "/v1/pending/messages?from=2026-03-08T10:00", None, "from"),
        ("GET", "/v1/pending/messages?from=1772964000001&to=1772964000001", None, "to"),
        ("GET", "/v1/messages/search?topic=a&from=1772964000002&to=1772964000001", None, "to"),
        ("GET", "/v1/topics/a%20b", None, "topic"),
        (
            "POST",
            "/v1/schedules",
            {"name": "a b", "topic": "a", "body": "x", "every_ms": 60_000},
            "name",
        ),
        (
            "POST",
            "/v1/schedules",
            {"name": "a", "topic": "a", "body": "x", "every_ms": 5},
            "every_ms",
        ),
        (
            "POST",
            "/v1/schedules",
            {"name": "a", "topic": "a", "body": "x", "cron": "* * * * *", "jitter_ms": 60_000},
            "jitter_ms",
        ),
    ],
)
def test_bad_input_names_its_field_and_reaches_nobody(
    method: str, path: str, body: object, field: str
) -> None:
    """A 400 in the one error shape; the core has not been asked."""
    status, answer, engine = exchange(method, path, body)
    assert status == 400, answer
    assert answer["error"]["field"] == field
    assert engine.asked == []


@pytest.mark.parametrize(
    ("field", "given", "limit"),
    [
        ("invisible_ms", 10**12, "less than or equal to 43200000 ms (12h)"),
        ("invisible_ms", 1, "greater than or equal to 10000 ms (10s)"),
        ("poll_ms", -1, "greater than or equal to 0 ms"),
        ("limit", 99, "less than or equal to 32"),
    ],
)
def test_a_limit_of_a_duration_has_its_unit(field: str, given: int, limit: str) -> None:
    _, answer, _ = exchange("POST", "/v1/receive", {"topic": "a", "group": "g", field: given})
    assert answer["error"]["message"] == f"{field}: input should be {limit}"


def test_what_is_not_json_is_refused() -> None:
    """Also a form, which any web page could send to 127.0.0.1."""

    async def use(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
        for content, kind, field in (
            (b"{", "application/json", "request"),
            (b'{"name": "a"}', "text/plain", "content-type"),
            (b"name=a", "application/x-www-form-urlencoded", "content-type"),
        ):
            response = await client.post(
                "/v1/topics", content=content, headers={"content-type": kind}
            )
            assert response.status_code == 400
            assert response.json()["error"]["field"] == field
        assert engine.asked == []

    serve(use)


def test_a_compressed_body_is_refused_as_that() -> None:
    """And not as JSON that is broken; a media type counts in any case of its letters."""

    async def use(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
        content = b'{"name": "a"}'
        for encoding, status in (("gzip", 400), ("br, gzip", 400), ("Identity", 201)):
            headers = {"content-type": "Application/JSON", "content-encoding": encoding}
            response = await client.post("/v1/topics", content=content, headers=headers)
            assert response.status_code == status
            if status == 400:
                assert response.json()["error"]["message"] == (
                    f"content-encoding: {encoding!r} is not read; send the body as it is"
                )
        assert len(engine.asked) == 1

    serve(use)


def test_a_request_has_a_limit() -> None:
    """413 before it is read to its end."""

    async def use(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
        response = await client.post(
            "/v1/messages", content=b" " * (27 << 20), headers={"content-type": "application/json"}
        )
        assert response.status_code == 413
        assert response.json()["error"]["limit"] == f"{26 << 20} bytes"

    serve(use)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v2/topics", 404), ("GET", "/v1/topics/", 404), ("DELETE", "/v1/topics", 405)],
)
def test_unknown_paths_and_methods(method: str, path: str, status: int) -> None:
    """In the one error shape too."""
    found, answer, _ = exchange(method, path)
    assert found == status
    assert set(answer["error"]) == {"code", "message", "field", "limit", "retriable"}


def test_a_field_is_what_the_request_calls_it(tmp_path: Path) -> None:
    """And not what the core does, in front of a broker with nothing in it."""
    asked: list[tuple[str, str, dict[str, object] | None, str]] = [
        ("GET", "/v1/groups/nope", None, "group"),
        ("GET", "/v1/groups/no%20pe", None, "group"),
        ("POST", "/v1/recall", {"handle": ""}, "handle"),
        ("POST", "/v1/recall", {"handle": "x"}, "handle"),
        ("POST", "/v1/topics", {"name": "a b"}, "name"),
        ("GET", "/v1/topics/nope", None, "topic"),
        (
            "POST",
            "/v1/messages",
            {"topic": "t", "body": "x", "properties": {"": "v"}},
            "properties",
        ),
    ]

    async def run() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=1 << 20)
        transport = httpx.ASGITransport(make_app(engine, broker_name="b"))
        async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
            for method, path, body, field in asked:
                error = (await client.request(method, path, json=body)).json()["error"]
                assert error["field"] == field, (path, error)
                assert "recall_handle" not in error["message"]
        await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        (
            "GET",
            "/v1/messages/search?state=foo",
            None,
            "state: 'foo' is no state; a window lists pending, delivered",
        ),
        (
            "GET",
            "/v1/messages/search?state=moved",
            None,
            "state: moved is found by id or key; a window lists pending, delivered",
        ),
        (
            "POST",
            "/v1/topics",
            {"name": "t", "late": "drop"},
            "late_after_ms: drop needs a time after which it does; ",
        ),
    ],
)
def test_a_sentence_offers_what_is_taken(
    method: str, path: str, body: object, message: str
) -> None:
    """And nothing that is refused in turn."""
    status, answer, _ = exchange(method, path, body)
    assert status == 400
    assert answer["error"]["message"].startswith(message)


def test_a_method_that_is_not_allowed_is_answered_with_those_that_are() -> None:
    """All of the path, whichever function answers them."""

    async def use(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
        response = await client.put("/v1/topics/a", json={})
        assert response.status_code == 405
        assert response.headers["allow"] == "DELETE, GET, HEAD, PATCH"
        error = response.json()["error"]
        assert (error["code"], error["field"]) == ("bad_request", "method")
        assert "allow" not in (await client.get("/v2/topics")).headers

    serve(use)


def test_a_bug_is_reported_without_internals() -> None:
    """500, the kind of error, no traceback."""
    status, answer, _ = exchange(
        "GET", "/v1/broker", script=answering(DescribeBroker, KeyError("secret"))
    )
    assert status == 500
    assert answer["error"]["code"] == "internal"
    assert "secret" not in answer["error"]["message"]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.TOPIC_NOT_FOUND, 404),
        (ErrorCode.TYPE_CONFLICT, 409),
        (ErrorCode.TOO_MANY_REQUESTS, 429),
        (ErrorCode.NOT_IMPLEMENTED, 501),
        (ErrorCode.DISK_FULL, 507),
        (ErrorCode.DISK_FAILED, 503),
    ],
)
def test_codes_become_statuses(code: ErrorCode, status: int) -> None:
    """One table."""
    refusal = HorologError(code, "why")
    assert exchange("GET", "/v1/topics/a", script=answering(DescribeTopic, refusal))[0] == status
