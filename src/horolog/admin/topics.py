"""Topics and consumer groups over HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from horolog.admin.answers import answer, engine_of
from horolog.admin.requests import TopicBody, query, read_body
from horolog.admin.views import group_view, topic_view
from horolog.protocol.commands import (
    CreateTopic,
    DescribeGroup,
    DescribeTopic,
    GroupQueueView,
    ListTopics,
    TopicView,
)
from horolog.protocol.rocketmq.names import check_group, check_topic


async def list_topics(request: Request) -> Response:
    """GET /v1/topics."""
    query(request)
    topics: list[TopicView] = await engine_of(request).submit(ListTopics())
    return answer({"topics": [topic_view(topic) for topic in topics]})


async def create_topic(request: Request) -> Response:
    """POST /v1/topics → 201; the same settings again change nothing."""
    wanted = await read_body(request, TopicBody)
    command = CreateTopic(check_topic(wanted.name), wanted.type, wanted.queues)
    return answer(topic_view(await engine_of(request).submit(command)), 201)


async def describe_topic(request: Request) -> Response:
    """GET /v1/topics/{name}."""
    query(request)
    name = check_topic(request.path_params["name"])
    return answer(topic_view(await engine_of(request).submit(DescribeTopic(name))))


async def describe_group(request: Request) -> Response:
    """GET /v1/topics/{name}/groups/{group}."""
    query(request)
    topic = check_topic(request.path_params["name"])
    group = check_group(request.path_params["group"])
    queues: list[GroupQueueView] = await engine_of(request).submit(DescribeGroup(group, topic))
    return answer(group_view(group, topic, queues))
