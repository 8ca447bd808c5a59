"""Access over gRPC: who may do what, and what others are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.access_files import ACCESS, access_file, grpc_headers
from tests.support.grpc_door import ENDPOINTS, HEADERS, Door, message, sending, with_door

from horolog.access.guard import Guard
from horolog.protocol.commands import CreateTopic, TopicType
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.server.grpc_access import NEEDS
from horolog.server.grpc_front import GrpcFront
from horolog.server.grpc_unary import SERVICE

APP = grpc_headers("app")


def guarded(tmp_path: Path, story: Callable[[Door], Awaitable[None]]) -> None:
    async def run(door: Door) -> None:
        for name in ("orders", "out-1", "in-1", "other"):
            await door.engine.submit(CreateTopic(name, TopicType.MIXED, 1))
        await story(door)

    with_door(tmp_path, run, guard=Guard(access_file(tmp_path)))


async def send(door: Door, topic: str, headers: Any, body: bytes = b"x") -> Any:
    return await door.call("SendMessage", sending(message(topic, body)), headers)


def refused(answer: Any) -> tuple[int, str]:
    return answer.status.code, answer.status.message


def test_sends_need_pub(tmp_path: Path) -> None:
    async def story(door: Door) -> None:
        assert (await send(door, "orders", APP)).status.code == pb.OK
        assert (await send(door, "out-1", grpc_headers("app", upper=False))).status.code == pb.OK
        code, why = refused(await send(door, "in-1", APP))
        assert code == pb.FORBIDDEN
        assert "User:app has no permission to access Topic:in-1, PUB" in why
        assert (await send(door, "other", grpc_headers("operator"))).status.code == pb.OK
        # A batch that protobuf reads, with another topic behind an allowed one.
        both = sending(message("out-1"), message("in-1"))
        assert (await door.call("SendMessage", both, APP)).status.code == pb.MESSAGE_CORRUPTED

    guarded(tmp_path, story)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        (HEADERS, "authorization: the header is missing"),
        (grpc_headers("app", "wrong-secret"), "check signature failed"),
        ([*grpc_headers("app")[:2], *grpc_headers("app")[3:]], "x-mq-date-time: the header"),
        (grpc_headers("stranger", "any-secret"), "'stranger' is not known"),
        ([*HEADERS, ("authorization", "MQv2-HMAC-SHA1 nothing")], "x-mq-date-time"),
        (
            [
                *grpc_headers("app")[:3],
                ("authorization", "MQv2-HMAC-SHA1 Credential=, Signature=zz"),
            ],
            "no access key",
        ),
        (
            [*grpc_headers("app")[:3], ("authorization", "Basic Credential=app, Signature=zz")],
            "check signature failed",
        ),
        (grpc_headers("elsewhere"), "not accepted from 127.0.0.1"),
    ],
)
def test_who_is_not_known_is_refused(tmp_path: Path, headers: Any, said: str) -> None:
    async def story(door: Door) -> None:
        code, why = refused(await send(door, "orders", headers))
        assert code == pb.UNAUTHORIZED
        assert said in why
        frames = await door.receive(headers=headers, topic="orders", group="app-1")
        assert [frame.status.code for frame in frames] == [pb.UNAUTHORIZED]

    guarded(tmp_path, story)


def test_go_names_a_region_in_its_credential(tmp_path: Path) -> None:
    async def story(door: Door) -> None:
        headers = [
            (name, value.replace("Credential=app", "Credential=app//Rocketmq"))
            for name, value in APP
        ]
        assert (await send(door, "orders", headers)).status.code == pb.OK

    guarded(tmp_path, story)


def test_receives_and_acks_need_the_group_and_the_topic(tmp_path: Path) -> None:
    async def story(door: Door) -> None:
        await send(door, "orders", APP, b"for me")
        frames = await door.receive(headers=APP, topic="orders", group="app-1")
        assert frames[1].message.body == b"for me"
        system = frames[1].message.system_properties
        entry = pb.AckMessageEntry(
            message_id=system.message_id, receipt_handle=system.receipt_handle
        )

        def ack(group: str, topic: str) -> pb.AckMessageRequest:
            return pb.AckMessageRequest(
                group=pb.Resource(name=group), topic=pb.Resource(name=topic), entries=[entry]
            )

        for group, topic in (("app-1", "out-1"), ("other", "orders"), ("app-1", "in-secret")):
            refusals = await door.receive(headers=APP, topic=topic, group=group)
            assert [frame.status.code for frame in refusals] == [pb.FORBIDDEN], (group, topic)
            answer = await door.call("AckMessage", ack(group, topic), APP)
            assert answer.status.code == pb.FORBIDDEN
        assert (await door.call("AckMessage", ack("app-1", "orders"), APP)).status.code == pb.OK

    guarded(tmp_path, story)


def test_routes_need_either_right(tmp_path: Path) -> None:
    async def story(door: Door) -> None:
        for topic, code in (("out-1", pb.OK), ("in-1", pb.OK), ("other", pb.FORBIDDEN)):
            request = pb.QueryRouteRequest(topic=pb.Resource(name=topic), endpoints=ENDPOINTS)
            assert (await door.call("QueryRoute", request, APP)).status.code == code
        other = pb.Resource(name="other")
        request = pb.HeartbeatRequest(group=other, client_type=pb.SIMPLE_CONSUMER)
        assert (await door.call("Heartbeat", request, APP)).status.code == pb.FORBIDDEN
        request = pb.HeartbeatRequest(client_type=pb.PRODUCER)
        assert (await door.call("Heartbeat", request, APP)).status.code == pb.OK
        for group, code in ((pb.Resource(resource_namespace="n"), pb.OK), (other, pb.FORBIDDEN)):
            bye = pb.NotifyClientTerminationRequest(group=group)
            answer = await door.call("NotifyClientTermination", bye, APP)
            assert answer.status.code == code, "the Go client's producers send an empty group"

    guarded(tmp_path, story)


def test_settings_say_what_a_client_will_do(tmp_path: Path) -> None:
    """Refused ones get their status, and end the stream: some clients wait for settings until it ends."""

    async def settle(door: Door, settings: pb.Settings, headers: Any) -> pb.Status:
        stream = door.channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=pb.TelemetryCommand.SerializeToString,
            response_deserializer=pb.TelemetryCommand.FromString,
        )(metadata=headers)
        await stream.write(pb.TelemetryCommand(settings=settings))
        answer = await asyncio.wait_for(stream.read(), 10)
        if answer.status.code == pb.OK:
            stream.cancel()
            return answer.status
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await asyncio.wait_for(stream.read(), 10)
        assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert ended.value.details() == answer.status.message
        return answer.status

    def publishing(*topics: str) -> pb.Settings:
        return pb.Settings(
            client_type=pb.PRODUCER,
            publishing=pb.Publishing(topics=[pb.Resource(name=name) for name in topics]),
        )

    def subscribing(group: str, *topics: str) -> pb.Settings:
        entries = [pb.SubscriptionEntry(topic=pb.Resource(name=name)) for name in topics]
        return pb.Settings(
            client_type=pb.SIMPLE_CONSUMER,
            subscription=pb.Subscription(group=pb.Resource(name=group), subscriptions=entries),
        )

    async def story(door: Door) -> None:
        assert (await settle(door, publishing("orders", "out-1"), APP)).code == pb.OK
        assert (await settle(door, publishing("orders", "in-1"), APP)).code == pb.FORBIDDEN
        assert (await settle(door, publishing("orders"), HEADERS)).code == pb.UNAUTHORIZED
        assert (await settle(door, subscribing("app-1", "in-1"), APP)).code == pb.OK
        assert (await settle(door, subscribing("app-1", "out-1"), APP)).code == pb.FORBIDDEN
        assert (await settle(door, subscribing("other", "in-1"), APP)).code == pb.FORBIDDEN

    guarded(tmp_path, story)


def test_a_reload_counts_for_the_next_request(tmp_path: Path) -> None:
    guard = Guard(access_file(tmp_path))

    async def story(door: Door) -> None:
        await door.engine.submit(CreateTopic("orders", TopicType.MIXED, 1))
        assert (await send(door, "orders", APP)).status.code == pb.OK
        access_file(tmp_path, ACCESS.replace('"orders" = "PUB|SUB"', '"orders" = "SUB"'))
        guard.reload()
        assert (await send(door, "orders", APP)).status.code == pb.FORBIDDEN
        access_file(tmp_path, ACCESS.replace("app-secret", "new-secret"))
        guard.reload()
        assert (await send(door, "orders", APP)).status.code == pb.UNAUTHORIZED
        assert (await send(door, "orders", grpc_headers("app", "new-secret"))).status.code == pb.OK

    with_door(tmp_path, story, guard=guard)


def test_every_call_says_what_it_needs() -> None:
    names = {path.rpartition(b"/")[2].decode() for path in GrpcFront(None).paths}
    assert names - {"Telemetry"} == NEEDS.keys()
