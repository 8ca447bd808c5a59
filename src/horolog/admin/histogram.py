"""GET /v1/pending/histogram: pending messages in even steps from seconds to years, for charts.

Counts are exact, as those of `GET /v1/pending` are.  Messages on disk are counted by UTC hour, so a
step of an hour or more is a sum of hours.  Finer steps are counted hour by hour, each hour in a
turn of its own: a chart of a day must not delay the messages that are due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import orjson
from starlette.requests import Request
from starlette.responses import Response

from horolog.access import rules
from horolog.admin.answers import JSON, engine_of, require
from horolog.admin.endpoints import Access, endpoint, text_parameter
from horolog.admin.page_shapes import Histogram
from horolog.admin.requests import query
from horolog.admin.shared import Shared
from horolog.admin.views import iso
from horolog.calendar.zones import requested_zone
from horolog.errors import ErrorCode, refused
from horolog.limits import HISTOGRAM_ROWS, HOUR_MS, MINUTE_MS, SECOND_MS
from horolog.protocol.commands import CountPending, PendingCounts
from horolog.protocol.rocketmq.names import check_topic
from horolog.server.running import RunningEngine
from horolog.units import parse_time_ms

Starts = npt.NDArray[np.int64]
_LAST_YEAR = 9_990  # datetime ends with 9999


class Step(StrEnum):
    """The length of a row."""

    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    YEAR = "year"


_EVEN_MS = {Step.SECOND: SECOND_MS, Step.MINUTE: MINUTE_MS, Step.HOUR: HOUR_MS}


class _HistogramQuery(NamedTuple):
    topic: str
    step: Step
    zone: ZoneInfo
    from_ms: int | None
    to_ms: int | None


def _parse_query(request: Request) -> _HistogramQuery:
    parameters = query(request, "topic", "step", "zone", "from", "to")
    topic = parameters.get("topic", "")
    step = parameters.get("step", Step.HOUR.value)
    if step not in set(Step):
        raise refused("step", f"{step!r} is not one of {', '.join(Step)}")
    times = [
        parse_time_ms(parameters[name], field=name) if name in parameters else None
        for name in ("from", "to")
    ]
    for name, at_ms in zip(("from", "to"), times, strict=True):
        if at_ms is not None and not 0 <= at_ms < _year_ms(_LAST_YEAR):
            raise refused(name, f"years 1970 to {_LAST_YEAR - 1}")
    if None not in times and times[0] >= times[1]:  # type: ignore[operator]
        raise refused("to", "is not after from")
    return _HistogramQuery(
        check_topic(topic) if topic else "",
        Step(step),
        requested_zone(parameters.get("zone", "UTC")),
        *times,
    )


def _year_ms(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1000


@endpoint(
    "GET",
    "/v1/pending/histogram",
    query=(
        text_parameter("topic"),
        text_parameter("step", words=Step),
        text_parameter("zone", "IANA name; UTC by default"),
        text_parameter("from"),
        text_parameter("to"),
    ),
    answer=Histogram,
    codes=(ErrorCode.TOPIC_NOT_FOUND,),
    access=Access.USERS,
)
async def show_histogram(request: Request) -> Response:
    """GET /v1/pending/histogram?step=&from=&to=&zone=&topic=: count pending messages in even steps."""
    wanted = _parse_query(request)
    require(request, rules.need_of_topic(wanted.topic, rules.EITHER))
    engine = engine_of(request)
    shared: Shared = request.app.state.histograms
    content = await shared.answer(wanted, lambda: _count(engine, wanted))
    return Response(content, media_type=JSON)


async def _count(engine: RunningEngine, wanted: _HistogramQuery) -> bytes:
    hours: PendingCounts = await engine.submit(
        CountPending(
            wanted.topic,
            from_ms=(wanted.from_ms or 0) // HOUR_MS * HOUR_MS,
            to_ms=1 << 62 if wanted.to_ms is None else wanted.to_ms,
        )
    )
    starts = _starts(wanted, hours)
    in_tier = 0
    counted = hours
    if wanted.step in {Step.SECOND, Step.MINUTE} and len(starts) > 1:
        counted, in_tier = await _by_second(engine, wanted.topic, hours, starts)
    rows = _binned(counted.rows, starts)
    from_ms, to_ms = (int(starts[0]), int(starts[-1])) if len(starts) else (0, 0)
    return orjson.dumps(
        {
            "result": {
                "topic": wanted.topic,
                "step": wanted.step.value,
                "zone": wanted.zone.key,
                "from_ms": from_ms,
                "from": iso(from_ms),
                "to_ms": to_ms,
                "to": iso(to_ms),
                "total": sum(n for _, n in rows),
                "in_tier": in_tier,
                "rows": rows,
            }
        }
    )


async def _by_second(
    engine: RunningEngine, topic: str, hours: PendingCounts, starts: Starts
) -> tuple[PendingCounts, int]:
    """Count by second in hours that have messages; return also how many only the tier could count.

    The tier holds scheduled messages elsewhere (`delay.tier`); its messages are in no row.
    """
    rows: list[tuple[int, int]] = []
    in_tier = 0
    for start_ms, _ in hours.rows:
        if starts[0] - HOUR_MS < start_ms < starts[-1]:
            counts: PendingCounts = await engine.submit(
                CountPending(topic, start_ms // HOUR_MS, partly=True)
            )
            rows += counts.rows
            in_tier += counts.in_tier
    return PendingCounts(0, rows), in_tier


def _binned(rows: list[tuple[int, int]], starts: Starts) -> list[tuple[int, int]]:
    """Sum counts of instants into the steps from start to start; the last start is an end only."""
    counts = np.zeros(max(len(starts) - 1, 0), np.int64)
    if rows and len(counts):
        at_ms, n = np.array(rows, np.int64).T
        inside = (at_ms >= starts[0]) & (at_ms < starts[-1])
        np.add.at(counts, starts.searchsorted(at_ms[inside], "right") - 1, n[inside])
    return list(zip(starts.tolist(), counts.tolist(), strict=False))


def _starts(wanted: _HistogramQuery, hours: PendingCounts) -> Starts:
    """Return the starts of all steps, and the end of the last.

    Empty if no window was given and no message waits.
    """
    from_ms, to_ms = wanted.from_ms, wanted.to_ms
    if from_ms is None:
        from_ms = hours.rows[0][0] if hours.rows else to_ms
    if to_ms is None:
        to_ms = hours.rows[-1][0] + HOUR_MS if hours.rows else from_ms
    if from_ms is None or to_ms is None:
        return np.empty(0, np.int64)
    to_ms = max(to_ms, from_ms + 1)
    if (step_ms := _EVEN_MS.get(wanted.step)) is not None:
        first, last = from_ms // step_ms * step_ms, -(-to_ms // step_ms) * step_ms
        _check_rows((last - first) // step_ms)
        return np.arange(first, last + 1, step_ms)
    return _local_starts(wanted.step, wanted.zone, from_ms, to_ms)


def _local_starts(step: Step, of: ZoneInfo, from_ms: int, to_ms: int) -> Starts:
    """Return midnights of days, months or years of a time zone, as many as cover the window."""
    starts: list[int] = []
    for local in _midnights(step, datetime.fromtimestamp(from_ms // 1000, of)):
        start_ms = int(local.replace(tzinfo=of).timestamp()) * 1000 // HOUR_MS * HOUR_MS
        starts.append(start_ms)
        if start_ms >= to_ms:
            return np.array(starts)
        _check_rows(len(starts))
    raise AssertionError("midnights do not end")


_NEXT: dict[Step, Callable[[datetime], datetime]] = {
    Step.DAY: lambda day: datetime.fromordinal(day.toordinal() + 1),
    Step.MONTH: lambda day: datetime(day.year + day.month // 12, day.month % 12 + 1, 1),
    Step.YEAR: lambda day: datetime(day.year + 1, 1, 1),
}


def _midnights(step: Step, first: datetime) -> Iterator[datetime]:
    """Yield local midnights, without a zone, from the step that contains `first`."""
    local = datetime(
        first.year,
        1 if step is Step.YEAR else first.month,
        first.day if step is Step.DAY else 1,
    )
    while True:
        yield local
        local = _NEXT[step](local)


def _check_rows(n: int) -> None:
    if n > HISTOGRAM_ROWS:
        raise refused(
            "to",
            "too many steps in this window; take a longer step or a shorter window",
            f"{HISTOGRAM_ROWS} rows",
        )
