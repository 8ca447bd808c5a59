"""Lists of messages by id, key, tag or window: GET /v1/messages/search."""

from __future__ import annotations

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from horolog import limits
from horolog.access import rules
from horolog.admin.answers import answer, broker_name, engine_of, require
from horolog.admin.endpoints import Access, endpoint, integer_parameter, text_parameter
from horolog.admin.history import handle_of
from horolog.admin.look_ups import find_named
from horolog.admin.message_shapes import FoundPage, FoundRow
from horolog.admin.requests import query, query_int, query_window
from horolog.admin.views import iso, message_view
from horolog.errors import ErrorCode, refused
from horolog.protocol.commands import (
    DescribeTopic,
    FoundMessage,
    MessageState,
    QueueRead,
    ReadQueue,
    TopicView,
)
from horolog.protocol.history_commands import (
    PagePending,
    PendingPage,
    PendingPlace,
)
from horolog.protocol.queue_commands import SearchOffset
from horolog.protocol.rocketmq.layout import decode
from horolog.protocol.rocketmq.message import RECORD_HEAD_BYTES, due_of
from horolog.protocol.rocketmq.names import check_topic
from horolog.units import TIME_MAX_MS, parse_unsigned


class _SearchQuery(NamedTuple):
    """The criteria of a search."""

    topic: str
    tag: str
    from_ms: int
    to_ms: int
    states: tuple[MessageState, ...]
    limit: int


_LISTED = (MessageState.PENDING, MessageState.DELIVERED)


@endpoint(
    "GET",
    "/v1/messages/search",
    query=(
        *map(text_parameter, ("topic", "id", "key", "tag", "from", "to")),
        text_parameter("state", words=MessageState),
        integer_parameter("limit", 1, limits.ADMIN_LIST_MAX, 100),
        text_parameter("after"),
    ),
    answer=FoundPage,
    codes=(ErrorCode.TOPIC_NOT_FOUND, ErrorCode.IN_TIER, ErrorCode.DAMAGED),
    access=Access.USERS,
    tag="history",
)
async def search(request: Request) -> Response:
    """GET /v1/messages/search: list messages without payloads.

    With an id or key all of them, else those of a window, a page at a time.
    """
    parameters = query(
        request, "topic", "id", "key", "tag", "from", "to", "state", "limit", "after"
    )
    for name, given in parameters.items():
        if not given:
            raise refused(name, "is empty")
    limit = query_int(parameters, "limit", 100, 1, limits.ADMIN_LIST_MAX)
    if "id" in parameters or "key" in parameters:
        return await _search_named(request, parameters, limit)
    topic = check_topic(parameters["topic"]) if "topic" in parameters else ""
    require(request, rules.need_of_topic(topic, rules.Right.SUB))
    states = _states(parameters.get("state"), topic)
    from_ms, to_ms = query_window(parameters)
    wanted = _SearchQuery(topic, parameters.get("tag", ""), from_ms, to_ms, states, limit)
    if topic:
        await engine_of(request).submit(DescribeTopic(topic, with_pending=False))
    return await _search_listed(request, wanted, _Place.of(parameters.get("after"), wanted))


async def _search_named(request: Request, parameters: dict[str, str], limit: int) -> Response:
    for name in ("tag", "from", "to", "after"):
        if name in parameters:
            raise refused(name, "a search by id or key takes only topic, state and limit beside it")
    found = await find_named(request, parameters)
    if "state" in parameters:
        state = _state(parameters["state"])
        found = [each for each in found if each.state is state]
    broker = broker_name(request)
    rows = [_row(each, broker) for each in found[:limit]]
    return answer({"messages": rows, "next": None})


def _state(text: str) -> MessageState:
    if text not in set(MessageState):
        raise refused("state", f"{text!r} is not one of {', '.join(MessageState)}")
    return MessageState(text)


def _states(text: str | None, topic: str) -> tuple[MessageState, ...]:
    """Return the states that a search lists; delivered messages are listed by topic only."""
    if text is None:
        return _LISTED if topic else (MessageState.PENDING,)
    if text not in _LISTED:
        known = (
            f"{text} is found by id or key"
            if text in set(MessageState)
            else f"{text!r} is no state"
        )
        raise refused("state", f"{known}; a window lists {', '.join(_LISTED)}")
    state = MessageState(text)
    if state is MessageState.DELIVERED and not topic:
        raise refused("topic", "delivered messages are listed by topic: give one")
    return (state,)


class _Place(NamedTuple):
    """Where a search continues: `p_DUE_POSITION_ROW` (pending) or `q_QUEUE_OFFSET` (in a queue)."""

    pending: PendingPlace | None
    queue: int = 0
    offset: int = -1  # −1: the start of the window

    @staticmethod
    def of(text: str | None, wanted: _SearchQuery) -> _Place:
        """Parse a place; None: where a search begins.  BAD_REQUEST if it is not of this search."""
        if text is None:
            waits = MessageState.PENDING in wanted.states
            return _Place(PendingPlace(wanted.from_ms) if waits else None)
        kind, *words = text.split("_")
        numbers = [-1 if word == "-1" else parse_unsigned(word) for word in words]
        match kind, numbers:
            case "p", [int(due_ms), int(position), int(row)] if (
                0 <= due_ms <= TIME_MAX_MS and row >= 0
            ):
                if MessageState.PENDING in wanted.states:
                    return _Place(PendingPlace(max(due_ms, wanted.from_ms), position, row))
            case "q", [int(queue), int(offset)] if queue >= 0:
                if MessageState.DELIVERED in wanted.states:
                    return _Place(None, queue, offset)
        raise refused("after", f"{text[:80]!r} is not the `next` of an answer to this search")

    @property
    def text(self) -> str:
        """The place as `of` parses it."""
        if self.pending is not None:
            return "p_" + "_".join(str(number) for number in self.pending)
        return f"q_{self.queue}_{self.offset}"


async def _search_listed(request: Request, wanted: _SearchQuery, first: _Place) -> Response:
    """Return a page; it ends early, with `next`, when SEARCH_TURNS turns found too few messages."""
    rows: list[FoundRow] = []
    at: _Place | None = first
    for _ in range(limits.SEARCH_TURNS):
        assert at is not None
        if at.pending is not None:
            at = await _append_pending(request, wanted, at.pending, rows)
        else:
            at = await _append_visible(request, wanted, at, rows)
        if at is None or len(rows) >= wanted.limit:
            break
    return answer({"messages": rows, "next": at.text if at is not None else None})


async def _append_pending(
    request: Request, wanted: _SearchQuery, after: PendingPlace, rows: list[FoundRow]
) -> _Place | None:
    command = PagePending(after, wanted.to_ms, wanted.topic, wanted.tag, wanted.limit - len(rows))
    page: PendingPage = await engine_of(request).submit(command)
    broker = broker_name(request)
    for each in page.messages:
        found = FoundMessage(
            MessageState.PENDING,
            each.topic,
            each.message_id,
            [],
            each.due_ms,
            each.origin,
            -1,
            -1,
            0,
            each.layout,
        )
        rows.append(_row(found, broker))
    if page.next is not None:
        return _Place(page.next)
    return _Place(None) if MessageState.DELIVERED in wanted.states else None


async def _append_visible(
    request: Request, wanted: _SearchQuery, at: _Place, rows: list[FoundRow]
) -> _Place | None:
    """Append messages of one queue that were stored in the window; return where to continue."""
    engine = engine_of(request)
    topic: TopicView = await engine.submit(DescribeTopic(wanted.topic, with_pending=False))
    if at.queue >= topic.queues:
        return None
    lowest = topic.min_offsets[at.queue] if topic.min_offsets else 0
    first = at.offset
    if first < 0:
        first = await engine.submit(SearchOffset(wanted.topic, at.queue, wanted.from_ms))
    first = max(first, lowest)
    if first >= topic.queue_offsets[at.queue]:
        return _Place(None, at.queue + 1)
    command = ReadQueue(wanted.topic, at.queue, first, limits.TURN_READ_MAX, limits.TURN_READ_BYTES)
    read: QueueRead = await engine.submit(command)
    broker = broker_name(request)
    for record in read.records:
        found = _visible(record, wanted.topic)
        if found.store_ms >= wanted.to_ms:
            return _Place(None, at.queue + 1)
        if wanted.tag and message_view(found.layout)["tag"] != wanted.tag:
            continue
        rows.append(_row(found, broker))
        if len(rows) >= wanted.limit:
            return _Place(None, at.queue, found.queue_offset + 1)
    if read.next_offset >= read.max_offset:
        return _Place(None, at.queue + 1)
    return _Place(None, at.queue, read.next_offset)


def _visible(record: bytes, topic: str) -> FoundMessage:
    stored = record[RECORD_HEAD_BYTES:]
    fields = decode(stored)
    view = message_view(stored, *due_of(record))
    return FoundMessage(
        MessageState.DELIVERED,
        topic,
        view["message_id"],
        view["keys"],
        view["deliver_at_ms"],
        -1,
        fields.queue_id,
        fields.queue_offset,
        fields.store_ms,
        stored,
    )


def _row(found: FoundMessage, broker: str) -> FoundRow:
    """Return a message for a list: all but its payload and properties."""
    view = message_view(found.layout)
    return {
        "message_id": found.message_id,
        "topic": found.topic,
        "tag": view["tag"],
        "keys": view["keys"],
        "state": found.state.value,
        "deliver_at_ms": found.due_ms,
        "deliver_at": iso(found.due_ms),
        "store_ms": found.store_ms or view["store_ms"],
        "store": iso(found.store_ms or view["store_ms"]),
        "queue_id": found.queue_id,
        "queue_offset": found.queue_offset,
        "size_bytes": len(found.layout),
        "recall_handle": handle_of(found, broker),
    }
