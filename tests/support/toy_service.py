"""One small gRPC service, twice: on our HTTP/2 and on grpc.aio, to compare what a client sees.

Echo   answers with the message, and with the metadata that the tests have sent
Fail   ends with the status and the text that the message names
Many   sends as many messages of a size as the request says, then ends with a status
Wait   never answers
Talk   answers every message; one that begins with "end" ends the call with the status after it
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from horolog.protocol.http2.events import Limits
from horolog.protocol.http2.grpc_wire import framed
from horolog.server.call import Call
from horolog.server.door import Door
from horolog.server.http2_link import Http2Link
from horolog.server.intake import Intake

_ECHOED = ("x-one", "x-two", "x-long", "x-empty")
_STATUSES = {code.value[0]: code for code in grpc.StatusCode}


def path(name: str) -> str:
    return f"/toy.Toy/{name}"


def _echo(message: bytes, get: Callable[[str], str]) -> bytes:
    text = "|".join(f"{name}={get(name)}" for name in _ECHOED)
    return text.encode() + b"\n" + message[::-1]


def _many(message: bytes) -> tuple[list[bytes], int, str]:
    count, size, status, why = json.loads(message)
    return [bytes([i % 251]) * size for i in range(count)], status, why


class Waits:
    """Counts the Wait calls of a service, and those whose callers have gone."""

    def __init__(self) -> None:
        self.arrived = asyncio.Semaphore(0)
        self.under_way = 0
        self._none = asyncio.Event()

    def begin(self) -> None:
        self.under_way += 1
        self._none.clear()
        self.arrived.release()

    def drop(self) -> None:
        self.under_way -= 1
        if not self.under_way:
            self._none.set()

    async def until_none(self) -> None:
        """Wait until all callers are known to have gone."""
        if self.under_way:
            await self._none.wait()


class Ours:
    """The service behind an `Http2Link`."""

    streaming = frozenset({path("Talk").encode()})

    def __init__(self) -> None:
        self.waits = Waits()

    def calls_received(self, calls: Sequence[tuple[Call, bytes]]) -> None:
        for call, message in calls:
            self._answer(call, message)

    def _answer(self, call: Call, message: bytes) -> None:
        match call.head.path.rpartition(b"/")[2]:
            case b"Echo":
                call.answer(framed(_echo(message, lambda name: call.header(name.encode()))))
            case b"Fail":
                call.fail(*json.loads(message))
            case b"Many":
                self._many(call, *_many(message))
            case b"Wait":
                call.on_dropped = self.waits.drop
                self.waits.begin()
            case _:
                call.fail(grpc.StatusCode.UNIMPLEMENTED.value[0], "no such method")

    @staticmethod
    def _many(call: Call, messages: list[bytes], status: int, why: str) -> None:
        if not status:
            call.answer(b"".join(map(framed, messages)))
            return
        call.begin()
        for message in messages:
            call.send_message(message)
        call.finish(status, why)

    def stream_opened(self, call: Call) -> None:
        call.begin()

    def message_received(self, call: Call, message: bytes) -> None:
        if message.startswith(b"end"):
            call.finish(int(message[3:5]), "the end")
        elif call.is_open:
            call.send_message(b"heard " + message)

    def input_ended(self, call: Call) -> None:
        if call.is_open:
            call.send_message(b"bye")
            call.finish()


@asynccontextmanager
async def ours() -> AsyncIterator[tuple[int, Waits]]:
    """Run the service on our door; yield its port and its Wait calls."""
    service = Ours()
    listener = socket.create_server(("127.0.0.1", 0))
    door = Door(
        lambda door: Http2Link(door, service, Limits()),
        listener,
        intake=Intake(),
        log=logging.getLogger("toy"),
    )
    try:
        yield await door.start(), service.waits
    finally:
        await door.stop(0)


class _Theirs(grpc.GenericRpcHandler):
    """The service behind grpc.aio."""

    def __init__(self) -> None:
        self.waits = Waits()

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        match details.method.rpartition("/")[2]:
            case "Echo":
                return grpc.unary_unary_rpc_method_handler(self._echo)
            case "Fail":
                return grpc.unary_unary_rpc_method_handler(self._fail)
            case "Many":
                return grpc.unary_stream_rpc_method_handler(self._many)
            case "Wait":
                return grpc.unary_unary_rpc_method_handler(self._wait)
            case "Talk":
                return grpc.stream_stream_rpc_method_handler(self._talk)
        return None

    async def _echo(self, message: bytes, context: Any) -> bytes:
        fields = dict(context.invocation_metadata())
        return _echo(message, lambda name: fields.get(name, ""))

    async def _fail(self, message: bytes, context: Any) -> bytes:
        status, why = json.loads(message)
        await context.abort(_STATUSES[status], why)

    async def _many(self, message: bytes, context: Any) -> AsyncIterator[bytes]:
        messages, status, why = _many(message)
        for each in messages:
            yield each
        if status:
            await context.abort(_STATUSES[status], why)

    async def _wait(self, message: bytes, context: Any) -> bytes:
        self.waits.begin()
        try:
            await asyncio.Event().wait()
        finally:
            self.waits.drop()
        return b""

    async def _talk(self, messages: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for message in messages:
            if message.startswith(b"end"):
                if status := int(message[3:5]):
                    await context.abort(_STATUSES[status], "the end")
                return
            yield b"heard " + message
        yield b"bye"


@asynccontextmanager
async def theirs() -> AsyncIterator[tuple[int, Waits]]:
    """Run the service on grpc.aio; yield its port and its Wait calls."""
    service = _Theirs()
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers([service])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port, service.waits
    finally:
        await server.stop(0)
