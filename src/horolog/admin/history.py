"""One message with its history: GET /v1/messages/{id}."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horolog.access import rules
from horolog.admin.answers import answer, broker_name, engine_of, require
from horolog.admin.endpoints import Access, endpoint, text_parameter
from horolog.admin.look_ups import topic_of
from horolog.admin.message_shapes import Copy, Event, GroupState, MessageStory
from horolog.admin.requests import query
from horolog.admin.views import iso, message_view
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    FoundMessage,
    MessageState,
)
from horolog.protocol.history_commands import (
    GroupDelivery,
    HistoryEvent,
    MessageHistory,
    ShowMessage,
)
from horolog.protocol.rocketmq.layout import COMPRESSED, decode
from horolog.protocol.rocketmq.names import check_topic
from horolog.protocol.rocketmq.recall_handle import RecallHandle, encode_recall_handle
from horolog.server import messages

_WAITS = (MessageState.PENDING, MessageState.IN_TIER)


@endpoint(
    "GET",
    "/v1/messages/{id}",
    query=(text_parameter("topic", "if messages of several topics have that id"),),
    answer=MessageStory,
    codes=(ErrorCode.NOT_FOUND, ErrorCode.TOPIC_NOT_FOUND, ErrorCode.IN_TIER),
    access=Access.USERS,
)
async def show(request: Request) -> Response:
    """GET /v1/messages/{id}: show a message whole, with its history; 404 if nothing is known of it."""
    parameters, message_id = query(request, "topic"), request.path_params["id"]
    if "topic" in parameters:
        topic = check_topic(parameters["topic"])
        require(request, rules.need_of_topic(topic, rules.Right.SUB))
    else:
        topic = await topic_of(request, message_id)
    known = await messages.show(engine_of(request), ShowMessage(topic, message_id))
    if not known.messages:
        raise HorologError(
            ErrorCode.NOT_FOUND,
            f"no message of topic {topic} with id {message_id!r} is known; what retention has "
            "dropped is not",
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
        "recall_handle": handle_of(chosen, broker),
        "copies": [_copy_view(each, broker) for each in known.messages],
        "groups": [_group_view(each) for each in known.groups],
        "history": [_event_view(each) for each in known.events],
        "history_complete": known.complete,
    }


def _chosen(found: list[FoundMessage]) -> FoundMessage:
    """Choose the message to show among those with one id: the one that waits, else the newest."""
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
        "recall_handle": handle_of(found, broker),
    }


def _group_view(group: GroupDelivery) -> GroupState:
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


def handle_of(found: FoundMessage, broker: str) -> str:
    """Return the recall handle of a message; "" if the message does not wait."""
    if found.state not in _WAITS:
        return ""
    return encode_recall_handle(
        RecallHandle(found.topic, broker, found.due_ms, found.message_id, found.origin)
    )
