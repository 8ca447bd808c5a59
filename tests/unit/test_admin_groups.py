"""Consumer groups over HTTP: made and changed, field by field; how they consume, and give up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
from tests.support.admin_api import exchange

from horolog.admin.app import make_app
from horolog.metrics.exposition import Exposition
from horolog.metrics.figures import Figures
from horolog.protocol.queue_commands import CountLags, GroupSettings, GroupView, ListGroups
from horolog.server.open_broker import open_engine
from horolog.testing.engine import ScriptedEngine


def story(tmp_path: Path, use: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    """`use` is given a client of a real broker with a simulated clock."""

    async def run() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=1 << 20)
        exposition = Exposition(Figures(engine, broker_name="b", data_dir=tmp_path))
        app = make_app(engine, broker_name="b", exposition=exposition)
        transport = httpx.ASGITransport(app)
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
                await use(client)
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_group_is_made_changed_and_consumes_in_order(tmp_path: Path) -> None:
    story(tmp_path, consume_in_order)


def test_changes_made_at_once_are_all_kept(tmp_path: Path) -> None:
    """Each read all settings and wrote them with its own one changed, so the last one undid the first."""

    async def use(client: httpx.AsyncClient) -> None:
        await client.post("/v1/topics", json={"name": "t", "queues": 1})
        answers = await asyncio.gather(
            client.put("/v1/groups/g", json={"orderly": True}),
            client.put("/v1/groups/g", json={"retry_max": 3}),
            client.patch("/v1/topics/t", json={"multi_tag": True}),
            client.patch("/v1/topics/t", json={"perm": 4}),
        )
        assert {each.status_code for each in answers} == {200}
        group = (await client.get("/v1/groups/g")).json()["result"]
        assert (group["orderly"], group["retry_max"]) == (True, 3)
        topic = (await client.get("/v1/topics/t")).json()["result"]
        assert (topic["multi_tag"], topic["perm"]) == (True, 4)

    story(tmp_path, use)


def test_what_is_never_acked_becomes_a_dead_letter(tmp_path: Path) -> None:
    """After as many further attempts as the group allows; the receive that finds that out does not show it."""

    async def use(client: httpx.AsyncClient) -> None:
        await client.post("/v1/topics", json={"name": "t", "queues": 1})
        await client.put("/v1/groups/g", json={"retry_max": 1})
        await client.post("/v1/messages", json={"topic": "t", "body": "x"})
        assert await redriven(client, "g") == (200, ["NOPE"])
        assert await redriven(client, "nobody") == (404, "group")
        attempts = []
        for _ in range(3):
            wanted = {"topic": "t", "group": "g", "invisible_ms": 10_000}
            answer = await client.post("/v1/receive", json=wanted)
            attempts.append([each["attempt"] for each in answer.json()["result"]["messages"]])
            await client.post("/v1/clock/advance", json={"by_ms": 10_000})
        assert attempts == [[1], [2], []]
        letters = (await client.get("/v1/groups/g/dead-letters")).json()["result"]
        assert [each["attempts"] for each in letters["messages"]] == [2]
        assert await redriven(client, "g") == (200, ["NOPE"])

    story(tmp_path, use)


def test_a_lease_that_is_over_is_not_counted(tmp_path: Path) -> None:
    """Messages of a consumer that had died counted as leased until another one asked for them."""

    async def use(client: httpx.AsyncClient) -> None:
        await client.post("/v1/topics", json={"name": "t", "queues": 1})
        for _ in range(3):
            await client.post("/v1/messages", json={"topic": "t", "body": "x"})
        for lease_ms, count in ((10_000, 2), (20_000, 1)):
            wanted = {"topic": "t", "group": "g", "invisible_ms": lease_ms, "limit": count}
            answer = await client.post("/v1/receive", json=wanted)
            assert len(answer.json()["result"]["messages"]) == count
        seen = []
        for by_ms in (9_999, 1, 10_000):
            await client.post("/v1/clock/advance", json={"by_ms": by_ms})
            (row,) = (await client.get("/v1/groups")).json()["result"]["groups"]
            queues = (await client.get("/v1/topics/t/groups/g")).json()["result"]["queues"]
            seen.append((row["waiting"], row["leased"], queues[0]["leased"]))
        assert seen == [(3, 3, 3), (3, 1, 1), (3, 0, 0)]
        metrics = (await client.get("/metrics")).text.splitlines()
        assert 'horolog_group_leased_messages{group="g",topic="t"} 0.0' in metrics

    story(tmp_path, use)


async def redriven(client: httpx.AsyncClient, group: str) -> tuple[int, Any]:
    """What is said of the id of no dead letter; the field of a refusal."""
    path = f"/v1/groups/{group}/dead-letters/redrive"
    answer = await client.post(path, json={"ids": ["NOPE"]})
    found = answer.json()
    return answer.status_code, found["result"]["unknown"] if "result" in found else found["error"][
        "field"
    ]


def test_groups_of_our_own_are_not_listed() -> None:
    """The page goes on after them all the same."""
    own, other = (GroupView(name, GroupSettings(), []) for name in ("CID_RMQ_SYS_REDRIVE", "g"))

    def script(engine: ScriptedEngine) -> None:
        engine.answers |= {ListGroups: [own, other], CountLags: []}

    status, answer, _ = exchange("GET", "/v1/groups", script=script)
    assert status == 200
    assert [row["group"] for row in answer["result"]["groups"]] == ["g"]
    _, answer, _ = exchange("GET", "/v1/groups?limit=1", script=script)
    assert answer["result"] == {"groups": [], "next": "CID_RMQ_SYS_REDRIVE"}


async def consume_in_order(client: httpx.AsyncClient) -> None:
    async def put(body: dict[str, Any]) -> dict[str, Any]:
        answer = await client.put("/v1/groups/billing", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    async def take(limit: int) -> list[dict[str, Any]]:
        wanted = {"topic": "t", "group": "billing", "limit": limit}
        answer = await client.post("/v1/receive", json=wanted)
        return answer.json()["result"]["messages"]

    assert (await client.get("/v1/groups/billing")).status_code == 404
    assert await put({}) == {"group": "billing", "orderly": False, "retry_max": 16}
    assert (await put({"orderly": True}))["orderly"]
    assert await put({"retry_max": 2}) == {"group": "billing", "orderly": True, "retry_max": 2}
    shown = (await client.get("/v1/groups/billing")).json()["result"]
    assert shown == {
        "group": "billing",
        "orderly": True,
        "retry_max": 2,
        "consume": "",
        "topics": [],
        "member_count": 0,
        "members": [],
        "next": None,
    }
    for body in ({"retry_max": -1}, {"orderly": "maybe"}, {"other": 1}):
        refused = await client.put("/v1/groups/billing", json=body)
        assert (refused.status_code, refused.json()["error"]["field"]) == (400, next(iter(body)))
    await client.post("/v1/topics", json={"name": "t", "type": "fifo", "queues": 1})
    for body in ("a1", "a2", "b1"):
        message = {"topic": "t", "body": body, "message_group": body[0]}
        assert (await client.post("/v1/messages", json=message)).status_code == 201
    first = await take(1)
    assert [(each["body"], each["message_group"]) for each in first] == [("a1", "a")]
    assert [each["body"] for each in await take(9)] == ["b1"]
    handles = {"topic": "t", "group": "billing", "receipt_handles": [first[0]["receipt_handle"]]}
    assert (await client.post("/v1/ack", json=handles)).status_code == 200
    assert [each["body"] for each in await take(9)] == ["a2"]
