"""A gRPC front on a real engine, and the requests of tests to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from horolog.protocol.commands import CreateTopic, TopicType
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.server.grpc_front import GrpcFront
from horolog.server.grpc_unary import SERVICE
from horolog.server.open_broker import open_engine
from horolog.server.transaction_checks import TransactionChecks

ENDPOINTS = pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host="127.0.0.1", port=1)])
HEADERS = [("x-mq-client-id", "tester"), ("x-mq-language", "PYTHON")]
SEGMENT = 16 << 20


class Door:
    """A front on a real engine with a simulated clock, and a channel to it."""

    def __init__(
        self, engine: Any, channel: grpc.aio.Channel, front: GrpcFront, target: str = ""
    ) -> None:
        """Store the parts of a door; `target` is the address to which other clients may connect."""
        self.engine = engine
        self.target = target
        self.front = front
        self.channel = channel

    async def call(self, name: str, request: Any, headers: Any = HEADERS, **more: Any) -> Any:
        answer = getattr(pb, f"{name}Response")
        method = self.channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=lambda r: r if isinstance(r, bytes) else r.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return await method(request, metadata=headers, timeout=10, **more)

    async def receive(
        self, timeout_s: float = 10, headers: Any = HEADERS, **fields: Any
    ) -> list[Any]:
        request = pb.ReceiveMessageRequest(
            group=pb.Resource(name=fields.pop("group", "g")),
            message_queue=pb.MessageQueue(
                topic=pb.Resource(name=fields.pop("topic", "mixed")), id=fields.pop("queue", -1)
            ),
            **{
                "batch_size": 32,
                "invisible_duration": Duration(seconds=30),
                "long_polling_timeout": Duration(),
                **fields,
            },
        )
        method = self.channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage",
            request_serializer=pb.ReceiveMessageRequest.SerializeToString,
            response_deserializer=pb.ReceiveMessageResponse.FromString,
        )
        return [frame async for frame in method(request, metadata=headers, timeout=timeout_s)]

    def due(self, in_ms: int) -> Timestamp:
        at = self.engine.clock.wall_ms() + in_ms
        return Timestamp(seconds=at // 1000, nanos=at % 1000 * 1_000_000)


def with_door(tmp_path: Path, story: Callable[[Door], Awaitable[None]], **settings: Any) -> None:
    """Run a story against a fresh broker with topics of all types; settings are those of the front."""

    async def run() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=SEGMENT)
        front = GrpcFront(engine, **settings)
        TransactionChecks(engine, [front.producers])
        port = await front.start()
        options = [("grpc.max_send_message_length", 1 << 28)]
        target = f"127.0.0.1:{port}"
        async with grpc.aio.insecure_channel(target, options=options) as channel:
            try:
                for kind in TopicType:
                    await engine.submit(CreateTopic(kind.value, kind, 2))
                await story(Door(engine, channel, front, target))
            finally:
                await front.stop(0)
                await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


def message(topic: str = "mixed", body: bytes = b"body", **system: Any) -> pb.Message:
    user = system.pop("user", {})
    system.setdefault("message_id", "id-1")
    return pb.Message(
        topic=pb.Resource(name=topic),
        body=body,
        user_properties=user,
        system_properties=pb.SystemProperties(**system),
    )


def sending(*messages: pb.Message) -> pb.SendMessageRequest:
    return pb.SendMessageRequest(messages=messages)
