"""Connections of which one end is gone without a word: they hold nothing back, and are noticed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration

from horolog.protocol.commands import (
    CreateTopic,
    DescribeBroker,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.rocketmq.message import encode
from horolog.server.grpc_front import GrpcFront
from horolog.server.grpc_unary import SERVICE
from horolog.server.loop import Engine
from horolog.server.open_broker import open_engine

HEADERS = (("x-mq-client-id", "tester"), ("x-mq-language", "JAVA"))
DEADLINE_S = 20
QUIET_MS = 100
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = bytes(3) + b"\x04\0" + bytes(4)
OPENINGS = [
    b"",  # only connected
    PREFACE[:7],
    PREFACE,
    PREFACE + SETTINGS,
    PREFACE + SETTINGS + b"\0\0\xff\x01\x04\0\0\0\x01half",  # a header block that never ends
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\0\x01",  # a TLS client
    b"\xff" * 64,
]


def with_front(tmp_path: Path, story: Callable[[Engine, int], Awaitable[None]]) -> None:
    """Run a story against a fresh broker that looks after its connections every 100 ms."""

    async def begin_and_end() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=1 << 24)
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
        front = GrpcFront(engine, quiet_ms=QUIET_MS, unanswered_ms=QUIET_MS)
        try:
            await story(engine, await front.start())
        finally:
            await front.stop(0)
            await engine.stop()

    asyncio.run(asyncio.wait_for(begin_and_end(), DEADLINE_S))


class Relay:
    """A way to the broker that can be cut without either end being told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._cut = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.answers: asyncio.Queue[int] = asyncio.Queue()  # sizes of what came from the broker
        self.closed_by_broker = asyncio.Event()

    async def start(self) -> int:
        """Listen; gives the port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """From now on nothing passes; both connections stay open."""
        self._cut = True

    async def stop(self) -> None:
        """End both sides."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, out = await asyncio.open_connection("127.0.0.1", self._port)
        for task in (self._pass(reader, out, False), self._pass(there, writer, True)):
            self._tasks.add(asyncio.ensure_future(task))

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bool
    ) -> None:
        with closing(writer):
            while piece := await reader.read(65_536):
                if answer:
                    self.answers.put_nowait(len(piece))
                if not self._cut:
                    writer.write(piece)
            if answer:
                self.closed_by_broker.set()
            await asyncio.Event().wait()  # the other end is not told


def poll() -> bytes:
    return pb.ReceiveMessageRequest(
        group=pb.Resource(name="g"),
        message_queue=pb.MessageQueue(topic=pb.Resource(name="t"), id=-1),
        batch_size=32,
        invisible_duration=Duration(seconds=30),
        long_polling_timeout=Duration(seconds=20),
    ).SerializeToString()


async def parked(engine: Engine, count: int) -> None:
    """Wait until that many polls are parked."""
    while (await engine.submit(DescribeBroker())).parked_polls != count:
        pass


async def attempts(engine: Engine) -> list[int]:
    receive = Receive("g", "t", -1, "*", 32, 30_000, False, 0, "other")
    return [m.attempt for m in (await engine.submit(receive)).messages]


async def send(engine: Engine) -> None:
    await engine.submit(SendMessages("t", [encode(topic="t", body=b"x", message_id="m")]))


def test_connections_that_say_half_a_word_keep_nobody_waiting(tmp_path) -> None:
    async def story(engine: Engine, port: int) -> None:
        opened = []
        try:
            for opening in OPENINGS * 10:
                one = socket.create_connection(("127.0.0.1", port))
                opened.append(one)
                one.sendall(opening)
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                raw = await channel.unary_unary(f"/{SERVICE}/Heartbeat")(
                    pb.HeartbeatRequest(client_type=pb.PRODUCER).SerializeToString(),
                    metadata=HEADERS,
                )
            assert pb.HeartbeatResponse.FromString(raw).status.code == pb.OK
        finally:
            for one in opened:
                one.close()

    with_front(tmp_path, story)


@pytest.mark.parametrize("pings", [0, 8], ids=["at once", "after a long silence"])
def test_a_poll_over_a_dead_connection_is_found_and_takes_no_message(tmp_path, pings) -> None:
    async def story(engine: Engine, port: int) -> None:
        relay = Relay(port)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{await relay.start()}") as channel:
            stream = channel.unary_stream(f"/{SERVICE}/ReceiveMessage")(poll(), metadata=HEADERS)
            await parked(engine, 1)
            for _ in range(relay.answers.qsize() + pings):  # nothing but pings comes any more
                await relay.answers.get()
            relay.cut()
            await relay.closed_by_broker.wait()
            await parked(engine, 0)
            stream.cancel()
            await relay.stop()
        await send(engine)
        assert await attempts(engine) == [1]

    with_front(tmp_path, story)


def test_what_went_into_a_dead_connection_comes_again_when_its_lease_ends(tmp_path) -> None:
    async def story(engine: Engine, port: int) -> None:
        relay = Relay(port)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{await relay.start()}") as channel:
            stream = channel.unary_stream(f"/{SERVICE}/ReceiveMessage")(poll(), metadata=HEADERS)
            await parked(engine, 1)
            relay.cut()
            await send(engine)
            await relay.closed_by_broker.wait()
            assert await attempts(engine) == []
            await engine.advance(30_000)
            assert await attempts(engine) == [2]
            stream.cancel()
            await relay.stop()

    with_front(tmp_path, story)
