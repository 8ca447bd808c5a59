"""Requests that the broker sends to one 4.x client, and the answers that it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from horolog.protocol.remoting.frame import OTHER, VERSION, Flag, Frame, Serializer
from horolog.protocol.remoting.frame_writer import encode
from horolog.protocol.remoting.request import I32_MAX


class OwnRequests:
    """The broker's requests on one connection; each has an opaque of its own."""

    def __init__(self) -> None:
        self._opaque = 0  # of the last request
        self._waiting: dict[int, asyncio.Future[Frame]] = {}

    def encode(
        self,
        code: int,
        fields: Mapping[str, str],
        body: bytes,
        serializer: Serializer,
        *,
        one_way: bool = False,
    ) -> bytes:
        """Encode a request; call `wait` right after it for the answer, unless it is one-way.

        Its language is OTHER: clients need not know that of the broker.
        """
        self._opaque = self._opaque % I32_MAX + 1
        flag = Flag.ONE_WAY if one_way else Flag(0)
        return encode(
            Frame(code, self._opaque, flag, dict(fields), body, "", OTHER, VERSION, serializer)
        )

    def wait(self, loop: asyncio.AbstractEventLoop, timeout_s: float) -> asyncio.Future[Frame]:
        """Return the future of the answer to the last request; it raises TimeoutError."""
        answer: asyncio.Future[Frame] = loop.create_future()
        opaque = self._opaque
        self._waiting[opaque] = answer
        timer = loop.call_later(timeout_s, self._give_up, opaque)

        def end(_: object) -> None:
            timer.cancel()
            self._waiting.pop(opaque, None)  # nobody waits any more if the future was cancelled

        answer.add_done_callback(end)
        return answer

    def _give_up(self, opaque: int) -> None:
        answer = self._waiting.pop(opaque, None)
        if answer is not None and not answer.done():
            answer.set_exception(TimeoutError("the client has not answered"))

    def take_answer(self, frame: Frame) -> None:
        """Pass an answer of the client to who waits for it."""
        answer = self._waiting.pop(frame.opaque, None)
        if answer is not None and not answer.done():
            answer.set_result(frame)

    def end(self) -> None:
        """Raise ConnectionError from all futures: the client has gone."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the client has gone"))
                answer.exception()  # marked as retrieved, in case no task awaits it
        self._waiting.clear()
