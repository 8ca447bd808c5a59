"""One connection of a 4.x client: frames in, and in one write all that was said in a turn of the event loop.

Requests come pipelined, and are answered in any order.  The broker asks clients too (`push`, `ask`): who registered
on this connection is reached by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from horolog.limits import UNTAKEN_BYTES_MAX
from horolog.protocol.remoting.codes import Status
from horolog.protocol.remoting.frame import (
    OTHER,
    Flag,
    Frame,
    FrameFault,
    Reader,
    Serializer,
    encode,
    encode_head,
)
from horolog.protocol.remoting.request import Answer
from horolog.server.link import Link, Links
from horolog.server.remoting.request import Request

VERSION = (
    479  # ordinal of RocketMQ 5.3.3: what clients of 4.x and 5.x make of an answer depends on it
)
Piece = bytes | memoryview
_OPAQUE_MAX = 0x7FFF_FFFF
_OURS = "OTHER"  # no client is asked to make anything of the broker's language
_TOO_SLOW = Answer(
    Status.SYSTEM_BUSY, remark="connection: too many answers are not taken yet; read them first"
)


class Service(Protocol):
    """Who handles requests."""

    def asked(self, request: Request) -> None:
        """A request has come."""
        ...

    def asked_all(self) -> None:
        """All requests of a chunk have come."""
        ...

    def gone(self, link: RemotingLink) -> None:
        """A connection has ended."""
        ...


class RemotingLink(Link):
    """One connection.

    parked              requests that wait for something to happen
    language, version   what the peer says of itself, in its last request
    """

    def __init__(self, door: Links, service: Service) -> None:
        super().__init__(door)
        self._service = service
        self._reader = Reader()
        self._out: list[Piece] = []
        self._out_bytes = 0
        self._open = 0  # requests without an answer
        self._open_bytes = 0  # of them
        self._told = 0  # the same, as the door knows it
        self._over = False  # the peer has broken the protocol
        self._lost = False
        self._leaving = False
        self._opaque = 0
        self._asked: dict[int, asyncio.Future[Frame]] = {}
        self._serializer = Serializer.JSON
        self.parked = 0
        self.language = OTHER
        self.version = 0

    @property
    def dialled(self) -> str:
        """The address of this broker that the peer has dialled."""
        host = str(self._transport.get_extra_info("sockname")[0])
        return f"[{host}]" if ":" in host else host

    # --- requests ---------------------------------------------------------------------------------

    def hear(self, data: bytes, now_ms: int) -> None:
        """Bytes of the peer; answers to them are written when this returns."""
        if self._leaving or self._over:
            return
        try:
            frames = self._reader.receive(data)
        except FrameFault as fault:
            self._door.fault(self, fault)
            self._over = True
            return
        if not frames:
            return
        last = frames[-1]
        self.language, self.version = last.language, last.version
        self._serializer = last.serializer
        for frame in frames:
            if frame.is_answer:
                self._hear_answer(frame)
                continue
            request = Request(self, frame)
            self._open += 1
            self._open_bytes += request.size
            self._service.asked(request)
        self._service.asked_all()

    def answer(self, request: Request, answer: Answer, pieces: Sequence[Piece] = ()) -> None:
        """The answer of a request; `pieces` stand for its body."""
        if self._lost:
            return
        frame = request.frame
        self._open -= 1
        self._open_bytes -= request.size
        if request.parked:
            self.parked -= 1
        self.owes()
        if frame.is_one_way:
            return
        if pieces and self._untaken() > UNTAKEN_BYTES_MAX:
            answer, pieces = _TOO_SLOW, ()
        said = Frame(
            answer.status,
            frame.opaque,
            Flag.ANSWER,
            dict(answer.fields),
            answer.body,
            answer.remark,
            frame.language,
            VERSION,
            frame.serializer,
        )
        if pieces:
            self._say(encode_head(said, sum([len(piece) for piece in pieces])))
            self._out += pieces
            self._out_bytes += sum([len(piece) for piece in pieces])
        else:
            self._say(encode(said))

    def _say(self, out: bytes) -> None:
        self._out.append(out)
        self._out_bytes += len(out)

    def _untaken(self) -> int:
        return self._out_bytes + self._transport.get_write_buffer_size()

    # --- what the broker asks ---------------------------------------------------------------------

    def push(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Ask the client for something that it does not answer."""
        if not self._lost:
            self._say(self._request(code, fields, body, Flag.ONE_WAY))
            self.owes()

    def ask(
        self, code: int, fields: Mapping[str, str], body: bytes, timeout_s: float
    ) -> asyncio.Future[Frame]:
        """Ask the client for something; gives its answer, TimeoutError, or ConnectionError when it goes."""
        answer: asyncio.Future[Frame] = self._door.loop.create_future()
        if self._lost:
            answer.set_exception(ConnectionError("the client has gone"))
            return answer
        self._say(self._request(code, fields, body, Flag(0)))
        self._asked[self._opaque] = answer
        timer = self._door.loop.call_later(timeout_s, self._give_up, self._opaque)
        answer.add_done_callback(lambda _: timer.cancel())
        self.owes()
        return answer

    def _request(self, code: int, fields: Mapping[str, str], body: bytes, flag: Flag) -> bytes:
        self._opaque = self._opaque % _OPAQUE_MAX + 1
        return encode(
            Frame(
                code,
                self._opaque,
                flag,
                dict(fields),
                body,
                "",
                _OURS,
                VERSION,
                self._serializer,
            )
        )

    def _give_up(self, opaque: int) -> None:
        answer = self._asked.pop(opaque, None)
        if answer is not None and not answer.done():
            answer.set_exception(TimeoutError("the client has not answered"))

    def _hear_answer(self, frame: Frame) -> None:
        answer = self._asked.pop(frame.opaque, None)
        if answer is not None and not answer.done():
            answer.set_result(frame)

    # --- transport --------------------------------------------------------------------------------

    def take_output(self) -> bytes:
        """Everything that is to be written now."""
        out = b"".join(self._out)
        self._out.clear()
        self._out_bytes = 0
        return out

    def written(self) -> None:
        """It was; a connection that has ended is closed."""
        self._tell()
        if self._over or (self._leaving and self.is_idle):
            self._transport.close()

    def _tell(self) -> None:
        change = self._open_bytes - self._told
        self._told = self._open_bytes
        if change > 0:
            self._door.took(change)
        elif change < 0:
            self._door.gave(-change)

    def gone(self) -> None:
        """The peer has gone: nobody waits for its answers."""
        self._lost = True
        self._open_bytes = 0
        self._tell()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the client has gone"))
                answer.exception()  # noticed, if nobody waits for it any more
        self._asked.clear()
        self._service.gone(self)

    def look(self, now_ms: int, quiet_ms: int, unanswered_ms: int) -> None:
        """A peer of which nothing was heard for so long has gone: clients send heartbeats."""
        if now_ms - self.heard_ms >= quiet_ms:
            self._transport.abort()

    def leave(self) -> None:
        """Take no more requests; those under way are answered."""
        self._leaving = True
        self.flush()

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way, but for those that wait for something to happen."""
        return self._open <= self.parked

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    def check_invariants(self) -> None:
        """What is counted is there."""
        assert 0 <= self.parked <= self._open
        assert self._open_bytes >= 0
        assert self._told >= 0
        self._reader.check_invariants()
