"""Limit the answers that peers have not read, of all doors together.

Clients that ask and never read would make this memory grow without bound.  A peer that reads has
unread answers for moments only.  While the total is above its limit, a link with unread bytes gets
no more large answers; at twice the limit no link does.  A link that then reads nothing for a while
is cut off, which frees its answers.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from horolog.clock import monotonic_ms
from horolog.limits import UNREAD_BYTES_MAX, UNREAD_STUCK_MS

# Counting again asks every connection, so it is done after a while, or when much was given.
_COUNT_MS = 100
_COUNT_PART = 4


class Connection(Protocol):
    """A connection with answers to write."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the peer has not read."""
        ...

    def cut_off(self) -> None:
        """End the connection at once, and drop the answers that are not written."""
        ...


class UnreadAnswers:
    """Counts the bytes that all links could not write yet.

    links      the open connections
    bytes_max  limit of bytes for all links together
    """

    def __init__(
        self, links: Set[Connection], bytes_max: int, *, link_bytes_max: int = UNREAD_BYTES_MAX
    ) -> None:
        self._links = links
        self._bytes_max = bytes_max
        self._link_bytes_max = link_bytes_max
        self._bytes = 0  # an upper bound: bytes given since the last count may have been read
        self._counted = 0  # `_bytes` at the last count
        self._counted_ms = 0
        # Unread bytes, and since when they are not fewer, in ms.
        self._stuck: dict[Connection, tuple[int, int]] = {}

    def admit_answer(self, link: Connection, size: int) -> bool:
        """Return whether a link may give an answer of `size` bytes; if so, count it."""
        unread_bytes = link.unread_bytes
        return unread_bytes <= self._link_bytes_max and self._admit(size, 1 if unread_bytes else 2)

    def admit_answer_to_unknown(self, size: int) -> bool:
        """Return whether a link not yet known may get an answer of `size` bytes; count it if so."""
        return self._admit(size, 1)

    def _admit(self, size: int, times: int) -> bool:
        if self._bytes > self._bytes_max:
            self._count(monotonic_ms())
            if self._bytes > times * self._bytes_max:
                return False
        self._bytes += size
        return True

    def _count(self, now_ms: int) -> None:
        given = self._bytes - self._counted
        if given >= self._bytes_max // _COUNT_PART or now_ms - self._counted_ms >= _COUNT_MS:
            self._counted_ms = now_ms
            self._bytes = self._counted = sum(link.unread_bytes for link in self._links)

    def cut_off(self, now_ms: int) -> int:
        """End links whose peers read nothing for `UNREAD_STUCK_MS` while the total is too large.

        Return how many links were ended.
        """
        if self._bytes > self._bytes_max:
            self._count(now_ms)
        if self._bytes <= self._bytes_max:
            self._stuck.clear()
            return 0
        before, self._stuck = self._stuck, {}
        stuck = []
        for link in self._links:
            if unread_bytes := link.unread_bytes:
                size, since_ms = before.get(link, (unread_bytes, now_ms))
                if unread_bytes < size:
                    since_ms = now_ms
                self._stuck[link] = unread_bytes, since_ms
                if now_ms - since_ms >= UNREAD_STUCK_MS:
                    stuck.append(link)
        for link in stuck:
            del self._stuck[link]  # a link stays among `_links` until its end is noticed
            link.cut_off()
        return len(stuck)
