"""Garbage on the wire, ports and stops: nothing leaks and nothing falls over."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import grpc
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from receiving_client import request, run
from tests.support import grpc_peer

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    CreateTopic,
    TopicType,
)
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.rocketmq.recall_handle import RecallHandle, encode_recall_handle
from horolog.server.door import Door
from horolog.server.grpc_front import GrpcFront
from horolog.server.grpc_unary import SERVICE
from horolog.server.http2_link import Http2Link
from horolog.server.loop import Engine

HEADERS = (("x-mq-client-id", "tester"), ("x-mq-language", "JAVA"))


def on_the_wire(
    tmp_path: Path, story: Callable[[Engine, grpc.aio.Channel, int], Awaitable[None]]
) -> None:
    async def begin_and_end(engine: Engine) -> None:
        front = GrpcFront(engine)
        port = await front.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                await story(engine, channel, port)
        finally:
            await front.stop(0)

    run(tmp_path, begin_and_end)


GARBAGE = b"\xff" * 40


def test_garbage_on_streams_ends_that_stream_with_a_clear_error(tmp_path) -> None:
    async def story(engine: Engine, channel: grpc.aio.Channel, port: int) -> None:
        telemetry = channel.stream_stream(f"/{SERVICE}/Telemetry")(metadata=HEADERS)
        await telemetry.write(GARBAGE)
        assert await telemetry.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "malformed" in await telemetry.details()
        for name in ("ReceiveMessage", "PullMessage"):
            stream = channel.unary_stream(f"/{SERVICE}/{name}")(GARBAGE, metadata=HEADERS)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stream.read()
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "malformed" in (caught.value.details() or "")
        answer = await channel.unary_unary(f"/{SERVICE}/Heartbeat")(
            pb.HeartbeatRequest(client_type=pb.PRODUCER).SerializeToString(), metadata=HEADERS
        )
        assert pb.HeartbeatResponse.FromString(answer).status.code == pb.OK

    on_the_wire(tmp_path, story)


def mutated(random: Random, content: bytes) -> bytes:
    """The bytes with a few of them changed, cut off or said twice; sometimes just noise."""
    if random.random() < 0.2:
        return random.randbytes(random.randrange(60))
    changed = bytearray(content)
    for _ in range(random.randrange(4)):
        changed[random.randrange(len(changed))] = random.randrange(256)
    start, end = sorted(random.randrange(len(changed) + 1) for _ in range(2))
    return bytes(random.choice([changed, changed[:end], changed + changed[start:end]]))


RESOURCES = {"group": pb.Resource(name="g"), "topic": pb.Resource(name="t")}
SAMPLES = {
    "QueryRoute": pb.QueryRouteRequest(topic=RESOURCES["topic"]),
    "Heartbeat": pb.HeartbeatRequest(group=RESOURCES["group"], client_type=pb.PUSH_CONSUMER),
    "QueryAssignment": pb.QueryAssignmentRequest(**RESOURCES),
    "SendMessage": pb.SendMessageRequest(
        messages=[
            pb.Message(
                topic=RESOURCES["topic"],
                user_properties={"a": "b"},
                body=b"body",
                system_properties=pb.SystemProperties(
                    message_id="m", tag="t", keys=["k"], delivery_timestamp=Timestamp(seconds=7)
                ),
            )
        ]
    ),
    "AckMessage": pb.AckMessageRequest(
        entries=[pb.AckMessageEntry(message_id="m", receipt_handle="h")], **RESOURCES
    ),
    "ChangeInvisibleDuration": pb.ChangeInvisibleDurationRequest(
        receipt_handle="h", invisible_duration=Duration(seconds=20), **RESOURCES
    ),
    "RecallMessage": pb.RecallMessageRequest(
        topic=RESOURCES["topic"],
        recall_handle=encode_recall_handle(RecallHandle("t", "broker-a", 5, "id", 96)),
    ),
    "NotifyClientTermination": pb.NotifyClientTerminationRequest(group=RESOURCES["group"]),
}


def test_no_request_can_bring_it_down(tmp_path) -> None:
    """Whatever comes: an answer with a status, or a refusal of what is not protobuf; never an internal error."""
    random = Random(3)

    async def story(engine: Engine, channel: grpc.aio.Channel, port: int) -> None:
        for _ in range(60):
            for name, sample in SAMPLES.items():
                content = mutated(random, sample.SerializeToString())
                call = channel.unary_unary(f"/{SERVICE}/{name}")(content, metadata=HEADERS)
                try:
                    answer = getattr(pb, f"{name}Response").FromString(await call)
                except grpc.aio.AioRpcError as error:
                    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, (name, content)
                    assert "malformed" in (error.details() or "")
                    continue
                assert answer.status.code, (name, content)
                assert answer.status.code not in (pb.INTERNAL_ERROR, pb.INTERNAL_SERVER_ERROR)
        for _ in range(60):
            content = mutated(random, request().SerializeToString())
            stream = channel.unary_stream(f"/{SERVICE}/ReceiveMessage")(
                content, metadata=HEADERS, timeout=0.4
            )
            first = b""
            try:
                first = await stream.read()
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, content
                continue
            status = pb.ReceiveMessageResponse.FromString(first).status
            assert status.code not in (0, pb.INTERNAL_SERVER_ERROR), content

    on_the_wire(tmp_path, story)


def test_all_clients_may_come_back_in_the_same_moment(tmp_path) -> None:
    """More calls than a connection may have at a time wait in the client, and all are answered."""

    async def story(engine: Engine, channel: grpc.aio.Channel, port: int) -> None:
        beat = channel.unary_unary(f"/{SERVICE}/Heartbeat")
        asked = pb.HeartbeatRequest(client_type=pb.PRODUCER).SerializeToString()
        answers = await asyncio.gather(*[beat(asked, metadata=HEADERS) for _ in range(4_000)])
        assert {pb.HeartbeatResponse.FromString(a).status.code for a in answers} == {pb.OK}

    on_the_wire(tmp_path, story)


def test_an_unknown_method_is_unimplemented(tmp_path) -> None:
    async def story(engine: Engine, channel: grpc.aio.Channel, port: int) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(f"/{SERVICE}/BrewCoffee")(b"", metadata=HEADERS)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED

    on_the_wire(tmp_path, story)


def test_telemetry_of_nobody_is_refused(tmp_path) -> None:
    async def story(engine: Engine, channel: grpc.aio.Channel, port: int) -> None:
        telemetry = channel.stream_stream(f"/{SERVICE}/Telemetry")()
        await telemetry.write(pb.TelemetryCommand().SerializeToString())
        assert await telemetry.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "x-mq-client-id" in await telemetry.details()

    on_the_wire(tmp_path, story)


def test_settings_that_a_busy_core_refuses_are_answered_and_log_no_error(
    tmp_path, caplog, monkeypatch
) -> None:
    async def story(engine: Engine, channel: grpc.aio.Channel, port: int) -> None:
        await engine.until_quiet()
        monkeypatch.setattr(engine.inputs, "_count_max", 0)
        telemetry = channel.stream_stream(f"/{SERVICE}/Telemetry")(metadata=HEADERS)
        subscription = pb.Subscription(group=pb.Resource(name="g"))
        settings = pb.Settings(client_type=pb.PUSH_CONSUMER, subscription=subscription)
        await telemetry.write(pb.TelemetryCommand(settings=settings).SerializeToString())
        answer = pb.TelemetryCommand.FromString(await telemetry.read())
        assert answer.status.code == pb.TOO_MANY_REQUESTS
        telemetry.cancel()
        monkeypatch.undo()

    on_the_wire(tmp_path, story)
    gc.collect()  # asyncio complains of futures that nobody has asked when they are collected
    assert not [each.getMessage() for each in caplog.records if each.name == "asyncio"]


def test_the_links_of_a_door_that_has_stopped_end_without_a_look_at_all_others(
    tmp_path, monkeypatch
) -> None:
    """With 5,000 idle connections these looks took 2.5 seconds, and quadratically more with more."""
    looks = 0
    count = 50

    def is_idle(_: Http2Link) -> bool:
        nonlocal looks
        looks += 1
        return True

    async def story(engine: Engine, door: Door, front: GrpcFront) -> None:
        monkeypatch.setattr(Http2Link, "is_idle", property(is_idle))
        peers = [grpc_peer.Peer(door, front) for _ in range(count)]
        await door.stop(0)
        for peer in peers:
            peer.link.connection_lost(None)
        assert door.connections == 0
        assert looks == count

    grpc_peer.run(tmp_path, story)


def test_a_port_in_use_is_named_by_its_flag(tmp_path) -> None:
    async def story(engine: Engine, channel: grpc.aio.Channel, port: int) -> None:
        with pytest.raises(HorologError) as caught:
            await GrpcFront(engine, port=port).start()
        assert caught.value.code is ErrorCode.CONFIG
        assert caught.value.field == "--grpc-port"
        assert str(port) in caught.value.message

    on_the_wire(tmp_path, story)


def test_a_topic_without_scheduled_messages_has_nothing_to_recall(tmp_path) -> None:
    async def story(engine: Engine, channel: grpc.aio.Channel, port: int) -> None:
        await engine.submit(CreateTopic("plain", TopicType.NORMAL, 1))
        codes = {}
        for topic in ("plain", "t"):
            wanted = pb.RecallMessageRequest(
                topic=pb.Resource(name=topic),
                recall_handle=encode_recall_handle(RecallHandle(topic, "broker-a", 5, "id", 96)),
            )
            raw = await channel.unary_unary(f"/{SERVICE}/RecallMessage")(
                wanted.SerializeToString(), metadata=HEADERS
            )
            codes[topic] = pb.RecallMessageResponse.FromString(raw).status.code
        assert codes == {
            "plain": pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "t": pb.MESSAGE_NOT_FOUND,
        }

    on_the_wire(tmp_path, story)


def test_a_broken_invariant_is_answered_in_the_protocols_own_way(tmp_path) -> None:
    class Broken:
        """An engine that cannot even take a command."""

        on_answers: ClassVar[list[Any]] = []
        before_turn: Any = None

        def submit(self, command: object) -> Any:
            raise RuntimeError("no")

    async def story(engine: Engine) -> None:
        front = GrpcFront(Broken())  # type: ignore[arg-type]
        port = await front.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            raw = await channel.unary_unary(f"/{SERVICE}/NotifyClientTermination")(
                b"", metadata=HEADERS
            )
            status = pb.NotifyClientTerminationResponse.FromString(raw).status
            assert status.code == pb.INTERNAL_SERVER_ERROR
            stream = channel.unary_stream(f"/{SERVICE}/ReceiveMessage")(
                request().SerializeToString(), metadata=HEADERS
            )
            frames = [pb.ReceiveMessageResponse.FromString(frame) async for frame in stream]
            assert [frame.status.code for frame in frames] == [pb.INTERNAL_SERVER_ERROR]
        await front.stop(0)

    run(tmp_path, story)
