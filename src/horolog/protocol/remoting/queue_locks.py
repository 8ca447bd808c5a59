"""Locks of orderly consumers: which client of a group may consume a queue at the moment.

A lock lasts for 60 s after the last request for it, so the queues of a client that has gone are
free again soon.  Locks are not logged: after a start clients ask again within 20 s, and consumers
are at-least-once anyway.  The caller passes the time, which is monotonic.

Worked example: at 0 s A locks queue 1, and asks again at 20 s.  B gets the lock at 80 s and not
before, or as soon as A unlocks the queue.
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
    until_ms: int  # from then on any client may take the lock


class QueueLocks:
    """Locks by group and queue; at most `maximum` over all groups."""

    def __init__(self, maximum: int = QUEUE_LOCKS_MAX) -> None:
        self._maximum = maximum
        self._count = 0
        self._groups: dict[str, dict[LockedQueue, _Lock]] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[LockedQueue], now_ms: int
    ) -> list[LockedQueue]:
        """Lock or relock queues for a client, and return those that the client now holds."""
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
        """Release the locks that a client holds on these queues."""
        locks = self._groups.get(group, {})
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held.client_id == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            self._groups.pop(group, None)

    def is_orderly(self, group: str, now_ms: int) -> bool:
        """Return whether a client of the group consumes in order: it holds a lock at the moment."""
        return any(lock.until_ms > now_ms for lock in self._groups.get(group, {}).values())

    def sweep(self, now_ms: int) -> None:
        """Drop expired locks."""
        self._count = 0
        for group, locks in list(self._groups.items()):
            left = {queue: lock for queue, lock in locks.items() if lock.until_ms > now_ms}
            if left:
                self._groups[group] = left
                self._count += len(left)
            else:
                del self._groups[group]

    def check_invariants(self) -> None:
        """Check that no group is empty, and that all locks are counted."""
        assert all(self._groups.values())
        assert self._count == sum(map(len, self._groups.values()))
