"""One connection of the gRPC door: passes bytes to the HTTP/2 protocol, and its output back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from horolog.limits import UNFINISHED_FRAME_MS, UNREAD_SMALL
from horolog.protocol.http2.calls import Calls, Dropped, Message, MessagesEnded, Opened, UnaryCall
from horolog.protocol.http2.events import AnswerSent, LateReset, Limits, Pong
from horolog.protocol.http2.faults import Code, ConnectionFault
from horolog.protocol.http2.frames import go_away
from horolog.protocol.http2.grpc_wire import DEADLINE_EXCEEDED
from horolog.server.call import Call
from horolog.server.link import Link, Links

_PING = b"horolog\0"
_READ = b"read"  # begins a ping after an answer; the id of the answered stream follows
_UNREAD_MAX = 1_024  # answers of a connection that wait for the pong
_PONG_S = 0.05
# GOAWAY, and no SETTINGS before it.  After SETTINGS gRPC clients would count the connection as
# made, and try again ten times a second.  Without, they count it as failed, and wait longer each
# time.
_TOO_MANY = go_away(
    0, Code.ENHANCE_YOUR_CALM, "too many connections: the broker takes no more of them"
)


class Service(Protocol):
    """The handler of the calls of a connection."""

    streaming: frozenset[bytes]

    def calls_received(self, calls: Sequence[tuple[Call, bytes]]) -> None:
        """Take calls with one request message each, which came together."""
        ...

    def stream_opened(self, call: Call) -> None:
        """Begin a streaming call."""
        ...

    def message_received(self, call: Call, message: bytes) -> None:
        """Take a message of a streaming call."""
        ...

    def input_ended(self, call: Call) -> None:
        """Note that the caller of a streaming call sends nothing more."""
        ...


class Http2Link(Link):
    """One HTTP/2 connection of a client.

    An answer that is written may never arrive: the connection is cut, or the caller stops waiting
    while a stalled network still has the answer.  If that matters to a call (`until_read`), a ping
    follows the answer.  A pong says that the peer has read both; a reset of the stream, or the end
    of the connection, that comes instead drops the call.
    """

    farewell = _TOO_MANY

    def __init__(self, door: Links, service: Service, limits: Limits) -> None:
        super().__init__(door)
        self._service = service
        self._open: dict[int, Call] = {}
        self._unread: dict[int, Call] = {}  # answered; the answers may be on their way
        self.calls = Calls(service.streaming, limits)
        self.pinged_ms = 0  # when the last ping was sent; 0: the peer was heard since
        self._pong: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Take bytes of the peer; any bytes, even TLS records only, show that it lives."""
        self.pinged_ms = 0
        super().data_received(data)

    def connection_ended(self) -> None:
        """Drop the calls of a peer that has disconnected: their answers have no reader."""
        if self._pong is not None:
            self._pong.cancel()
        self.calls.abort()
        for stream in [*self._open, *self._unread]:
            self._drop(stream)

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the peer has not read, or for which its windows have no room."""
        return self.calls.http.out.queued + super().unread_bytes

    def admit_answer(self, size: int) -> bool:
        """Return whether an answer of `size` bytes may be given; small ones always may."""
        return size <= UNREAD_SMALL or self._door.admit_answer(self, size)

    # --- calls ------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: int) -> None:
        """Take bytes of the peer; answers to them are written when `receive` returns."""
        asked: list[tuple[Call, bytes]] = []
        size = 0
        for event in self.calls.receive(data, now_ms):
            if type(event) is UnaryCall:
                stream, head, message = event
                call = self._open[stream] = Call(self, stream, head, len(message))
                size += call.size
                asked.append((call, message))
                continue
            if asked:
                self._ask(asked, size)
                asked, size = [], 0
            if type(event) is Opened:
                call = self._open[event.stream] = Call(self, event.stream, event.head, 0)
                call.counts = 0  # a stream lasts as long as its client, and is no request under way
                self._service.stream_opened(call)
            elif type(event) is Dropped or type(event) is LateReset:
                self._drop(event.stream)
            elif type(event) is AnswerSent:
                self._answer_written(event.stream)
            elif type(event) is Pong:
                self._answers_read(event.opaque)
            elif type(event) is Message and (known := self._open.get(event.stream)) is not None:
                self._service.message_received(known, event.message)
            elif (
                type(event) is MessagesEnded and (known := self._open.get(event.stream)) is not None
            ):
                self._service.input_ended(known)
        if asked:
            self._ask(asked, size)
        self._check_unfinished()

    def _check_unfinished(self) -> None:
        """Count the bytes held of unfinished requests; end this connection if all hold too many."""
        if why := self.count_unfinished(self.calls.held):
            self._door.fault(self, ConnectionFault(Code.ENHANCE_YOUR_CALM, why))
            self.calls.abort(Code.ENHANCE_YOUR_CALM, why)

    def _ask(self, asked: list[tuple[Call, bytes]], size: int) -> None:
        self._door.add_under_way(self, size, len(asked))
        self._service.calls_received(asked)

    def answered(self, stream: int) -> None:
        """Note that a call has its whole answer: the call is over once the peer has room for it.

        A call whose answer waits for room is not under way any more.  If it were, reading could
        stop because of it, and the WINDOW_UPDATE that makes room would never be read.
        """
        if not self.calls.http.is_open(stream):
            self._answer_written(stream)
        elif (call := self._open.get(stream)) is not None:
            self._door.remove_under_way(self, call.size, call.counts)
            call.size = call.counts = 0
        self.schedule_flush()

    def _answer_written(self, stream: int) -> None:
        """End a call with its whole answer; if it lasts until the answer is read, send a ping."""
        call = self._end(stream)
        if call is not None and call.until_read:
            self._unread[stream] = call
            self.calls.http.ping(_READ + stream.to_bytes(4, "big"))
            if len(self._unread) > _UNREAD_MAX:
                del self._unread[next(iter(self._unread))]

    def _answers_read(self, opaque: bytes) -> None:
        """Take a pong: the peer has read the answer before the ping, and all earlier ones."""
        last = int.from_bytes(opaque[len(_READ) :], "big")
        if opaque.startswith(_READ) and last in self._unread:
            for stream in list(self._unread):
                del self._unread[stream]
                if stream == last:
                    return

    def answer_all(self, calls: Sequence[Call], answers: Sequence[bytes]) -> None:
        """Answer calls of this connection that hold no poll; all at once if the peer has room."""
        done = 0
        if max(map(len, answers)) <= UNREAD_SMALL:
            done = self.calls.answer_all([call.stream for call in calls], answers)
        size = count = 0
        for call in calls[:done]:
            if self._open.pop(call.stream, None) is not None:
                size += call.size
                count += call.counts
        if count:
            self._door.remove_under_way(self, size, count)
        self.schedule_flush()
        for call, answer in zip(calls[done:], answers[done:], strict=True):
            call.answer(answer)

    def _end(self, stream: int) -> Call | None:
        call = self._open.pop(stream, None)
        if call is not None:
            self._door.remove_under_way(self, call.size, call.counts)
            if call.polls and self.share is not None:
                self.share.polls -= 1
        return call

    def count_poll(self, size: int) -> None:
        """Count a call that begins to wait for messages; its request of `size` bytes is not kept.

        Raise TOO_MANY_REQUESTS if too many calls of the address wait.
        """
        if self.share is not None:
            self.share.count_poll()
            self._door.remove_under_way(self, size, 1)

    def _drop(self, stream: int) -> None:
        call = self._end(stream) or self._unread.pop(stream, None)
        if call is not None and call.on_dropped is not None:
            call.on_dropped()

    def give_up(self, stream: int) -> None:
        """Cancel a call whose peer reads too few of its answers to be given this one as well."""
        self.calls.cancel(stream)
        self._drop(stream)
        self.schedule_flush()

    def may_delay_output(self) -> bool:
        """Return whether output is pongs only while calls are under way; write it in `_PONG_S`.

        Go and Java clients send a ping with every call, to measure the connection.
        """
        out = self.calls.http.out
        if not self.requests or not out.has_only_pongs:
            return False
        if out.ready and self._pong is None:
            self._pong = self._door.loop.call_later(_PONG_S, self._write_pong)
        return True

    def _write_pong(self) -> None:
        self._pong = None
        self.flush()

    def take_output(self) -> bytes:
        """Return all bytes that are to be written now."""
        return self.calls.http.take_output()

    def output_written(self) -> None:
        """Note that the output was written; close the transport of a connection that has ended."""
        http = self.calls.http
        if http.closed:
            if http.fault is not None:
                self._door.fault(self, http.fault)
            self._transport.close()

    # --- calls from the door ----------------------------------------------------------------------

    def check_timeouts(self, now_ms: int, quiet_ms: int, unanswered_ms: int) -> None:
        """Ping a quiet peer; end one that does not answer, and requests that take too long."""
        overdue = () if self._stopped else self.calls.overdue(now_ms - UNFINISHED_FRAME_MS)
        for stream in overdue:
            why = f"the request has not come to its end within {UNFINISHED_FRAME_MS} ms"
            self.calls.fail(stream, DEADLINE_EXCEEDED, why)
            self.give_up(stream)
        if overdue:
            self._check_unfinished()
        if self.pinged_ms:
            if now_ms - self.pinged_ms >= unanswered_ms:
                self._transport.abort()
        elif now_ms - self.last_received_ms >= quiet_ms:
            self.pinged_ms = now_ms
            self.calls.http.ping(_PING)
            self.flush()

    def stop_accepting(self) -> None:
        """Accept no more calls; answer those under way."""
        self.calls.http.announce_shutdown()
        self.flush()

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        return not self._open

    def close(self) -> None:
        """End the connection."""
        self.calls.abort()
        self.flush()
