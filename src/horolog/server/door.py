"""A listening port: it takes connections, bounds them, and looks after quiet ones.

Which protocol is spoken is for the links that it is told to make.  All doors of a broker share one `Intake`: when the
requests under way have more bytes than `BYTES_UNDER_WAY_MAX`, because the disk stalls, nothing is read from anybody
until half of them have their answers; the bytes wait in the peers.  Long before that nothing is read from a connection
with many of them, and from an address that has its share (`shares`): who floods waits alone.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from horolog.limits import (
    BYTES_UNDER_WAY_MAX,
    CONNECTIONS_MAX,
    LINK_BYTES_UNDER_WAY_MAX,
    LINK_REQUESTS_MAX,
    UNFINISHED_BYTES_MAX,
    UNTAKEN_ALL_BYTES_MAX,
)
from horolog.server.link import Link, Owing, Stopped
from horolog.server.shares import Bounds, Share, key_of
from horolog.server.tls import Certificate
from horolog.server.untaken import Untaken

_BACKLOG = 1_024
_log = logging.getLogger("horolog.doors")


class Intake:
    """What all doors of a broker have taken together.

    connections  more are refused, the newest first
    unfinished   bytes of requests that have not come to their end; who adds more is cut off
    share        percent of all that the clients of one address may take
    untaken      bytes of answers that clients have not read

    owing  links with something to write
    """

    def __init__(
        self,
        connections: int = CONNECTIONS_MAX,
        *,
        unfinished: int = UNFINISHED_BYTES_MAX,
        share: int = 100,
        untaken: int = UNTAKEN_ALL_BYTES_MAX,
    ) -> None:
        self.connections_max = connections
        self._bounds = Bounds(share, connections, unfinished)
        self._shares: dict[str, Share] = {}
        self._unfinished_max = unfinished
        self._links: set[Link] = set()
        self.owing = Owing()
        self.answers = Untaken(self._links, untaken)
        self._under_way = 0
        self._stopped = False  # reading, by `_under_way`
        self._unfinished = 0  # bytes of requests that have not come to their end

    def admit(self, link: Link) -> str:
        """Take one more connection; "", or why not."""
        if len(self._links) >= self.connections_max:
            return f"{len(self._links)} are open, the most that are allowed"
        key = key_of(link.address)
        share = self._shares.get(key) or Share(key, self._bounds)
        if len(share.links) >= share.bounds.connections:
            return f"{len(share.links)} of {key} are open, the most that are allowed of one address"
        self._shares[key] = link.share = share
        share.links.add(link)
        self._links.add(link)
        if self._stopped:
            link.stop_reading(Stopped.BY_DOOR)
        if share.is_stopped:
            link.stop_reading(Stopped.BY_SHARE)
        return ""

    @property
    def under_way(self) -> int:
        """Bytes of requests without an answer."""
        return self._under_way

    def lost(self, link: Link) -> None:
        """A connection has ended; what it has taken it gives back by itself."""
        self._links.discard(link)
        share = link.share
        if share is not None:
            share.links.discard(link)
            if not share.links:
                self._shares.pop(share.key, None)

    def took(self, link: Link, size: int, count: int) -> None:
        """Count so many more requests, and bytes of them, that are under way."""
        share = link.share
        assert share is not None
        link.under_way += size
        link.requests += count
        if not link.is_full and (
            link.under_way > LINK_BYTES_UNDER_WAY_MAX or link.requests > LINK_REQUESTS_MAX
        ):
            link.is_full = True
            link.stop_reading(Stopped.BY_LINK)
        share.under_way += size
        share.requests += count
        if not share.is_stopped and share.has_too_much:
            share.is_stopped = True
            _log.warning(
                "reading from %s stops: %d requests of %d bytes are under way",
                share.key,
                share.requests,
                share.under_way,
            )
            for each in share.links:
                each.stop_reading(Stopped.BY_SHARE)
        self._under_way += size
        if self._under_way > BYTES_UNDER_WAY_MAX and not self._stopped:
            self._stopped = True
            _log.warning("reading stops: %d bytes of requests are under way", self._under_way)
            for each in self._links:
                each.stop_reading(Stopped.BY_DOOR)

    def gave(self, link: Link, size: int, count: int) -> None:
        """Count so many that have their answers, or need none any more, or wait for something to happen."""
        share = link.share
        assert share is not None
        link.under_way -= size
        link.requests -= count
        share.under_way -= size
        share.requests -= count
        self._under_way -= size
        assert self._under_way >= share.under_way >= link.under_way >= 0
        assert share.requests >= link.requests >= 0
        if (
            link.is_full
            and link.under_way < LINK_BYTES_UNDER_WAY_MAX // 2
            and link.requests < LINK_REQUESTS_MAX // 2
        ):
            link.is_full = False
            link.go_on_reading(Stopped.BY_LINK)
        if share.is_stopped and share.has_room:
            share.is_stopped = False
            for each in share.links:
                each.go_on_reading(Stopped.BY_SHARE)
        if self._stopped and self._under_way < BYTES_UNDER_WAY_MAX // 2:
            self._stopped = False
            for each in self._links:
                each.go_on_reading(Stopped.BY_DOOR)

    def holds(self, link: Link, change: int) -> str:
        """Count so many more bytes of requests that have not come to their end; gives "", or why they are too many."""
        share = link.share
        assert share is not None
        share.unfinished += change
        self._unfinished += change
        assert self._unfinished >= share.unfinished >= 0
        if change <= 0:
            return ""
        if self._unfinished > self._unfinished_max:
            return "too many bytes of unfinished requests are held already"
        if share.unfinished > share.bounds.unfinished:
            return f"too many bytes of unfinished requests of {share.key} are held already"
        return ""

    def check_invariants(self) -> None:
        """What is counted is what its parts have, and an address that has nothing is forgotten."""
        shares = self._shares.values()
        assert self._links == {link for share in shares for link in share.links}
        assert self._under_way == sum(share.under_way for share in shares)
        assert self._unfinished == sum(share.unfinished for share in shares)
        for share in shares:
            assert share.links
            assert share.polls >= 0
            assert share.under_way == sum(link.under_way for link in share.links)
            assert share.requests == sum(link.requests for link in share.links)


class Door:
    """One listening port.  `start` gives the real port; `stop` lets requests end within a grace time.

    make_link      what speaks on a new connection
    listener       a bound socket, which is the door's from now on
    intake         bounds of all doors together
    log            where it tells of what goes wrong with connections
    certificate    what connections that ask for TLS get; None: they are refused
    quiet_ms       a connection of which nothing was heard for so long is asked whether it lives, or ended
    unanswered_ms  it is closed when it does not answer within this time

    accepted, refused    connections since the start
    bytes_in, bytes_out  on the wire, of all of them
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
        self.owing = intake.owing
        self.log = log
        self._quiet_ms = quiet_ms
        self._unanswered_ms = unanswered_ms
        self._links: set[Link] = set()
        self._refused = 0  # connections since the last line about it
        self.accepted = self.refused = 0
        self.bytes_in = self.bytes_out = 0
        self._why_refused = ""
        self._idle: asyncio.Event | None = None

    async def start(self) -> int:
        """Take connections; gives the port."""
        self.loop = asyncio.get_running_loop()
        self._server = await self.loop.create_server(
            lambda: self._make_link(self), sock=self._listener, backlog=_BACKLOG
        )
        self._look()
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self, grace_s: float = 0.5) -> None:
        """Take no more connections and requests, give those under way `grace_s` seconds, close."""
        self._server.close()
        self._timer.cancel()
        self._tell_refused()
        self._idle = asyncio.Event()
        for link in list(self._links):
            link.leave()
        self._notice_idle()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), grace_s)
        for link in list(self._links):
            link.close()
        await self._server.wait_closed()

    # --- what links tell ----------------------------------------------------------------------------

    def admit(self, link: Link) -> bool:
        """Whether one more connection is taken."""
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
        """How many are open."""
        return len(self._links)

    def lost(self, link: Link) -> None:
        """A connection has ended."""
        self.intake.lost(link)
        self._links.discard(link)
        self._notice_idle()

    def took(self, link: Link, size: int, count: int) -> None:
        """Count so many more requests, and bytes of them, that are under way."""
        self.intake.took(link, size, count)

    def gave(self, link: Link, size: int, count: int) -> None:
        """Count so many that have their answers, or need none any more, or wait for something to happen."""
        self.intake.gave(link, size, count)
        if self._idle is not None:
            self._notice_idle()

    def holds(self, link: Link, change: int) -> str:
        """Count so many more bytes of an unfinished request; gives "", or why its link must end."""
        return self.intake.holds(link, change)

    def gives(self, link: Link, size: int) -> bool:
        """Whether an answer of so many bytes may be given."""
        return self.intake.answers.gives(link, size)

    def fault(self, link: Link, fault: Exception) -> None:
        """A peer has broken the protocol: told to it already, and here for whoever looks."""
        self.log.debug("connection from %s ended: %s", link.peer, fault)

    def _notice_idle(self) -> None:
        if self._idle is not None and all(link.is_idle for link in self._links):
            self._idle.set()

    # --- quiet connections ----------------------------------------------------------------------------

    def _tell_refused(self) -> None:
        if self._refused:
            self.log.warning("%d connections refused: %s", self._refused, self._why_refused)
            self._refused = 0

    def _look(self) -> None:
        now_ms = time.monotonic_ns() // 1_000_000
        for link in list(self._links):
            link.look(now_ms, self._quiet_ms, self._unanswered_ms)
        if stuck := self.intake.answers.cut_off(now_ms):
            self.log.warning("%d connections cut off: they do not read their answers", stuck)
        self._tell_refused()
        every_ms = max(10, min(1_000, self._quiet_ms // 4, self._unanswered_ms // 4))
        self._timer = self.loop.call_later(every_ms / 1_000, self._look)
