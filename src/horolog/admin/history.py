"""One message with everything that has happened to it, and lists of messages, over HTTP."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from horolog import limits
from horolog.access import rules
from horolog.admin.answers import allow, answer, broker_name, engine_of
from horolog.admin.endpoints import Access, endpoint, text, whole
from horolog.admin.look_ups import find_named, topic_of
from horolog.admin.message_shapes import Copy, Event, FoundPage, FoundRow, GroupState, MessageStory
from horolog.admin.requests import query, query_int
from horolog.admin.views import iso, message_view
from horolog.errors import ErrorCode, HorologError, refused
from horolog.protocol.commands import (
    DescribeTopic,
    FoundMessage,
    MessageState,
    QueueRead,
    ReadQueue,
    TopicView,
)
from horolog.protocol.history_commands import (
    GroupView,
    HistoryEvent,
    MessageHistory,
    PagePending,
    PendingPage,
    PendingPlace,
    ShowMessage,
)
from horolog.protocol.queue_commands import SearchOffset
from horolog.protocol.rocketmq.layout import COMPRESSED, decode
from horolog.protocol.rocketmq.names import check_topic
from horolog.protocol.rocketmq.recall_handle import RecallHandle, encode_recall_handle
from horolog.server import messages
from horolog.units import TIME_MAX_MS, parse_time_ms

_WAITS = (MessageState.PENDING, MessageState.IN_TIER)
_HEAD_BYTES = 32  # of a record, before its layout


@endpoint(
    "GET",
    "/v1/messages/{id}",
    query=(text("topic", "if messages of several topics have that id"),),
    answer=MessageStory,
    codes=(ErrorCode.NOT_FOUND, ErrorCode.TOPIC_NOT_FOUND, ErrorCode.IN_TIER),
    access=Access.USERS,
)
async def show(request: Request) -> Response:
    """GET /v1/messages/{id} → the message whole and its history; 404 if nothing is known of it."""
    parameters, message_id = query(request, "topic"), request.path_params["id"]
    if "topic" in parameters:
        topic = check_topic(parameters["topic"])
        allow(request, rules.topic(topic, rules.Right.SUB))
    else:
        topic = await topic_of(request, message_id)
    known = await messages.show(engine_of(request), ShowMessage(topic, message_id))
    if not known.messages:
        raise HorologError(
            ErrorCode.NOT_FOUND,
            f"no message of topic {topic} with id {message_id!r} is known; what retention has dropped is not",
            field="id",
        )
    return answer(_history_view(known, broker_name(request)))


def _history_view(known: MessageHistory, broker: str) -> dict[str, Any]:
    chosen = _chosen(known.messages)
    stored = decode(chosen.layout)
    view: dict[str, Any] = {**message_view(chosen.layout)}
    for name in ("body", "body_base64", "store_ms"):
        view.pop(name, None)
    payload: dict[str, Any] = {"body": base64.b64encode(stored.body).decode()}
    is_compressed = bool(stored.sys_flag & COMPRESSED)
    if not is_compressed:
        with suppress(UnicodeDecodeError):
            payload["body_text"] = stored.body.decode()
    return {
        "state": chosen.state.value,
        **view,
        "deliver_at_ms": chosen.due_ms,
        "deliver_at": iso(chosen.due_ms),
        "born": iso(stored.born_ms),
        "store_ms": chosen.store_ms,
        "store": iso(chosen.store_ms),
        "size_bytes": len(chosen.layout),
        "compressed": is_compressed,
        **payload,
        "origin": chosen.origin,
        "queue_id": chosen.queue_id,
        "queue_offset": chosen.queue_offset,
        "recall_handle": _handle(chosen, broker),
        "copies": [_copy_view(each, broker) for each in known.messages],
        "groups": [_group_view(each) for each in known.groups],
        "history": [_event_view(each) for each in known.events],
        "history_complete": known.complete,
    }


def _chosen(found: list[FoundMessage]) -> FoundMessage:
    """Of messages with one id the one that somebody means: what waits, else the newest."""
    waiting = [each for each in found if each.state in _WAITS]
    return max(waiting or found, key=lambda each: each.origin)


def _copy_view(found: FoundMessage, broker: str) -> Copy:
    return {
        "state": found.state.value,
        "deliver_at_ms": found.due_ms,
        "deliver_at": iso(found.due_ms),
        "origin": found.origin,
        "queue_id": found.queue_id,
        "queue_offset": found.queue_offset,
        "recall_handle": _handle(found, broker),
    }


def _group_view(group: GroupView) -> GroupState:
    until_ms = None
    if group.leased_ms is not None and group.lease_ms is not None:
        until_ms = group.leased_ms + group.lease_ms
    return {
        "group": group.group,
        "state": group.state.value,
        "attempt": group.attempt,
        "leased_at_ms": group.leased_ms,
        "leased_at": iso(group.leased_ms or 0),
        "leased_until_ms": until_ms,
        "leased_until": iso(until_ms or 0),
    }


def _event_view(event: HistoryEvent) -> Event:
    return {
        "at_ms": event.at_ms,
        "at": iso(event.at_ms or 0),
        "event": event.event.value,
        "detail": event.detail,
    }


def _handle(found: FoundMessage, broker: str) -> str:
    if found.state not in _WAITS:
        return ""
    return encode_recall_handle(
        RecallHandle(found.topic, broker, found.due_ms, found.message_id, found.origin)
    )


# --- lists --------------------------------------------------------------------------------------


class _Wanted(NamedTuple):
    """What a search is for."""

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
        *map(text, ("topic", "id", "key", "tag", "from", "to")),
        text("state", words=MessageState),
        whole("limit", 1, limits.ADMIN_LIST_MAX, 100),
        text("after"),
    ),
    answer=FoundPage,
    codes=(ErrorCode.TOPIC_NOT_FOUND, ErrorCode.IN_TIER, ErrorCode.DAMAGED),
    access=Access.USERS,
)
async def search(request: Request) -> Response:
    """GET /v1/messages/search → rows without payloads: by id or key all, else those of a window a page at a time."""
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
    allow(request, rules.topic(topic, rules.Right.SUB))
    states = _states(parameters.get("state"), topic)
    from_ms = parse_time_ms(parameters["from"], field="from") if "from" in parameters else 0
    to_ms = parse_time_ms(parameters["to"], field="to") if "to" in parameters else TIME_MAX_MS
    wanted = _Wanted(topic, parameters.get("tag", ""), from_ms, to_ms, states, limit)
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
    """Which of the states that can be listed; visible messages stand in the queues of a topic."""
    if text is None:
        return _LISTED if topic else (MessageState.PENDING,)
    state = _state(text)
    if state not in _LISTED:
        raise refused("state", f"{text} is found by id or key; a window lists {', '.join(_LISTED)}")
    if state is MessageState.DELIVERED and not topic:
        raise refused("topic", "delivered messages are listed by topic: give one")
    return (state,)


class _Place(NamedTuple):
    """Where a search goes on: `p-DUE-POSITION-ROW` in what waits, `q-QUEUE-OFFSET` in a queue."""

    pending: PendingPlace | None
    queue: int = 0
    offset: int = -1  # −1: where the window begins

    @staticmethod
    def of(text: str | None, wanted: _Wanted) -> _Place:
        """Read one; without any, where a search begins."""
        if text is None:
            waits = MessageState.PENDING in wanted.states
            return _Place(PendingPlace(wanted.from_ms) if waits else None)
        kind, *numbers = text.split("_")
        if all(each.lstrip("-").isdigit() and len(each) < 20 for each in numbers):
            if kind == "p" and len(numbers) == 3:
                due_ms, position, row = (int(each) for each in numbers)
                if 0 <= due_ms <= TIME_MAX_MS and position >= -1 and row >= 0:
                    return _Place(PendingPlace(max(due_ms, wanted.from_ms), position, row))
            if kind == "q" and len(numbers) == 2:
                queue, offset = (int(each) for each in numbers)
                if queue >= 0 and offset >= -1:
                    return _Place(None, queue, offset)
        raise refused("after", f"{text!r} is not the `next` of an answer")

    @property
    def text(self) -> str:
        """What `of` reads."""
        if self.pending is not None:
            return "p_" + "_".join(str(number) for number in self.pending)
        return f"q_{self.queue}_{self.offset}"


async def _search_listed(request: Request, wanted: _Wanted, first: _Place) -> Response:
    """A page; it ends early, with `next`, when SEARCH_TURNS turns have found too few."""
    rows: list[FoundRow] = []
    at: _Place | None = first
    for _ in range(limits.SEARCH_TURNS):
        assert at is not None
        if at.pending is not None:
            at = await _take_pending(request, wanted, at.pending, rows)
        else:
            at = await _take_visible(request, wanted, at, rows)
        if at is None or len(rows) >= wanted.limit:
            break
    return answer({"messages": rows, "next": at.text if at is not None else None})


async def _take_pending(
    request: Request, wanted: _Wanted, after: PendingPlace, rows: list[FoundRow]
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


async def _take_visible(
    request: Request, wanted: _Wanted, at: _Place, rows: list[FoundRow]
) -> _Place | None:
    """Some of one queue, stored in the window."""
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
    stored = record[_HEAD_BYTES:]
    fields = decode(stored)
    view = message_view(stored)
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
    """A message in a list: all but its payload and properties."""
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
        "recall_handle": _handle(found, broker),
    }
