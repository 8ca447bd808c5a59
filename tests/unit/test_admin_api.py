"""The admin API over ASGI.

One success shape, one error shape, and every refusal names its field.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from horolog.admin.app import make_app
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    Ack,
    Acked,
    CancelReceive,
    CountPending,
    DescribeBroker,
    DescribeTopic,
    ListPending,
    MessageType,
    Recall,
    Recalled,
    RecallStatus,
    Receive,
    SendMessages,
    Sent,
)
from horolog.testing.engine import NOW_MS, PARKED, ScriptedEngine

Use = Callable[[httpx.AsyncClient, ScriptedEngine], Awaitable[None]]


def serve(use: Use, *, simulated: bool = True) -> None:
    """Run `use` against the app of a scripted engine."""

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
    """One request: status, JSON, and the engine that was asked."""
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
    """A script that changes one answer."""
    return lambda engine: engine.answers.update({kind: result})


def test_health_names_its_checks() -> None:
    """200 while all is well."""
    status, answer, _ = exchange("GET", "/healthz")
    assert status == 200
    assert answer["result"]["healthy"] is True
    assert [check["name"] for check in answer["result"]["checks"]] == ["log", "core", "store"]


def test_health_is_red_when_the_log_failed() -> None:
    """503 and the reason."""
    status, answer, _ = exchange("GET", "/healthz", script=ScriptedEngine.fail)
    assert status == 503
    assert answer["result"]["checks"][0] == {
        "name": "log",
        "ok": False,
        "detail": "log: write failed",
    }


def test_health_is_red_with_problems() -> None:
    """Damage and disk pressure are the store's."""

    def script(engine: ScriptedEngine) -> None:
        engine.answers[DescribeBroker].problems.append("hour 5: one record is damaged")

    status, answer, _ = exchange("GET", "/healthz", script=script)
    assert status == 503
    assert answer["result"]["checks"][2]["detail"] == "hour 5: one record is damaged"


def test_topics() -> None:
    """Create, list, describe, and the progress of a group."""
    created = {
        "name": "reminders",
        "type": "delay",
        "queues": 2,
        "queue_offsets": [3, 4],
        "pending": 5,
    }
    status, answer, engine = exchange("POST", "/v1/topics", {"name": "reminders", "queues": 2})
    assert (status, answer) == (201, {"result": created})
    assert engine.asked[0].queues == 2
    assert exchange("GET", "/v1/topics")[1] == {"result": {"topics": [created]}}
    assert exchange("GET", "/v1/topics/reminders")[1] == {"result": created}
    group = exchange("GET", "/v1/topics/reminders/groups/me")[1]["result"]
    assert (group["waiting"], group["leased"]) == (4, 1)
    assert group["queues"][0]["ack_floor"] == 2


def test_names_with_escapes_arrive_whole() -> None:
    """%RETRY% topics have a % in their name."""
    _, _, engine = exchange("GET", "/v1/topics/%25RETRY%25me")
    assert engine.asked == [DescribeTopic("%RETRY%me")]


def test_send_for_later() -> None:
    """`in_ms` counts from the broker's clock; a recall handle comes back."""
    status, answer, engine = exchange(
        "POST", "/v1/messages", {"topic": "reminders", "body": "hi", "in_ms": 90_000, "tag": "desk"}
    )
    assert status == 201
    sent = answer["result"]
    assert sent["deliver_at_ms"] == NOW_MS + 90_000
    assert sent["deliver_at"] == "2026-03-08T10:01:30.000Z"
    assert sent["queue_offset"] == -1
    (command,) = engine.asked
    assert command.messages[0].due_ms == NOW_MS + 90_000
    assert command.messages[0].type is MessageType.DELAY
    recalled, _, engine = exchange("POST", "/v1/recall", {"handle": sent["recall_handle"]})
    assert recalled == 200
    assert engine.asked == [Recall("reminders", sent["message_id"], NOW_MS + 90_000, 96)]


def test_send_now() -> None:
    """Without a due time it is a NORMAL message, and there is nothing to recall."""
    _, answer, engine = exchange(
        "POST",
        "/v1/messages",
        {"topic": "reminders", "body_base64": "AAE="},
        answering(SendMessages, Sent([96], [1], [7])),
    )
    assert answer["result"]["recall_handle"] == ""
    assert engine.asked[0].messages[0].type is MessageType.NORMAL


def test_ids_do_not_repeat() -> None:
    """34 hex digits, as clients make them."""
    body = {"topic": "reminders", "body": "hi", "in_ms": 1}
    ids = {exchange("POST", "/v1/messages", body)[1]["result"]["message_id"] for _ in range(5)}
    assert len(ids) == 5
    assert all(len(each) == 34 and int(each, 16) for each in ids)


def test_a_refused_message_is_an_error() -> None:
    """The core's words, code and limit go through."""
    refusal = HorologError(
        ErrorCode.ILLEGAL_DELIVERY_TIME,
        "delivery time: beyond 24 h",
        field="delivery_timestamp",
        limit="24 h",
    )
    status, answer, _ = exchange(
        "POST",
        "/v1/messages",
        {"topic": "reminders", "body": "hi", "in_ms": 1},
        answering(SendMessages, Sent([-1], [-1], [-1], {0: refusal})),
    )
    assert status == 400
    assert answer["error"] == {
        "code": "illegal_delivery_time",
        "message": "delivery time: beyond 24 h",
        "field": "delivery_timestamp",
        "limit": "24 h",
        "retriable": False,
    }


@pytest.mark.parametrize(
    ("status_word", "status", "code"),
    [
        (RecallStatus.ALREADY_DELIVERED, 409, "already_delivered"),
        (RecallStatus.NOT_FOUND, 404, "not_found"),
    ],
)
def test_a_recall_that_came_too_late(status_word: RecallStatus, status: int, code: str) -> None:
    """Only CANCELLED is a success."""
    found, answer, _ = exchange(
        "POST",
        "/v1/recall",
        {"topic": "reminders", "message_id": "01AB", "deliver_at_ms": NOW_MS},
        answering(Recall, Recalled(status_word, f"{status_word}: so it is", "01AB")),
    )
    assert (found, answer["error"]["code"]) == (status, code)
    assert answer["error"]["message"].startswith(status_word)


def test_receive_and_ack() -> None:
    """A message says what it is; its handle acks it; a bad handle is told apart."""
    status, answer, engine = exchange("POST", "/v1/receive", {"topic": "reminders", "group": "me"})
    assert status == 200
    (message,) = answer["result"]["messages"]
    assert (message["body"], message["tag"], message["keys"]) == ("stand up", "desk", ["k1", "k2"])
    assert message["properties"] == {"colour": "red"}
    assert (message["queue_offset"], message["attempt"]) == (7, 1)
    assert engine.asked[0].poll_ms == 0
    bad = HorologError(
        ErrorCode.INVALID_RECEIPT_HANDLE, "receipt handle: expired", field="receipt_handle"
    )
    _, answer, _ = exchange(
        "POST",
        "/v1/ack",
        {"topic": "reminders", "group": "me", "receipt_handles": ["a", "b"]},
        answering(Ack, Acked([None, bad])),
    )
    assert answer["result"]["acked"] == 1
    assert answer["result"]["refused"][0]["receipt_handle"] == "b"
    assert answer["result"]["refused"][0]["error"]["code"] == "invalid_receipt_handle"


def test_a_poll_ends_by_real_time_also_under_a_simulated_clock() -> None:
    """The parked receive is taken back, and the answer is empty."""
    _, answer, engine = exchange(
        "POST",
        "/v1/receive",
        {"topic": "reminders", "group": "me", "poll_ms": 1},
        answering(Receive, PARKED),
    )
    assert answer == {"result": {"messages": []}}
    assert isinstance(engine.asked[1], CancelReceive)


def test_pending() -> None:
    """Per hour, per second, and the list with recall handles."""
    _, answer, engine = exchange("GET", "/v1/pending?topic=reminders")
    assert engine.asked == [CountPending("reminders", None)]
    assert answer["result"]["by"] == "hour"
    assert answer["result"]["rows"][0] == {
        "start_ms": NOW_MS,
        "start": "2026-03-08T10:00:00.000Z",
        "count": 2,
    }
    assert exchange("GET", "/v1/pending?hour=492490")[2].asked == [CountPending("", 492_490)]
    assert exchange("GET", "/v1/pending?hour=2026-03-08T10:30Z")[2].asked == [
        CountPending("", 492_490)
    ]
    _, answer, engine = exchange("GET", f"/v1/pending/messages?from={NOW_MS}&limit=5")
    assert engine.asked == [ListPending(NOW_MS, 253_402_300_799_999, "", 5)]
    (message,) = answer["result"]["messages"]
    assert (message["message_id"], message["tag"]) == ("01AB", "desk")
    assert message["recall_handle"]


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
        ("POST", "/v1/topics", {"name": "a b"}, "topic"),
        ("POST", "/v1/topics", {"queues": 1}, "name"),
        ("POST", "/v1/topics", {"name": "a", "colour": 1}, "colour"),
        ("POST", "/v1/topics", [1], "request"),
        ("POST", "/v1/messages", {"topic": "a"}, "body"),
        ("POST", "/v1/messages", {"topic": "a", "body": ""}, "body"),
        ("POST", "/v1/messages", {"topic": "a", "body": "x", "body_base64": "eA=="}, "body"),
        ("POST", "/v1/messages", {"topic": "a", "body_base64": "?"}, "body_base64"),
        ("POST", "/v1/messages", {"topic": "a", "body": "x", "in_ms": -1}, "in_ms"),
        (
            "POST",
            "/v1/messages",
            {"topic": "a", "body": "x", "in_ms": 1, "deliver_at_ms": 1},
            "in_ms",
        ),
        ("POST", "/v1/messages", {"topic": "a", "body": "x", "tag": "a|b"}, "tag"),
        ("POST", "/v1/messages", {"topic": "a", "body": "x", "keys": [1]}, "keys.0"),
        ("POST", "/v1/recall", {}, "handle"),
        ("POST", "/v1/recall", {"handle": "x", "topic": "a"}, "handle"),
        ("POST", "/v1/receive", {"topic": "a", "group": "g", "limit": 33}, "limit"),
        ("POST", "/v1/receive", {"topic": "a", "group": "g", "invisible_ms": 1}, "invisible_ms"),
        ("POST", "/v1/receive", {"topic": "a", "group": "g", "filter": "||"}, "filter_expression"),
        ("POST", "/v1/ack", {"topic": "a", "group": "g", "receipt_handles": []}, "receipt_handles"),
        ("POST", "/v1/clock/advance", {"by_ms": -1}, "by_ms"),
        ("POST", "/v1/clock/advance", {"by_ms": 1e300}, "by_ms"),
        ("GET", "/v1/pending?hour=now", None, "hour"),
        ("GET", "/v1/pending?colour=red", None, "colour"),
        ("GET", "/v1/pending?hour=1&hour=2", None, "hour"),
        ("GET", "/v1/pending/messages?limit=0", None, "limit"),
        ("GET", "/v1/pending/messages?from=2026-03-08T10:00", None, "from"),
        ("GET", "/v1/topics/a%20b", None, "topic"),
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


def test_a_bug_is_told_without_its_entrails() -> None:
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
