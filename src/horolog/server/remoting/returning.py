"""Consumers that are back after a restart of the broker, but have sent no heartbeat yet.

Clients of 4.x commit every 5 s, and send a heartbeat every 30 s.  A member that got a list of its
group without those that come a little later would take their queues, and what they have consumed
but not committed.  So nobody gets a list while clients of the group are awaited, and each keeps the
queues that it has.  The caller passes the time.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from horolog.limits import CLIENTS_REMEMBERED_MAX

if TYPE_CHECKING:
    from horolog.server.remoting.link import RemotingLink

_COMMITS_MS = 6_000  # until then each client has connected again, and has committed
_HEARTBEATS_MS = 35_000  # until then it has sent a heartbeat


class ReturningConsumers:
    """Connections without a heartbeat that consume for a group, for some time after a start."""

    def __init__(self) -> None:
        self._started_ms: int | None = None  # None: nobody is awaited
        self._groups: dict[RemotingLink, set[str]] = {}
        self._awaited: Counter[str] = Counter()  # connections, by group

    def await_all(self, now_ms: int) -> None:
        """Await the clients that the broker had before it stopped, of any group."""
        self._started_ms = now_ms

    def add(self, link: RemotingLink, group: str) -> None:
        """Await the heartbeat of a client that pulls or commits for a group."""
        if self._started_ms is None or len(self._awaited) >= CLIENTS_REMEMBERED_MAX:
            return
        groups = self._groups.setdefault(link, set())
        if group not in groups:
            groups.add(group)
            self._awaited[group] += 1

    def forget(self, link: RemotingLink) -> set[str]:
        """Stop awaiting a client that has sent a heartbeat, or has gone; return its groups."""
        groups = self._groups.pop(link, set())
        for group in groups:
            self._awaited[group] -= 1
            if not self._awaited[group]:
                del self._awaited[group]
        return groups

    def all_for_ms(self, now_ms: int) -> int:
        """Return for how many milliseconds from now clients of every group are awaited."""
        return 0 if self._started_ms is None else max(0, self._started_ms + _COMMITS_MS - now_ms)

    def has(self, group: str, now_ms: int) -> bool:
        """Return whether a client of the group is awaited."""
        if self._started_ms is None:
            return False
        if now_ms >= self._started_ms + _HEARTBEATS_MS:
            self._started_ms = None
            self._groups.clear()
            self._awaited.clear()
            return False
        return group in self._awaited or self.all_for_ms(now_ms) > 0

    def check_invariants(self) -> None:
        """Check that connections are counted, and that nobody is awaited for ever."""
        assert self._awaited == Counter(group for of in self._groups.values() for group in of)
        assert self._started_ms is not None or not self._groups
