"""Move a clock that otherwise stands still, stopping at every due time on the way.

Messages are handed over when they are due, as with a clock that runs.  After 10 000 stops the clock
makes at most as many more, at equal distances: moving it by a century must end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from horolog.clock import SimulatedClock
from horolog.errors import refused
from horolog.limits import FINISHED_HOURS_MAX
from horolog.server.failures import too_late
from horolog.storage.api import Storage, read_file, replace_file
from horolog.units import TIME_MAX_MS

if TYPE_CHECKING:
    from horolog.server.loop import Engine

CLOCK_NAME = "clock"  # where a simulated clock was when it was last moved: epoch ms as text
_HOPS_MAX = 20_000  # stops of one advance, at most
_HOPS_EXACT = 10_000  # after so many stops, the rest are at equal distances


def clock_was(storage: Storage, report: list[str]) -> int:
    """Return the simulated clock's time when it was last moved, in epoch ms; 0 if it never was.

    An unreadable time counts as 0, and is added to `report`.
    """
    try:
        content = read_file(storage, CLOCK_NAME)
    except FileNotFoundError:
        return 0
    try:
        was_ms = int(content)
    except ValueError:
        was_ms = -1
    if 0 <= was_ms <= TIME_MAX_MS:
        return was_ms
    report.append(f"{CLOCK_NAME} is no time from 1970 to 9999 and was passed over")
    return 0


async def advance(engine: Engine, by_ms: int) -> None:
    """Move an engine's clock; return when everything that became due is handed over and committed.

    Raise BAD_REQUEST for a system clock or a negative time.
    """
    clock = engine.clock
    if not isinstance(clock, SimulatedClock):
        raise refused("clock", "the system clock cannot be advanced; start with --clock simulated")
    if by_ms < 0:
        raise refused("by_ms", "a clock advances by 0 ms or more")
    checkpoints = engine.broker.checkpoints
    hops = 0
    await engine.until_quiet()
    try:
        while by_ms > 0:
            late = engine.offloads.late if engine.offloads is not None else None
            least = 1 if hops < _HOPS_EXACT else by_ms // (_HOPS_MAX - hops) + 1
            hops += 1
            hop = by_ms if engine.next_in_ms is None else min(by_ms, max(engine.next_in_ms, least))
            if late is not None:
                hop = min(hop, late.clock_step_ms(hop))
            clock.advance(hop)
            by_ms -= hop
            # Work of every few seconds is for real time that passes: a year would have three
            # million checkpoints.  Only finished hours need some: they stay open, and in memory,
            # until a checkpoint releases them.
            over = engine.broker.shard.delay.near.finished(clock.wall_ms())
            checkpoints.hurries = by_ms > 0 and len(over) < FINISHED_HOURS_MAX
            if late is not None:
                await late.promote_late_hours(again=False)
            await engine.until_quiet()
    finally:
        checkpoints.hurries = False
    if engine.failed.done():
        raise too_late(engine.failed)
    # A moved clock must not go back at the next start, even if nothing was due on the way.
    replace_file(engine.storage, "", CLOCK_NAME, b"%d\n" % clock.wall_ms())
