"""Transactions of 5.x clients over a real door: half messages, ends with their codes, checks over Telemetry."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from access_files import ACCESS, access_file, grpc_headers
from google.protobuf.duration_pb2 import Duration
from grpc_door import HEADERS, Door, message, sending, with_door

from horolog.access.guard import Guard
from horolog.protocol.commands import CreateTopic, TopicType
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.transaction_commands import CheckDue, TransactionCheck
from horolog.server.grpc_unary import SERVICE

TRANSACTION = {"message_type": pb.TRANSACTION}
DEADLINE_S = 10


async def begin(door: Door, topic: str = "transaction", **system: Any) -> pb.SendResultEntry:
    """Send a half message; gives its entry."""
    request = sending(message(topic, **TRANSACTION, **system))
    return (await door.call("SendMessage", request)).entries[0]


async def end(door: Door, transaction_id: str, resolution: int = pb.COMMIT, **more: Any) -> Any:
    fields = {"topic": pb.Resource(name="transaction"), "message_id": "id-1", **more}
    request = pb.EndTransactionRequest(
        transaction_id=transaction_id, resolution=resolution, **fields
    )
    return (await door.call("EndTransaction", request)).status


async def received(door: Door, topic: str = "transaction") -> list[pb.Message]:
    frames = await door.receive(topic=topic)
    return [frame.message for frame in frames if frame.HasField("message")]


class Producer:
    """A Telemetry stream of a producer, and what it is told."""

    def __init__(
        self, door: Door, client_id: str, *topics: str, headers: Any = None, namespace: str = ""
    ) -> None:
        self.headers = headers or [("x-mq-client-id", client_id), *HEADERS[1:]]
        stream = door.channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=pb.TelemetryCommand.SerializeToString,
            response_deserializer=pb.TelemetryCommand.FromString,
        )
        self.call = stream(metadata=self.headers)
        self.topics = [pb.Resource(resource_namespace=namespace, name=topic) for topic in topics]

    async def begin(self) -> None:
        publishing = pb.Publishing(topics=self.topics)
        settings = pb.Settings(client_type=pb.PRODUCER, publishing=publishing)
        await self.call.write(pb.TelemetryCommand(settings=settings))
        assert (await self.heard()).HasField("settings")

    async def heard(self) -> pb.TelemetryCommand:
        return await asyncio.wait_for(self.call.read(), DEADLINE_S)


def test_a_half_message_is_seen_when_it_is_committed(tmp_path: Path) -> None:
    async def story(door: Door) -> None:
        entry = await begin(door, keys=["k"], tag="paid")
        assert entry.status.code == pb.OK
        assert (entry.message_id, entry.recall_handle) == ("id-1", "")
        assert entry.transaction_id
        assert await received(door) == []
        assert (await end(door, entry.transaction_id)).code == pb.OK
        (found,) = await received(door)
        assert (found.body, found.system_properties.tag) == (b"body", "paid")
        assert found.system_properties.message_id == "id-1"
        assert dict(found.user_properties) == {"__transactionId__": entry.transaction_id}
        assert (await end(door, entry.transaction_id)).code == pb.OK
        answer = await end(door, entry.transaction_id, pb.ROLLBACK)
        assert answer.code == pb.INVALID_TRANSACTION_ID
        assert "it was committed" in answer.message

    with_door(tmp_path, story)


@pytest.mark.parametrize(
    ("transaction_id", "why"),
    [("", "blank"), ("nonsense", "none that this broker gives"), (f"{99:016X}", "no such")],
)
def test_a_transaction_that_is_not_known(tmp_path: Path, transaction_id: str, why: str) -> None:
    async def story(door: Door) -> None:
        answer = await end(door, transaction_id)
        assert (answer.code, why in answer.message) == (pb.INVALID_TRANSACTION_ID, True)

    with_door(tmp_path, story)


def test_another_message_cannot_end_it_and_unspecified_changes_nothing(tmp_path: Path) -> None:
    async def story(door: Door) -> None:
        entry = await begin(door)
        other = await end(door, entry.transaction_id, message_id="id-2")
        assert other.code == pb.INVALID_TRANSACTION_ID
        assert (await end(door, entry.transaction_id, 0)).code == pb.OK
        assert await received(door) == []
        assert (await end(door, entry.transaction_id, pb.ROLLBACK)).code == pb.OK
        assert await received(door) == []

    with_door(tmp_path, story)


def test_types_of_topics_and_requests(tmp_path: Path) -> None:
    async def story(door: Door) -> None:
        conflict = pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert (await begin(door, "normal")).status.code == conflict
        plain = await door.call("SendMessage", sending(message("transaction")))
        assert plain.entries[0].status.code == conflict
        both = sending(message(**TRANSACTION), message(message_id="id-2"))
        assert {e.status.code for e in (await door.call("SendMessage", both)).entries} == {conflict}
        late = await begin(
            door, orphaned_transaction_recovery_duration=Duration(seconds=3_601), message_id="late"
        )
        assert late.status.code == pb.BAD_REQUEST
        route = pb.QueryRouteRequest(
            topic=pb.Resource(name="transaction"),
            endpoints=pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host="a", port=1)]),
        )
        queue = (await door.call("QueryRoute", route)).message_queues[0]
        assert list(queue.accept_message_types) == [pb.TRANSACTION]

    with_door(tmp_path, story)


def test_a_delayed_transaction_on_a_mixed_topic(tmp_path: Path) -> None:
    async def story(door: Door) -> None:
        entry = await begin(door, "mixed", delivery_timestamp=door.due(5_000))
        answer = await end(door, entry.transaction_id, topic=pb.Resource(name="mixed"))
        assert answer.code == pb.OK
        assert await received(door, "mixed") == []
        await door.engine.advance(5_000)
        assert [each.body for each in await received(door, "mixed")] == [b"body"]

    with_door(tmp_path, story)


def test_a_producer_is_asked_over_its_telemetry(tmp_path: Path) -> None:
    async def story(door: Door) -> None:
        producer = Producer(door, "p1", "transaction")
        await producer.begin()
        entry = await begin(door, keys=["k"], user={"order": "7"})
        await door.engine.advance(6_000)
        command = (await producer.heard()).recover_orphaned_transaction_command
        assert command.transaction_id == entry.transaction_id
        asked = command.message
        assert (asked.topic.name, asked.body) == ("transaction", b"body")
        assert asked.user_properties == {"order": "7"}
        system = asked.system_properties
        assert (system.message_id, system.message_type) == ("id-1", pb.TRANSACTION)
        source = {"source": pb.SOURCE_SERVER_CHECK}
        assert (await end(door, command.transaction_id, **source)).code == pb.OK
        assert len(await received(door)) == 1
        producer.call.cancel()

    with_door(tmp_path, story)


@pytest.mark.parametrize("topics", [("t",), ()], ids=["named in settings", "only sent to"])
def test_a_producer_with_a_namespace_is_asked_of_the_topic_as_it_names_it(
    tmp_path: Path, topics: tuple[str, ...]
) -> None:
    """Clients put their namespace before the topic that they are asked of when they end it."""

    async def story(door: Door) -> None:
        await door.engine.submit(CreateTopic("ns%t", TopicType.TRANSACTION, 1))
        producer = Producer(door, "tester", *topics, namespace="ns")
        await producer.begin()
        half = message("t", **TRANSACTION)
        half.topic.resource_namespace = "ns"
        await door.call("SendMessage", sending(half))
        await door.engine.advance(6_000)
        command = (await producer.heard()).recover_orphaned_transaction_command
        assert command.message.topic == half.topic
        ending = {"topic": pb.Resource(resource_namespace="ns", name=command.message.topic.name)}
        assert (await end(door, command.transaction_id, **ending)).code == pb.OK
        assert len(await received(door, "ns%t")) == 1
        producer.call.cancel()

    with_door(tmp_path, story)


def test_who_sent_the_half_message_is_asked_and_then_whoever_comes(tmp_path: Path) -> None:
    async def story(door: Door) -> None:
        first = Producer(door, "tester")  # which names no topic
        await first.begin()
        entry = await begin(door)
        await door.engine.advance(6_000)
        heard = await first.heard()
        assert heard.recover_orphaned_transaction_command.transaction_id == entry.transaction_id
        first.call.cancel()
        beat = pb.HeartbeatRequest(client_type=pb.PRODUCER)
        while door.front.producers.has(CheckDue(0, "transaction", "transaction")):
            await door.call("Heartbeat", beat)
        await door.engine.advance(30_000)
        second = Producer(door, "p2", "transaction")
        await second.begin()
        heard = await second.heard()
        assert heard.recover_orphaned_transaction_command.transaction_id == entry.transaction_id
        second.call.cancel()

    with_door(tmp_path, story)


def test_a_go_client_whose_stream_is_lost_is_told_to_open_it_again(tmp_path: Path) -> None:
    """At its next heartbeat, which keeps its leases all the same; others open it by themselves."""

    async def story(door: Door) -> None:
        beat = pb.HeartbeatRequest(client_type=pb.PRODUCER)
        go = [("x-mq-client-id", "go"), ("x-mq-language", "GO")]
        newest = [*go, ("x-mq-client-version", "5.1.4")]
        old = [*go, ("x-mq-client-version", "5.0.1-rc1")]
        producer = Producer(door, "go", "transaction", headers=old)
        await producer.begin()
        assert (await door.call("Heartbeat", beat, old)).status.code == pb.OK
        producer.call.cancel()
        while door.front.producers.has(CheckDue(0, "transaction", "transaction")):
            await door.call("Heartbeat", beat)
        assert (await door.call("Heartbeat", beat, old)).status.code == pb.UNRECOGNIZED_CLIENT_TYPE
        for other in (HEADERS, newest):
            assert (await door.call("Heartbeat", beat, other)).status.code == pb.OK
        again = Producer(door, "go", "transaction", headers=old)
        await again.begin()
        assert (await door.call("Heartbeat", beat, old)).status.code == pb.OK
        again.call.cancel()

    with_door(tmp_path, story)


def test_nobody_is_asked_of_a_4x_group_that_has_the_name_of_his_topic(tmp_path: Path) -> None:
    """Who may send to a topic, whatever its name, would be shown half messages of every other one."""

    async def story(door: Door) -> None:
        producer = Producer(door, "p1", "normal")
        await producer.begin()
        assert door.front.producers.has(CheckDue(0, "normal", "normal"))
        check = TransactionCheck(0, 0, "transaction", "normal", b"", 1)
        assert not door.front.producers.has(CheckDue(0, check.topic, check.group))
        assert not door.front.producers.ask(check)
        producer.call.cancel()

    with_door(tmp_path, story)


def test_who_may_send_no_more_is_asked_no_more(tmp_path: Path) -> None:
    """Its stream stays open when the access file changes, and it would see half messages and use up their checks."""
    guard = Guard(access_file(tmp_path))
    due = CheckDue(0, "orders", "orders")

    async def story(door: Door) -> None:
        producer = Producer(door, "", "orders", headers=grpc_headers("app"))
        await producer.begin()
        assert door.front.producers.has(due)
        for changed in (('"orders" = "PUB|SUB"', '"orders" = "SUB"'), ("app-secret", "new-secret")):
            access_file(tmp_path, ACCESS.replace(*changed))
            guard.reload()
            assert not door.front.producers.has(due), changed
            assert not door.front.producers.ask(TransactionCheck(0, 0, "orders", "orders", b"", 1))
        access_file(tmp_path)
        guard.reload()
        assert door.front.producers.has(due)
        producer.call.cancel()

    with_door(tmp_path, story, guard=guard)
