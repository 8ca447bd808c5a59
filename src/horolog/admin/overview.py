"""GET /v1/overview: one look at the broker, shared by all who watch it.

However many pages ask, the broker is looked at once a second at most, and only while a page asks;
every client that asks within that second gets the same bytes.  The figures are those of the metrics
(`horolog.metrics`); figures that cost more than reading them are refreshed less often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from horolog import __version__
from horolog.access import rules
from horolog.access.rules import Identity
from horolog.admin.answers import JSON, admit_known_caller, identity_of
from horolog.admin.endpoints import Access, endpoint
from horolog.admin.page_shapes import Overview as OverviewShape
from horolog.admin.requests import query
from horolog.admin.shared import Shared
from horolog.admin.views import iso
from horolog.broker.counters import LATENESS_BOUNDS_MS, Count
from horolog.histogram import quantile
from horolog.limits import HOT_SECONDS, HOUR_MS, OVERVIEW_TOPICS
from horolog.metrics.figures import Figures
from horolog.metrics.present import OTHER, Present
from horolog.protocol.commands import (
    BrokerView,
    CountBy,
    CountPending,
    DescribeBroker,
    PendingCounts,
)
from horolog.server.running import RunningEngine

FRESH_S = 1.0  # how long an answer is shared
RATED_S = 10.0  # longest span of a rate; after a longer pause there is no rate
RECENT_S = 60.0  # span of the recent lateness
HOT_S = 10.0  # how often hot seconds are counted
RATES = {
    "sent": (Count.SENT,),
    "scheduled": (Count.SCHEDULED,),
    "handed_over": (Count.HANDED_OVER,),
    "expired": (Count.EXPIRED,),
    "received": (Count.LEASED, Count.PULLED),
    "redelivered": (Count.REDELIVERED,),
    "acked": (Count.ACKED,),
}
_OF_EVERYBODY = ("now_ms", "now", "clock", "name", "version", "epoch", "healthy", "problems")
_NOTHING: dict[str, Any] = {
    "pending": 0,
    "next_due_ms": None,
    "next_due": None,
    "hot_seconds": [],
    "topics_total": 0,
    "groups_total": 0,
    "parked_polls": 0,
    "loaded": 0,
    "rates": None,
    "lateness": None,
    "topics": [],
    "leases": 0,
    "overdue_ms": 0,
    "connections": {},
    "disk": None,
    "certificate_ends_ms": None,
    "waiting": {},
}
"""Fields of an overview without figures, and for users that may not see them."""
_Row = dict[str, Any]


def _ms(at_s: float | None) -> int | None:
    return None if at_s is None else int(at_s * 1_000)


def _sums(counts: Sequence[int]) -> dict[str, int]:
    return {name: sum(counts[count] for count in of) for name, of in RATES.items()}


def _rates(before: Sequence[int], now: Sequence[int], span_s: float) -> dict[str, float]:
    early, late = _sums(before), _sums(now)
    return {name: max(late[name] - early[name], 0) / span_s for name in RATES}


class Overview:
    """The look at the broker that all clients share.

    figures  of the running broker; None: there are none, and no rates
    now_s    a monotonic clock; None: the event loop's
    """

    def __init__(
        self,
        engine: RunningEngine,
        broker_name: str,
        figures: Figures | None = None,
        *,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        self._engine = engine
        self._broker_name = broker_name
        self._figures = figures
        self._now_s = now_s or (lambda: asyncio.get_running_loop().time())
        self._shared = Shared(FRESH_S, self._now_s)
        self._before: tuple[float, Present] | None = None
        # (time, counts) of the looks of the last minute
        self._lateness: list[tuple[float, tuple[int, ...]]] = []
        self._hot: tuple[float, list[_Row]] | None = None
        self._counted_topics: list[_Row] = []  # rows of the newest look

    async def content(self) -> bytes:
        """Return the whole answer, at most `FRESH_S` old; cancelling one caller harms no other."""
        return await self._shared.answer(None, self._look)

    async def content_for(self, identity: Identity) -> bytes:
        """Return the part that a user may see: its topics and groups, not the machine or others."""
        # The topics change when the access file is read again.
        asked = identity.access_key, identity.topics
        return await self._shared.answer(asked, lambda: self._visible_to(identity))

    async def _visible_to(self, identity: Identity) -> bytes:
        look = orjson.loads(await self.content())["result"]
        counts: PendingCounts = await self._engine.submit(CountPending(by=CountBy.TOPIC))

        def is_seen(topic: str) -> bool:
            return identity.has((rules.need_of_topic(topic, rules.EITHER),))

        pending = {name: n for name, n in counts.topics if is_seen(name)}
        rates = {
            each["topic"]: each["rates"] for each in self._counted_topics if is_seen(each["topic"])
        }
        topics = [
            {"topic": name, "pending": pending.get(name, 0), "rates": rates.get(name)}
            for name in {**pending, **rates}
        ]
        rated = [each for each in rates.values() if each is not None]
        return orjson.dumps(
            {
                "result": {
                    **_NOTHING,
                    **{name: look[name] for name in _OF_EVERYBODY},
                    "pending": sum(pending.values()),
                    "topics_total": len(topics),
                    "topics": _largest(topics),
                    "rates": {name: sum(each[name] for each in rated) for name in RATES}
                    if rated
                    else None,
                }
            }
        )

    async def _look(self) -> bytes:
        engine = self._engine
        view: BrokerView = await engine.submit(DescribeBroker())
        now_ms = engine.clock.wall_ms()
        look: dict[str, Any] = {
            **_NOTHING,
            "now_ms": now_ms,
            "now": iso(now_ms),
            "clock": "simulated" if engine.clock.simulated else "system",
            "name": self._broker_name,
            "version": __version__,
            "epoch": view.epoch,
            "healthy": not view.problems and not engine.failed.done(),
            "problems": len(view.problems),
            "pending": view.pending,
            "hot_seconds": await self._hot_seconds(now_ms),
            "topics_total": view.topics,
            "groups_total": view.groups,
            "parked_polls": view.parked_polls,
            "loaded": view.loaded,
        }
        if self._figures is not None:
            look |= self._counted(self._figures.read())
        return orjson.dumps({"result": look})

    def _counted(self, present: Present) -> dict[str, Any]:
        now_s = self._now_s()
        before, span_s = None, 0.0
        if self._before is not None and 0 < now_s - self._before[0] <= RATED_S:
            span_s, before = now_s - self._before[0], self._before[1]
        self._before = (now_s, present)
        self._counted_topics = _topics(before, present, span_s)
        disk = present.disk
        return {
            "rates": _rates(before.counts, present.counts, span_s) if before else None,
            "lateness": self._lateness_view(now_s, present.lateness),
            "topics": _largest(self._counted_topics),
            "next_due_ms": present.core["next_due_ms"] or None,
            "next_due": iso(present.core["next_due_ms"]),
            "leases": present.core["leases"],
            "overdue_ms": present.core["overdue_ms"],
            "connections": {name: door.connections for name, door in present.doors.items()},
            "certificate_ends_ms": _ms(present.certificate_ends_s),
            "disk": {
                "size": disk.size,
                "free": disk.free,
                "headroom": disk.headroom,
                "is_full": disk.is_full,
                "used": sum(each.bytes for each in present.files.values()),
            },
            "waiting": dict(present.waiting),
        }

    def _lateness_view(self, now_s: float, counts: tuple[int, ...]) -> dict[str, Any]:
        """Return lateness of hand-overs since the start, and since the oldest look of a minute."""
        self._lateness = [seen for seen in self._lateness if now_s - seen[0] <= RECENT_S]
        oldest = self._lateness[0][1] if self._lateness else counts
        self._lateness.append((now_s, counts))
        recent = tuple(n - before for n, before in zip(counts, oldest, strict=True))
        return {
            "bounds_ms": list(LATENESS_BOUNDS_MS),
            "counts": counts,
            "minute": recent,
            "p50_ms": _quantile_bound(counts, 0.5),
            "p99_ms": _quantile_bound(counts, 0.99),
            "minute_p50_ms": _quantile_bound(recent, 0.5),
            "minute_p99_ms": _quantile_bound(recent, 0.99),
        }

    async def _hot_seconds(self, now_ms: int) -> list[_Row]:
        """Return the seconds of this hour and the next with the most pending messages."""
        if self._hot is not None and self._now_s() - self._hot[0] < HOT_S:
            return [row for row in self._hot[1] if row["at_ms"] > now_ms - 1000]
        hour = now_ms // HOUR_MS
        rows: list[tuple[int, int]] = []
        for each in (hour, hour + 1):
            counts: PendingCounts = await self._engine.submit(CountPending(hour=each, partly=True))
            rows += counts.rows
        most = sorted(rows, key=lambda row: (-row[1], row[0]))[:HOT_SECONDS]
        found = [{"at_ms": at_ms, "count": count} for at_ms, count in most]
        self._hot = (self._now_s(), found)
        return found


def _quantile_bound(counts: Sequence[int], part: float) -> float | None:
    """Return the bound that a part of the hand-overs did not pass.

    None if there were no hand-overs, or if they passed all bounds.
    """
    bound = quantile(LATENESS_BOUNDS_MS, counts, part)
    return None if bound is None or bound == float("inf") else bound


def _topics(before: Present | None, present: Present, span_s: float) -> list[_Row]:
    """Return rows of all topics that are counted by themselves."""
    early = {topic.name: topic.counts for topic in before.topics} if before else {}
    rows: list[_Row] = []
    for topic in present.topics:
        if topic.name == OTHER:
            continue
        known = early.get(topic.name)
        rates = _rates(known, topic.counts, span_s) if known else None
        rows.append({"topic": topic.name, "pending": topic.pending, "rates": rates})
    return rows


def _largest(rows: list[_Row]) -> list[_Row]:
    """Return the rows with the most pending messages, then with the highest rates."""

    def order(row: _Row) -> tuple[float, float, str]:
        return -row["pending"], -sum((row["rates"] or {}).values()), row["topic"]

    return sorted(rows, key=order)[:OVERVIEW_TOPICS]


@endpoint("GET", "/v1/overview", answer=OverviewShape, access=Access.USERS)
async def show_overview(request: Request) -> Response:
    """GET /v1/overview: show one look at the broker; users see the part that concerns their topics."""
    query(request)
    admit_known_caller(request)
    overview: Overview = request.app.state.overview
    identity = identity_of(request)
    if identity is None or identity.is_admin:
        content = await overview.content()
    else:
        content = await overview.content_for(identity)
    return Response(content, media_type=JSON)
