"""Resets of which 4.x pull consumers are not notified yet.

Each pull consumer keeps offsets of its own, and learns of a reset at its next pull.  Resets are not
logged: after a start consumers ask for their offsets anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from horolog.limits import RESET_QUEUES_MAX
from horolog.server.remoting.pulled import forget_places


class UnseenResets:
    """Offsets to go on at, by group, topic and queue; the oldest are dropped if too many."""

    def __init__(self, maximum: int = RESET_QUEUES_MAX) -> None:
        self._maximum = maximum
        self._next: dict[tuple[str, str, int], int] = {}
        self.on_reset: Callable[[str, str], None] = _ignore_reset  # gets group, topic

    def record(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Record that a group was reset in these queues."""
        for queue_id, offset in offsets.items():
            self._next.pop((group, topic, queue_id), None)
            if len(self._next) >= self._maximum:
                del self._next[next(iter(self._next))]
            self._next[group, topic, queue_id] = offset
        self.on_reset(group, topic)

    def has(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether a consumer is still to be notified of a reset in this queue."""
        return (group, topic, queue_id) in self._next

    def take(self, group: str, topic: str, queue_id: int) -> int | None:
        """Take the offset at which a consumer must go on now; None if there was no reset."""
        return self._next.pop((group, topic, queue_id), None)

    def forget(self, group: str = "", topic: str = "") -> None:
        """Drop the resets of a deleted group, or in a deleted topic."""
        forget_places(self._next, group, topic)


def _ignore_reset(_group: str, _topic: str) -> None:
    """Ignore that a group was reset."""
