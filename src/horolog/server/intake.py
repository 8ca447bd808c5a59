"""Count and limit what all doors of a broker have accepted together.

When the requests under way have more bytes than `BYTES_UNDER_WAY_MAX`, because the disk stalls,
nothing is read from any peer until half of those bytes are answered; further requests wait in the
peers.  Long before that, reading stops from a connection with many requests under way, and from an
address that has used its share (`shares`): a client that floods the broker waits alone.
"""

from __future__ import annotations

import logging

from horolog.limits import (
    BYTES_UNDER_WAY_MAX,
    CONNECTIONS_MAX,
    LINK_BYTES_UNDER_WAY_MAX,
    LINK_REQUESTS_MAX,
    UNFINISHED_BYTES_MAX,
    UNREAD_ALL_BYTES_MAX,
)
from horolog.server.link import Link, PendingOutput, Stopped
from horolog.server.shares import Bounds, Share, key_of
from horolog.server.unread_answers import UnreadAnswers

_log = logging.getLogger("horolog.doors")


class Intake:
    """Counts and limits what all doors of a broker have accepted together.

    connections  limit of connections; the newest are refused
    unfinished   limit of bytes of unfinished requests; a link that adds more is cut off
    share        percent of all limits that the clients of one address may use
    unread       limit of bytes of answers that clients have not read

    pending_output  links with output to write
    """

    def __init__(
        self,
        connections: int = CONNECTIONS_MAX,
        *,
        unfinished: int = UNFINISHED_BYTES_MAX,
        share: int = 100,
        unread: int = UNREAD_ALL_BYTES_MAX,
    ) -> None:
        self.connections_max = connections
        self._bounds = Bounds(share, connections, unfinished)
        self._shares: dict[str, Share] = {}
        self._unfinished_max = unfinished
        self._links: set[Link] = set()
        self.pending_output = PendingOutput()
        self.unread_answers = UnreadAnswers(self._links, unread)
        self._under_way = 0
        self._stopped = False  # reading, because of `_under_way`
        self._unfinished = 0  # bytes of unfinished requests

    def admit(self, link: Link) -> str:
        """Admit a connection; return "", or the reason why it is refused."""
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

    def remove(self, link: Link) -> None:
        """Remove a connection that has ended; the link itself subtracts what it had under way."""
        self._links.discard(link)
        share = link.share
        if share is not None:
            share.links.discard(link)
            if not share.links:
                self._shares.pop(share.key, None)

    def add_under_way(self, link: Link, size: int, count: int) -> None:
        """Add `count` requests of `size` bytes to those under way; stop reading at a limit."""
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

    def remove_under_way(self, link: Link, size: int, count: int) -> None:
        """Subtract `count` requests of `size` bytes from those under way; read if there is room.

        The requests have their answers, need none any more, or wait for an event.
        """
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
            link.resume_reading(Stopped.BY_LINK)
        if share.is_stopped and share.has_room:
            share.is_stopped = False
            for each in share.links:
                each.resume_reading(Stopped.BY_SHARE)
        if self._stopped and self._under_way < BYTES_UNDER_WAY_MAX // 2:
            self._stopped = False
            for each in self._links:
                each.resume_reading(Stopped.BY_DOOR)

    def count_unfinished(self, link: Link, change: int) -> str:
        """Add `change` to the bytes of unfinished requests; return "", or the limit exceeded."""
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
        """Check that totals are the sums of their parts, and addresses without links are gone."""
        shares = self._shares.values()
        assert self._links == {link for share in shares for link in share.links}
        assert self._under_way == sum(share.under_way for share in shares)
        assert self._unfinished == sum(share.unfinished for share in shares)
        for share in shares:
            assert share.links
            assert share.polls >= 0
            assert share.streams >= 0
            assert share.under_way == sum(link.under_way for link in share.links)
            assert share.requests == sum(link.requests for link in share.links)
