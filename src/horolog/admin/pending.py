"""Scheduled messages over HTTP: exact counts by hour and second, a list in due order (P10)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from horolog import limits
from horolog.access import rules
from horolog.admin.answers import (
    admit_known_caller,
    answer,
    broker_name,
    engine_of,
    is_admin,
    listed,
    may,
    require,
)
from horolog.admin.endpoints import Access, endpoint, integer_parameter, text_parameter
from horolog.admin.message_shapes import Counts, PendingRow
from horolog.admin.message_shapes import PendingPage as PageShape
from horolog.admin.requests import query, query_int, query_window
from horolog.admin.views import count_view, pending_message_view
from horolog.errors import ErrorCode, refused
from horolog.protocol.commands import (
    CountBy,
    CountPending,
    PendingCounts,
    PendingMessage,
)
from horolog.protocol.history_commands import PagePending, PendingPage, PendingPlace
from horolog.protocol.rocketmq.names import check_topic
from horolog.protocol.rocketmq.recall_handle import RecallHandle, encode_recall_handle
from horolog.units import parse_hour


def _topic(parameters: dict[str, str]) -> str:
    topic = parameters.get("topic", "")
    return check_topic(topic) if topic else ""


@endpoint(
    "GET",
    "/v1/pending",
    query=(text_parameter("by", words=CountBy), text_parameter("hour"), text_parameter("topic")),
    answer=Counts,
    codes=(ErrorCode.TOPIC_NOT_FOUND, ErrorCode.IN_TIER),
    access=Access.USERS,
)
async def count_pending(request: Request) -> Response:
    """GET /v1/pending?by=: count pending messages per hour, day or topic, or per second of an hour.

    The seconds are those of ?hour=.  By topic, users see the topics that they have a right to.
    """
    parameters = query(request, "by", "hour", "topic")
    topic = _topic(parameters)
    hour = parse_hour(parameters["hour"]) if "hour" in parameters else None
    by = _count_by(parameters.get("by"), hour)
    if by is CountBy.TOPIC and not topic:
        admit_known_caller(request)
    else:
        require(request, rules.need_of_topic(topic, rules.EITHER))
    counts: PendingCounts = await engine_of(request).submit(CountPending(topic, hour, by))
    if by is CountBy.TOPIC and not is_admin(request):
        counts.topics = [
            each
            for each in counts.topics
            if may(request, rules.need_of_topic(each[0], rules.EITHER))
        ]
        counts.total = sum(count for _, count in counts.topics)
    counted: list[tuple[int | str, int]] = [*counts.rows, *counts.topics]
    rows = await listed(counted, count_view)
    return answer({"topic": topic, "total": counts.total, "by": by.value, "rows": rows})


def _count_by(text: str | None, hour: int | None) -> CountBy:
    if text is None:
        return CountBy.HOUR if hour is None else CountBy.SECOND
    if text not in set(CountBy):
        raise refused("by", f"{text!r} is not one of {', '.join(CountBy)}")
    if (hour is not None) != (text == CountBy.SECOND):
        raise refused("by", "to count by second, name the hour; hour goes with no other count")
    return CountBy(text)


@endpoint(
    "GET",
    "/v1/pending/messages",
    query=(
        text_parameter("from"),
        text_parameter("to"),
        text_parameter("topic"),
        integer_parameter("limit", 1, limits.ADMIN_LIST_MAX, 100),
    ),
    answer=PageShape,
    codes=(ErrorCode.TOPIC_NOT_FOUND, ErrorCode.IN_TIER),
    access=Access.USERS,
)
async def list_pending(request: Request) -> Response:
    """GET /v1/pending/messages?from=&to=&topic=&limit=: list scheduled messages due in [from, to)."""
    parameters = query(request, "from", "to", "topic", "limit")
    topic = _topic(parameters)
    require(request, rules.need_of_topic(topic, rules.EITHER))
    from_ms, to_ms = query_window(parameters)
    limit = query_int(parameters, "limit", 100, 1, limits.ADMIN_LIST_MAX)
    engine, broker = engine_of(request), broker_name(request)
    rows: list[PendingRow] = []
    place: PendingPlace | None = PendingPlace(from_ms)
    while place is not None and len(rows) < limit:
        page: PendingPage = await engine.submit(
            PagePending(place, to_ms, topic, limit=limit - len(rows))
        )
        for pending in page.messages:
            handle = encode_recall_handle(_handle(pending, broker))
            rows.append(pending_message_view(pending, handle))
        place = page.next
    return answer({"messages": rows})


def _handle(pending: PendingMessage, broker: str) -> RecallHandle:
    return RecallHandle(pending.topic, broker, pending.due_ms, pending.message_id, pending.origin)
