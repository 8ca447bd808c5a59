"""Ask a 5.x client for its thread stacks over its Telemetry stream; a nonce marks the answer."""

from __future__ import annotations

import asyncio
from itertools import count

from horolog.limits import MIB
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.server.grpc_clients import Stream

_CHARACTERS_MAX = MIB  # some thousand threads; a tool prints the whole text


class ThreadStacks:
    """Questions to clients that wait for their answers."""

    def __init__(self) -> None:
        self._nonces = count(1)
        self._asked: dict[str, tuple[Stream, asyncio.Future[str]]] = {}

    async def ask(self, stream: Stream, within_s: float) -> str:
        """Return the client's text; "" if it does not answer in time, or leaves."""
        nonce = str(next(self._nonces))
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        wanted = pb.PrintThreadStackTraceCommand(nonce=nonce)
        self._asked[nonce] = (stream, answer)
        try:
            if not stream.send_command(
                pb.TelemetryCommand(print_thread_stack_trace_command=wanted)
            ):
                return ""
            return await asyncio.wait_for(answer, within_s)
        except TimeoutError:
            return ""
        finally:
            del self._asked[nonce]

    def take_answer(self, stream: Stream, trace: pb.ThreadStackTrace) -> None:
        """Take an answer; ignore one that this client was not asked for."""
        asked, answer = self._asked.get(trace.nonce, (None, None))
        if answer is not None and asked is stream and not answer.done():
            answer.set_result(trace.thread_stack_trace[:_CHARACTERS_MAX])

    def stream_ended(self, stream: Stream) -> None:
        """Answer the questions to a stream that has ended with ""."""
        for asked, answer in self._asked.values():
            if asked is stream and not answer.done():
                answer.set_result("")
