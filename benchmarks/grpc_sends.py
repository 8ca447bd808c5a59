"""Measure what a send of a 5.x client costs without sockets: `python -m benchmarks.grpc_sends --messages 64000`.

Frames as clients write them, in chunks as they come from sockets under load, go through the gRPC door and the core (`Core`
of `benchmarks.recall`: real files, no syncs) and back to frames.  µs of CPU time of the one thread, for each message,
with bodies of 200 bytes due in ten hours: the middle one of the turns.

door      chunks to commands: HTTP/2, gRPC, protobuf, records
core      `Broker.step`: decided, appended, filed, and the writes
answer    results to frames that are handed to the transport
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any, cast

from google.protobuf.timestamp_pb2 import Timestamp

from benchmarks.grpc_load import block, call
from benchmarks.load import BODY, TOPIC
from benchmarks.recall import NOW_MS, Core
from horolog.limits import HOUR_MS
from horolog.protocol.commands import Command, CreateTopic, TopicType
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.http2 import frames
from horolog.protocol.http2.events import Limits
from horolog.protocol.http2.frames import Setting
from horolog.server.door import Door
from horolog.server.grpc_front import GrpcFront
from horolog.server.http2_link import Http2Link
from horolog.server.intake import Intake
from horolog.server.loop import Engine


class _Transport:
    """Where answers go: nowhere."""

    written = 0

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        return "127.0.0.1", 40_000

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.written += len(data)


class _Later:
    """An event loop that keeps what is to be called soon, and an engine that keeps what it is asked."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.asked: list[tuple[Command, Callable[[object], None]]] = []

    def call_soon(self, work: Callable[[], None]) -> None:
        self.soon.append(work)

    def before_turn(self, ask: Callable[[], None]) -> None:
        self.soon.append(ask)

    def ask(self, command: Command, then: Callable[[object], None]) -> None:
        self.asked.append((command, then))

    def run_soon(self) -> None:
        soon, self.soon = self.soon, []
        for work in soon:
            work()


def _stamp(at_ms: int) -> Timestamp:
    return Timestamp(seconds=at_ms // 1_000, nanos=at_ms % 1_000 * 1_000_000)


def _request(first: int, batch: int) -> bytes:
    messages = [_message(number) for number in range(first, first + batch)]
    return pb.SendMessageRequest(messages=messages).SerializeToString()


def _message(number: int) -> pb.Message:
    system = pb.SystemProperties(
        message_id=f"01AABBCCDDEEFF0001{number:016X}",
        body_encoding=pb.IDENTITY,
        message_type=pb.DELAY,
        born_timestamp=_stamp(NOW_MS + 100 + number // 64 % 900),
        born_host="benchmarks",
        delivery_timestamp=_stamp(NOW_MS + 10 * HOUR_MS + 100 + number * 7 % 900),
    )
    return pb.Message(topic=pb.Resource(name=TOPIC), body=BODY, system_properties=system)


def grpc_sends(n: int, chunk: int, batch: int, connections: int) -> dict[str, float]:
    """µs a message of each part; a turn is a chunk of requests of `batch` messages of each connection."""
    core, later = Core(dedup_ms=120_000), _Later()
    # What is answered is written when the loop has a pause: that is asked of the loop that runs.
    asyncio._set_running_loop(cast(Any, later))
    core.ask(CreateTopic(TOPIC, TopicType.MIXED, 4))
    front = GrpcFront(cast(Engine, later))
    log = logging.getLogger("horolog.grpc")
    door = Door(
        lambda door: Http2Link(door, front, Limits()), socket.socket(), intake=Intake(), log=log
    )
    door.loop = cast(Any, later)
    links = []
    huge = frames.window_update(0, frames.WINDOW_MAX - frames.WINDOW_INITIAL)
    settings = frames.settings({Setting.INITIAL_WINDOW_SIZE: frames.WINDOW_MAX})
    for _ in range(connections):
        link = Http2Link(door, front, Limits())
        link.connection_made(cast(Any, _Transport()))
        link.data_received(frames.PREFACE + settings + huge)
        links.append(link)
    head = block("SendMessage", "client")
    turns: list[tuple[float, float, float]] = []
    stream = -1
    share = chunk * connections * batch
    for first in range(0, n, share):
        stream += 2
        streams = range(stream, stream + 2 * chunk, 2)
        stream = streams[-1]
        chunks = [
            b"".join(
                call(head, each, _request(first + (k * chunk + i) * batch, batch))
                for i, each in enumerate(streams)
            )
            for k in range(connections)
        ]
        began = time.thread_time()
        for link, data in zip(links, chunks, strict=True):
            link.data_received(data)
        later.run_soon()
        taken = time.thread_time()
        asked, later.asked = later.asked, []
        results = core.turn([command for command, _ in asked])
        decided = time.thread_time()
        for (_, then), result in zip(asked, results, strict=True):
            then(result)
        later.run_soon()
        ended = time.thread_time()
        turns.append((taken - began, decided - taken, ended - decided))
        assert all(link.is_idle for link in links)
    parts = [statistics.median(column) / share * 1e6 for column in zip(*turns, strict=True)]
    shown = dict(zip(("door", "core", "answer"), (round(part, 2) for part in parts), strict=True))
    return {**shown, "total": round(sum(parts), 2), "per_second": round(1e6 / sum(parts))}


def main() -> None:
    """Print one line of JSON for each size of a chunk."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grpc_sends")
    parser.add_argument("--messages", type=int, default=64_000)
    parser.add_argument("--chunks", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--connections", type=int, default=2)
    options = parser.parse_args()
    for chunk in options.chunks:
        share = chunk * options.batch * options.connections
        n = min(options.messages, 2_000 * share) // share * share
        row = grpc_sends(n, chunk, options.batch, options.connections)
        print(json.dumps({"chunk": chunk, **row}), flush=True)


if __name__ == "__main__":
    main()
