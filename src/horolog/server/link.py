"""One connection of a door, whatever protocol it speaks: bytes from the transport, and back.

Plaintext and TLS share a port: the first byte of a connection tells.  What was said in one turn of the event loop is
written once.  Reading stops while too much is under way: answers that the peer does not take, or requests that the
disk has not taken yet (`door.Intake`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from enum import IntFlag
from ipaddress import IPv4Address, ip_address
from typing import Protocol, cast

from horolog.limits import UNFINISHED_SMALL
from horolog.protocol.grpc.translate import Peer
from horolog.server.connected import Origin
from horolog.server.shares import Share
from horolog.server.tls import HANDSHAKE, Certificate, Tls

_log = logging.getLogger("horolog.doors")
_WRITE_HIGH_BYTES = 4 << 20  # in the transport, before nothing more is read from that peer


class Stopped(IntFlag):
    """Why nothing is read from a peer."""

    BY_PEER = 1  # it does not take its answers
    BY_DOOR = 2  # too many requests are under way
    BY_SHARE = 4  # too many of its address
    BY_LINK = 8  # too many of its own


class Link(asyncio.Protocol):
    """One connection; what its bytes mean is for the protocol's own class, which has the methods that raise here.

    farewell  said to a connection too many
    address   of the peer, as text
    share     of what its address has taken; None until it is admitted
    under_way bytes of its requests without an answer
    requests  without an answer, but for those that wait for something to happen
    is_full   whether nothing is read from it, because these are too many
    """

    farewell = b""

    def __init__(self, door: Links) -> None:
        self._door = door
        self._tls: Tls | None = None
        self._begun = False
        self._owes = False
        self._stopped = Stopped(0)
        self.peer = Peer()
        self.address = ""
        self._port = 0
        self._connected_ms = 0
        self.share: Share | None = None
        self._held = 0  # bytes of requests that have not come to their end, as the door counts them
        self.under_way = self.requests = 0
        self.is_full = False
        self.heard_ms = time.monotonic_ns() // 1_000_000

    # --- what a protocol does ---------------------------------------------------------------------

    def hear(self, data: bytes, now_ms: int) -> None:
        """Bytes of the peer; answers to them are written when this returns."""
        raise NotImplementedError

    def take_output(self) -> bytes:
        """Everything that is to be written now."""
        raise NotImplementedError

    def written(self) -> None:
        """It was; a protocol that has ended closes the transport."""
        raise NotImplementedError

    def gone(self) -> None:
        """The peer has gone: nobody waits for its answers."""
        raise NotImplementedError

    def look(self, now_ms: int, quiet_ms: int, unanswered_ms: int) -> None:
        """Deal with a peer of which nothing was heard for `quiet_ms`."""
        raise NotImplementedError

    def leave(self) -> None:
        """Take no more requests; those under way are answered."""
        raise NotImplementedError

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        raise NotImplementedError

    def close(self) -> None:
        """End the connection."""
        raise NotImplementedError

    def puts_off(self) -> bool:
        """Whether what is to be written after `hear` goes with the answers to come, which saves a write."""
        return False

    @property
    def untaken(self) -> int:
        """Bytes of answers that the peer has not taken."""
        return self._transport.get_write_buffer_size()

    def cut_off(self) -> None:
        """End the connection now, whatever it is still owed."""
        self._transport.abort()

    # --- transport --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected."""
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass
        peer_name = transport.get_extra_info("peername")
        self.peer = peer_of(peer_name)
        if isinstance(peer_name, tuple) and len(peer_name) > 1:
            self.address, self._port = str(peer_name[0]), int(peer_name[1])
        self._connected_ms = time.time_ns() // 1_000_000
        transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        if not self._door.admit(self):
            transport.write(self.farewell)
            transport.close()

    @property
    def origin(self) -> Origin:
        """Where it comes from, for operators."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return Origin(f"{host}:{self._port}", self._tls is not None, self._connected_ms)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer has gone."""
        self.gone()
        if self.share is not None:
            self._door.holds(self, -self._held)
            self._held = 0
        self._door.lost(self)

    def holds(self, held: int) -> str:
        """Note how many bytes are held of requests that have not come to their end; gives "", or why this link must end.

        A few bytes always have room, and do not count.
        """
        held = held if held > UNFINISHED_SMALL else 0
        change, self._held = held - self._held, held
        return self._door.holds(self, change) if change else ""

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
        if self._stopped & why:
            self._stopped &= ~why
            if not self._stopped and not self._transport.is_closing():
                self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Bytes of the peer."""
        self.heard_ms = now_ms = time.monotonic_ns() // 1_000_000
        self._door.bytes_in += len(data)
        if not self._begun:
            self._begun = True
            if data[0] == HANDSHAKE and self._door.certificate is not None:
                try:
                    self._tls = Tls(self._door.certificate.context)
                except OSError as error:  # no file is to be had; the next connection tries again
                    self._door.log.warning("no certificate for TLS: %s", error.strerror or error)
                    self._transport.close()
                    return
        ended = False
        if self._tls is not None:
            data = self._tls.take(data)
            ended = self._tls.ended
        if data:
            self._owes = True  # what is said meanwhile is written by `flush`, at the end
            self.hear(data, now_ms)
            if self.puts_off() and not ended:
                self._owes = False
                return
        self.flush()
        if ended:
            self._transport.close()

    def eof_received(self) -> bool:
        """The peer writes nothing more; so does this end."""
        return False

    # --- writing ----------------------------------------------------------------------------------

    def owes(self) -> None:
        """Something was said: it is written once this turn of the event loop is over, or the core has a pause."""
        if not self._owes:
            self._owes = True
            self._door.owing.add(self)

    @property
    def owes_now(self) -> bool:
        """Whether something was said that is not written."""
        return self._owes

    def flush(self) -> None:
        """Write all that was said."""
        self._owes = False
        out = self.take_output()
        if self._tls is not None:
            if out:
                self._tls.give(out)
            out = self._tls.to_write()
        if out and not self._transport.is_closing():
            self._door.bytes_out += len(out)
            self._transport.write(out)
        self.written()


class Owing:
    """Links that have said something which is not written: `flush` writes it, at the latest after this turn of the loop."""

    def __init__(self) -> None:
        self._links: list[Link] = []

    def add(self, link: Link) -> None:
        """One more."""
        if not self._links:
            asyncio.get_running_loop().call_soon(self.flush)
        self._links.append(link)

    def flush(self) -> None:
        """Write what they said, unless it was written meanwhile."""
        links, self._links = self._links, []
        for link in links:
            if link.owes_now:
                try:
                    link.flush()
                except Exception:  # noqa: BLE001 - as it says
                    # Nobody else's answers, and no turn of the core, may suffer from it.
                    _log.exception("what a connection is owed could not be written")


class Links(Protocol):
    """What a link needs of its door."""

    loop: asyncio.AbstractEventLoop
    owing: Owing
    certificate: Certificate | None
    log: logging.Logger
    bytes_in: int
    bytes_out: int

    def admit(self, link: Link) -> bool:
        """Whether one more connection is taken."""
        ...

    def lost(self, link: Link) -> None:
        """A connection has ended."""
        ...

    def took(self, link: Link, size: int, count: int) -> None:
        """Count so many more requests, and bytes of them, that are under way."""
        ...

    def gave(self, link: Link, size: int, count: int) -> None:
        """Count so many that have their answers, or need none any more, or wait for something to happen."""
        ...

    def holds(self, link: Link, change: int) -> str:
        """Count so many more bytes of an unfinished request; gives "", or why the link must end."""
        ...

    def gives(self, link: Link, size: int) -> bool:
        """Whether an answer of so many bytes may be given; if not, too much is not taken already."""
        ...

    def fault(self, link: Link, fault: Exception) -> None:
        """A peer has broken the protocol."""
        ...


def peer_of(address: object) -> Peer:
    """IPv4 and port of a socket's peer name; zeros for anything else."""
    if not isinstance(address, tuple) or len(address) < 2:
        return Peer()
    try:
        host = ip_address(str(address[0]))
    except ValueError:
        return Peer()
    mapped = host if isinstance(host, IPv4Address) else host.ipv4_mapped
    return Peer(mapped.packed if mapped else b"\0\0\0\0", int(address[1]))
