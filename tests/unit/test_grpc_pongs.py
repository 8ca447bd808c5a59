"""Answers to pings: with the answer to a call where one is under way, and soon where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from tests.support.grpc_peer import Peer, head, run

from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.http2 import frames
from horolog.protocol.http2.frames import Type
from horolog.server import http2_link
from horolog.server.door import Door
from horolog.server.grpc_front import GrpcFront
from horolog.server.loop import Engine

PING = frames.frame(Type.PING, 0, 0, b"12345678")
SEND = pb.SendMessageRequest(
    messages=[
        pb.Message(
            topic=pb.Resource(name="mixed"),
            system_properties=pb.SystemProperties(message_id="01AB"),
            body=b"x",
        )
    ]
).SerializeToString()
POLL = pb.ReceiveMessageRequest(
    group=pb.Resource(name="g"),
    message_queue=pb.MessageQueue(topic=pb.Resource(name="mixed")),
    filter_expression=pb.FilterExpression(type=pb.TAG, expression="*"),
    batch_size=1,
    invisible_duration=Duration(seconds=60),
    long_polling_timeout=Duration(seconds=20),
).SerializeToString()


def test_a_ping_with_a_call_is_answered_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2_link, "_PONG_S", 3_600)  # no answer may wait for it

    async def story(_: Engine, door: Door, front: GrpcFront) -> None:
        peer = Peer(door, front)
        peer.writes.clear()
        peer.say(peer.call(head("SendMessage"), SEND))
        peer.say(PING)
        assert not peer.writes
        await peer.answers(1)
        assert peer.writes == [[Type.PING, Type.HEADERS, Type.DATA, Type.HEADERS]]

    run(tmp_path, story)


def test_a_ping_alone_is_answered_at_once(tmp_path: Path) -> None:
    async def story(_: Engine, door: Door, front: GrpcFront) -> None:
        peer = Peer(door, front)
        peer.writes.clear()
        peer.say(PING)
        assert peer.writes == [[Type.PING]]

    run(tmp_path, story)


def test_a_poll_that_waits_keeps_no_ping(tmp_path: Path) -> None:
    async def story(_: Engine, door: Door, front: GrpcFront) -> None:
        peer = Peer(door, front)
        peer.say(peer.call(head("ReceiveMessage"), POLL) + PING)
        while [Type.PING] not in peer.writes:
            await peer.change()
        peer.writes.clear()
        peer.say(PING)
        assert peer.writes == [[Type.PING]]

    run(tmp_path, story)


def test_a_ping_is_answered_soon_while_the_call_is_slow(tmp_path: Path) -> None:
    async def story(engine: Engine, door: Door, front: GrpcFront) -> None:
        asked: list[tuple[Any, Any]] = []
        ask = engine.ask
        engine.ask = lambda *command: asked.append(command)  # type: ignore[method-assign, assignment, return-value]
        peer = Peer(door, front)
        peer.writes.clear()
        peer.say(peer.call(head("SendMessage"), SEND) + PING)
        await peer.change()
        assert peer.writes == [[Type.PING]]
        for command, then in asked:
            ask(command, then)
        await peer.answers(1)

    run(tmp_path, story)
