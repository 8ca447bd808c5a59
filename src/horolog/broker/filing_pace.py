"""How long committed messages wait to be filed with those of the next turns."""

from __future__ import annotations

from horolog.broker.effects import Now
from horolog.broker.shard import Shard
from horolog.limits import (
    FILED_TOGETHER_BYTES,
    FILED_TOGETHER_MAX,
    FILED_TOGETHER_MS,
    SECOND_MS,
    WINDOW_SECONDS,
)

# What is due sooner belongs into the window, or will soon
_WINDOW_MS = 2 * WINDOW_SECONDS * SECOND_MS


class FilingPace:
    """Files what was gathered when it is enough, when it has waited long enough, or when some of it is due soon."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._since_ms: int | None = None  # monotonic, of the first turn that has left something

    def file(self, now: Now) -> None:
        """Once a turn, when all that is committed is applied."""
        shard, gathered = self._shard, self._shard.gathered
        if gathered and self._since_ms is None:
            self._since_ms = now.mono_ms
        if self._since_ms is not None and (
            gathered.count >= FILED_TOGETHER_MAX
            or gathered.size >= FILED_TOGETHER_BYTES
            or gathered.first_ms < now.wall_ms + _WINDOW_MS
            or now.mono_ms - self._since_ms >= FILED_TOGETHER_MS
            or shard.delay.stalled
        ):
            shard.file_gathered()
        if not gathered:
            self._since_ms = None
