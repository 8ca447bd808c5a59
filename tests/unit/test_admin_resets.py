"""Groups reset and deleted, topics changed and deleted, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from tests.support.remoting_door import RemotingDoor, remoting_door
from tests.support.sent import send
from tests.unit.test_admin_clients import beat

from horolog.admin.app import make_app
from horolog.protocol.commands import DeleteTopic, Receive
from horolog.protocol.queue_commands import CommitOffsets, GetOffsets
from horolog.protocol.remoting.codes import Code
from horolog.server.open_broker import open_engine

RESET = "/v1/groups/workers/reset"
Use = Callable[[httpx.AsyncClient, Any], Awaitable[None]]


def with_admin(tmp_path: Path, use: Use) -> None:
    async def story() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=1 << 20)
        transport = httpx.ASGITransport(make_app(engine, broker_name="b"))
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
                await use(client, engine)
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(story(), 60))


def ask(door: RemotingDoor, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Over the admin API of the same broker."""

    async def exchange() -> tuple[int, Any]:
        app = make_app(door.engine, broker_name="b", doors=[door.front])
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://admin"
        ) as client:
            answer = await client.request(method, path, json=body)
            content = answer.json()
            return answer.status_code, content.get("result") or content["error"]

    return door.run(exchange())


def with_progress(door: RemotingDoor) -> None:
    """Three messages in each of two queues; one and three of them are consumed, and later one more comes."""
    door.create("orders", queues=2)
    for number in range(6):
        send(door, "orders", b"%d" % number)
    door.submit(CommitOffsets("workers", "orders", {0: 1, 1: 3}))


def moves(answer: Any) -> list[tuple[int, int, int]]:
    return [tuple(row.values()) for row in answer["queues"]]


def test_a_group_is_reset_and_a_dry_run_only_says_how(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door:
        with_progress(door)

        def reset(**wanted: object) -> Any:
            dry = {"topic": "orders", **wanted, "dry_run": True}
            before = door.submit(GetOffsets("workers", "orders"))
            status, plan = ask(door, "POST", RESET, dry)
            assert status == 200, plan
            assert door.submit(GetOffsets("workers", "orders")) == before
            status, done = ask(door, "POST", RESET, {"topic": "orders", **wanted})
            assert done == {**plan, "dry_run": False}
            after = {queue: to for queue, _, to in moves(done)}
            assert door.submit(GetOffsets("workers", "orders")) == {**before, **after}
            return done

        done = reset(to="earliest")
        assert moves(done) == [(0, 1, 0), (1, 3, 0)]
        assert (done["again"], done["skipped"]) == (4, 0)
        assert moves(reset(to="latest")) == [(0, 0, 3), (1, 0, 3)]
        assert moves(reset(queue=1, offset=2)) == [(1, 3, 2)]
        assert moves(reset(to="earliest", queue=0)) == [(0, 3, 0)]
        now_ms = door.engine.clock.wall_ms()
        door.advance(60_000)
        send(door, "orders", b"late")
        later = reset(to=str(now_ms + 1_000))
        assert [to for _, _, to in moves(later)] == [3, 3]
        assert [to for _, _, to in moves(reset(to="2001-01-01T00:00:00Z"))] == [0, 0]


def test_a_group_that_is_new_can_begin_at_the_end(tmp_path: Path) -> None:
    """As the guide for 5.x clients says: otherwise it begins at the oldest message that is kept."""
    with remoting_door(tmp_path) as door:
        with_progress(door)
        assert (
            ask(door, "POST", "/v1/groups/new/reset", {"topic": "orders", "to": "latest"})[0] == 404
        )
        assert ask(door, "PUT", "/v1/groups/new", {})[0] == 200
        status, done = ask(
            door, "POST", "/v1/groups/new/reset", {"topic": "orders", "to": "latest"}
        )
        assert (status, moves(done)) == (200, [(0, 0, 3), (1, 0, 3)])
        send(door, "orders", b"later")
        for group, count in (("new", 1), ("newer", 7)):
            receive = Receive(group, "orders", -1, "*", 32, 30_000, False, 0, "c")
            assert len(door.submit(receive).messages) == count


def test_connected_4x_consumers_are_notified(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        with_progress(door)
        beat(client, "c1", "workers", "orders")
        assert ask(door, "POST", RESET, {"topic": "orders", "to": "earliest"})[0] == 200
        client.call(Code.GET_BROKER_CLUSTER_INFO)
        pushed = [each for each in client.pushed if each.code == Code.RESET_CONSUMER_CLIENT_OFFSET]
        assert [each.fields["group"] for each in pushed] == ["workers"]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"to": "earliest"}, 400, "topic"),
        ({"topic": "orders"}, 400, "to"),
        ({"topic": "orders", "to": "soon"}, 400, "to"),
        ({"topic": "orders", "to": "latest", "offset": 1, "queue": 0}, 400, "to"),
        ({"topic": "orders", "offset": 1}, 400, "queue"),
        ({"topic": "orders", "offset": 4, "queue": 0}, 400, "offset"),
        ({"topic": "orders", "offset": -1, "queue": 0}, 400, "offset"),
        ({"topic": "orders", "to": "latest", "queue": 2}, 400, "queue"),
        ({"topic": "nothing", "to": "latest"}, 404, "topic"),
    ],
)
def test_what_is_wrong_with_a_reset_is_named(
    tmp_path: Path, body: object, status: int, field: str
) -> None:
    with remoting_door(tmp_path) as door:
        with_progress(door)
        found, error = ask(door, "POST", RESET, body)
        assert (found, error["field"]) == (status, field)
        assert door.submit(GetOffsets("workers", "orders")) == {0: 1, 1: 3}
        nobody = ask(door, "POST", "/v1/groups/nobody/reset", {"topic": "orders", "to": "latest"})
        assert (nobody[0], nobody[1]["code"]) == (404, "group_not_found")


def test_a_group_with_members_is_deleted_by_force_only(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        with_progress(door)
        beat(client, "c1", "workers", "orders")
        status, error = ask(door, "DELETE", "/v1/groups/workers")
        assert (status, error["field"]) == (403, "force")
        assert ask(door, "DELETE", "/v1/groups/workers?force=perhaps")[0] == 400
        assert ask(door, "DELETE", "/v1/groups/workers?force=true") == (200, {"deleted": "workers"})
        assert ask(door, "GET", "/v1/groups/workers")[0] == 404
        assert ask(door, "DELETE", "/v1/groups/workers")[0] == 404


def test_a_topic_is_deleted_with_what_waits(tmp_path: Path) -> None:
    """Once it is said; transactions and schedules keep it, and then nothing is recalled."""

    async def use(client: httpx.AsyncClient, engine: Any) -> None:
        async def delete(path: str) -> tuple[int, Any]:
            answer = await client.delete(path)
            content = answer.json()
            return answer.status_code, content.get("result") or content["error"]

        await client.post("/v1/topics", json={"name": "t", "type": "delay", "queues": 1})
        for body in ("a", "b", "c"):
            message = {"topic": "t", "body": body, "in_ms": 3_600_000 * 48}
            assert (await client.post("/v1/messages", json=message)).status_code == 201
        status, error = await delete("/v1/topics/t")
        assert (status, error["field"]) == (403, "pending")
        assert (await delete("/v1/topics/t?pending=keep"))[0] == 400
        nightly = {"name": "nightly", "topic": "t", "body": "x", "every_ms": 3_600_000}
        assert (await client.post("/v1/schedules", json=nightly)).status_code == 201
        status, error = await delete("/v1/topics/t?pending=recall")
        assert (status, error["field"]) == (403, "topic")
        await client.delete("/v1/schedules/nightly")
        pending = (await client.get("/v1/topics/t")).json()["result"]["pending"]
        assert pending == 3
        assert await delete("/v1/topics/t?pending=recall") == (200, {"deleted": "t", "recalled": 3})
        assert (await client.get("/v1/topics/t")).status_code == 404
        assert (await client.get("/v1/pending")).json()["result"]["total"] == 0

    with_admin(tmp_path, use)


def test_a_deletion_that_breaks_off_is_finished_by_the_same_request(tmp_path: Path) -> None:
    """Here: what waits was recalled, and the topic stayed."""

    async def use(client: httpx.AsyncClient, engine: Any) -> None:
        await client.post("/v1/topics", json={"name": "t", "type": "delay", "queues": 1})
        message = {"topic": "t", "body": "a", "in_ms": 3_600_000}
        await client.post("/v1/messages", json=message)
        submit = engine.submit
        deletions = []

        def break_off(command: Any) -> Any:
            if isinstance(command, DeleteTopic):
                deletions.append(command)
                if len(deletions) == 2:
                    raise ConnectionAbortedError("the power goes")
            return submit(command)

        engine.submit = break_off
        assert (await client.delete("/v1/topics/t?pending=recall")).status_code == 503
        engine.submit = submit
        assert (await client.get("/v1/topics/t")).json()["result"]["pending"] == 0
        answer = await client.delete("/v1/topics/t?pending=recall")
        assert answer.json()["result"] == {"deleted": "t", "recalled": 0}

    with_admin(tmp_path, use)


def test_all_settings_of_a_topic_are_changed_in_place(tmp_path: Path) -> None:
    async def use(client: httpx.AsyncClient, engine: Any) -> None:
        made = {"name": "t", "queues": 2, "read_queues": 1, "order": True}
        created = await client.post("/v1/topics", json=made)
        assert created.status_code == 201
        assert created.json()["result"]["read_queues"] == 1
        wanted = {
            "queues": 4,
            "perm": 4,
            "multi_tag": True,
            "order": False,
            "read_queues": 3,
            "write_queues": 4,
            "late": "drop",
            "late_after_ms": 60_000,
        }
        changed = await client.patch("/v1/topics/t", json=wanted)
        assert changed.status_code == 200, changed.text
        shown = (await client.get("/v1/topics/t")).json()["result"]
        assert {name: shown[name] for name in wanted} == wanted
        kept = await client.patch("/v1/topics/t", json={"perm": 6})
        assert {**shown, "perm": 6} == kept.json()["result"]
        fewer = await client.patch("/v1/topics/t", json={"read_queues": 5})
        assert (fewer.status_code, fewer.json()["error"]["field"]) == (400, "read_queues")
        assert (await client.patch("/v1/topics/t", content=b"{}")).status_code == 400
        assert orjson.loads(changed.content)["result"] == shown

    with_admin(tmp_path, use)
