"""Consumer groups over HTTP: list, show, change, reset and delete them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from heapq import nsmallest

from starlette.requests import Request
from starlette.responses import Response

from horolog.access import rules
from horolog.admin.answers import (
    admit_known_caller,
    answer,
    engine_of,
    is_admin,
    may,
    require,
    settings_lock,
)
from horolog.admin.clients import client_view, doors_of, kind_of_group, members_of
from horolog.admin.endpoints import (
    Access,
    endpoint,
    flag_parameter,
    integer_parameter,
    text_parameter,
)
from horolog.admin.request_shapes import GroupBody, ResetBody
from horolog.admin.requests import query, query_flag, query_int, read_body
from horolog.admin.shapes import DeletedGroup, Group, GroupReset, GroupRow, Groups, GroupTopic
from horolog.admin.shapes import GroupSettings as SettingsShape
from horolog.admin.views import iso
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import ADMIN_LIST_MAX
from horolog.protocol.commands import DescribeGroup, GroupQueueView
from horolog.protocol.queue_commands import (
    DeleteGroup,
    FindGroup,
    GroupSettings,
    GroupView,
    Lag,
    ListGroups,
    PutGroup,
)
from horolog.protocol.rocketmq.names import check_group, check_topic, is_system_group
from horolog.server.connected import ConnectedClient, kind_of
from horolog.server.listing import lags as lags_of
from horolog.server.listing import stored_ms, unless_deleted
from horolog.server.resets import End, QueueOffset, plan_reset, reset
from horolog.server.running import RunningEngine
from horolog.units import counted, parse_time_ms


@endpoint(
    "GET",
    "/v1/groups",
    query=(integer_parameter("limit", 1, ADMIN_LIST_MAX, 100), text_parameter("after")),
    answer=Groups,
    access=Access.USERS,
)
async def list_groups(request: Request) -> Response:
    """GET /v1/groups: list consumer groups with their lag, at most `limit` after `after`.

    Users see the groups that they have a right to.
    """
    parameters = query(request, "limit", "after")
    limit = query_int(parameters, "limit", 100, 1, ADMIN_LIST_MAX)
    admit_known_caller(request)
    engine, doors = engine_of(request), doors_of(request)
    groups, following = await _page(request, parameters.get("after", ""), limit)
    lags: dict[str, list[Lag]] = {group.name: [] for group in groups}
    for lag in await lags_of(engine, [(g.name, topic) for g in groups for topic in g.topics]):
        lags[lag.group].append(lag)
    rows: list[GroupRow] = []
    for group in groups:
        members = sum(door.member_count(group.name) for door in doors)
        rows.append(
            {
                "group": group.name,
                "topics": len(group.topics),
                "members": members,
                "consume": kind_of_group(request, group.name) if members else "",
                "waiting": sum(lag.waiting for lag in lags[group.name]),
                "leased": sum(lag.leased for lag in lags[group.name]),
                "orderly": group.settings.orderly,
                "retry_max": group.settings.retry_max,
            }
        )
    return answer({"groups": rows, "next": following})


async def _page(request: Request, after: str, limit: int) -> tuple[list[GroupView], str | None]:
    """Return the first groups after `after` that the caller may see, and where to continue."""
    engine = engine_of(request)
    groups: list[GroupView] = []
    while True:
        page: list[GroupView] = await engine.submit(ListGroups(after, limit + 1))
        for group in page[:limit]:
            if not is_system_group(group.name) and may(request, rules.need_of_group(group.name)):
                if len(groups) == limit:
                    return groups, after
                groups.append(group)
            after = group.name
        if len(page) <= limit:
            return groups, None
        if is_admin(request):
            return groups, after


@endpoint(
    "GET",
    "/v1/groups/{group}",
    query=(integer_parameter("limit", 1, ADMIN_LIST_MAX, 100), text_parameter("after")),
    answer=Group,
    codes=(ErrorCode.GROUP_NOT_FOUND,),
    access=Access.USERS,
)
async def show_group(request: Request) -> Response:
    """GET /v1/groups/{group}: show the topics and members of a group; 404 if it does not exist."""
    parameters = query(request, "limit", "after")
    limit = query_int(parameters, "limit", 100, 1, ADMIN_LIST_MAX)
    name = check_group(request.path_params["group"])
    require(request, rules.need_of_group(name))
    engine = engine_of(request)
    group: GroupView = await engine.submit(FindGroup(name))
    members: list[ConnectedClient] = []
    wanted: Counter[str] = Counter()
    async for member in members_of(request, name):
        members.append(member)
        wanted.update(member.topics)
    topics = sorted({*group.topics, *wanted})
    after = parameters.get("after", "")
    topics = [
        topic
        for topic in topics
        if topic > after and may(request, rules.need_of_topic(topic, rules.EITHER))
    ]
    view: Group = {
        **_settings_view(group),
        "consume": kind_of(members),
        "topics": [
            await _topic_view(engine, lag, wanted[lag.topic])
            for lag in await lags_of(engine, [(name, topic) for topic in topics[:limit]])
        ],
        "member_count": len(members),
        "members": [client_view(member) for member in nsmallest(ADMIN_LIST_MAX, members)],
        "next": topics[limit - 1] if len(topics) > limit else None,
    }
    return answer(view)


async def _topic_view(engine: RunningEngine, lag: Lag, members: int) -> GroupTopic:
    oldest_ms = await unless_deleted(_oldest_ms(engine, lag), 0) if lag.waiting else 0
    return {
        "topic": lag.topic,
        "waiting": lag.waiting,
        "leased": lag.leased,
        "oldest_waiting_ms": oldest_ms,
        "oldest_waiting": iso(oldest_ms),
        "members": members,
    }


async def _oldest_ms(engine: RunningEngine, lag: Lag) -> int:
    """Return when the oldest message not consumed became visible; 0: none is readable."""
    queues: list[GroupQueueView] = await engine.submit(DescribeGroup(lag.group, lag.topic))
    places = [(q.queue_id, q.ack_floor) for q in queues if q.ack_floor < q.max_offset]
    times = await stored_ms(engine, lag.topic, places)
    return min((time_ms for time_ms in times if time_ms), default=0)


@endpoint("PUT", "/v1/groups/{group}", body=GroupBody, answer=SettingsShape)
async def put_group(request: Request) -> Response:
    """PUT /v1/groups/{group}: create a group, or change the settings that are given."""
    group = check_group(request.path_params["group"])
    wanted = await read_body(request, GroupBody)
    engine = engine_of(request)
    async with settings_lock(request):
        found: GroupView = await engine.submit(PutGroup(group))
        before: GroupSettings = found.settings
        settings = replace(
            before,
            orderly=before.orderly if wanted.orderly is None else wanted.orderly,
            retry_max=before.retry_max if wanted.retry_max is None else wanted.retry_max,
        )
        changed: GroupView = await engine.submit(PutGroup(group, settings))
    return answer(_settings_view(changed))


@endpoint(
    "POST",
    "/v1/groups/{group}/reset",
    body=ResetBody,
    answer=GroupReset,
    codes=(ErrorCode.GROUP_NOT_FOUND, ErrorCode.TOPIC_NOT_FOUND),
)
async def reset_group(request: Request) -> Response:
    """POST /v1/groups/{group}/reset: move a group to another place in a topic.

    The result has the old and the new offset of each queue.  Members may be connected: they
    continue at the new place too. A dry run changes nothing.
    """
    group = check_group(request.path_params["group"])
    wanted = await read_body(request, ResetBody)
    topic = check_topic(wanted.topic)
    engine = engine_of(request)
    rows = await plan_reset(engine, group, topic, _reset_place(wanted), wanted.queue)
    if not wanted.dry_run:
        await reset(engine, group, topic, rows)
        for door in doors_of(request):
            await door.notify_reset(group, topic, {row.queue_id: row.to_offset for row in rows})
    moves = [row.to_offset - row.from_offset for row in rows]
    view: GroupReset = {
        "group": group,
        "topic": topic,
        "dry_run": wanted.dry_run,
        "again": -sum(move for move in moves if move < 0),
        "skipped": sum(move for move in moves if move > 0),
        "queues": [
            {"queue_id": row.queue_id, "from_offset": row.from_offset, "to_offset": row.to_offset}
            for row in rows
        ],
    }
    return answer(view)


def _reset_place(wanted: ResetBody) -> End | QueueOffset | int:
    if (wanted.to is None) == (wanted.offset is None):
        raise refused("to", "give either to (earliest, latest or a time), or queue and offset")
    if wanted.offset is not None:
        if wanted.queue is None:
            raise refused("queue", "an offset is of one queue: name it")
        return QueueOffset(wanted.queue, wanted.offset)
    assert wanted.to is not None
    if wanted.to in (each.value for each in End):
        return End(wanted.to)
    return parse_time_ms(wanted.to, field="to")


@endpoint(
    "DELETE",
    "/v1/groups/{group}",
    query=(flag_parameter("force", "delete also while members are connected"),),
    answer=DeletedGroup,
    codes=(ErrorCode.GROUP_NOT_FOUND,),
)
async def delete_group(request: Request) -> Response:
    """DELETE /v1/groups/{group}: delete a group, its settings and its progress.

    Refused while the group has members, unless forced.
    """
    force = query_flag(query(request, "force"), "force")
    group = check_group(request.path_params["group"])
    engine = engine_of(request)
    await engine.submit(FindGroup(group))
    members = sum(door.member_count(group) for door in doors_of(request))
    if members and not force:
        raise HorologError(
            ErrorCode.FORBIDDEN,
            f"consumer group {group!r} cannot be deleted: {counted(members, 'client')} of it "
            "are connected; stop them first, or force it",
            field="force",
        )
    await engine.submit(DeleteGroup(group))
    for door in doors_of(request):
        door.forget(group=group)
    return answer({"deleted": group})


def _settings_view(view: GroupView) -> SettingsShape:
    return {
        "group": view.name,
        "orderly": view.settings.orderly,
        "retry_max": view.settings.retry_max,
    }
