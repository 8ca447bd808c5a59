"""What the threads of a 5.x client do: it is asked over its Telemetry stream, and its answer is known by a nonce."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Protocol

from horolog.limits import MIB
from horolog.protocol.grpc import messaging_pb2 as pb

_CHARACTERS_MAX = MIB  # some thousand threads; a tool prints it all


class Listener(Protocol):
    """A client that can be asked something."""

    def tell(self, command: pb.TelemetryCommand) -> bool:
        """False if it is gone, or takes nothing."""
        ...


class ThreadStacks:
    """Questions that wait for their answers."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._asked: dict[str, tuple[Listener, asyncio.Future[str]]] = {}

    async def ask(self, listener: Listener, within_s: float) -> str:
        """What it says, in its own words; "" if it says nothing in time, or goes."""
        nonce = str(next(self._numbers))
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        wanted = pb.PrintThreadStackTraceCommand(nonce=nonce)
        self._asked[nonce] = (listener, answer)
        try:
            if not listener.tell(pb.TelemetryCommand(print_thread_stack_trace_command=wanted)):
                return ""
            return await asyncio.wait_for(answer, within_s)
        except TimeoutError:
            return ""
        finally:
            del self._asked[nonce]

    def heard(self, listener: Listener, said: pb.ThreadStackTrace) -> None:
        """An answer; what nobody has asked this client for is left alone."""
        asked, answer = self._asked.get(said.nonce, (None, None))
        if answer is not None and asked is listener and not answer.done():
            answer.set_result(said.thread_stack_trace[:_CHARACTERS_MAX])

    def left(self, listener: Listener) -> None:
        """Its stream has ended."""
        for asked, answer in self._asked.values():
            if asked is listener and not answer.done():
                answer.set_result("")
