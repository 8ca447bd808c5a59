"""Resets that 4.x pull consumers are still to be told of: each keeps offsets of its own, and learns at its next pull.

Nobody logs it: after a start consumers ask where to go on anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from horolog.limits import RESET_QUEUES_MAX


class MovedOffsets:
    """Where a group goes on, by group, topic and queue; of too many, those that were reset first are forgotten."""

    def __init__(self, maximum: int = RESET_QUEUES_MAX) -> None:
        self._maximum = maximum
        self._next: dict[tuple[str, str, int], int] = {}
        self.on_note: Callable[[str, str], None] = _nobody_waits  # a group was reset in a topic

    def note(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """The group was reset in these queues."""
        for queue_id, offset in offsets.items():
            self._next.pop((group, topic, queue_id), None)
            if len(self._next) >= self._maximum:
                del self._next[next(iter(self._next))]
            self._next[group, topic, queue_id] = offset
        self.on_note(group, topic)

    def has(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a consumer is still to be told."""
        return (group, topic, queue_id) in self._next

    def take(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group goes on, which its consumer is told now; None if nothing is to be told."""
        return self._next.pop((group, topic, queue_id), None)

    def forget(self, group: str) -> None:
        """The group is gone."""
        for place in [place for place in self._next if place[0] == group]:
            del self._next[place]


def _nobody_waits(_group: str, _topic: str) -> None:
    """Ignore that a group was reset."""
