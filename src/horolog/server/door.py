"""A listening port: accept connections, and look after quiet ones.

The links that a door makes know the protocol.  All doors of a broker share one `Intake`, which
limits what they accept.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import Callable
from contextlib import suppress

from horolog.clock import monotonic_ms
from horolog.limits import SECOND_MS
from horolog.server.intake import Intake
from horolog.server.link import Link
from horolog.server.ports import BACKLOG
from horolog.server.tls import Certificate

CHECKED_AT_ONCE = 500
"""Links that are checked without serving anybody meanwhile; they take some 1 ms."""


class Door:
    """One listening port.  `start` returns the real port; `stop` lets requests end in a grace time.

    make_link      makes the link of a new connection
    listener       a bound socket, which the door owns from now on
    intake         counts and limits of all doors together
    log            receives problems with connections
    certificate    of connections that ask for TLS; None: they are refused
    quiet_ms       a link of which nothing was heard for so long is probed, or ended
    unanswered_ms  a link that does not answer within this time is closed

    accepted, refused    connections since the start
    bytes_in, bytes_out  on the wire, of all connections
    """

    def __init__(
        self,
        make_link: Callable[[Door], Link],
        listener: socket.socket,
        *,
        intake: Intake,
        log: logging.Logger,
        certificate: Certificate | None = None,
        quiet_ms: int = 60_000,
        unanswered_ms: int = 20_000,
    ) -> None:
        self.certificate = certificate
        self._make_link = make_link
        self._listener = listener
        self.intake = intake
        self.pending_output = intake.pending_output
        self.log = log
        self._quiet_ms = quiet_ms
        self._unanswered_ms = unanswered_ms
        self._links: set[Link] = set()
        self._unchecked: list[Link] = []  # of this period
        self._refused = 0  # connections refused since the last log line about them
        self.accepted = self.refused = 0
        self.bytes_in = self.bytes_out = 0
        self._why_refused = ""
        self._idle: asyncio.Event | None = None

    async def start(self) -> int:
        """Accept connections; return the port."""
        self.loop = asyncio.get_running_loop()
        self._server = await self.loop.create_server(
            lambda: self._make_link(self), sock=self._listener, backlog=BACKLOG
        )
        self._check_links()
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self, grace_s: float = 0.5) -> None:
        """Refuse connections and requests, give those under way `grace_s` seconds, close."""
        self._server.close()
        self._timer.cancel()
        self._log_refused()
        self._idle = asyncio.Event()
        for link in list(self._links):
            link.stop_accepting()
        self._notice_idle()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), grace_s)
        self._idle = None  # or every link that ends would have all others looked at
        for link in list(self._links):
            link.close()
        await self._server.wait_closed()

    # --- calls from links -------------------------------------------------------------------------

    def admit(self, link: Link) -> bool:
        """Return whether one more connection is accepted, and count it."""
        if why := self.intake.admit(link):
            self._refused += 1
            self.refused += 1
            self._why_refused = why
            return False
        self._links.add(link)
        self.accepted += 1
        return True

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._links)

    def remove(self, link: Link) -> None:
        """Remove a connection that has ended."""
        self.intake.remove(link)
        self._links.discard(link)
        self._notice_idle()

    def add_under_way(self, link: Link, size: int, count: int) -> None:
        """Add `count` requests of `size` bytes to those under way."""
        self.intake.add_under_way(link, size, count)

    def remove_under_way(self, link: Link, size: int, count: int) -> None:
        """Subtract `count` requests of `size` bytes from those under way; read if there is room."""
        self.intake.remove_under_way(link, size, count)
        if self._idle is not None:
            self._notice_idle()

    def count_unfinished(self, link: Link, change: int) -> str:
        """Add `change` to the bytes of unfinished requests; return "", or why to end the link."""
        return self.intake.count_unfinished(link, change)

    def admit_answer(self, link: Link, size: int) -> bool:
        """Return whether an answer of `size` bytes may be given; if so, it is counted."""
        return self.intake.unread_answers.admit_answer(link, size)

    def fault(self, link: Link, fault: Exception) -> None:
        """Log a breach of the protocol; the peer has its error already."""
        self.log.debug("connection from %s ended: %s", link.peer, fault)

    def _notice_idle(self) -> None:
        if self._idle is not None and all(link.is_idle for link in self._links):
            self._idle.set()

    # --- quiet connections ------------------------------------------------------------------------

    def _log_refused(self) -> None:
        if self._refused:
            self.log.warning("%d connections refused: %s", self._refused, self._why_refused)
            self._refused = 0

    def _check_links(self) -> None:
        """Check some links; each link is checked once in a period."""
        now_ms = monotonic_ms()
        if not self._unchecked:
            self._begin_period(now_ms)
        for _ in range(min(CHECKED_AT_ONCE, len(self._unchecked))):
            link = self._unchecked.pop()
            if link not in self._links:
                continue
            if link.is_late(now_ms):
                link.cut_off()
            else:
                link.check_timeouts(now_ms, self._quiet_ms, self._unanswered_ms)
        self._timer = self.loop.call_later(self._pause_s, self._check_links)

    def _begin_period(self, now_ms: int) -> None:
        if stuck := self.intake.unread_answers.cut_off(now_ms):
            self.log.warning("%d connections cut off: they do not read their answers", stuck)
        self._log_refused()
        self._unchecked = list(self._links)
        period_ms = max(10, min(1_000, self._quiet_ms // 4, self._unanswered_ms // 4))
        pieces = max(1, math.ceil(len(self._unchecked) / CHECKED_AT_ONCE))
        self._pause_s = period_ms / SECOND_MS / pieces
