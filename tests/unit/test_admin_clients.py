"""Connected clients and the members of groups over HTTP, of both doors."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.grpc_door import Door, with_door
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import RemotingDoor, remoting_door
from tests.support.sent import send

from horolog.admin.app import make_app
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.queue_commands import CommitOffsets
from horolog.protocol.remoting.codes import Code
from horolog.server.grpc_unary import SERVICE


async def ask(engine: Any, front: Any, path: str) -> Any:
    transport = httpx.ASGITransport(make_app(engine, broker_name="b", doors=[front]))
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]


def beat(client: RemotingClient, client_id: str, group: str, *topics: str) -> None:
    subscriptions = [{"topic": topic, "subString": "*", "subVersion": 1} for topic in topics]
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": subscriptions,
    }
    producer = {"groupName": "makers"}
    body = {"clientID": client_id, "producerDataSet": [producer], "consumerDataSet": [consumer]}
    client.done(Code.HEART_BEAT, body=body)


def get(door: RemotingDoor, path: str) -> Any:
    return door.run(ask(door.engine, door.front, path))


def test_clients_of_4x_and_their_groups(tmp_path: Path) -> None:
    """With lag, leases, the oldest message that waits, members; until the connection ends."""
    with remoting_door(tmp_path) as door, door.client() as one:
        door.create("orders", queues=2)
        for number in range(6):
            send(door, "orders", b"%d" % number)
        door.submit(CommitOffsets("workers", "orders", {0: 1, 1: 3}))
        beat(one, "c1", "workers", "orders", "other")
        with door.client() as two:
            beat(two, "c2", "workers", "orders")
            beat(two, "c2", "others", "orders")
            listed = get(door, "/v1/clients")
            assert [each["client_id"] for each in listed["clients"]] == ["c1", "c2"]
            first, second = listed["clients"]
            assert (first["door"], first["consumes"], first["tls"]) == ("remoting", "push", False)
            assert first["topics"] == ["orders", "other"]
            assert second["groups"] == ["others", "workers"]
            assert second["producer_groups"] == ["makers"]
            assert first["address"].startswith("127.0.0.1:")
            assert first["connected_ms"] <= second["connected_ms"]
            page = get(door, "/v1/clients?limit=1")
            assert [each["client_id"] for each in page["clients"]] == ["c1"]
            rest = get(door, f"/v1/clients?limit=1&after={page['next']}")
            assert [each["client_id"] for each in rest["clients"]] == ["c2"]
            assert rest["next"] is None
            of_group = get(door, "/v1/clients?group=others")["clients"]
            assert [(each["client_id"], each["groups"]) for each in of_group] == [
                ("c2", ["others"])
            ]
        group = get(door, "/v1/groups/workers")
        assert [member["client_id"] for member in group["members"]] == ["c1"]
        orders, other = group["topics"]
        assert orders["oldest_waiting_ms"] == door.engine.clock.wall_ms()
        assert (orders["topic"], orders["waiting"], orders["members"]) == ("orders", 2, 1)
        assert (other["topic"], other["waiting"], other["oldest_waiting"]) == ("other", 0, None)


def test_groups_are_listed_page_by_page(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=2)
        for number in range(6):
            send(door, "orders", b"%d" % number)
        door.submit(CommitOffsets("a", "orders", {0: 1, 1: 3}))
        door.submit(CommitOffsets("b", "orders", {0: 0}))
        beat(client, "c1", "c", "orders")
        first = get(door, "/v1/groups?limit=2")
        assert first["groups"] == [
            row("a", topics=1, waiting=2),
            row("b", topics=1, waiting=6),
        ]
        second = get(door, f"/v1/groups?limit=2&after={first['next']}")
        assert second == {"groups": [row("c", members=1, consume="push")], "next": None}


def test_a_group_lists_its_first_members_and_counts_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horolog.admin.groups.ADMIN_LIST_MAX", 2)
    with remoting_door(tmp_path) as door, door.client() as client:
        for number in (3, 1, 2):
            beat(client, f"c{number}", "workers", "orders", f"own{number}")
        group = get(door, "/v1/groups/workers?limit=2")
        assert group["member_count"] == 3
        assert [member["client_id"] for member in group["members"]] == ["c1", "c2"]
        assert [(each["topic"], each["members"]) for each in group["topics"]] == [
            ("orders", 3),
            ("own1", 1),
        ]


def row(group: str, **other: object) -> dict[str, object]:
    shown = {"topics": 0, "members": 0, "consume": "", "waiting": 0, "leased": 0}
    return {"group": group, **shown, "orderly": False, "retry_max": 16, **other}


def test_a_question_looks_at_so_many_queues_in_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And goes on in the next: the answer is the same."""
    monkeypatch.setattr("horolog.broker.consume.lags.TURN_LAG_QUEUES_MAX", 3)
    with remoting_door(tmp_path) as door:
        for number in range(9):
            door.create(f"t{number}", queues=2)
            door.submit(CommitOffsets(f"g{number % 3}", f"t{number}", {0: 0}))
            send(door, f"t{number}", b"x")
        listed = get(door, "/v1/groups")["groups"]
        assert [(each["topics"], each["waiting"]) for each in listed] == [(3, 3)] * 3


def settings(kind: Any, group: str = "") -> pb.TelemetryCommand:
    topic = pb.Resource(name="mixed")
    wanted = pb.Settings(client_type=kind)
    if group:
        wanted.subscription.group.name = group
        wanted.subscription.subscriptions.add(topic=topic)
    else:
        wanted.publishing.topics.append(topic)
    return pb.TelemetryCommand(settings=wanted)


def test_clients_of_5x(tmp_path: Path) -> None:
    """Those with an open Telemetry stream; what they said last counts."""

    async def story(door: Door) -> None:
        def converse(client_id: str) -> Any:
            headers = [
                ("x-mq-client-id", client_id),
                ("x-mq-language", "JAVA"),
                ("x-mq-client-version", "5.2.0"),
            ]
            return door.channel.stream_stream(
                f"/{SERVICE}/Telemetry",
                request_serializer=pb.TelemetryCommand.SerializeToString,
                response_deserializer=pb.TelemetryCommand.FromString,
            )(metadata=headers)

        async def said(stream: Any, command: pb.TelemetryCommand) -> None:
            await stream.write(command)
            await stream.read()

        producer, consumer = converse("p"), converse("c")
        await said(producer, settings(pb.PRODUCER))
        await said(consumer, settings(pb.PUSH_CONSUMER, "first"))
        await said(consumer, settings(pb.SIMPLE_CONSUMER, "workers"))
        assert door.front.member_count("first") == 0
        listed = (await ask(door.engine, door.front, "/v1/clients"))["clients"]
        shown = [
            (each["client_id"], each["consumes"], each["groups"], each["topics"]) for each in listed
        ]
        assert shown == [("c", "simple", ["workers"], ["mixed"]), ("p", "", [], ["mixed"])]
        assert {(each["door"], each["language"], each["version"]) for each in listed} == {
            ("grpc", "JAVA", "5.2.0")
        }
        await door.receive(group="workers")
        group = await ask(door.engine, door.front, "/v1/groups/workers")
        assert (group["consume"], len(group["members"])) == ("simple", 1)
        consumer.cancel()
        producer.cancel()
        while list(door.front.connected()):
            await asyncio.sleep(0)
        assert door.front.member_count("workers") == 0

    with_door(tmp_path, story)
