"""Calls of a gRPC connection as frames, to a front with a real engine.

Frames that are sent together arrive in one chunk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from horolog.protocol.commands import CreateTopic, TopicType
from horolog.protocol.http2 import frames, hpack
from horolog.protocol.http2.events import Limits
from horolog.protocol.http2.frames import (
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES_INITIAL,
    HEADER_BYTES,
    Setting,
    Type,
)
from horolog.protocol.http2.grpc_wire import framed
from horolog.server.door import Door
from horolog.server.grpc_front import GrpcFront
from horolog.server.grpc_unary import SERVICE
from horolog.server.http2_link import Http2Link
from horolog.server.loop import Engine
from horolog.server.open_broker import open_engine

DEADLINE_S = 20


def head(name: str, client: bytes = b"tester") -> bytes:
    """Return the header block of a call by a client."""
    return hpack.encode(
        [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", f"/{SERVICE}/{name}".encode()),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
            (b"x-mq-client-id", client),
        ]
    )


class Peer:
    """A connection to a front on a real engine, and its answers; the transport is this object."""

    def __init__(self, door: Door, front: GrpcFront, window: int = frames.WINDOW_MAX) -> None:
        self.heads: dict[int, dict[bytes, bytes]] = {}
        self.writes: list[list[Type]] = []  # types of the frames of each write
        self.bodies: dict[int, bytes] = {}
        self.stream = -1
        self.is_read = True
        self._decoder = hpack.Decoder(1 << 16)
        self._changed = asyncio.Event()
        self.link = Http2Link(door, front, Limits())
        self.link.connection_made(cast(asyncio.Transport, self))
        self.say(frames.PREFACE + frames.settings({Setting.INITIAL_WINDOW_SIZE: window}))

    def get_extra_info(self, _: str) -> tuple[str, int]:
        return "127.0.0.1", 1

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def close(self) -> None:
        pass

    def write(self, raw: bytes) -> None:
        self.writes.append(written := [])
        while raw:
            size, kind = int.from_bytes(raw[:3], "big"), raw[3]
            written.append(Type(kind))
            stream = int.from_bytes(raw[5:HEADER_BYTES], "big")
            payload, raw = raw[HEADER_BYTES : HEADER_BYTES + size], raw[HEADER_BYTES + size :]
            if kind == Type.HEADERS:
                fields = self._decoder.decode(payload)
                assert fields is not None
                self.heads.setdefault(stream, {}).update(fields)
            elif kind == Type.DATA:
                self.bodies[stream] = self.bodies.get(stream, b"") + payload
        self._changed.set()

    def say(self, raw: bytes) -> None:
        self.link.data_received(raw)

    def call(self, block: bytes, request: bytes) -> bytes:
        """Return the frames of a call."""
        self.stream += 2
        raw = framed(request)
        first, rest = raw[:FRAME_BYTES_INITIAL], raw[FRAME_BYTES_INITIAL:]
        found = frames.frame(Type.HEADERS, END_HEADERS, self.stream, block)
        if rest:
            found += frames.frame(Type.DATA, 0, self.stream, first)
        return found + frames.frame(Type.DATA, END_STREAM, self.stream, rest or first)

    async def change(self) -> None:
        """Wait until an answer arrives."""
        self._changed.clear()
        await self._changed.wait()

    async def answers(self, count: int) -> list[tuple[bytes, bytes, bytes]]:
        """Return the answers in the order of the calls: gRPC status, its message, the response."""
        while sum(b"grpc-status" in each for each in self.heads.values()) < count:
            await self.change()
        return [
            (each[b"grpc-status"], each.get(b"grpc-message", b""), self.bodies.get(stream, b""))
            for stream, each in sorted(self.heads.items())
        ]


def run(tmp_path: Path, story: Callable[[Engine, Door, GrpcFront], Any]) -> Any:
    """Return the result of a story on a broker with the topics `mixed` and `delay`."""

    async def begin_and_end() -> Any:
        engine = await open_engine(tmp_path, clock="simulated", segment_bytes=1 << 24)
        await engine.submit(CreateTopic("mixed", TopicType.MIXED, 1))
        await engine.submit(CreateTopic("delay", TopicType.DELAY, 1))
        front = GrpcFront(engine)
        await front.start()
        try:
            return await story(engine, front.doors["grpc"], front)
        finally:
            await front.stop()
            await engine.stop()

    return asyncio.run(asyncio.wait_for(begin_and_end(), DEADLINE_S))
