"""One connection of the gRPC door: bytes from the transport to the protocol, and back.

What was said in one turn of the event loop is written once.  Reading stops while too much is under way: answers that
the peer does not take, or requests that the disk has not taken yet (`Door`).
"""

from __future__ import annotations

import asyncio
import time
from enum import IntFlag
from typing import Protocol, cast

from horolog.protocol.grpc.translate import Peer
from horolog.protocol.http2.calls import Asked, Calls, Dropped, Opened, Said, SaidAll
from horolog.protocol.http2.events import Done, Limits
from horolog.protocol.http2.faults import Code
from horolog.server.call import Call, peer_of
from horolog.server.tls import HANDSHAKE, Certificate, Tls, TlsEnd

_PING = b"horolog\0"
_WHY = b"too many connections: the broker takes no more of them"
# GOAWAY with ENHANCE_YOUR_CALM, and no SETTINGS before it: gRPC clients would take the connection for made, and come
# again ten times a second.  So they take it for failed, and wait longer each time.
_TOO_MANY = (
    (8 + len(_WHY)).to_bytes(3, "big") + b"\7" + bytes(9) + (11).to_bytes(4, "big") + _WHY
)  # fmt: skip
_WRITE_HIGH_BYTES = 4 << 20  # in the transport, before nothing more is read from that peer


class Service(Protocol):
    """Who handles calls."""

    streaming: frozenset[bytes]

    def asked(self, call: Call, message: bytes) -> None:
        """A call with one message."""
        ...

    def opened(self, call: Call) -> None:
        """A streaming call has begun."""
        ...

    def said(self, call: Call, message: bytes) -> None:
        """A message of a streaming call."""
        ...

    def said_all(self, call: Call) -> None:
        """The caller of a streaming call has nothing more to say."""
        ...


class Stopped(IntFlag):
    """Why nothing is read from a peer."""

    BY_PEER = 1  # it does not take its answers
    BY_DOOR = 2  # too many requests are under way


class Link(asyncio.Protocol):
    """One connection."""

    def __init__(self, door: Links, service: Service, limits: Limits) -> None:
        self._door = door
        self._service = service
        self._tls: Tls | None = None
        self._begun = False
        self._owes = False
        self._stopped = Stopped(0)
        self._open: dict[int, Call] = {}
        self.calls = Calls(service.streaming, limits)
        self.peer = Peer()
        self.heard_ms = time.monotonic_ns() // 1_000_000
        self.pinged_ms = 0  # 0: it was heard since

    # --- transport --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected."""
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass
        self.peer = peer_of(transport.get_extra_info("peername"))
        transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        if not self._door.admit(self):
            transport.write(_TOO_MANY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer has gone: nobody waits for its answers."""
        self._door.lost(self)
        self.calls.http.abort(Code.NO_ERROR)
        for stream in list(self._open):
            self._drop(stream)

    def pause_writing(self) -> None:
        """The peer does not take its answers."""
        self.stop_reading(Stopped.BY_PEER)

    def resume_writing(self) -> None:
        """It does again."""
        self.go_on_reading(Stopped.BY_PEER)

    def stop_reading(self, why: Stopped) -> None:
        """Read nothing more, until every reason for it has gone."""
        if not self._stopped:
            self._transport.pause_reading()
        self._stopped |= why

    def go_on_reading(self, why: Stopped) -> None:
        """One of the reasons has gone."""
        if self._stopped:
            self._stopped &= ~why
            if not self._stopped and not self._transport.is_closing():
                self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Bytes of the peer."""
        now_ms = time.monotonic_ns() // 1_000_000
        self.heard_ms, self.pinged_ms = now_ms, 0
        if not self._begun:
            self._begun = True
            if data[0] == HANDSHAKE and self._door.certificate is not None:
                self._tls = Tls(self._door.certificate.context)
        if self._tls is not None:
            try:
                data = self._tls.take(data)
            except TlsEnd:
                self._transport.write(self._tls.to_write())
                self._transport.close()
                return
        if data:
            self._take(data, now_ms)
        self._flush()

    def eof_received(self) -> bool:
        """The peer writes nothing more; so does this end."""
        return False

    # --- calls ------------------------------------------------------------------------------------

    def _take(self, data: bytes, now_ms: int) -> None:
        self._owes = True  # what is said meanwhile is written by `_flush`, at the end
        for event in self.calls.receive(data, now_ms):
            if type(event) is Asked:
                size = len(event.message)
                call = self._open[event.stream] = Call(self, event.stream, event.head, size)
                self._door.took(size)
                self._service.asked(call, event.message)
            elif type(event) is Opened:
                call = self._open[event.stream] = Call(self, event.stream, event.head, 0)
                self._service.opened(call)
            elif type(event) is Dropped:
                self._drop(event.stream)
            elif type(event) is Done:
                self._end(event.stream)
            elif type(event) is Said and (known := self._open.get(event.stream)) is not None:
                self._service.said(known, event.message)
            elif type(event) is SaidAll and (known := self._open.get(event.stream)) is not None:
                self._service.said_all(known)

    def answered(self, stream: int) -> None:
        """A call has its answer: it is over once the peer has room for it."""
        if not self.calls.http.is_open(stream):
            self._end(stream)
        self.owes()

    def _end(self, stream: int) -> Call | None:
        call = self._open.pop(stream, None)
        if call is not None:
            self._door.gave(call.size)
        return call

    def _drop(self, stream: int) -> None:
        call = self._end(stream)
        if call is not None and call.on_dropped is not None:
            call.on_dropped()

    def give_up(self, stream: int) -> None:
        """The peer takes too few of its answers to be given this one as well."""
        self.calls.cancel(stream)
        self._drop(stream)
        self.owes()

    def owes(self) -> None:
        """Something was said: it is written once this turn of the event loop is over."""
        if not self._owes:
            self._owes = True
            self._door.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._owes = False
        out = self.calls.http.take_output()
        if self._tls is not None:
            if out:
                self._tls.give(out)
            out = self._tls.to_write()
        if out and not self._transport.is_closing():
            self._transport.write(out)
        http = self.calls.http
        if http.closed:
            if http.fault is not None:
                self._door.fault(self, http.fault)
            self._transport.close()

    # --- the door's looks ---------------------------------------------------------------------------

    def look(self, now_ms: int, quiet_ms: int, unanswered_ms: int) -> None:
        """Ask a quiet peer whether it lives, and give one up that does not answer."""
        if self.pinged_ms:
            if now_ms - self.pinged_ms >= unanswered_ms:
                self._transport.abort()
        elif now_ms - self.heard_ms >= quiet_ms:
            self.pinged_ms = now_ms
            self.calls.http.ping(_PING)
            self._flush()

    def leave(self) -> None:
        """Take no more calls; those under way are answered."""
        self.calls.http.leave()
        self._flush()

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        return not self._open

    def close(self) -> None:
        """End the connection."""
        self.calls.http.abort(Code.NO_ERROR)
        self._flush()


class Links(Protocol):
    """What a link needs of its door."""

    loop: asyncio.AbstractEventLoop
    certificate: Certificate | None

    def admit(self, link: Link) -> bool:
        """Whether one more connection is taken."""
        ...

    def lost(self, link: Link) -> None:
        """A connection has ended."""
        ...

    def took(self, size: int) -> None:
        """A request of so many bytes is under way."""
        ...

    def gave(self, size: int) -> None:
        """It has its answer, or needs none any more."""
        ...

    def fault(self, link: Link, fault: Exception) -> None:
        """A peer has broken the protocol."""
        ...
