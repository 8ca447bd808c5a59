"""One message with its history, and searches, over HTTP in front of a real broker."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from horolog.admin.app import make_app
from horolog.protocol.commands import CreateTopic, SendMessages, TopicType
from horolog.protocol.rocketmq.message import encode
from horolog.server.open_broker import open_engine

T0 = 1_772_964_000_000
Get = Callable[..., Awaitable[Any]]


def story(tmp_path: Path, use: Callable[[Get, Get], Awaitable[None]]) -> None:
    """`use` is given get(path, **query) and post(path, **body), which give results, or errors with their status."""
    with_engine(tmp_path, lambda _, get, post: use(get, post))


def with_engine(tmp_path: Path, use: Callable[[Any, Get, Get], Awaitable[None]]) -> None:
    """The same, with the engine before the two."""

    async def run() -> None:
        engine = await open_engine(
            tmp_path / "data", clock="simulated", start_ms=T0, segment_bytes=1 << 20
        )
        transport = httpx.ASGITransport(make_app(engine, broker_name="b"))
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:

                def result_of(answer: httpx.Response) -> Any:
                    found = answer.json()
                    return found.get("result") or {"status": answer.status_code, **found["error"]}

                async def get(path: str, **query: Any) -> Any:
                    return result_of(await client.get(path, params=query))

                async def post(path: str, **body: Any) -> Any:
                    return result_of(await client.post(path, json=body))

                await post("/v1/topics", name="t", type="mixed", queues=2)
                await use(engine, get, post)
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_message_is_shown_whole(tmp_path: Path) -> None:
    """Body as base64 and as text, properties, handle, and a history that grows."""

    async def use(get: Get, post: Get) -> None:
        sent = await post(
            "/v1/messages",
            topic="t",
            body="grüezi",
            in_ms=60_000,
            tag="desk",
            keys=["k"],
            properties={"colour": "red"},
        )
        path = f"/v1/messages/{sent['message_id']}"
        shown = await get(path, topic="t")
        assert base64.b64decode(shown["body"]).decode() == shown["body_text"] == "grüezi"
        assert (shown["state"], shown["tag"], shown["keys"]) == ("pending", "desk", ["k"])
        assert shown["properties"] == {"colour": "red"}
        assert shown["deliver_at_ms"] == T0 + 60_000
        assert shown["recall_handle"] == sent["recall_handle"]
        assert (shown["queue_offset"], shown["history_complete"]) == (-1, True)
        assert shown["history"] == [
            {
                "at_ms": T0,
                "at": "2026-03-08T10:00:00.000Z",
                "event": "accepted",
                "detail": {"deliver_at_ms": T0 + 60_000},
            }
        ]
        await post("/v1/clock/advance", by_ms=60_000)
        got = await post("/v1/receive", topic="t", group="g")
        assert len(got["messages"]) == 1
        shown = await get(path, topic="t")
        assert [each["event"] for each in shown["history"]] == ["accepted", "handed_over", "leased"]
        assert (shown["state"], shown["queue_offset"], shown["recall_handle"]) == (
            "delivered",
            0,
            "",
        )
        (group,) = shown["groups"]
        assert (group["group"], group["state"], group["attempt"]) == ("g", "leased", 1)
        assert group["leased_until_ms"] == T0 + 60_000 + 30_000

    story(tmp_path, use)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """`body_text` is left out."""

    async def use(get: Get, post: Get) -> None:
        sent = await post("/v1/messages", topic="t", body_base64="/w==")
        shown = await get(f"/v1/messages/{sent['message_id']}", topic="t")
        assert shown["body"] == "/w=="
        assert "body_text" not in shown

    story(tmp_path, use)


def test_pages_of_a_search(tmp_path: Path) -> None:
    """What waits by due time, then what is visible by queue; by tag, by window, a page at a time."""

    async def use(get: Get, post: Get) -> None:
        for n in range(30):
            tag = "odd" if n % 2 else "even"
            later = {"in_ms": 1_000 * (n + 1)} if n < 20 else {}
            await post("/v1/messages", topic="t", body=str(n), tag=tag, keys=[f"k{n}"], **later)

        async def pages(**query: Any) -> list[Any]:
            rows, after = [], {}
            while True:
                page = await get("/v1/messages/search", **query, **after)
                rows += page["messages"]
                assert len(page["messages"]) <= query.get("limit", 100)
                if page["next"] is None:
                    return rows
                after = {"after": page["next"]}

        def names(rows: list[Any]) -> list[int]:
            return [int(row["keys"][0][1:]) for row in rows]

        for limit in (1, 7, 100):
            assert names(await pages(topic="t", state="pending", limit=limit)) == list(range(20))
            every = await pages(topic="t", limit=limit)
            assert names(every)[:20] == list(range(20))
            assert sorted(names(every)) == list(range(30))
            odd = await pages(topic="t", tag="odd", limit=limit)
            assert sorted(names(odd)) == list(range(1, 30, 2))
            window = {"from": T0 + 5_000, "to": T0 + 8_000}
            assert names(await pages(limit=limit, **window)) == [4, 5, 6]
        rows = await pages(topic="t", limit=50)
        assert {row["state"] for row in rows} == {"pending", "delivered"}
        assert rows[0]["recall_handle"] and not rows[-1]["recall_handle"]
        assert {"body", "body_text", "properties"}.isdisjoint(rows[0])
        (row,) = (await get("/v1/messages/search", topic="t", key="k3"))["messages"]
        assert (row["tag"], row["deliver_at_ms"], row["state"]) == ("odd", T0 + 4_000, "pending")
        named = await get("/v1/messages/search", topic="t", id=row["message_id"])
        assert [each["keys"] for each in named["messages"]] == [["k3"]]
        none = await get("/v1/messages/search", topic="t", key="k3", state="recalled")
        assert none["messages"] == []
        later = await get("/v1/messages/search", topic="t", state="delivered", **{"from": T0 + 1})
        assert later == {"messages": [], "next": None}

    story(tmp_path, use)


@pytest.mark.parametrize(
    ("path", "query", "status", "field"),
    [
        ("/v1/messages/m", {}, 404, "id"),
        ("/v1/messages/m", {"topic": ""}, 400, "topic"),
        ("/v1/messages/m", {"topic": "t"}, 404, "id"),
        ("/v1/messages/m", {"topic": "nope"}, 404, "topic"),
        ("/v1/messages/m", {"topic": "t", "x": "1"}, 400, "x"),
        ("/v1/messages/search", {"topic": "nope"}, 404, "topic"),
        ("/v1/messages/search", {"topic": ""}, 400, "topic"),
        ("/v1/messages/search", {"key": "a"}, 400, "topic"),
        ("/v1/messages/search", {"topic": "t", "id": "a", "key": "b"}, 400, "topic"),
        ("/v1/messages/search", {"topic": "t", "id": "a", "tag": "b"}, 400, "tag"),
        ("/v1/messages/search", {"topic": "t", "state": "odd"}, 400, "state"),
        ("/v1/messages/search", {"topic": "t", "state": "recalled"}, 400, "state"),
        ("/v1/messages/search", {"state": "delivered"}, 400, "topic"),
        ("/v1/messages/search", {"topic": "t", "limit": "0"}, 400, "limit"),
        ("/v1/messages/search", {"topic": "t", "from": "soon"}, 400, "from"),
        ("/v1/messages/search", {"topic": "t", "after": "p_1_2"}, 400, "after"),
        ("/v1/messages/search", {"topic": "t", "after": "q_1_x"}, 400, "after"),
        ("/v1/messages/search", {"topic": "t", "after": "q_-1_0"}, 400, "after"),
        ("/v1/messages/search", {"topic": "t", "after": "p_-1_0_0"}, 400, "after"),
        ("/v1/messages/search", {"topic": "t", "after": "p_--5_0_0"}, 400, "after"),
        ("/v1/messages/search", {"topic": "t", "after": "p_²_0_0"}, 400, "after"),
        ("/v1/messages/search", {"topic": "t", "after": "p_٣_0_0"}, 400, "after"),
        ("/v1/messages/search", {"topic": "t", "after": "q_0_--1"}, 400, "after"),
        ("/v1/messages/search", {"after": "q_0_0"}, 400, "after"),
        ("/v1/messages/search", {"topic": "t", "state": "pending", "after": "q_0_0"}, 400, "after"),
        (
            "/v1/messages/search",
            {"topic": "t", "state": "delivered", "after": "p_0_0_0"},
            400,
            "after",
        ),
        ("/v1/messages/search", {"topic": "t", "limit": "0" * 20 + "1001"}, 400, "limit"),
        ("/v1/offloads/²/recalled", {}, 400, "number"),
        ("/v1/offloads/٣/recalled", {}, 400, "number"),
        ("/v1/offloads", {"to_ms": "0" * 5_000}, 400, "to_ms"),
        ("/v1/offloads", {"to_ms": "0" * 20 + "9" * 40}, 400, "to_ms"),
        ("/v1/topics/t/queues/²/messages", {}, 400, "queue"),
        (f"/v1/topics/t/queues/{'0' * 5_000}/messages", {}, 400, "queue"),
    ],
)
def test_refusals_name_the_field(tmp_path, path, query, status, field) -> None:
    """And change nothing."""

    async def use(get: Get, _: Get) -> None:
        error = await get(path, **query)
        assert (error["status"], error["field"]) == (status, field), error

    story(tmp_path, use)


def test_a_message_is_handed_over_by_request(tmp_path: Path) -> None:
    """At once, once, and its history says that it was asked for; a stale due time is refused with the present one."""

    async def use(get: Get, post: Get) -> None:
        sent = await post("/v1/messages", topic="t", body="x", in_ms=60_000)
        handle, due_ms = sent["recall_handle"], sent["deliver_at_ms"]
        stale = await post("/v1/hand-over", handle=handle, expected_deliver_at_ms=due_ms + 1)
        assert (stale["status"], stale["code"]) == (409, "due_time_changed")
        assert (stale["field"], stale["limit"]) == ("expected_deliver_at_ms", str(due_ms))
        both = await post("/v1/reschedule", handle=handle, in_ms=1, expected_deliver_at_ms=1)
        assert both["code"] == "due_time_changed"
        await post("/v1/clock/advance", by_ms=1_000)
        done = await post("/v1/hand-over", handle=handle, expected_deliver_at_ms=due_ms)
        assert (done["status"], done["deliver_at_ms"]) == ("HANDED_OVER", T0 + 1_000)
        assert done["queue_offset"] == 0
        again = await post("/v1/hand-over", handle=handle)
        assert again["code"] == "not_found"
        assert "was moved" in again["message"]
        again = await post("/v1/hand-over", handle=done["recall_handle"])
        assert again["code"] == "already_delivered"
        shown = await get(f"/v1/messages/{sent['message_id']}", topic="t")
        assert [each["event"] for each in shown["history"]] == ["accepted", "handed_over"]
        assert shown["history"][1]["detail"] == {
            "by_request": True,
            "from_due_ms": due_ms,
            "due_ms": T0 + 1_000,
            "lateness_ms": 0,
            "queue_id": done["queue_id"],
            "queue_offset": 0,
        }
        assert (await post("/v1/hand-over", topic="t"))["field"] == "handle"
        assert (await post("/v1/hand-over", handle="?"))["status"] == 400

    story(tmp_path, use)


def test_windows_are_moved_and_handed_over(tmp_path: Path) -> None:
    """A dry run, a shift that is repeated, one time for all, and hand-over; the answers count."""

    async def use(get: Get, post: Get) -> None:
        for n in range(10):
            tag = "odd" if n % 2 else "even"
            await post("/v1/messages", topic="t", body=str(n), tag=tag, in_ms=60_000 + n * 1_000)
        window = {"topic": "t", "from_ms": T0 + 62_000, "to_ms": T0 + 66_000}
        shift = {**window, "shift_ms": 2_000}
        dry = await post("/v1/reschedule/window", **shift, dry_run=True)
        assert (dry["matched"], dry["moved"], dry["left"], dry["dry_run"]) == (4, 0, 0, True)
        done = await post("/v1/reschedule/window", **shift)
        assert (done["matched"], done["moved"], done["size_bytes"]) == (4, 4, dry["size_bytes"])
        named = await post("/v1/reschedule/window", **shift, operation_id=done["operation_id"])
        assert named["moved"] == 0
        rows = (await get("/v1/messages/search", topic="t", state="pending"))["messages"]
        assert [(row["deliver_at_ms"] - T0) // 1_000 for row in rows] == [
            60, 61, 64, 65, 66, 66, 67, 67, 68, 69,
        ]  # fmt: skip
        one = {"new_deliver_at_ms": T0 + 90_000, "tag": "odd"}
        everything = {"topic": "t", "from_ms": 0, "to_ms": T0 + 100_000}
        assert (await post("/v1/reschedule/window", **everything, **one))["moved"] == 5
        assert (await post("/v1/reschedule/window", **everything, **one))["moved"] == 0
        handed = await post("/v1/hand-over/window", **everything, tag="even")
        assert (handed["matched"], handed["moved"], handed["operation_id"]) == (5, 5, "")
        got = (await post("/v1/receive", topic="t", group="g", limit=32))["messages"]
        assert {each["body"] for each in got} == {"0", "2", "4", "6", "8"}
        assert all("__HOROLOG_MOVES" not in each["properties"] for each in got)
        for body, field in (
            ({**window}, "new_deliver_at_ms"),
            ({**shift, "new_deliver_at_ms": 1}, "new_deliver_at_ms"),
            ({**window, "shift_ms": 0}, "shift_ms"),
            ({**shift, "operation_id": "a b"}, "operation_id"),
            ({**window, "new_deliver_at_ms": 1, "operation_id": "a"}, "operation_id"),
            ({**shift, "to_ms": 1}, "to"),
            ({**shift, "x": 1}, "x"),
        ):
            refused = await post("/v1/reschedule/window", **body)
            assert (refused["status"], refused["field"]) == (400, field), refused
        assert (await post("/v1/hand-over/window", **{**window, "topic": "no"}))["status"] == 404

    story(tmp_path, use)


def test_an_id_is_enough(tmp_path: Path) -> None:
    """`show`, `find` and `search` take one without its topic; of several topics one has to be named."""

    async def use(get: Get, post: Get) -> None:
        await post("/v1/topics", name="other", type="mixed", queues=1)
        sent = await post("/v1/messages", topic="t", body="b", in_ms=60_000, keys=["k"])
        message_id = sent["message_id"]
        path = f"/v1/messages/{message_id}"
        assert await get(path) == await get(path, topic="t")
        for where in ("find", "search"):
            with_id = await get(f"/v1/messages/{where}", id=message_id)
            assert with_id == await get(f"/v1/messages/{where}", id=message_id, topic="t")
            (row,) = with_id["messages"]
            assert (row["topic"], row["recall_handle"]) == ("t", sent["recall_handle"])
        assert (await get("/v1/messages/search", id="nobody's"))["messages"] == []
        for unknown in (
            await get("/v1/messages/nobody's"),
            await get("/v1/messages/find", id="nobody's"),
        ):
            assert (unknown["status"], unknown["code"], unknown["field"]) == (
                404,
                "not_found",
                "id",
            )
        for where in ("find", "search"):
            assert (await get(f"/v1/messages/{where}", key="k"))["field"] == "topic"

    story(tmp_path, use)


def test_an_id_of_two_topics_names_them(tmp_path: Path) -> None:
    """A client may send the same message to two; its retries and dead letters are not meant."""

    async def use(engine: Any, get: Get, _: Get) -> None:
        for name in ("a", "b", "%RETRY%g"):
            await engine.submit(CreateTopic(name, TopicType.MIXED, 1))
        for topic, message_id in (("a", "both"), ("b", "both"), ("a", "one"), ("%RETRY%g", "one")):
            message = encode(topic=topic, body=b"x", message_id=message_id)
            await engine.submit(SendMessages(topic, [message]))
        refusal = await get("/v1/messages/both")
        assert (refusal["status"], refusal["field"]) == (400, "topic")
        assert "messages of a, b have that id" in refusal["message"]
        rows = (await get("/v1/messages/search", id="both"))["messages"]
        assert [row["topic"] for row in rows] == ["a", "b"]
        assert (await get("/v1/messages/one"))["topic"] == "a"
        rows = (await get("/v1/messages/search", id="one"))["messages"]
        assert [row["topic"] for row in rows] == ["%RETRY%g", "a"]

    with_engine(tmp_path, use)


def test_a_delay_counts_as_a_due_time(tmp_path: Path) -> None:
    """Of 4.x clients, which name no due time: where a message is listed or received, as in a look-up."""

    async def use(engine: Any, get: Get, post: Get) -> None:
        sent = encode(
            topic="t", body=b"x", message_id="m", system_properties=b"TIMER_DELAY_SEC\x015\x02"
        )
        record = bytearray(sent.record)
        struct.pack_into("<q", record, 8, -5_000)
        await engine.submit(SendMessages("t", [sent._replace(record=bytes(record), due_ms=-5_000)]))
        await post("/v1/clock/advance", by_ms=5_000)
        (listed,) = (await get("/v1/messages/search", topic="t", state="delivered"))["messages"]
        (received,) = (await post("/v1/receive", topic="t", group="g"))["messages"]
        assert listed["deliver_at_ms"] == received["deliver_at_ms"] == T0 + 5_000
        assert (await get("/v1/messages/m"))["deliver_at_ms"] == T0 + 5_000

    with_engine(tmp_path, use)
