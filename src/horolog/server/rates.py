"""Count the messages that topics got and groups consumed in the last minute, hour and day.

No message costs anything for this.  The broker knows totals anyway (messages sent, queue offsets,
committed offsets); once a minute they are read, if the log has grown since.  So figures are of
whole minutes, and begin with the start of the broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from horolog.errors import HorologError
from horolog.limits import RATED_PAIRS_MAX
from horolog.protocol.commands import BrokerView, DescribeBroker, DescribeLanes, LaneView
from horolog.protocol.rocketmq.names import LANES_TOPIC
from horolog.server import listing
from horolog.server.running import RunningEngine

_log = logging.getLogger("horolog.server")
_At = TypeVar("_At", int, float)
MINUTE_S = 60
_HOUR_S = 3_600
_DAY_S = 86_400
_FINEST_S = 5  # looks that follow each other more quickly, as a dashboard makes them, count as one


class Rate(NamedTuple):
    """Messages of a recent period: how many, and how many a second."""

    sum: int
    a_second: float


class Recent(NamedTuple):
    """The rates of the last minute, hour and day."""

    minute: Rate
    hour: Rate
    day: Rate


class Day(NamedTuple):
    """Totals at the last two midnights (UTC) since the broker was started, and now."""

    yesterday_morning: int
    this_morning: int
    now: int


class Meter:
    """Growth of one total, in an hour of looks and in 24 hours.

    Most topics of many are quiet, so a total that has not grown keeps no entries.
    """

    __slots__ = ("_hours", "_minutes", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self._minutes: list[tuple[float, int]] | None = None
        self._hours: list[tuple[int, int]] | None = None

    def record(self, total: int, now_s: float) -> int:
        """Record the present total; return how much it has grown."""
        grown = total - self.total
        self.total = total
        if grown <= 0:
            return 0  # the offsets of a group that was reset are not consumption
        self._forget(now_s)
        self._minutes = self._minutes or []
        self._hours = self._hours or []
        _add(self._minutes, now_s, grown, _FINEST_S)
        _add(self._hours, int(now_s // _HOUR_S), grown, 1)
        return grown

    def recent(self, now_s: float) -> Recent:
        """Return the growth in the last minute, hour and day."""
        self._forget(now_s)
        minutes = self._minutes or []
        minute = sum(n for at_s, n in minutes if at_s > now_s - MINUTE_S)
        hour = sum(n for _, n in minutes)
        day = sum(n for _, n in self._hours or [])
        return Recent(
            Rate(minute, minute / MINUTE_S), Rate(hour, hour / _HOUR_S), Rate(day, day / _DAY_S)
        )

    def _forget(self, now_s: float) -> None:
        if self._minutes:
            self._minutes = [entry for entry in self._minutes if entry[0] > now_s - _HOUR_S] or None
        if self._hours:
            hour = now_s // _HOUR_S - 24
            self._hours = [entry for entry in self._hours if entry[0] > hour] or None


def _add(entries: list[tuple[_At, int]], at: _At, grown: int, finest: int) -> None:
    """Add growth to the newest entry, or as a new entry if the newest is `finest` old."""
    if entries and at - entries[-1][0] < finest:
        at, before = entries.pop()
        grown += before
    entries.append((at, grown))


class Totals:
    """A total at the last two midnights, and now."""

    def __init__(self) -> None:
        self._mornings: list[tuple[int, int]] = []  # (day, total when the day began), of two days
        self._now = 0

    def record(self, total: int, wall_ms: int) -> None:
        """Record the present total."""
        day = wall_ms // 1000 // _DAY_S
        if not self._mornings or self._mornings[-1][0] < day:
            self._mornings = [*self._mornings[-1:], (day, total)]
        self._now = max(total, self._now)

    def day(self) -> Day:
        """Return the totals at the last two midnights, and now."""
        if not self._mornings:
            return Day(0, 0, 0)
        return Day(self._mornings[0][1], self._mornings[-1][1], self._now)


class Rates:
    """Reads totals from the broker once a minute, between `start` and `stop`."""

    def __init__(self, engine: RunningEngine) -> None:
        self._engine = engine
        self._meters: dict[Hashable, Meter] = {}
        self._log_end = -1
        self._put_before = self._consumed = 0  # messages sent before the start; consumed ever
        self._seen: set[Hashable] = set()
        self._reading = asyncio.Lock()
        self.puts_of_day = Totals()
        self.gets_of_day = Totals()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read totals."""
        self._task = asyncio.ensure_future(self._read_regularly())

    async def stop(self) -> None:
        """Stop reading totals."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def puts(self, topic: str = "") -> Recent:
        """Return the messages that came into a topic; "": into all topics.

        `LANES_TOPIC` has those that were scheduled by a delay level.
        """
        return self._recent(topic)

    def gets(self, topic: str = "", group: str = "") -> Recent:
        """Return the messages that a group consumed of a topic; "": all groups of all topics."""
        return self._recent((topic, group))

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """Drop the meters of a deleted group or topic: a new one of that name has other totals."""
        pairs = [key for key in self._meters if isinstance(key, tuple) and key != ("", "")]
        gone = [pair for pair in pairs if topic in ("", pair[0]) and group in ("", pair[1])]
        for key in (*gone, *([topic] if topic else [])):
            self._meters.pop(key, None)

    def _recent(self, key: Hashable) -> Recent:
        meter = self._meters.get(key)
        return (meter or Meter(0)).recent(self._now_s())

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()

    async def _read_regularly(self) -> None:
        while True:
            try:
                await self.read_totals()
            except HorologError as error:
                _log.warning("rates: %s", error)
            except Exception:  # noqa: BLE001 - a mistake of ours costs figures, and nothing else
                _log.exception("rates: unexpected")
            await asyncio.sleep(MINUTE_S)

    async def read_totals(self) -> None:
        """Read the present totals from the broker."""
        async with self._reading:
            await self._read_totals()

    async def _read_totals(self) -> None:
        view: BrokerView = await self._engine.submit(DescribeBroker())
        if view.log_end == self._log_end:
            return
        first = self._log_end < 0
        self._log_end = view.log_end
        self._seen = set()
        wall_ms = self._engine.clock.wall_ms()
        stored, whole = await self._count_stored(first=first)
        lanes: list[LaneView] = await self._engine.submit(DescribeLanes())
        self._record(LANES_TOPIC, sum(lane.scheduled for lane in lanes))
        if first:
            ended = view.recalled + view.expired  # without a hand-over
            self._put_before = stored + view.pending + ended - view.accepted
        put = self._put_before + view.accepted
        self._record("", put)
        self.puts_of_day.record(put, wall_ms)
        self._consumed += await self._count_consumed(None if first else whole)
        self._record(("", ""), self._consumed)
        self.gets_of_day.record(self._consumed, wall_ms)
        for key in self._meters.keys() - self._seen:
            del self._meters[key]

    async def _count_stored(self, *, first: bool) -> tuple[int, set[str]]:
        """Return how many messages topics have had, and which topics still have all of them."""
        stored, whole = 0, set()
        async for topic in listing.topics(self._engine):
            total = sum(topic.queue_offsets)
            # A topic that is new since the last look had nothing then.
            self._record(topic.name, total, since=total if first else 0)
            stored += total
            if not any(topic.min_offsets):
                whole.add(topic.name)
        return stored, whole

    async def _count_consumed(self, whole: set[str] | None) -> int:
        """Return how many messages groups have consumed since the last look.

        whole  topics in which a group that is new since the last look began at the first message;
               None: there was no look, and all that was consumed ever is counted
        """
        pairs: list[tuple[str, str]] = []
        async for group in listing.groups(self._engine):
            pairs += ((group.name, topic) for topic in group.topics)
            if len(pairs) >= RATED_PAIRS_MAX:
                break
        lags = await listing.lags(self._engine, pairs[:RATED_PAIRS_MAX])
        grown = 0
        for lag in lags:
            since = 0 if whole is not None and lag.topic in whole else None
            grown += self._record((lag.topic, lag.group), lag.consumed, since=since)
        return sum(lag.consumed for lag in lags) if whole is None else grown

    def _record(self, key: Hashable, total: int, since: int | None = None) -> int:
        """Record a total, and return how much it has grown.

        The growth of a new one begins at `since`, or now if that is None.
        """
        self._seen.add(key)
        meter = self._meters.get(key)
        if meter is None:
            meter = self._meters[key] = Meter(total if since is None else since)
        return meter.record(total, self._now_s())
