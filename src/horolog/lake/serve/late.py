"""Late promotion: the broker promotes hours still in the lake half an hour before they are due.

Usually `horolog pipeline promote` does so an hour and a half earlier.  If it has not run, the same
job, passed in by the code that starts the broker, runs in a thread of the broker, through the
broker's own admin port: the transaction is the same, so it does not matter which of both comes
first.  A lake that cannot be read is a problem of the broker (its health is red), and is tried
again every minute; messages that are overdue by then are handed over as soon as they are promoted.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from horolog.clock import Clock
from horolog.delay.tier import Tier
from horolog.errors import HorologError, first_line
from horolog.limits import HOUR_MS, PROMOTE_LATE_MS
from horolog.protocol.tier_commands import TellTierProblem
from horolog.server.adoptions import Core
from horolog.server.running import Promote
from horolog.server.threads import in_thread

_log = logging.getLogger("horolog.lake")
_CHECK_EVERY_S = 60.0
_TIMEOUT_MS = 5_000  # for the broker's own responses; a stop of the broker waits no longer


class LatePromotion:
    """Promotes late hours; belongs to the event loop's thread, the promotion runs in another.

    tier     counts the messages in the lake
    promote  the promotion job
    url      of the broker's own admin port
    """

    def __init__(self, engine: Core, tier: Tier, promote: Promote, url: str) -> None:
        self._engine = engine
        self._tier = tier
        self._job = partial(promote, url, ahead_ms=PROMOTE_LATE_MS + 1, timeout_ms=_TIMEOUT_MS)
        self._problem = ""
        self._lock = asyncio.Lock()
        self._task = asyncio.create_task(self._run())

    @property
    def clock(self) -> Clock:
        """The clock of the broker."""
        return self._engine.clock

    def due_in_ms(self) -> int | None:
        """Return the ms until the first hour in the lake is late; None: no message waits there."""
        hour = self._tier.next_hour
        return None if hour is None else hour * HOUR_MS - PROMOTE_LATE_MS - self.clock.wall_ms()

    def clock_step_ms(self, most: int) -> int:
        """Return by how many ms a simulated clock may advance before an hour is late, or `most`."""
        due_in = self.due_in_ms()
        return due_in if due_in is not None and 0 < due_in < most else most

    async def promote_late_hours(self, *, again: bool = True) -> None:
        """Promote late hours; return once they are promoted, or the failure has been reported.

        again  try also if the last attempt failed
        """
        late_ms = self.due_in_ms()
        if (late_ms is None or late_ms > 0) and not self._problem:
            return
        if self._problem and not again:
            return
        async with self._lock:
            late_ms = self.due_in_ms()
            is_late = late_ms is not None and late_ms <= 0
            await self._report(await self._promote() if is_late else "")

    async def stop(self) -> None:
        """Begin no further promotion."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            await self.promote_late_hours()
            await asyncio.sleep(_CHECK_EVERY_S)

    async def _promote(self) -> str:
        """Run the job; return why it failed, "" if it did not."""
        try:
            hours, rows = await in_thread("horolog-lake", self._job)
        except ImportError as error:
            return f"{first_line(error)}; install horolog[spark]"
        except (HorologError, OSError, RuntimeError, ValueError) as error:
            return first_line(error)
        except Exception as error:  # noqa: BLE001 - of native libraries; nothing may be lost silently
            return f"{type(error).__name__}: {first_line(error)}"
        _log.warning("promoted late hours=%d rows=%d", hours, rows)
        return ""

    async def _report(self, why: str) -> None:
        if why == self._problem:
            return
        said = f"lake: messages that are due soon cannot be read ({why})" if why else ""
        if said:
            _log.error("problem %s", said)
        try:
            await self._engine.submit(TellTierProblem(said))
        except HorologError as error:
            # The broker stops or is busy: try again after `_CHECK_EVERY_S`
            _log.info("not reported yet: %s", first_line(error))
            return
        self._problem = why
