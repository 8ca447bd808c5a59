"""Locks of orderly consumers: who in a group may consume a queue just now.

A lock lasts for 60 s after it was last asked for, so the queues of a client that has gone are free again soon.
Nothing of it is logged: after a start clients ask again within 20 s, and consumers are at-least-once anyway.  The
clock is the caller's, and monotonic.

Worked example: at 0 s A locks queue 1, and asks again at 20 s.  B gets it at 80 s and not before, or at once when A
gives it up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from horolog.limits import QUEUE_LOCK_MS, QUEUE_LOCKS_MAX


class LockedQueue(NamedTuple):
    """A queue as consumers name it."""

    topic: str
    broker_name: str
    queue_id: int


class _Lock(NamedTuple):
    client_id: str
    until_ms: int  # from then on anybody may have it


class QueueLocks:
    """By group, then by queue; not more than a maximum of all groups together."""

    def __init__(self, maximum: int = QUEUE_LOCKS_MAX) -> None:
        self._maximum = maximum
        self._count = 0
        self._groups: dict[str, dict[LockedQueue, _Lock]] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[LockedQueue], now_ms: int
    ) -> list[LockedQueue]:
        """Lock queues for a client, again if it has them; gives those that it has now."""
        locks = self._groups.setdefault(group, {})
        granted = []
        for queue in queues:
            held = locks.get(queue)
            if held is None:
                if self._count >= self._maximum:
                    continue
                self._count += 1
            if held is None or held.client_id == client_id or held.until_ms <= now_ms:
                locks[queue] = _Lock(client_id, now_ms + QUEUE_LOCK_MS)
                granted.append(queue)
        if not locks:
            del self._groups[group]
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[LockedQueue]) -> None:
        """Give up what a client has of these queues."""
        locks = self._groups.get(group, {})
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held.client_id == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            self._groups.pop(group, None)

    def is_orderly(self, group: str, now_ms: int) -> bool:
        """Whether somebody in a group consumes in order just now: it holds a lock."""
        return any(lock.until_ms > now_ms for lock in self._groups.get(group, {}).values())

    def sweep(self, now_ms: int) -> None:
        """Forget locks that are over."""
        self._count = 0
        for group, locks in list(self._groups.items()):
            left = {queue: lock for queue, lock in locks.items() if lock.until_ms > now_ms}
            if left:
                self._groups[group] = left
                self._count += len(left)
            else:
                del self._groups[group]

    def check_invariants(self) -> None:
        """No group is there for nothing, and all locks are counted."""
        assert all(self._groups.values())
        assert self._count == sum(map(len, self._groups.values()))
