"""Floods at the doors of a real process: what grows, and whether others are still served."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import grpc
import pytest
from benchmarks.memory import memory_mb
from frame_fuzz import mutated, story
from google.protobuf.duration_pb2 import Duration
from http2_frames import Http2Connection

from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.http2.faults import Code
from horolog.server.grpc_unary import SERVICE
from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("installed")]
STREAMS = 20_000
GREW_MAX_MB = 10
SEND_MAX_S = 3.0


class Sender:
    """Sends one message after the other."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._channel = grpc.insecure_channel(broker.grpc_endpoint)
        self._send = self._channel.unary_unary(
            f"/{SERVICE}/SendMessage",
            request_serializer=pb.SendMessageRequest.SerializeToString,
            response_deserializer=pb.SendMessageResponse.FromString,
        )
        self._sent = 0

    def send(self) -> float:
        """Seconds until the answer."""
        self._sent += 1
        system = pb.SystemProperties(message_id=f"id-{self._sent}")
        message = pb.Message(topic=pb.Resource(name="t"), body=b"x", system_properties=system)
        begun = time.monotonic()
        answer = self._send(
            pb.SendMessageRequest(messages=[message]),
            metadata=[("x-mq-client-id", "sender")],
            timeout=30,
        )
        assert answer.status.code == pb.OK, answer
        return time.monotonic() - begun

    def close(self) -> None:
        self._channel.close()


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(clock="system") as started:
        started.create_topic("t", "normal")
        yield started


POLL = pb.ReceiveMessageRequest(
    group=pb.Resource(name="g"),
    message_queue=pb.MessageQueue(topic=pb.Resource(name="t"), id=-1),
    batch_size=1,
    invisible_duration=Duration(seconds=30),
    long_polling_timeout=Duration(seconds=20),
).SerializeToString()


@pytest.mark.parametrize(
    ("call", "content"), [("Telemetry", None), ("ReceiveMessage", POLL)], ids=["open", "parked"]
)
def test_streams_that_are_reset_at_once_are_not_kept(
    broker: BrokerProcess, call: str, content: bytes | None
) -> None:
    """Rapid reset: the connection ends with ENHANCE_YOUR_CALM, and nobody else notices."""
    sender = Sender(broker)
    for _ in range(20):
        sender.send()
    before = memory_mb(broker.pid)
    flood = Http2Connection(int(broker.grpc_endpoint.rpartition(":")[2]))
    flood.reset_rapidly(STREAMS, f"/{SERVICE}/{call}", content)
    slowest = sender.send()
    flood.until_closed()
    slowest = max(slowest, sender.send())
    grew = memory_mb(broker.pid) - before
    flood.close()
    sender.close()
    assert int.from_bytes(flood.goaway[4:8], "big") == Code.ENHANCE_YOUR_CALM
    assert slowest < SEND_MAX_S
    assert grew < GREW_MAX_MB


PATHS = tuple(
    f"/{SERVICE}/{name}".encode()
    for name in ("SendMessage", "ReceiveMessage", "AckMessage", "Telemetry", "Heartbeat", "Unheard")
)
OPEN_MAX = 50  # connections of the flood at a time


def shouted(port: int, seed: int) -> socket.socket:
    """A connection that has said mutated frames, and reads nothing."""
    random = Random(seed)
    frames = b"".join(mutated(random, story(random, PATHS)))
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    with suppress(OSError):  # the broker has hung up already
        connection.sendall(frames)
    return connection


@pytest.mark.parametrize(
    "connections", [400, pytest.param(30_000, marks=pytest.mark.full)], ids=["some", "million"]
)
def test_mutated_frames_leave_the_broker_serving(broker: BrokerProcess, connections: int) -> None:
    """Some 35 frames a connection: others are served meanwhile and afterwards, and little memory is left behind."""
    sender = Sender(broker)
    port = int(broker.grpc_endpoint.rpartition(":")[2])
    held: list[socket.socket] = []
    before, slowest = 0.0, 0.0
    for seed in range(connections):
        held.append(shouted(port, seed))
        if len(held) > OPEN_MAX:
            held.pop(0).close()
        if seed % 20 == 0:
            slowest = max(slowest, sender.send())
        if seed == connections // 10:
            before = memory_mb(broker.pid)
    for connection in held:
        connection.close()
    slowest = max(slowest, sender.send())
    grew = memory_mb(broker.pid) - before
    sender.close()
    assert slowest < SEND_MAX_S
    assert grew < GREW_MAX_MB
