"""The admin API over ASGI.

One success shape, one error shape, and every refusal names its field.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from admin_api import answering, exchange

from horolog.admin import broker
from horolog.admin.app import make_app
from horolog.errors import ErrorCode, HorologError
from horolog.limits import CLIENT_GONE_INVISIBLE_MS
from horolog.protocol.commands import (
    Ack,
    Acked,
    CancelReceive,
    ChangeInvisible,
    ChangeTopic,
    CountBy,
    CountPending,
    DescribeBroker,
    DescribeTopic,
    FindMessages,
    MessageType,
    PendingCounts,
    Recall,
    RecallByKey,
    Recalled,
    RecallMany,
    RecallStatus,
    Receive,
    Reschedule,
    Rescheduled,
    RescheduleStatus,
    SendMessages,
    Sent,
    TopicType,
)
from horolog.protocol.history_commands import PagePending, PendingPlace
from horolog.protocol.rocketmq.recall_handle import (
    RecallHandle,
    decode_recall_handle,
    encode_recall_handle,
)
from horolog.testing.engine import NOW_MS, PARKED, ScriptedEngine


def test_health_names_its_checks() -> None:
    """200 while all is well."""
    status, answer, _ = exchange("GET", "/healthz")
    assert status == 200
    assert answer["result"]["healthy"] is True
    assert [check["name"] for check in answer["result"]["checks"]] == ["log", "core", "store"]


def test_a_probe_asks_whether_it_lives_and_whether_it_is_ready() -> None:
    """Damage makes neither red: a restart, or no clients, would not help."""

    def with_damage(engine: ScriptedEngine) -> None:
        view = engine.answers[DescribeBroker]
        engine.answers[DescribeBroker] = replace(view, problems=["log: a frame is damaged"])

    for path, names in (("/livez", ["log"]), ("/readyz", ["log", "core", "doors"])):
        status, answer, _ = exchange("GET", path, script=with_damage)
        assert (status, answer["result"]["status"]) == (200, "ok")
        assert [check["name"] for check in answer["result"]["checks"]] == names
        status, answer, _ = exchange("GET", path, script=ScriptedEngine.fail)
        assert (status, answer["result"]["status"]) == (503, "failing")
        assert answer["result"]["checks"][0]["detail"] == "log: write failed"
    assert exchange("GET", "/healthz", script=with_damage)[0] == 503
    busy = HorologError(ErrorCode.TOO_MANY_REQUESTS, "too many commands wait")
    assert exchange("GET", "/readyz", script=answering(DescribeBroker, busy))[0] == 503


def test_health_is_red_when_the_log_failed() -> None:
    """503 and the reason."""
    status, answer, _ = exchange("GET", "/healthz", script=ScriptedEngine.fail)
    assert status == 503
    assert answer["result"]["checks"][0] == {
        "name": "log",
        "ok": False,
        "detail": "log: write failed",
    }


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_disk_that_hangs_is_told_from_a_core_that_does(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The core waits for the disk, so it gives no answer either."""
    monkeypatch.setattr(broker, "HEALTH_TIMEOUT_S", 0.01)

    def hangs(engine: ScriptedEngine) -> None:
        engine.answers[DescribeBroker] = PARKED
        engine.log.under_way_s = 31.4

    for script, log in (
        (hangs, "a write has taken 31 s"),
        (answering(DescribeBroker, PARKED), ""),
    ):
        status, answer, _ = exchange("GET", path, script=script)
        assert status == 503
        assert [check["detail"] for check in answer["result"]["checks"][:2]] == [
            log,
            "no answer within 0.01 s",
        ]


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
        "min_offsets": [],
        "perm": 6,
        "late": "hand-over",
        "late_after_ms": 0,
        "multi_tag": False,
        "order": False,
        "read_queues": 2,
        "write_queues": 2,
        "open_transactions": 0,
    }
    status, answer, engine = exchange("POST", "/v1/topics", {"name": "reminders", "queues": 2})
    assert (status, answer) == (201, {"result": created})
    assert (engine.asked[0].type, engine.asked[0].queues) == (TopicType.NORMAL, 2)
    status, answer, engine = exchange("PATCH", "/v1/topics/reminders", {"queues": 2})
    assert (status, answer) == (200, {"result": created})
    assert engine.asked == [ChangeTopic("reminders", 2)]
    counts = answering(CountPending, PendingCounts(5, [], [("reminders", 5)]))
    assert exchange("GET", "/v1/topics", None, counts)[1] == {"result": {"topics": [created]}}
    assert exchange("GET", "/v1/topics/reminders")[1] == {"result": created}
    group = exchange("GET", "/v1/topics/reminders/groups/me")[1]["result"]
    assert (group["waiting"], group["leased"]) == (3, 1)
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


def test_recall_by_key() -> None:
    """What became of each; nobody has the key: 404."""
    wanted = {"topic": "reminders", "key": "k1"}
    status, answer, engine = exchange("POST", "/v1/recall/key", wanted)
    assert status == 200
    assert engine.asked == [RecallByKey("reminders", "k1")]
    assert answer["result"]["cancelled"] == 1
    assert answer["result"]["results"] == [
        {
            "status": "CANCELLED",
            "detail": "CANCELLED 01AB",
            "message_id": "01AB",
            "deliver_at_ms": NOW_MS + 90_000,
            "deliver_at": "2026-03-08T10:01:30.000Z",
        }
    ]
    status, answer, _ = exchange("POST", "/v1/recall/key", wanted, answering(RecallByKey, []))
    assert (status, answer["error"]["code"], answer["error"]["field"]) == (404, "not_found", "")


def test_recall_of_a_window() -> None:
    """Counts; also of a dry run."""
    wanted = {"topic": "reminders", "from_ms": 5, "to_ms": 9, "tag": "a", "dry_run": True}
    status, answer, engine = exchange("POST", "/v1/recall/window", wanted)
    assert engine.asked == [RecallMany("reminders", 5, 9, "a", True)]
    assert (status, answer["result"]) == (
        200,
        {
            "topic": "reminders",
            "matched": 5,
            "cancelled": 5,
            "size_bytes": 1_500,
            "dry_run": True,
        },
    )


def test_reschedule() -> None:
    """By handle or id; the handle that comes back is that of the new copy."""
    old = encode_recall_handle(RecallHandle("reminders", "broker-a", NOW_MS + 90_000, "01AB", 96))
    for wanted, new in (
        ({"handle": old, "new_deliver_at_ms": NOW_MS + 5}, NOW_MS + 5),
        ({"handle": old, "in_ms": 7}, NOW_MS + 7),
    ):
        status, answer, engine = exchange("POST", "/v1/reschedule", wanted)
        assert status == 200
        assert engine.asked == [Reschedule("reminders", "01AB", NOW_MS + 90_000, new, 96)]
        result = answer["result"]
        assert (result["status"], result["deliver_at_ms"]) == ("RESCHEDULED", NOW_MS)
        handle = decode_recall_handle(result["recall_handle"])
        assert handle == RecallHandle("reminders", "broker-a", NOW_MS, "01AB", 960)
    status, answer, _ = exchange(
        "POST",
        "/v1/reschedule",
        {"topic": "reminders", "message_id": "01AB", "deliver_at_ms": 5, "in_ms": 1},
        answering(
            Reschedule,
            Rescheduled(RescheduleStatus.NOT_FOUND, "NOT_FOUND: it was moved to …", "01AB"),
        ),
    )
    assert (status, answer["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "/v1/messages", {"topic": "reminders", "body": "b"}, "deliver_at_ms"),
        ("POST", "/v1/reschedule", {"handle": "h"}, "new_deliver_at_ms"),
        (
            "POST",
            "/v1/reschedule/window",
            {"topic": "reminders", "from_ms": 1, "to_ms": NOW_MS},
            "new_deliver_at_ms",
        ),
        ("POST", "/v1/groups/g/dead-letters/redrive", {}, "deliver_at_ms"),
        ("PUT", "/v1/schedules/s", {"topic": "reminders", "every_ms": 1_000}, "start_ms"),
        ("PUT", "/v1/schedules/s", {"topic": "reminders", "every_ms": 1_000}, "end_ms"),
    ],
)
def test_a_time_in_seconds_is_refused(
    method: str, path: str, body: dict[str, Any], field: str
) -> None:
    """It would be a time in 1970: a message would be handed over at once."""
    status, answer, engine = exchange(method, path, {**body, field: NOW_MS // 1_000})
    assert (status, answer["error"]["field"]) == (400, field)
    assert answer["error"]["message"] == (
        f"{field}: these are seconds; milliseconds since 1970 are needed"
    )
    assert not engine.asked


def test_find_a_message() -> None:
    """State, time, place, and a handle while it waits."""
    status, answer, engine = exchange("GET", "/v1/messages/find?topic=reminders&id=01AB")
    assert status == 200
    assert engine.asked == [FindMessages("reminders", "01AB", "")]
    (message,) = answer["result"]["messages"]
    assert (message["state"], message["body"], message["keys"]) == (
        "pending",
        "stand up",
        ["k1", "k2"],
    )
    assert decode_recall_handle(message["recall_handle"]).due_ms == NOW_MS + 90_000
    path = "/v1/messages/find?topic=reminders&key=k9"
    status, answer, engine = exchange("GET", path, None, answering(FindMessages, []))
    assert engine.asked == [FindMessages("reminders", "", "k9")]
    assert (status, answer["error"]["field"]) == (404, "key")


def test_pending_by_day_and_topic() -> None:
    """Rows of days are days; rows of topics have names."""
    _, answer, engine = exchange("GET", "/v1/pending?by=day")
    assert engine.asked == [CountPending("", None, CountBy.DAY)]
    assert answer["result"]["by"] == "day"
    counts = PendingCounts(5, [], [("a", 2), ("b", 3)])
    _, answer, _ = exchange("GET", "/v1/pending?by=topic", None, answering(CountPending, counts))
    assert answer["result"]["rows"] == [{"topic": "a", "count": 2}, {"topic": "b", "count": 3}]


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


def test_leases_for_a_caller_that_has_left_are_released() -> None:
    """In the moment in which its messages came; they were leased for 30 s, and nobody had them."""
    body = b'{"topic": "reminders", "group": "me", "invisible_ms": 30000}'
    heard = iter([{"type": "http.request", "body": body}])

    async def receive() -> dict[str, Any]:
        return next(heard, {"type": "http.disconnect"})

    async def send(_message: object) -> None:
        """Nobody is there."""

    async def run() -> ScriptedEngine:
        engine = ScriptedEngine()
        engine.answers[ChangeInvisible] = None
        headers = [(b"host", b"admin"), (b"content-type", b"application/json")]
        scope = {
            "type": "http", "method": "POST", "path": "/v1/receive", "query_string": b"",
            "headers": headers, "http_version": "1.1", "scheme": "http", "server": ("admin", 80),
        }  # fmt: skip
        await make_app(engine, broker_name="broker-a")(scope, receive, send)
        return engine

    engine = asyncio.run(asyncio.wait_for(run(), 10))
    assert engine.asked[1:] == [
        ChangeInvisible("me", "reminders", "handle-1", CLIENT_GONE_INVISIBLE_MS)
    ]


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
    assert exchange("GET", "/v1/pending?hour=492490")[2].asked == [
        CountPending("", 492_490, CountBy.SECOND)
    ]
    assert exchange("GET", "/v1/pending?hour=2026-03-08T10:30Z")[2].asked == [
        CountPending("", 492_490, CountBy.SECOND)
    ]
    _, answer, engine = exchange("GET", f"/v1/pending/messages?from={NOW_MS}&limit=5")
    assert engine.asked == [PagePending(PendingPlace(NOW_MS), 253_402_300_799_999, limit=5)]
    (message,) = answer["result"]["messages"]
    assert (message["message_id"], message["tag"]) == ("01AB", "desk")
    assert message["recall_handle"]
