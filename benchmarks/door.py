"""What callers leave behind at the gRPC door, and what idle ones hold: `python -m benchmarks.door`.

A broker in a process of its own, and a client that writes HTTP/2 frames by itself: no client library is measured.
Anonymous memory (RssAnon) of the broker, in MB, above what it had after the first tenth; calls a second beside it.

streams   heartbeats of one client, each a stream of its own, over one connection
clients   heartbeats of as many different clients
polls     receives that find nothing and wait 1 ms
resets    receives that are parked and reset at once, at a pace that is allowed
idle      connections with a parked poll each: MB for all of them, and after they have gone
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import uvloop
from google.protobuf.duration_pb2 import Duration

from benchmarks.memory import memory_mb
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.http2 import frames, hpack
from horolog.protocol.http2.frames import END_HEADERS, END_STREAM, HEADER_BYTES, Type
from horolog.protocol.http2.grpc_wire import framed
from horolog.server.grpc_unary import SERVICE
from horolog.testing.broker import BrokerProcess

AT_A_TIME = 250
RESETS_PER_SECOND = 90
Result = dict[str, Any]


class Connection(asyncio.Protocol):
    """Calls over one connection; counts the answers that have ended."""

    def __init__(self) -> None:
        self.ended = 0
        self.changed = asyncio.Event()
        self.lost = asyncio.Event()
        self._buffer = b""
        self._stream = -1

    def connection_made(self, transport: Any) -> None:
        """Say what a client says first."""
        self.transport = transport
        transport.write(
            frames.PREFACE + frames.settings({}) + frames.window_update(0, frames.WINDOW_MAX // 2)
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Remember it."""
        self.lost.set()
        self.changed.set()

    def data_received(self, data: bytes) -> None:
        """Count answers, answer pings."""
        buffer, at = self._buffer + data, 0
        while len(buffer) - at >= HEADER_BYTES:
            stop = at + HEADER_BYTES + int.from_bytes(buffer[at : at + 3], "big")
            if stop > len(buffer):
                break
            kind, flags = buffer[at + 3], buffer[at + 4]
            self.ended += kind == Type.HEADERS and bool(flags & END_STREAM)
            if kind == Type.PING and not flags & frames.ACK:
                answer = frames.frame(Type.PING, frames.ACK, 0, buffer[at + HEADER_BYTES : stop])
                self.transport.write(answer)
            at = stop
        self._buffer = buffer[at:]
        self.changed.set()

    def call(self, method: str, request: bytes, client: str) -> int:
        """Make a call; gives its stream."""
        self._stream += 2
        head = hpack.encode(
            [
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":path", f"/{SERVICE}/{method}".encode()),
                (b"content-type", b"application/grpc"),
                (b"te", b"trailers"),
                (b"x-mq-client-id", client.encode()),
            ]
        )
        self.transport.write(
            frames.frame(Type.HEADERS, END_HEADERS, self._stream, head)
            + frames.frame(Type.DATA, END_STREAM, self._stream, framed(request))
        )
        return self._stream

    async def until(self, ended: int) -> None:
        """Return when so many answers have ended."""
        while self.ended < ended:
            assert not self.lost.is_set(), "the broker hung up"
            self.changed.clear()
            await self.changed.wait()


def poll(wait_ms: int) -> bytes:
    """A receive of a topic without messages."""
    return pb.ReceiveMessageRequest(
        group=pb.Resource(name="g"),
        message_queue=pb.MessageQueue(topic=pb.Resource(name="quiet"), id=-1),
        batch_size=1,
        invisible_duration=Duration(seconds=30),
        long_polling_timeout=Duration(nanos=wait_ms * 1_000_000)
        if wait_ms < 1_000
        else Duration(seconds=wait_ms // 1_000),
    ).SerializeToString()


BEAT = pb.HeartbeatRequest(client_type=pb.PRODUCER).SerializeToString()


def parked(broker: BrokerProcess) -> int:
    """Polls that wait."""
    return int(broker.admin.get("/v1/broker")["parked_polls"])


async def connect(port: int) -> Connection:
    """A connection to the door."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
    return connection


async def calls(
    broker: BrokerProcess, port: int, n: int, one: Callable[[Connection, int], object]
) -> Result:
    """n calls, a few hundred at a time."""
    connection = await connect(port)
    first, began = 0.0, time.monotonic()
    for at in range(0, n, AT_A_TIME):
        if at == n // 10:
            first = memory_mb(broker.pid)
        for i in range(at, at + AT_A_TIME):
            one(connection, i)
        await connection.until(at + AT_A_TIME)
    took = time.monotonic() - began
    connection.transport.close()
    return {"n": n, "mb": round(memory_mb(broker.pid) - first, 1), "per_second": int(n / took)}


async def resets(broker: BrokerProcess, port: int, n: int) -> Result:
    """Polls that are parked and reset, as many a second as are allowed."""
    connection = await connect(port)
    first = memory_mb(broker.pid)
    request = poll(20_000)
    began = time.monotonic()
    for i in range(n):
        stream = connection.call("ReceiveMessage", request, "c")
        connection.transport.write(frames.reset(stream, 8))
        ahead = i / RESETS_PER_SECOND - (time.monotonic() - began)
        if ahead > 0.05:
            await asyncio.sleep(ahead)
    assert not connection.lost.is_set(), "the broker hung up"
    connection.transport.close()
    return {"n": n, "mb": round(memory_mb(broker.pid) - first, 1)}


async def idle(broker: BrokerProcess, port: int, n: int) -> Result:
    """Connections with a parked poll each."""
    first = memory_mb(broker.pid)
    held = []
    for i in range(n):
        connection = await connect(port)
        connection.call("ReceiveMessage", poll(20_000), f"client-{i}")
        held.append(connection)
    while parked(broker) < n:
        await asyncio.sleep(0.1)
    full = memory_mb(broker.pid)
    for connection in held:
        connection.transport.abort()
    while parked(broker):
        await asyncio.sleep(0.1)
    after = memory_mb(broker.pid)
    return {"n": n, "mb": round(full - first, 1), "mb_after": round(after - first, 1)}


async def measure(n: int, connections: int) -> None:
    """All of it, against one broker."""
    with BrokerProcess(clock="system") as broker:
        broker.create_topic("quiet", "normal")
        port = int(broker.grpc_endpoint.rpartition(":")[2])
        wait = poll(1)
        beat = "Heartbeat"
        fields = {
            "streams": await calls(broker, port, n, lambda c, i: c.call(beat, BEAT, "c")),
            "clients": await calls(
                broker, port, n // 10, lambda c, i: c.call(beat, BEAT, f"host-{i:09d}@1@2")
            ),
            "polls": await calls(broker, port, n, lambda c, i: c.call("ReceiveMessage", wait, "c")),
            "resets": await resets(broker, port, 2_000),
            "idle": await idle(broker, port, connections),
        }
        for name, result in fields.items():
            print(name, json.dumps(result), flush=True)


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--connections", type=int, default=10_000)
    options = parser.parse_args()
    uvloop.run(measure(options.calls, options.connections))


if __name__ == "__main__":
    main()
