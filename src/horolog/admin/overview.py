"""One look at the broker for all who watch it: GET /v1/overview.

However many pages ask, the broker is looked at once a second at most, and only while somebody asks; whoever comes
within that second gets the same answer, as bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import Response

from horolog import __version__
from horolog.admin.answers import JSON
from horolog.admin.endpoints import endpoint
from horolog.admin.requests import query
from horolog.admin.shapes import Overview as OverviewShape
from horolog.admin.views import iso
from horolog.limits import OVERVIEW_TOPICS
from horolog.protocol.commands import (
    BrokerView,
    CountBy,
    CountPending,
    DescribeBroker,
    ListPending,
    PendingCounts,
    PendingMessage,
)
from horolog.server.running import RunningEngine
from horolog.units import TIME_MAX_MS

FRESH_S = 1.0  # an answer is given again for so long
RATED_S = 10.0  # a rate is that of at most so long ago; after a pause there is none


class _Totals(NamedTuple):
    """What has happened since the data directory was made, at one moment."""

    at_s: float
    scheduled: int
    handed_over: int
    recalled: int
    expired: int


_COUNTED = _Totals._fields[1:]


class Overview:
    """The look that everybody shares.

    now_s  a monotonic clock; None: the event loop's
    """

    def __init__(
        self,
        engine: RunningEngine,
        broker_name: str,
        *,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        self._engine = engine
        self._broker_name = broker_name
        self._now_s = now_s or (lambda: asyncio.get_running_loop().time())
        self._looking: asyncio.Task[bytes] | None = None
        self._made_s = 0.0
        self._before: _Totals | None = None

    async def content(self) -> bytes:
        """The whole answer, at most `FRESH_S` old; who gives up waiting spoils it for nobody else."""
        looking = self._looking
        if looking is None or (looking.done() and self._is_old(looking)):
            self._made_s = self._now_s()
            looking = self._looking = asyncio.get_running_loop().create_task(self._look())
        return await asyncio.shield(looking)

    def _is_old(self, looked: asyncio.Task[bytes]) -> bool:
        failed = looked.cancelled() or looked.exception() is not None
        return failed or self._now_s() - self._made_s >= FRESH_S

    async def _look(self) -> bytes:
        engine = self._engine
        view: BrokerView = await engine.submit(DescribeBroker())
        counts: PendingCounts = await engine.submit(CountPending(by=CountBy.TOPIC))
        first: list[PendingMessage] = await engine.submit(ListPending(0, TIME_MAX_MS, limit=1))
        next_due_ms = first[0].due_ms if first else None
        most = sorted(counts.topics, key=lambda topic: (-topic[1], topic[0]))[:OVERVIEW_TOPICS]
        now_ms = engine.clock.wall_ms()
        totals = self._totals(view)
        return orjson.dumps(
            {
                "result": {
                    "now_ms": now_ms,
                    "now": iso(now_ms),
                    "clock": "simulated" if engine.clock.simulated else "system",
                    "name": self._broker_name,
                    "version": __version__,
                    "epoch": view.epoch,
                    "healthy": not view.problems and not engine.failed.done(),
                    "problems": len(view.problems),
                    "pending": view.pending,
                    "next_due_ms": next_due_ms,
                    "next_due": iso(next_due_ms) if next_due_ms else None,
                    "totals": dict(zip(_COUNTED, totals[1:], strict=True)),
                    "rates": self._rates(totals),
                    "topics": [{"topic": name, "pending": n} for name, n in most],
                    "topics_total": view.topics,
                    "groups_total": view.groups,
                    "parked_polls": view.parked_polls,
                    "loaded": view.loaded,
                }
            }
        )

    def _totals(self, view: BrokerView) -> _Totals:
        gone = view.handed_over + view.recalled + view.expired
        return _Totals(
            self._now_s(), view.pending + gone, view.handed_over, view.recalled, view.expired
        )

    def _rates(self, now: _Totals) -> dict[str, float] | None:
        """So many a second since the look before this one; None if there was none of late."""
        before, self._before = self._before, now
        if before is None or not 0 < now.at_s - before.at_s <= RATED_S:
            return None
        span_s = now.at_s - before.at_s
        grown = zip(_COUNTED, before[1:], now[1:], strict=True)
        return {name: max(late - early, 0) / span_s for name, early, late in grown}


@endpoint("GET", "/v1/overview", answer=OverviewShape)
async def show_overview(request: Request) -> Response:
    """GET /v1/overview."""
    query(request)
    overview: Overview = request.app.state.overview
    return Response(await overview.content(), media_type=JSON)
