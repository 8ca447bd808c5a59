"""How far groups have pulled: messages that consumers hold unconsumed, for admin tools.

A pull changes nothing, so it is not logged; after a start a group has pulled what it has consumed.
"""

from __future__ import annotations

from horolog.limits import PULLED_QUEUES_MAX


class PulledOffsets:
    """The next offset to pull, by group, topic and queue; of too many, the oldest are dropped."""

    def __init__(self, maximum: int = PULLED_QUEUES_MAX) -> None:
        self._maximum = maximum
        self._next: dict[tuple[str, str, int], int] = {}

    def record(self, group: str, topic: str, queue_id: int, following: int) -> None:
        """Record that a consumer of the group has received all messages below `following`."""
        place = group, topic, queue_id
        if place not in self._next and len(self._next) >= self._maximum:
            del self._next[next(iter(self._next))]
        self._next[place] = following

    def of(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset that the group pulls next; 0 if it has not pulled since the start."""
        return self._next.get((group, topic, queue_id), 0)

    def forget(self, group: str = "", topic: str = "") -> None:
        """Drop the offsets of a deleted group or topic, or of a group that was reset in a topic."""
        forget_places(self._next, group, topic)


def forget_places(offsets: dict[tuple[str, str, int], int], group: str, topic: str) -> None:
    """Drop the places (group, topic, queue) of a group, of a topic, or of a group in a topic."""
    for place in [at for at in offsets if group in ("", at[0]) and topic in ("", at[1])]:
        del offsets[place]
