"""Recurring schedules over HTTP.

The user's input is checked here, with the time zones; the core checks what depends on the broker's
state.
"""

from __future__ import annotations

from itertools import islice
from typing import Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from horolog import limits
from horolog.admin.answers import answer, engine_of, listed
from horolog.admin.endpoints import endpoint, integer_parameter, text_parameter
from horolog.admin.request_shapes import Body, NewMs, payload_of
from horolog.admin.requests import given_as, query, query_int, read_body
from horolog.admin.shapes import ComingSchedule, Firings, RemovedSchedule, Schedule, Schedules
from horolog.admin.shapes import Firing as FiringShape
from horolog.admin.views import iso, payload_view
from horolog.calendar.rules import (
    Zones,
    check_firings,
    check_rule,
    each_firing_to_come,
    firings_to_come,
    local_time,
)
from horolog.errors import ErrorCode, refused
from horolog.protocol.rocketmq.names import check_schedule, check_topic
from horolog.protocol.schedules import (
    ChangeSchedule,
    Content,
    CreateSchedule,
    FindSchedule,
    Firing,
    Gap,
    ListSchedules,
    Missed,
    Overlap,
    PauseSchedule,
    RemoveSchedule,
    ResumeSchedule,
    Rule,
    ScheduleView,
)
from horolog.units import DURATION_MAX_MS

_FIRINGS_AT_ONCE = 4  # computed at a time: one of a rare date takes 2 ms
_SHOWN = 10  # next firings in the answer when a schedule is created or changed
_ZONES = Zones()


_NO_SCHEDULE = (ErrorCode.NOT_FOUND,)


class ScheduleBody(Body):
    """PUT /v1/schedules/{name}: the whole definition of a schedule."""

    topic: str
    body: str | None = None
    body_base64: str | None = None
    tag: str | None = None
    keys: list[str] = Field(default_factory=list)
    properties: dict[str, str] = Field(default_factory=dict)
    message_group: str | None = None
    cron: str = ""
    every_ms: int = Field(0, ge=0, le=DURATION_MAX_MS)
    zone: str = "UTC"
    gap: Literal["skip", "shift"] | None = None
    overlap: Literal["first", "both"] | None = None
    missed: Literal["latest", "all", "skip"] = "latest"
    start_ms: NewMs = 0
    end_ms: NewMs = 0
    times: int = Field(0, ge=0, le=limits.SCHEDULE_TIMES_MAX)
    jitter_ms: int = Field(0, ge=0, le=DURATION_MAX_MS)
    revision: int = Field(0, ge=0, le=(1 << 53))
    dry_run: bool = False

    def rule(self, now_ms: int) -> Rule:
        """Return the rule that says when the schedule fires; BAD_REQUEST if it is wrong."""
        wanted = Rule(
            cron=" ".join(self.cron.split()),
            every_ms=self.every_ms,
            zone=self.zone,
            start_ms=self.start_ms,
            end_ms=self.end_ms,
            times=self.times,
            jitter_ms=self.jitter_ms,
            missed=Missed(self.missed),
        )
        return check_rule(
            wanted,
            now_ms,
            gap=None if self.gap is None else Gap(self.gap),
            overlap=None if self.overlap is None else Overlap(self.overlap),
        )

    def content(self) -> Content:
        """Return the content of the messages that the schedule sends."""
        return Content(
            check_topic(self.topic),
            payload_of(self.body, self.body_base64),
            self.tag,
            tuple(self.keys),
            self.properties,
            self.message_group,
        )


class NewScheduleBody(ScheduleBody):
    """POST /v1/schedules: the whole definition of a schedule, and its name."""

    name: str


@endpoint(
    "GET",
    "/v1/schedules",
    query=(
        text_parameter("after"),
        integer_parameter("limit", 1, limits.SCHEDULES_MAX, limits.SCHEDULES_MAX),
    ),
    answer=Schedules,
)
async def list_schedules(request: Request) -> Response:
    """GET /v1/schedules: list recurring schedules by name, all or at most `limit` after `after`."""
    parameters = query(request, "after", "limit")
    left = query_int(parameters, "limit", limits.SCHEDULES_MAX, 1, limits.SCHEDULES_MAX)
    after = parameters.get("after", "")
    found: list[Schedule] = []
    while left > 0:
        page: list[ScheduleView] = await engine_of(request).submit(ListSchedules(after))
        found += [schedule_view(view) for view in page[:left]]
        left -= len(page)
        if len(page) < limits.TURN_SCHEDULES_MAX:
            break
        after = page[-1].name
    return answer({"schedules": found})


@endpoint(
    "POST",
    "/v1/schedules",
    body=NewScheduleBody,
    answer=ComingSchedule,
    status=(200, 201),
    codes=(ErrorCode.SCHEDULE_EXISTS, ErrorCode.TOPIC_NOT_FOUND, ErrorCode.TYPE_CONFLICT),
)
async def create_schedule(request: Request) -> Response:
    """POST /v1/schedules: create a schedule; 201 with its next ten firings, 200 for a dry run."""
    wanted = await read_body(request, NewScheduleBody)
    if wanted.revision:
        raise refused("revision", "a new schedule has none")
    engine = engine_of(request)
    now_ms = engine.clock.wall_ms()
    rule, content = wanted.rule(now_ms), wanted.content()
    with given_as("name", "schedule"):
        name = check_schedule(wanted.name)
    _check(name, rule, content, now_ms)
    view = await engine.submit(CreateSchedule(name, rule, content, wanted.dry_run))
    return answer(_with_next(view, now_ms), 200 if wanted.dry_run else 201)


@endpoint(
    "PUT",
    "/v1/schedules/{name}",
    body=ScheduleBody,
    answer=ComingSchedule,
    codes=(ErrorCode.SCHEDULE_CHANGED, *_NO_SCHEDULE),
)
async def change_schedule(request: Request) -> Response:
    """PUT /v1/schedules/{name}: replace the rule and content of a schedule.

    With `revision`, only if the schedule still has that revision.  A dry run answers in the same
    way, and changes nothing.
    """
    wanted = await read_body(request, ScheduleBody)
    engine, name = engine_of(request), _name(request)
    now_ms = engine.clock.wall_ms()
    rule, content = wanted.rule(now_ms), wanted.content()
    _check(name, rule, content, now_ms)
    view = await engine.submit(ChangeSchedule(name, rule, content, wanted.revision, wanted.dry_run))
    return answer(_with_next(view, now_ms))


@endpoint("GET", "/v1/schedules/{name}", answer=Schedule, codes=_NO_SCHEDULE)
async def show_schedule(request: Request) -> Response:
    """GET /v1/schedules/{name}: show a schedule."""
    query(request)
    view: ScheduleView = await engine_of(request).submit(FindSchedule(_name(request)))
    return answer(schedule_view(view))


@endpoint(
    "GET",
    "/v1/schedules/{name}/next",
    query=(integer_parameter("limit", 1, limits.PREVIEW_MAX, _SHOWN),),
    answer=Firings,
    codes=_NO_SCHEDULE,
)
async def next_firings(request: Request) -> Response:
    """GET /v1/schedules/{name}/next: list the next `limit` firings of a schedule.

    For a paused schedule, the firings that would come if it were resumed now.
    """
    parameters = query(request, "limit")
    limit = query_int(parameters, "limit", _SHOWN, 1, limits.PREVIEW_MAX)
    engine = engine_of(request)
    view: ScheduleView = await engine.submit(FindSchedule(_name(request)))
    firings = each_firing_to_come(_ZONES, view, engine.clock.wall_ms())
    views = await listed(
        islice(firings, limit), lambda each: _firing_view(view, each), at_once=_FIRINGS_AT_ONCE
    )
    return answer({"name": view.name, "next": views})


@endpoint("POST", "/v1/schedules/{name}/pause", body=Body, answer=Schedule, codes=_NO_SCHEDULE)
async def pause_schedule(request: Request) -> Response:
    """POST /v1/schedules/{name}/pause: pause a schedule, and recall its planned messages."""
    await read_body(request, Body)
    return answer(schedule_view(await engine_of(request).submit(PauseSchedule(_name(request)))))


@endpoint("POST", "/v1/schedules/{name}/resume", body=Body, answer=Schedule, codes=_NO_SCHEDULE)
async def resume_schedule(request: Request) -> Response:
    """POST /v1/schedules/{name}/resume: resume a schedule from now on."""
    await read_body(request, Body)
    return answer(schedule_view(await engine_of(request).submit(ResumeSchedule(_name(request)))))


@endpoint("DELETE", "/v1/schedules/{name}", answer=RemovedSchedule, codes=_NO_SCHEDULE)
async def remove_schedule(request: Request) -> Response:
    """DELETE /v1/schedules/{name}: remove a schedule, and recall its planned messages."""
    query(request)
    name = _name(request)
    await engine_of(request).submit(RemoveSchedule(name))
    return answer({"removed": name})


def _name(request: Request) -> str:
    return check_schedule(request.path_params["name"])


def _check(name: str, rule: Rule, content: Content, now_ms: int) -> None:
    """Refuse a rule that never fires, judged as if the schedule were created now."""
    made = ScheduleView.made(name, rule, content, now_ms)
    check_firings(rule, firings_to_come(_ZONES, made, now_ms, _SHOWN))


def _with_next(view: ScheduleView, now_ms: int) -> ComingSchedule:
    firings = firings_to_come(_ZONES, view, now_ms, _SHOWN)
    return {**schedule_view(view), "next": [_firing_view(view, each) for each in firings]}


def _firing_view(view: ScheduleView, firing: Firing) -> FiringShape:
    return {
        "firing": firing.number,
        "nominal_ms": firing.nominal_ms,
        "nominal": local_time(view.rule.zone, firing.nominal_ms),
        "deliver_at_ms": firing.due_ms,
        "deliver_at": iso(firing.due_ms),
        "message_id": firing.message_id,
    }


def schedule_view(view: ScheduleView) -> Schedule:
    """Return a schedule as JSON fields; `planned` are its messages that wait."""
    rule, content = view.rule, view.content
    return {
        "name": view.name,
        "state": view.state.value,
        "revision": view.revision,
        "cron": rule.cron,
        "every_ms": rule.every_ms,
        "zone": rule.zone,
        "gap": rule.gap.value,
        "overlap": rule.overlap.value,
        "missed": rule.missed.value,
        "start_ms": rule.start_ms,
        "start": iso(rule.start_ms),
        "end_ms": rule.end_ms,
        "end": iso(rule.end_ms),
        "times": rule.times,
        "jitter_ms": rule.jitter_ms,
        "topic": content.topic,
        "tag": content.tag,
        "keys": list(content.keys),
        "properties": dict(content.properties),
        "message_group": content.message_group,
        **payload_view(content.body, compressed=False),
        "created_ms": view.created_ms,
        "created": iso(view.created_ms),
        "fired": view.fired,
        "planned": [_firing_view(view, firing) for firing in view.planned],
        "problem": view.problem,
    }
