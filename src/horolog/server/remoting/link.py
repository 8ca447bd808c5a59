"""One connection of a 4.x client: frames in, one write for all output of a loop turn.

Requests come pipelined, and are answered in any order.  The broker sends requests too (`push`,
`ask`), to clients that registered on this connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from horolog.access.guard import Guard
from horolog.access.rules import Identity, Right, need_of_topic
from horolog.errors import HorologError
from horolog.limits import (
    REMARK_MAX,
    UNFINISHED_FRAME_MS,
    UNREAD_BYTES_MAX,
    UNREAD_SMALL,
)
from horolog.protocol.remoting.codes import SEND_CODES, Status, status_of
from horolog.protocol.remoting.frame import (
    OTHER,
    Frame,
    FrameFault,
    LongFields,
    Serializer,
)
from horolog.protocol.remoting.frame_writer import encode_answer
from horolog.protocol.remoting.request import Answer
from horolog.protocol.remoting.send_reader import Alike, SendReader
from horolog.protocol.remoting.shapes import Shapes
from horolog.server.link import Link, Links
from horolog.server.remoting.own_requests import OwnRequests
from horolog.server.remoting.request import Request

_log = logging.getLogger("horolog.remoting")
_HEADER_BYTES = 512  # about what a header takes while its request is under way

Piece = bytes | memoryview
_TOO_SLOW = Answer(
    Status.SYSTEM_BUSY, remark="connection: too many answers are not taken yet; read them first"
)


def size_of(frame: Frame | Alike) -> int:
    """Return the bytes that a request, or a run of requests, keeps while it is under way."""
    if isinstance(frame, Alike):
        return _HEADER_BYTES * len(frame) + frame.body_bytes
    fields = frame.fields
    if type(fields) is LongFields:
        return fields.header_bytes + len(frame.body)
    return _HEADER_BYTES + len(frame.body)


class Service(Protocol):
    """The handler of the requests of a connection."""

    def request_received(self, request: Request) -> None:
        """Handle a request."""
        ...

    def sends_received(self, link: RemotingLink, frames: Sequence[Frame | Alike]) -> None:
        """Handle all sends of a chunk."""
        ...

    def connection_ended(self, link: RemotingLink) -> None:
        """Note that a connection has ended."""
        ...


class RemotingLink(Link):
    """One remoting connection of a client.

    shapes              of the messages that the client sends
    parked              requests that wait for an event
    is_lost             the peer has disconnected
    language, version   of the client, as its last request states them
    identity            that signed the last request; None where no signature is needed
    guard               checks the identity's rights now: the access file may have changed
    """

    def __init__(self, door: Links, service: Service) -> None:
        super().__init__(door)
        self._service = service
        self._reader = SendReader()
        self._out: list[Piece] = []
        self._out_bytes = 0
        self._open = 0  # requests without an answer
        self._open_bytes = 0  # bytes of these requests
        self._unfinished_ms = 0  # since when an unfinished frame is held
        self._is_broken = False  # the peer has broken the protocol
        self.is_lost = False
        self._is_stopping = False
        self._own = OwnRequests()
        self.shapes = Shapes()
        self._serializer = Serializer.JSON
        self.parked = 0
        self.identity: Identity | None = None
        self.guard: Guard | None = None
        self.language = OTHER
        self.version = 0

    @property
    def dialled(self) -> str:
        """The address of this broker that the peer has dialled, IPv6 in brackets."""
        host = str(self._transport.get_extra_info("sockname")[0])
        return f"[{host}]" if ":" in host else host

    # --- requests ---------------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: int) -> None:
        """Take bytes of the peer; answers to them are written when `receive` returns."""
        if self._is_stopping or self._is_broken:
            return
        try:
            frames = self._reader.receive_alike(data)
        except FrameFault as fault:
            self._end(fault)
            return
        if frames:
            last = frames[-1]
            last = last.sample if isinstance(last, Alike) else last
            self.language, self.version = last.language, last.version
            self._serializer = last.serializer
        sends: list[Frame | Alike] = []
        for frame in frames:
            if isinstance(frame, Alike):
                self._open += len(frame)
                self._open_bytes += size_of(frame)
                sends.append(frame)
                continue
            if frame.is_answer:
                self._own.take_answer(frame)
                continue
            self._open += 1
            self._open_bytes += size_of(frame)
            if frame.code in SEND_CODES:
                sends.append(frame)
            else:
                self._service.request_received(Request(self, frame))
        if sends:
            self._service.sends_received(self, sends)
        self._check_unfinished(now_ms, new=bool(frames))

    def _end(self, fault: Exception) -> None:
        self._door.fault(self, fault)
        self._is_broken = True

    def _check_unfinished(self, now_ms: int, *, new: bool) -> None:
        """Count the bytes of an unfinished frame; end this connection if all hold too many."""
        held = self._reader.held
        if not held:
            self._unfinished_ms = 0
        elif new or not self._unfinished_ms:
            self._unfinished_ms = now_ms
        if why := self.count_unfinished(held):
            self._end(FrameFault(why))

    def answer(
        self, frame: Frame, answer: Answer, pieces: Sequence[Piece] = (), *, parked: bool = False
    ) -> bool:
        """Answer a request; `pieces` form the body.  False if the peer does not get it as it is."""
        if self.is_lost:
            return False
        self._open -= 1
        self._open_bytes -= size_of(frame)
        if parked:
            self.parked -= 1
            if self.share is not None:
                self.share.polls -= 1
        self.schedule_flush()
        if frame.is_one_way:
            return False
        is_whole = not self._transport.is_closing()
        size = sum([len(piece) for piece in pieces]) if pieces else len(answer.body)
        if size > UNREAD_SMALL and not self._door.admit_answer(self, size):
            answer, pieces, size, is_whole = _TOO_SLOW, (), 0, False
        status, fields, body, remark = answer
        if len(remark) > REMARK_MAX:
            remark = remark[:REMARK_MAX]
        try:
            head = encode_answer(frame, status, fields, remark, size)
        except FrameFault as fault:
            head = encode_answer(frame, Status.SYSTEM_ERROR, {}, f"answer: {fault}", 0)
            size, pieces, body, is_whole = 0, (), b"", False
        if pieces:
            self._queue_output(head)
            self._out += pieces
            self._out_bytes += size
        else:
            self._queue_output(head + body)
        return is_whole

    def park(self, frame: Frame) -> Frame:
        """Park a request that waits for an event; return the part that its answer needs.

        Raise TOO_MANY_REQUESTS if too many requests of the address wait.
        """
        kept = frame._replace(fields={}, body=b"", remark="")
        if self.is_lost:
            return kept
        if self.share is not None:
            self.share.count_poll()
        self.parked += 1
        self._open_bytes -= size_of(frame) - size_of(kept)
        self.schedule_flush()  # writes nothing, but lets the door count again
        return kept

    def answer_all(self, frames: Sequence[Frame | Alike], answers: list[bytes]) -> None:
        """Write the encoded answers of many requests; one-way requests have none."""
        if self.is_lost:
            return
        for frame in frames:
            self._open -= len(frame) if isinstance(frame, Alike) else 1
            self._open_bytes -= size_of(frame)
        self._out += answers
        self._out_bytes += sum(map(len, answers))
        self.schedule_flush()

    def fail(self, frame: Frame, error: BaseException, *, parked: bool = False) -> None:
        """Answer a request with an error; log the error if it is a bug of our own."""
        if isinstance(error, HorologError):
            self.answer(frame, Answer(status_of(error.code), remark=error.message), parked=parked)
            return
        _log.error("code %d: unexpected %r", frame.code, error, exc_info=error)
        remark = f"broker: unexpected {type(error).__name__}"
        self.answer(frame, Answer(Status.SYSTEM_ERROR, remark=remark), parked=parked)

    def _queue_output(self, out: bytes) -> None:
        self._out.append(out)
        self._out_bytes += len(out)

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the peer has not read."""
        return self._out_bytes + self._transport.get_write_buffer_size()

    # --- requests to the client -------------------------------------------------------------------

    @property
    def is_reading(self) -> bool:
        """Whether the client is there, and reads its connection."""
        return not self.is_lost and self.unread_bytes <= UNREAD_BYTES_MAX

    def may_publish(self, name: str) -> bool:
        """Return whether the client may send to a topic, and so may know what was sent to it."""
        if self.identity is None or self.guard is None:
            return True
        identity = self.guard.known_now(self.identity)
        return identity is not None and identity.has((need_of_topic(name, Right.PUB),))

    def push(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> bool:
        """Send a one-way request to the client; return False if it does not read its connection."""
        if not self.is_reading:
            return False
        self._queue_output(self._own.encode(code, fields, body, self._serializer, one_way=True))
        self.schedule_flush()
        return True

    def ask(
        self, code: int, fields: Mapping[str, str], body: bytes, timeout_s: float
    ) -> asyncio.Future[Frame]:
        """Send a request to the client; the future returns the answer, or raises TimeoutError.

        It raises ConnectionError if the client leaves, or does not read its connection.
        """
        if not self.is_reading:
            answer: asyncio.Future[Frame] = self._door.loop.create_future()
            answer.set_exception(ConnectionError("the client has gone, or reads nothing"))
            return answer
        self._queue_output(self._own.encode(code, fields, body, self._serializer))
        self.schedule_flush()
        return self._own.wait(self._door.loop, timeout_s)

    # --- transport --------------------------------------------------------------------------------

    def take_output(self) -> bytes:
        """Return all bytes that are to be written now."""
        out = b"".join(self._out)
        self._out.clear()
        self._out_bytes = 0
        return out

    def output_written(self) -> None:
        """Note that the output was written; close the transport of a connection that has ended."""
        self._report_under_way()
        if self._is_broken or (self._is_stopping and self.is_idle):
            self._transport.close()

    def _report_under_way(self) -> None:
        change, count = self._open_bytes - self.under_way, self._open - self.parked - self.requests
        if change > 0 or count > 0:
            self._door.add_under_way(self, change, count)
        elif change or count:
            self._door.remove_under_way(self, -change, -count)

    def connection_ended(self) -> None:
        """Drop the requests of a peer that has disconnected: their answers have no reader."""
        self.is_lost = True
        self._open_bytes = 0
        self._open = self.parked
        if self.share is not None:
            self.share.polls -= self.parked
            self._report_under_way()
        self._own.end()
        self._service.connection_ended(self)

    def check_timeouts(self, now_ms: int, quiet_ms: int, unanswered_ms: int) -> None:
        """End a connection that is silent too long (clients send heartbeats) or in mid-frame."""
        late = self._unfinished_ms and now_ms - self._unfinished_ms >= UNFINISHED_FRAME_MS
        if now_ms - self.last_received_ms >= quiet_ms or (late and not self._stopped):
            self._transport.abort()

    def stop_accepting(self) -> None:
        """Accept no more requests; answer those under way."""
        self._is_stopping = True
        self.flush()

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way, except those that wait for an event."""
        return self._open <= self.parked

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    def check_invariants(self) -> None:
        """Check that the counts of requests and bytes are consistent."""
        assert 0 <= self.parked <= self._open
        assert self._open_bytes >= 0
        self._reader.check_invariants()
        self.shapes.check_invariants()
