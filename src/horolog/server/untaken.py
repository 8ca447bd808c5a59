"""Answers that peers do not take, of all doors together: a memory that grows with whoever asks and never reads.

A peer that reads leaves nothing here but for moments.  While all together have left too much, who has left anything
gets no more large answers; at twice that nobody does.  Whoever then takes nothing for a while is cut off, and what it
was owed is free.
"""

from __future__ import annotations

import time
from collections.abc import Set
from typing import Protocol

from horolog.limits import UNTAKEN_BYTES_MAX, UNTAKEN_STUCK_MS

# Counting again asks every connection, so it is done after a while, or when much was given.
_COUNT_MS = 100
_COUNT_PART = 4


class Owed(Protocol):
    """A connection that is owed answers."""

    @property
    def untaken(self) -> int:
        """Bytes of answers that the peer has not taken."""
        ...

    def cut_off(self) -> None:
        """End it now, whatever it is still owed."""
        ...


class Untaken:
    """What all links have to give and could not.

    links  the connections that are open
    most   bytes of all together
    """

    def __init__(self, links: Set[Owed], most: int, *, link_most: int = UNTAKEN_BYTES_MAX) -> None:
        self._links = links
        self._most = most
        self._link_most = link_most
        self._bytes = 0  # at least what there is: what was given since it was counted may be taken
        self._counted = 0  # when it was
        self._counted_ms = 0
        self._stuck: dict[Owed, tuple[int, int]] = {}  # bytes, and since when they are not less

    def gives(self, link: Owed, size: int) -> bool:
        """Whether a link may give an answer of so many bytes; if so, it is counted."""
        untaken = link.untaken
        return untaken <= self._link_most and self._takes(size, 1 if untaken else 2)

    def has_room(self, size: int) -> bool:
        """The same of an answer of which it is not known who gets it."""
        return self._takes(size, 1)

    def _takes(self, size: int, times: int) -> bool:
        if self._bytes > self._most:
            self._count(time.monotonic_ns() // 1_000_000)
            if self._bytes > times * self._most:
                return False
        self._bytes += size
        return True

    def _count(self, now_ms: int) -> None:
        given = self._bytes - self._counted
        if given >= self._most // _COUNT_PART or now_ms - self._counted_ms >= _COUNT_MS:
            self._counted_ms = now_ms
            self._bytes = self._counted = sum(link.untaken for link in self._links)

    def cut_off(self, now_ms: int) -> int:
        """While there is too much: end links that have taken nothing for `UNTAKEN_STUCK_MS`; gives how many."""
        if self._bytes > self._most:
            self._count(now_ms)
        if self._bytes <= self._most:
            self._stuck.clear()
            return 0
        before, self._stuck = self._stuck, {}
        stuck = []
        for link in self._links:
            if untaken := link.untaken:
                size, since_ms = before.get(link, (untaken, now_ms))
                if untaken < size:
                    since_ms = now_ms
                self._stuck[link] = untaken, since_ms
                if now_ms - since_ms >= UNTAKEN_STUCK_MS:
                    stuck.append(link)
        for link in stuck:
            del self._stuck[link]  # it is among the links until its end was noticed
            link.cut_off()
        return len(stuck)
