"""A gRPC door of a broker that makes topics at their first use."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc.aio
from tests.support.grpc_door import ENDPOINTS, SEGMENT, Door, message, sending

from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.server.auto_create import AutoCreate
from horolog.server.grpc_front import GrpcFront
from horolog.server.open_broker import open_engine


def test_it_opens_and_a_route_and_a_send_make_their_topics(tmp_path: Path) -> None:
    async def story() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=SEGMENT)
        front = GrpcFront(AutoCreate(engine))
        target = f"127.0.0.1:{await front.start()}"
        async with grpc.aio.insecure_channel(target) as channel:
            try:
                door = Door(engine, channel, front, target)
                asked = pb.QueryRouteRequest(topic=pb.Resource(name="asked"), endpoints=ENDPOINTS)
                route = await door.call("QueryRoute", asked)
                assert route.status.code == pb.OK, route.status
                assert list(route.message_queues[0].accept_message_types) == [pb.NORMAL]
                sent = await door.call("SendMessage", sending(message("sent")))
                assert sent.status.code == pb.OK, sent.status
                assert (await door.receive(topic="sent"))[1].message.body == b"body"
            finally:
                await front.stop(0)
                await engine.stop()

    asyncio.run(asyncio.wait_for(story(), 60))
