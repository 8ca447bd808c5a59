"""A raw HTTP/2 client that receives as a push consumer does, and may vanish at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from google.protobuf.duration_pb2 import Duration
from http2_frames import call_headers

from horolog.errors import HorologError
from horolog.protocol.commands import (
    CreateTopic,
    DescribeBroker,
    DescribeGroup,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.http2 import frames
from horolog.protocol.http2.faults import Code
from horolog.protocol.http2.frames import Setting, Type
from horolog.protocol.http2.grpc_wire import framed
from horolog.protocol.rocketmq.message import encode
from horolog.server.grpc_front import GrpcFront
from horolog.server.grpc_unary import SERVICE
from horolog.server.loop import Engine
from horolog.server.open_broker import open_engine

DEADLINE_S = 20


def run(tmp_path: Path, story: Callable[[Engine], Awaitable[None]]) -> None:
    async def begin_and_end() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=1 << 24)
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
        try:
            await story(engine)
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(begin_and_end(), DEADLINE_S))


async def send(engine: Engine, count: int) -> None:
    messages = [encode(topic="t", body=b"x", message_id=f"m{i}") for i in range(count)]
    await engine.submit(SendMessages("t", messages))


def request(poll_s: int = 0) -> pb.ReceiveMessageRequest:
    """As a push consumer asks: its leases are renewed as long as it lives."""
    return pb.ReceiveMessageRequest(
        group=pb.Resource(name="g"),
        message_queue=pb.MessageQueue(topic=pb.Resource(name="t"), id=-1),
        batch_size=32,
        auto_renew=True,
        long_polling_timeout=Duration(seconds=poll_s),
    )


async def attempts(engine: Engine) -> list[int]:
    """Delivery attempts of all that another client is given now."""
    receive = Receive("g", "t", -1, "*", 32, 30_000, False, 0, "other")
    return [m.attempt for m in (await engine.submit(receive)).messages]


class RawClient:
    """A client whose window has room for so many bytes of an answer, and who can go at any moment."""

    def __init__(self, port: int, window: int = 65_535) -> None:
        self._port = port
        self._window = window

    async def __aenter__(self) -> RawClient:
        self.reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        settings = frames.settings({Setting.INITIAL_WINDOW_SIZE: self._window})
        self._writer.write(frames.PREFACE + settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    def receive(self, asked: pb.ReceiveMessageRequest) -> None:
        """Ask, and wait for nothing."""
        head = call_headers(f"/{SERVICE}/ReceiveMessage")
        content = framed(asked.SerializeToString())
        self._writer.write(
            frames.frame(Type.HEADERS, frames.END_HEADERS, 1, head)
            + frames.frame(Type.DATA, frames.END_STREAM, 1, content)
        )

    def cancel(self) -> None:
        """Wait for no answer any more."""
        self._writer.write(frames.reset(1, Code.CANCEL))

    def ping(self) -> None:
        """Ask for a sign that all of this was heard."""
        self._writer.write(frames.frame(Type.PING, 0, 0, bytes(8)))

    async def kinds(self) -> set[int]:
        """Of the frames that have come."""
        heard = await self.reader.read(65_536)
        found = set()
        while heard:
            found.add(heard[3])
            heard = heard[9 + int.from_bytes(heard[:3], "big") :]
        return found

    async def answer(self, *, pong: bool = True) -> None:
        """Read the answer to its end, and the ping after it; answer the ping, as real clients do."""
        heard, ping = b"", frames.header(8, Type.PING, 0, 0)
        while b"grpc-status" not in heard or len(heard.partition(ping)[2]) < 8:
            heard += await self.reader.read(65_536)
        if pong:
            opaque = heard.partition(ping)[2][:8]
            self._writer.write(frames.frame(Type.PING, frames.ACK, 0, opaque))
            self.ping()
            while Type.PING not in await self.kinds():
                pass

    def open_window(self, size: int) -> None:
        """Take so many bytes more."""
        self._writer.write(frames.window_update(1, size))


async def until(engine: Engine, leased: int = 0, parked: int = 0) -> None:
    """Return when so many messages are leased and so many polls wait."""
    while True:
        polls = (await engine.submit(DescribeBroker())).parked_polls
        try:
            (queue,) = await engine.submit(DescribeGroup("g", "t"))
        except HorologError:
            continue  # nobody has asked yet
        if (queue.leased, polls) == (leased, parked):
            return


def with_port(tmp_path: Path, story: Callable[[Engine, int], Awaitable[None]]) -> None:
    async def begin_and_end(engine: Engine) -> None:
        front = GrpcFront(engine)
        try:
            await story(engine, await front.start())
        finally:
            await front.stop(0)

    run(tmp_path, begin_and_end)


async def until_given_back(engine: Engine, count: int) -> None:
    """Return when the messages are for others again; they are told of within a second of simulated time."""
    while not (got := await attempts(engine)):
        await engine.advance(1_000)
    assert got == [2] * count
