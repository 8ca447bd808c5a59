"""How long committed messages wait so that several turns are filed together."""

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

# Messages due within this time belong in the window, or soon will.
_WINDOW_MS = 2 * WINDOW_SECONDS * SECOND_MS


class FilingPace:
    """Decides when unfiled messages are filed.

    That is when there are enough, when they have waited long enough, or when one is due soon.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._since_ms: int | None = None  # monotonic, of the first turn that left some unfiled

    def file(self, now: Now) -> None:
        """File the unfiled messages if it is time.

        Called once a turn, after all committed frames are applied.
        """
        shard, unfiled = self._shard, self._shard.unfiled
        if unfiled and self._since_ms is None:
            self._since_ms = now.mono_ms
        if self._since_ms is not None and (
            unfiled.count >= FILED_TOGETHER_MAX
            or unfiled.size >= FILED_TOGETHER_BYTES
            or unfiled.first_ms < now.wall_ms + _WINDOW_MS
            or now.mono_ms - self._since_ms >= FILED_TOGETHER_MS
            or shard.delay.stalled
        ):
            shard.file_unfiled()
        if not unfiled:
            self._since_ms = None
