"""One connection of a door, for any protocol: bytes from the transport, and bytes back to it.

Plaintext and TLS share a port: the first byte of a connection tells them apart.  The output of one
turn of the event loop is written once.  Reading stops while too much is under way: answers that
the peer does not read, or requests that the disk has not taken yet (`intake`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from enum import IntFlag
from ipaddress import IPv4Address, ip_address
from typing import Protocol, cast

from horolog.clock import monotonic_ms
from horolog.limits import UNFINISHED_FRAME_MS, UNFINISHED_SMALL
from horolog.protocol.grpc.translate import Peer
from horolog.server.connected import Origin
from horolog.server.shares import Share
from horolog.server.tls import HANDSHAKE, Certificate, Tls

_log = logging.getLogger("horolog.doors")
_WRITE_HIGH_BYTES = 4 << 20  # of unread answers in the transport, before reading stops


class Stopped(IntFlag):
    """The reasons for which a link reads nothing from its peer."""

    BY_PEER = 1  # the peer does not read its answers
    BY_DOOR = 2  # too many requests of the whole door are under way
    BY_SHARE = 4  # too many requests of the peer's address
    BY_LINK = 8  # too many requests of the link itself


class Link(asyncio.Protocol):
    """One connection; a subclass for each protocol implements the methods that raise here.

    farewell  written to a connection that is refused because there are too many
    address   of the peer, as text
    share     counts what the peer's address uses; None until the link is admitted
    under_way bytes of requests without an answer
    requests  requests without an answer, except those that wait for an event
    is_full   nothing is read from the peer, because the link has too many unanswered requests
    """

    farewell = b""

    def __init__(self, door: Links) -> None:
        self._door = door
        self._tls: Tls | None = None
        self._begun_ms = 0  # when the first bytes came, or those of an unfinished TLS record
        self._awaits_flush = False
        self._stopped = Stopped(0)
        self.peer = Peer()
        self.address = ""
        self._port = 0
        self._connected_ms = 0
        self.share: Share | None = None
        self._held = 0  # bytes of unfinished requests
        self._unfinished = 0  # these and what TLS holds, as the door counts them
        self.under_way = self.requests = 0
        self.is_full = False
        self.last_received_ms = monotonic_ms()

    # --- what a protocol does ---------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: int) -> None:
        """Take bytes of the peer; answers to them are written when `receive` returns."""
        raise NotImplementedError

    def take_output(self) -> bytes:
        """Take all bytes that are to be written now."""
        raise NotImplementedError

    def output_written(self) -> None:
        """Note that the output was written; a protocol that has ended closes the transport."""
        raise NotImplementedError

    def connection_ended(self) -> None:
        """Drop the requests of a peer that has disconnected: their answers have no reader."""
        raise NotImplementedError

    def check_timeouts(self, now_ms: int, quiet_ms: int, unanswered_ms: int) -> None:
        """Deal with a peer from which nothing was heard for `quiet_ms`."""
        raise NotImplementedError

    def stop_accepting(self) -> None:
        """Accept no more requests; answer those under way."""
        raise NotImplementedError

    def is_late(self, now_ms: int) -> bool:
        """Return whether the handshake or a record of TLS has not come to its end in time."""
        is_amid = self._tls is not None and self._tls.held > 0 and not self._stopped
        return is_amid and now_ms - self._begun_ms >= UNFINISHED_FRAME_MS

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        raise NotImplementedError

    def close(self) -> None:
        """End the connection."""
        raise NotImplementedError

    def may_delay_output(self) -> bool:
        """Return whether output of `receive` may wait for later answers, which saves a write."""
        return False

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the peer has not read."""
        return self._transport.get_write_buffer_size()

    def cut_off(self) -> None:
        """End the connection at once, and drop the answers that are not written."""
        self._transport.abort()

    # --- transport --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register a new connection with the door; refuse it if the door does not admit it."""
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
        """The peer's address, use of TLS and time of connection, for operators."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return Origin(f"{host}:{self._port}", self._tls is not None, self._connected_ms)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything that the door counts for a connection that has ended."""
        self.connection_ended()
        if self.share is not None:
            self._door.count_unfinished(self, -self._unfinished)
            self._unfinished = 0
        self._door.remove(self)

    def count_unfinished(self, held: int) -> str:
        """Count the bytes held of unfinished requests; return "", or why the link must end.

        A few bytes (up to `UNFINISHED_SMALL`) always have room, and do not count.
        """
        self._held = held
        if self._tls is not None:
            held += self._tls.held
        held = held if held > UNFINISHED_SMALL else 0
        change, self._unfinished = held - self._unfinished, held
        return self._door.count_unfinished(self, change) if change else ""

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not read its answers."""
        self.stop_reading(Stopped.BY_PEER)

    def resume_writing(self) -> None:
        """Read again from a peer that reads its answers again."""
        self.resume_reading(Stopped.BY_PEER)

    def stop_reading(self, why: Stopped) -> None:
        """Read nothing more, until every reason to stop has been removed."""
        if not self._stopped:
            self._transport.pause_reading()
        self._stopped |= why

    def resume_reading(self, why: Stopped) -> None:
        """Remove a reason to stop; read again if it was the last one."""
        if self._stopped & why:
            self._stopped &= ~why
            if not self._stopped and not self._transport.is_closing():
                self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the peer, decrypt them if the peer speaks TLS, and write the answers."""
        self.last_received_ms = now_ms = monotonic_ms()
        self._door.bytes_in += len(data)
        if not self._begun_ms:
            self._begun_ms = now_ms
            if data[0] == HANDSHAKE and self._door.certificate is not None:
                try:
                    self._tls = Tls(self._door.certificate.context)
                except OSError as error:  # no free file descriptor; a later connection may succeed
                    self._door.log.warning("no certificate for TLS: %s", error.strerror or error)
                    self._transport.close()
                    return
        ended = False
        if self._tls is not None:
            held = self._tls.held
            data = self._tls.decrypt(data)
            ended = self._tls.ended
            if data or not held:
                self._begun_ms = now_ms
            if (held or self._tls.held) and (why := self.count_unfinished(self._held)):
                self._door.fault(self, ConnectionError(why))
                ended = True
        if data:
            # So that output made meanwhile is written once, by the `flush` below.
            self._awaits_flush = True
            self.receive(data, now_ms)
            if self.may_delay_output() and not ended:
                self._awaits_flush = False
                return
        self.flush()
        if ended:
            self._transport.close()

    def eof_received(self) -> bool:
        """Close the transport: when a peer ends its side, the door ends its own."""
        return False

    # --- writing ----------------------------------------------------------------------------------

    def schedule_flush(self) -> None:
        """Have the output written when this turn of the event loop ends, or the core pauses."""
        if not self._awaits_flush:
            self._awaits_flush = True
            self._door.pending_output.add(self)

    @property
    def awaits_flush(self) -> bool:
        """Whether the link has output that is not written."""
        return self._awaits_flush

    def flush(self) -> None:
        """Write all output of the link."""
        self._awaits_flush = False
        out = self.take_output()
        if self._tls is not None:
            if out:
                self._tls.encrypt(out)
            out = self._tls.to_write()
        if out and not self._transport.is_closing():
            self._door.bytes_out += len(out)
            self._transport.write(out)
        self.output_written()


class PendingOutput:
    """Links whose output is not written yet.

    `flush` writes the output, at the latest after the current turn of the event loop.
    """

    def __init__(self) -> None:
        self._links: list[Link] = []

    def add(self, link: Link) -> None:
        """Add a link that has output."""
        if not self._links:
            asyncio.get_running_loop().call_soon(self.flush)
        self._links.append(link)

    def flush(self) -> None:
        """Write the output of every link, unless it was written meanwhile."""
        links, self._links = self._links, []
        for link in links:
            if link.awaits_flush:
                try:
                    link.flush()
                except Exception:  # noqa: BLE001 - as it says
                    # One broken connection must not harm the answers of others, or the core's turn.
                    _log.exception("the answers of a connection could not be written")


class Links(Protocol):
    """The methods and fields of a door that a link uses."""

    loop: asyncio.AbstractEventLoop
    pending_output: PendingOutput
    certificate: Certificate | None
    log: logging.Logger
    bytes_in: int
    bytes_out: int

    def admit(self, link: Link) -> bool:
        """Return whether one more connection is accepted."""
        ...

    def remove(self, link: Link) -> None:
        """Remove a connection that has ended."""
        ...

    def add_under_way(self, link: Link, size: int, count: int) -> None:
        """Add `count` requests of `size` bytes to those under way."""
        ...

    def remove_under_way(self, link: Link, size: int, count: int) -> None:
        """Subtract `count` requests of `size` bytes from those under way.

        The requests have their answers, need none any more, or wait for an event.
        """
        ...

    def count_unfinished(self, link: Link, change: int) -> str:
        """Add `change` to the bytes of unfinished requests; return "", or why to end the link."""
        ...

    def admit_answer(self, link: Link, size: int) -> bool:
        """Return whether an answer of `size` bytes may be given.

        Return False if the peer has too many unread bytes already.
        """
        ...

    def fault(self, link: Link, fault: Exception) -> None:
        """Log a peer's breach of the protocol."""
        ...


def peer_of(address: object) -> Peer:
    """Return IPv4 address and port of a socket's peer name; zeros for anything else."""
    if not isinstance(address, tuple) or len(address) < 2:
        return Peer()
    try:
        host = ip_address(str(address[0]))
    except ValueError:
        return Peer()
    mapped = host if isinstance(host, IPv4Address) else host.ipv4_mapped
    return Peer(mapped.packed if mapped else b"\0\0\0\0", int(address[1]))
