"""What the threads of a 5.x client do: it is asked over its Telemetry stream, and its answer is known by a nonce."""

from __future__ import annotations

import asyncio
from itertools import count

from horolog.limits import MIB
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.server.grpc_clients import Stream

_CHARACTERS_MAX = MIB  # some thousand threads; a tool prints it all


class ThreadStacks:
    """Questions that wait for their answers."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._asked: dict[str, tuple[Stream, asyncio.Future[str]]] = {}

    async def ask(self, stream: Stream, within_s: float) -> str:
        """What it says, in its own words; "" if it says nothing in time, or goes."""
        nonce = str(next(self._numbers))
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        wanted = pb.PrintThreadStackTraceCommand(nonce=nonce)
        self._asked[nonce] = (stream, answer)
        try:
            if not stream.tell(pb.TelemetryCommand(print_thread_stack_trace_command=wanted)):
                return ""
            return await asyncio.wait_for(answer, within_s)
        except TimeoutError:
            return ""
        finally:
            del self._asked[nonce]

    def heard(self, stream: Stream, said: pb.ThreadStackTrace) -> None:
        """An answer; what nobody has asked this client for is left alone."""
        asked, answer = self._asked.get(said.nonce, (None, None))
        if answer is not None and asked is stream and not answer.done():
            answer.set_result(said.thread_stack_trace[:_CHARACTERS_MAX])

    def left(self, stream: Stream) -> None:
        """Its stream has ended."""
        for asked, answer in self._asked.values():
            if asked is stream and not answer.done():
                answer.set_result("")
