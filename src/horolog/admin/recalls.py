"""Recall, reschedule, hand-over over HTTP: of one message, all with a key, or all of a window."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horolog.access import rules
from horolog.admin.answers import admit_known_caller, answer, broker_name, engine_of, may, require
from horolog.admin.endpoints import Access, endpoint
from horolog.admin.message_shapes import (
    BulkUnderWay,
    MovedWindow,
    Recalled,
    RecalledByKey,
    RecalledWindow,
    Rescheduled,
)
from horolog.admin.request_shapes import (
    HandOverBody,
    HandOverManyBody,
    RecallBody,
    RecallKeyBody,
    RecallManyBody,
    RescheduleBody,
    RescheduleManyBody,
)
from horolog.admin.requests import query, read_body
from horolog.admin.views import iso, recalled_view
from horolog.errors import ErrorCode, HorologError, refused
from horolog.protocol.commands import (
    Recall,
    RecallByKey,
    RecallMany,
    RecallStatus,
    Reschedule,
    RescheduleStatus,
)
from horolog.protocol.move_commands import BulkView, DescribeBulk, MovedMany, MoveMany
from horolog.protocol.rocketmq.names import check_topic
from horolog.protocol.rocketmq.recall_handle import (
    RecallHandle,
    decode_recall_handle,
    encode_recall_handle,
)
from horolog.server import messages
from horolog.server.message_id import MessageIds

_IDS = MessageIds()  # operation ids of shifts, when the request gives none
_REFUSALS: dict[str, ErrorCode] = {
    RecallStatus.ALREADY_DELIVERED.value: ErrorCode.ALREADY_DELIVERED,
    RecallStatus.NOT_FOUND.value: ErrorCode.NOT_FOUND,
    RescheduleStatus.DUE_TIME_CHANGED.value: ErrorCode.DUE_TIME_CHANGED,
}
assert {status.value for status in RescheduleStatus} - _REFUSALS.keys() == {
    "RESCHEDULED",
    "HANDED_OVER",
}


_posted = partial(endpoint, "POST", access=Access.USERS)
_REFUSED = (
    ErrorCode.NOT_FOUND,
    ErrorCode.TOPIC_NOT_FOUND,
    ErrorCode.ALREADY_DELIVERED,
    ErrorCode.IN_TIER,
)


@_posted("/v1/recall", body=RecallBody, answer=Recalled, codes=_REFUSED)
async def recall(request: Request) -> Response:
    """POST /v1/recall: cancel a scheduled message.

    200 CANCELLED; 409 already_delivered; 404 not_found.
    """
    handle = _message_of(request, await read_body(request, RecallBody))
    command = Recall(handle.topic, handle.message_id, handle.due_ms, handle.origin)
    found = await messages.recall(engine_of(request), command)
    _raise_unless_done(found.status.value, found.detail)
    return answer(recalled_view(found))


@_posted("/v1/recall/key", body=RecallKeyBody, answer=RecalledByKey, codes=_REFUSED)
async def recall_by_key(request: Request) -> Response:
    """POST /v1/recall/key: recall all messages with a key; 404 if none has it.

    The answer has the result for each message.
    """
    wanted = await read_body(request, RecallKeyBody)
    require(request, rules.need_of_topic(wanted.topic, rules.Right.PUB))
    command = RecallByKey(check_topic(wanted.topic), wanted.key)
    found = await messages.recall_by_key(engine_of(request), command)
    if not found:
        raise HorologError(
            ErrorCode.NOT_FOUND,
            f"NOT_FOUND: no message of topic {wanted.topic} has the key {wanted.key!r}",
        )
    cancelled = sum(each.status is RecallStatus.CANCELLED for each in found)
    results = [recalled_view(each) for each in found]
    return answer({"topic": wanted.topic, "cancelled": cancelled, "results": results})


@_posted("/v1/recall/window", body=RecallManyBody, answer=RecalledWindow, codes=_REFUSED)
async def recall_many(request: Request) -> Response:
    """POST /v1/recall/window: recall all pending messages of a window.

    The answer comes when all is done, with the counts of messages matched and cancelled.
    """
    wanted = await read_body(request, RecallManyBody)
    require(request, rules.need_of_topic(wanted.topic, rules.Right.PUB))
    command = RecallMany(
        check_topic(wanted.topic), wanted.from_ms, wanted.to_ms, wanted.tag, wanted.dry_run
    )
    done = await messages.recall_many(engine_of(request), command)
    return answer(
        {
            "topic": wanted.topic,
            "matched": done.matched,
            "cancelled": done.cancelled,
            "size_bytes": done.bytes,
            "dry_run": wanted.dry_run,
        }
    )


@_posted(
    "/v1/reschedule",
    body=RescheduleBody,
    answer=Rescheduled,
    codes=(*_REFUSED, ErrorCode.DUE_TIME_CHANGED),
)
async def reschedule(request: Request) -> Response:
    """POST /v1/reschedule: change the due time of a message.

    200 RESCHEDULED with the new handle; else as for a recall.
    """
    wanted = await read_body(request, RescheduleBody)
    handle = _message_of(request, wanted)
    due_ms = _new_due_ms(wanted, engine_of(request).clock.wall_ms())
    return await _move(request, handle, due_ms, wanted.expected_deliver_at_ms)


@_posted(
    "/v1/hand-over",
    body=HandOverBody,
    answer=Rescheduled,
    codes=(*_REFUSED, ErrorCode.DUE_TIME_CHANGED),
)
async def hand_over(request: Request) -> Response:
    """POST /v1/hand-over: hand over a message now.

    200 HANDED_OVER with its place in a queue; else as for a reschedule.
    """
    wanted = await read_body(request, HandOverBody)
    handle = _message_of(request, wanted)
    return await _move(request, handle, None, wanted.expected_deliver_at_ms)


_WINDOW_REFUSED = (
    ErrorCode.TOPIC_NOT_FOUND,
    ErrorCode.IN_TIER,
    ErrorCode.ILLEGAL_DELIVERY_TIME,
    ErrorCode.DISK_FULL,
)


@_posted(
    "/v1/reschedule/window", body=RescheduleManyBody, answer=MovedWindow, codes=_WINDOW_REFUSED
)
async def reschedule_many(request: Request) -> Response:
    """POST /v1/reschedule/window: move all pending messages of a window.

    The answer comes when all is done, with the counts of messages matched and moved.
    """
    wanted = await read_body(request, RescheduleManyBody)
    require(request, rules.need_of_topic(wanted.topic, rules.Right.PUB))
    if (wanted.new_deliver_at_ms is None) == (wanted.shift_ms is None):
        raise refused("new_deliver_at_ms", "give either new_deliver_at_ms or shift_ms")
    if wanted.shift_ms == 0:
        raise refused("shift_ms", "0 moves nothing")
    operation = wanted.operation_id
    if wanted.shift_ms is None and operation:
        raise refused("operation_id", "names a shift, and goes with shift_ms only")
    if wanted.shift_ms is not None and not operation and not wanted.dry_run:
        operation = _IDS.next(engine_of(request).clock.wall_ms())
    return await _move_many(
        request,
        wanted,
        MoveMany(
            check_topic(wanted.topic),
            wanted.from_ms,
            wanted.to_ms,
            wanted.tag,
            new_due_ms=wanted.new_deliver_at_ms,
            shift_ms=wanted.shift_ms,
            operation=operation,
            dry_run=wanted.dry_run,
        ),
    )


@_posted("/v1/hand-over/window", body=HandOverManyBody, answer=MovedWindow, codes=_WINDOW_REFUSED)
async def hand_over_many(request: Request) -> Response:
    """POST /v1/hand-over/window: hand over all pending messages of a window now.

    The answer comes when all is done, with the counts of messages matched and handed over.
    """
    wanted = await read_body(request, HandOverManyBody)
    require(request, rules.need_of_topic(wanted.topic, rules.Right.PUB))
    topic = check_topic(wanted.topic)
    command = MoveMany(
        topic, wanted.from_ms, wanted.to_ms, wanted.tag, now=True, dry_run=wanted.dry_run
    )
    return await _move_many(request, wanted, command)


@endpoint("GET", "/v1/bulk", answer=BulkUnderWay, access=Access.USERS)
async def bulk_under_way(request: Request) -> Response:
    """GET /v1/bulk: show how far recalls, reschedules and hand-overs of windows are.

    Users see those of the topics that they have a right to.
    """
    query(request)
    admit_known_caller(request)
    found: list[BulkView] = await engine_of(request).submit(DescribeBulk())
    rows = [
        {
            "act": each.act.value,
            "topic": each.topic,
            "from_ms": each.from_ms,
            "to_ms": each.to_ms,
            "tag": each.tag,
            "dry_run": each.dry_run,
            "operation_id": each.operation,
            "matched": each.matched,
            "done": each.done,
        }
        for each in found
        if may(request, rules.need_of_topic(each.topic, rules.EITHER))
    ]
    return answer({"under_way": rows})


async def _move_many(request: Request, wanted: HandOverManyBody, command: MoveMany) -> Response:
    done: MovedMany = await engine_of(request).submit(command)
    view: MovedWindow = {
        "topic": wanted.topic,
        "matched": done.matched,
        "moved": done.moved,
        "left": done.left,
        "size_bytes": done.bytes,
        "dry_run": wanted.dry_run,
        "operation_id": command.operation,
    }
    return answer(view)


async def _move(
    request: Request, handle: RecallHandle, due_ms: int | None, expected_due_ms: int | None
) -> Response:
    """Give a message another due time; `due_ms` None: hand it over now."""
    command = Reschedule(
        handle.topic,
        handle.message_id,
        handle.due_ms,
        due_ms or 0,
        handle.origin,
        now=due_ms is None,
        expected_due_ms=expected_due_ms,
    )
    moved = await messages.reschedule(engine_of(request), command)
    if moved.status is RescheduleStatus.DUE_TIME_CHANGED:
        field, present = "expected_deliver_at_ms", str(moved.due_ms)
        raise HorologError(ErrorCode.DUE_TIME_CHANGED, moved.detail, field=field, limit=present)
    _raise_unless_done(moved.status.value, moved.detail)
    new_handle = RecallHandle(
        command.topic, broker_name(request), moved.due_ms, moved.message_id, moved.origin
    )
    view: dict[str, Any] = {
        "status": moved.status.value,
        "detail": moved.detail,
        "message_id": moved.message_id,
        "topic": command.topic,
        "deliver_at_ms": moved.due_ms,
        "deliver_at": iso(moved.due_ms),
        "queue_id": moved.queue_id,
        "queue_offset": moved.queue_offset,
        "copies": moved.copies,
        "recall_handle": encode_recall_handle(new_handle),
    }
    return answer(view)


def _raise_unless_done(status: str, detail: str) -> None:
    """Raise the error of a status that says nothing was done.

    The error has no field: the input was right.
    """
    refusal = _REFUSALS.get(status)
    if refusal is not None:
        raise HorologError(refusal, detail)


def _message_of(request: Request, wanted: RecallBody) -> RecallHandle:
    """Return the handle of the requested message; FORBIDDEN if the caller may not change it."""
    handle = _handle_of(wanted)
    require(request, rules.need_of_topic(handle.topic, rules.Right.PUB))
    return handle


def _handle_of(wanted: RecallBody) -> RecallHandle:
    """Return the decoded handle, or one made from topic, message id and due time."""
    if wanted.handle is not None:
        if wanted.topic or wanted.message_id or wanted.deliver_at_ms:
            raise refused("handle", "give either a handle or topic, message_id and deliver_at_ms")
        return decode_recall_handle(wanted.handle)
    if not wanted.topic or not wanted.message_id or wanted.deliver_at_ms is None:
        raise refused("handle", "give a handle, or all of topic, message_id and deliver_at_ms")
    return RecallHandle(check_topic(wanted.topic), "", wanted.deliver_at_ms, wanted.message_id)


def _new_due_ms(wanted: RescheduleBody, wall_ms: int) -> int:
    if (wanted.new_deliver_at_ms is None) == (wanted.in_ms is None):
        raise refused("new_deliver_at_ms", "give either new_deliver_at_ms or in_ms")
    if wanted.in_ms is not None:
        return wall_ms + wanted.in_ms
    assert wanted.new_deliver_at_ms is not None
    return wanted.new_deliver_at_ms
