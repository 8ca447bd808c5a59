"""Topics over HTTP, progress of groups in them, and messages of a queue for bulk readers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import Response

from horolog.access import rules
from horolog.admin.answers import admit_known_caller, answer, engine_of, may, require, settings_lock
from horolog.admin.clients import doors_of
from horolog.admin.endpoints import Access, endpoint, integer_parameter, text_parameter
from horolog.admin.request_shapes import ChangeTopicBody, TopicBody
from horolog.admin.requests import given_as, query, query_int, query_word, read_body
from horolog.admin.shapes import DeletedTopic, GroupProgress, Topic, Topics
from horolog.admin.views import group_view, topic_view
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import (
    ADMIN_READ_BYTES,
    ADMIN_READ_MAX,
    QUEUES_MAX,
    TOPICS_MAX,
    TURN_READ_BYTES,
    TURN_READ_MAX,
    TURN_TOPICS_MAX,
)
from horolog.protocol.commands import (
    ChangeTopic,
    CountBy,
    CountPending,
    CreateTopic,
    DeleteTopic,
    DescribeGroup,
    DescribeTopic,
    GroupQueueView,
    ListTopics,
    PendingCounts,
    QueueRead,
    ReadQueue,
    RecallMany,
    TopicSettings,
    TopicView,
)
from horolog.protocol.queue_read import encode_read
from horolog.protocol.rocketmq.late_policy import policy_of
from horolog.protocol.rocketmq.names import check_group, check_topic
from horolog.server.messages import recall_many
from horolog.server.running import RunningEngine
from horolog.server.threads import in_pool
from horolog.units import TIME_MAX_MS, parse_unsigned

_NO_TOPIC = (ErrorCode.TOPIC_NOT_FOUND,)
_PENDING = ("refuse", "recall")
_PLAIN = ("perm", "multi_tag", "order", "read_queues", "write_queues")
_SETTINGS = (*_PLAIN, "late", "late_after_ms")
_RECALLS_MAX = 8  # recalls of messages that are sent while a topic is being deleted


@endpoint(
    "GET",
    "/v1/topics",
    query=(text_parameter("after"), integer_parameter("limit", 1, TOPICS_MAX, TOPICS_MAX)),
    answer=Topics,
    access=Access.USERS,
)
async def list_topics(request: Request) -> Response:
    """GET /v1/topics: list topics by name, all or at most `limit` after `after`.

    Users see the topics that they have a right to.
    """
    parameters = query(request, "after", "limit")
    left = query_int(parameters, "limit", TOPICS_MAX, 1, TOPICS_MAX)
    after = parameters.get("after", "")
    admit_known_caller(request)
    engine = engine_of(request)
    counts: PendingCounts = await engine.submit(CountPending(by=CountBy.TOPIC))
    pending = dict(counts.topics)
    pieces: list[bytes] = []  # as JSON: so many objects at once would trigger the garbage collector
    while left > 0:
        topics: list[TopicView] = await engine.submit(ListTopics(after, with_pending=False))
        seen = [
            each for each in topics if may(request, rules.need_of_topic(each.name, rules.EITHER))
        ]
        for topic in seen:
            topic.pending = pending.get(topic.name, 0)
        if seen:
            pieces.append(orjson.dumps([topic_view(topic) for topic in seen[:left]])[1:-1])
        left -= len(seen)
        if len(topics) < TURN_TOPICS_MAX:
            break
        after = topics[-1].name
    return answer({"topics": orjson.Fragment(b"[" + b",".join(pieces) + b"]")})


@endpoint(
    "POST", "/v1/topics", body=TopicBody, answer=Topic, status=201, codes=(ErrorCode.TOPIC_EXISTS,)
)
async def create_topic(request: Request) -> Response:
    """POST /v1/topics: create a topic, 201.

    A topic that exists with the same settings stays as it is; with other settings it is refused.
    """
    wanted = await read_body(request, TopicBody)
    settings = _settings(wanted, TopicSettings()) if _has_settings(wanted) else None
    with given_as("name", "topic"):
        command = CreateTopic(check_topic(wanted.name), wanted.type, wanted.queues, settings)
        made: TopicView = await engine_of(request).submit(command)
    return answer(topic_view(made), 201)


@endpoint("PATCH", "/v1/topics/{name}", body=ChangeTopicBody, answer=Topic, codes=_NO_TOPIC)
async def change_topic(request: Request) -> Response:
    """PATCH /v1/topics/{name}: add queues or change settings; omitted settings stay as they are."""
    wanted = await read_body(request, ChangeTopicBody)
    if wanted.queues is None and not _has_settings(wanted):
        raise refused(
            "queues", "give queues, perm, multi_tag, late, order, read_queues or write_queues"
        )
    engine, name = engine_of(request), check_topic(request.path_params["name"])
    settings = None
    async with settings_lock(request):
        if _has_settings(wanted):
            view: TopicView = await engine.submit(DescribeTopic(name, with_pending=False))
            settings = _settings(wanted, view.settings)
        changed = await engine.submit(ChangeTopic(name, wanted.queues or 0, settings))
    return answer(topic_view(changed))


def _has_settings(wanted: TopicBody | ChangeTopicBody) -> bool:
    """Return whether a body gives any settings of a topic."""
    given = (getattr(wanted, field) for field in _SETTINGS)
    return any(each is not None for each in given)


def _settings(wanted: TopicBody | ChangeTopicBody, known: TopicSettings) -> TopicSettings:
    """Return the `known` settings of a topic, changed by a body; BAD_REQUEST names the field."""
    if wanted.late is None and wanted.late_after_ms is not None:
        raise refused("late_after_ms", "says how late; give late too")
    policy = known.late_policy
    if wanted.late is not None:
        policy = policy_of(wanted.late, wanted.late_after_ms or 0)
    plain = {name: given for name in _PLAIN if (given := getattr(wanted, name)) is not None}
    return replace(known, late=policy.action.value, late_after_ms=policy.after_ms, **plain)


@endpoint(
    "DELETE",
    "/v1/topics/{name}",
    query=(
        text_parameter(
            "pending",
            "what to do with messages that wait: refuse the deletion, or recall them first",
            words=_PENDING,
        ),
    ),
    answer=DeletedTopic,
    codes=(*_NO_TOPIC, ErrorCode.IN_TIER),
)
async def delete_topic(request: Request) -> Response:
    """DELETE /v1/topics/{name}: delete a topic, its messages and the progress of groups.

    Refused while messages wait; with `pending=recall` these are recalled first.  If that breaks
    off, the same request again continues it.
    """
    recalls = query_word(query(request, "pending"), "pending", _PENDING) == "recall"
    name = check_topic(request.path_params["name"])
    engine = engine_of(request)
    recalled = 0
    for more in (*[recalls] * _RECALLS_MAX, False):
        try:
            await engine.submit(DeleteTopic(name))
            break
        except HorologError as error:
            if not more or error.field != "pending":
                raise
        done = await recall_many(engine, RecallMany(name, 0, TIME_MAX_MS))
        recalled += done.cancelled
    for door in doors_of(request):
        door.forget(topic=name)
    return answer({"deleted": name, "recalled": recalled})


@endpoint("GET", "/v1/topics/{name}", answer=Topic, codes=_NO_TOPIC, access=Access.USERS)
async def describe_topic(request: Request) -> Response:
    """GET /v1/topics/{name}: show a topic."""
    query(request)
    name = check_topic(request.path_params["name"])
    require(request, rules.need_of_topic(name, rules.EITHER))
    return answer(topic_view(await engine_of(request).submit(DescribeTopic(name))))


@endpoint(
    "GET",
    "/v1/topics/{name}/groups/{group}",
    answer=GroupProgress,
    codes=(*_NO_TOPIC, ErrorCode.GROUP_NOT_FOUND),
)
async def describe_group(request: Request) -> Response:
    """GET /v1/topics/{name}/groups/{group}: show the progress of a consumer group in a topic."""
    query(request)
    topic = check_topic(request.path_params["name"])
    group = check_group(request.path_params["group"])
    queues: list[GroupQueueView] = await engine_of(request).submit(DescribeGroup(group, topic))
    return answer(group_view(group, topic, queues))


class _QueueRange(NamedTuple):
    topic: str
    queue_id: int
    first: int
    limit: int


@endpoint(
    "GET",
    "/v1/topics/{name}/queues/{queue}/messages",
    query=(
        integer_parameter("from", 0, 1 << 62, 0),
        integer_parameter("limit", 1, ADMIN_READ_MAX, ADMIN_READ_MAX),
    ),
    media="application/octet-stream",
    codes=(*_NO_TOPIC, ErrorCode.DAMAGED),
)
async def read_queue(request: Request) -> Response:
    """GET /v1/topics/{name}/queues/{queue}/messages: return the records of a queue as bytes.

    Reading consumes nothing, and needs no group.
    """
    parameters = query(request, "from", "limit")
    text = str(request.path_params["queue"])
    queue = parse_unsigned(text)
    if queue is None or queue >= QUEUES_MAX:
        raise refused("queue", f"{text[:40]!r} is not a queue number", f"0 to {QUEUES_MAX - 1}")
    wanted = _QueueRange(
        check_topic(request.path_params["name"]),
        queue,
        query_int(parameters, "from", 0, 0, 1 << 62),
        query_int(parameters, "limit", ADMIN_READ_MAX, 1, ADMIN_READ_MAX),
    )
    async with request.app.state.reads:
        found = await _read(engine_of(request), wanted)
        content = await in_pool(  # 20 ms for many small messages
            partial(
                encode_read,
                found.records,
                next_offset=found.next_offset,
                min_offset=found.min_offset,
                max_offset=found.max_offset,
            )
        )
    return Response(content, media_type="application/octet-stream")


async def _read(engine: RunningEngine, wanted: _QueueRange) -> QueueRead:
    """Read a queue one turn's worth at a time, so that the broker does other work in between."""
    topic, queue_id, at, rest = wanted
    records: list[bytes] = []
    size = 0
    while True:
        got: QueueRead = await engine.submit(
            ReadQueue(topic, queue_id, at, min(rest, TURN_READ_MAX), TURN_READ_BYTES)
        )
        records += got.records
        size += sum(map(len, got.records))
        moved, at = got.next_offset > at, got.next_offset
        rest -= len(got.records)
        if not moved or not rest or size >= ADMIN_READ_BYTES or at >= got.max_offset:
            return QueueRead(records, at, got.min_offset, got.max_offset)
