"""Messages over HTTP: send, find, receive and ack them.

For people and scripts; programs use a RocketMQ client.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horolog.access import rules
from horolog.admin.answers import answer, broker_name, engine_of, listed, require
from horolog.admin.endpoints import Access, endpoint, text_parameter
from horolog.admin.history import handle_of
from horolog.admin.look_ups import find_named
from horolog.admin.message_shapes import AckedHandles, KnownMessages, LeasedMessages, SentMessage
from horolog.admin.request_shapes import AckBody, MessageBody, ReceiveBody
from horolog.admin.requests import query, read_body
from horolog.admin.status import error_body
from horolog.admin.views import delivered_view, found_view, iso
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import POLL_MARGIN_MS
from horolog.protocol.commands import (
    Ack,
    Acked,
    CancelReceive,
    MessageType,
    NewMessage,
    Receive,
    Received,
    SendMessages,
    Sent,
)
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.rocketmq.names import check_group, check_topic
from horolog.protocol.rocketmq.recall_handle import (
    RecallHandle,
    encode_recall_handle,
)
from horolog.ready.filter import parse_tags
from horolog.server.lease_release import release_leases
from horolog.server.message_id import MessageIds

CLIENT_ID = "admin"
_IDS = MessageIds()


@endpoint(
    "POST",
    "/v1/messages",
    body=MessageBody,
    answer=SentMessage,
    status=201,
    codes=(ErrorCode.TOPIC_NOT_FOUND, ErrorCode.TYPE_CONFLICT),
    access=Access.USERS,
)
async def send(request: Request) -> Response:
    """POST /v1/messages: send a message; 201 once it is as durable as `--flush` promises."""
    wanted = await read_body(request, MessageBody)
    require(request, rules.need_of_topic(wanted.topic, rules.Right.PUB))
    engine = engine_of(request)
    message = _new_message(wanted, engine.clock.wall_ms())
    sent: Sent = await engine.submit(SendMessages(wanted.topic, [message]))
    if sent.refused:
        raise sent.refused[0]
    handle = ""
    if message.due_ms:
        name = broker_name(request)
        handle = encode_recall_handle(
            RecallHandle(wanted.topic, name, message.due_ms, message.message_id, sent.origins[0])
        )
    return answer(
        {
            "message_id": message.message_id,
            "topic": wanted.topic,
            "deliver_at_ms": message.due_ms,
            "deliver_at": iso(message.due_ms),
            "queue_id": sent.queue_ids[0],
            "queue_offset": sent.queue_offsets[0],
            "recall_handle": handle,
        },
        201,
    )


def _new_message(wanted: MessageBody, wall_ms: int) -> NewMessage:
    if wanted.deliver_at_ms is not None and wanted.in_ms is not None:
        raise refused("in_ms", "give either deliver_at_ms or in_ms")
    due_ms = wanted.deliver_at_ms or 0
    if wanted.in_ms is not None:
        due_ms = wall_ms + wanted.in_ms
    return encode(
        topic=check_topic(wanted.topic),
        body=wanted.payload(),
        message_id=_IDS.next(wall_ms),
        type=_type_of(wanted, due_ms),
        due_ms=due_ms,
        tag=wanted.tag,
        keys=wanted.keys,
        message_group=wanted.message_group,
        user_properties=wanted.properties,
        born_ms=wall_ms,
    )


def _type_of(wanted: MessageBody, due_ms: int) -> MessageType:
    if wanted.message_group is not None:
        return MessageType.FIFO
    return MessageType.DELAY if due_ms else MessageType.NORMAL


@endpoint(
    "GET",
    "/v1/messages/find",
    query=(text_parameter("topic", "with key"), text_parameter("id"), text_parameter("key")),
    answer=KnownMessages,
    codes=(ErrorCode.NOT_FOUND, ErrorCode.TOPIC_NOT_FOUND, ErrorCode.IN_TIER),
    access=Access.USERS,
)
async def find(request: Request) -> Response:
    """GET /v1/messages/find?id= or ?topic=&key=: show the state of messages; 404 if none is known."""
    parameters = query(request, "topic", "id", "key")
    for name in ("topic", "id", "key"):
        if parameters.get(name) == "":
            raise refused(name, "is empty")
    found = await find_named(request, parameters)
    if not found:
        name = "id" if "id" in parameters else "key"
        of_topic = f" of topic {parameters['topic']}" if "topic" in parameters else ""
        raise HorologError(
            ErrorCode.NOT_FOUND,
            f"no message{of_topic} with {name} {parameters[name]!r} is known; what retention has "
            "dropped is not",
            field=name,
        )
    broker = broker_name(request)
    views = await listed(found, lambda each: found_view(each, handle_of(each, broker)))
    return answer({"messages": views})


@endpoint(
    "POST",
    "/v1/receive",
    body=ReceiveBody,
    answer=LeasedMessages,
    codes=(ErrorCode.TOPIC_NOT_FOUND,),
    access=Access.USERS,
)
async def receive(request: Request) -> Response:
    """POST /v1/receive: lease messages for a consumer group.

    A message comes again unless it is acked within `invisible_ms`, as often as its group allows.
    """
    wanted = await read_body(request, ReceiveBody)
    require(
        request,
        rules.need_of_group(wanted.group),
        rules.need_of_topic(wanted.topic, rules.Right.SUB),
    )
    parse_tags(wanted.filter)
    engine = engine_of(request)
    command = Receive(
        group=check_group(wanted.group),
        topic=check_topic(wanted.topic),
        queue_id=-1,
        filter_expression=wanted.filter,
        batch=wanted.limit,
        invisible_ms=wanted.invisible_ms,
        auto_renew=False,
        poll_ms=wanted.poll_ms,
        client_id=CLIENT_ID,
        gives_up=True,
    )
    parked: asyncio.Future[Received] = engine.submit(command)
    received = await _wait_for_messages(request, parked, command)
    return answer({"messages": [delivered_view(delivered) for delivered in received.messages]})


async def _wait_for_messages(
    request: Request, parked: asyncio.Future[Received], command: Receive
) -> Received:
    """Wait for the result of a receive; empty when the client has gone or its poll time is over.

    Poll time is real time: a simulated clock may stand still.  Messages leased for a client that
    has gone are given back.
    """
    gone = asyncio.ensure_future(request.receive())
    closing = asyncio.ensure_future(request.app.state.closing.wait())
    try:
        timeout_s = (command.poll_ms + POLL_MARGIN_MS) / 1_000
        waited_for: set[asyncio.Future[Any]] = {parked, gone, closing}
        await asyncio.wait(waited_for, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not parked.done():
            await engine_of(request).submit(CancelReceive(parked))
        has_gone = gone.done()
    finally:
        for waiting in (gone, closing):
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting
    if parked.cancelled() or not parked.done():
        return Received([])
    received = parked.result()
    if has_gone and received.messages:
        handles = [message.receipt_handle for message in received.messages]
        release_leases(engine_of(request), command, handles)
        return Received([])
    return received


@endpoint(
    "POST",
    "/v1/ack",
    body=AckBody,
    answer=AckedHandles,
    codes=(ErrorCode.TOPIC_NOT_FOUND, ErrorCode.GROUP_NOT_FOUND),
    access=Access.USERS,
)
async def ack(request: Request) -> Response:
    """POST /v1/ack: acknowledge leased messages; return how many, and errors of the other handles."""
    wanted = await read_body(request, AckBody)
    require(
        request,
        rules.need_of_group(wanted.group),
        rules.need_of_topic(wanted.topic, rules.Right.SUB),
    )
    handles = wanted.receipt_handles
    acked: Acked = await engine_of(request).submit(
        Ack(check_group(wanted.group), check_topic(wanted.topic), handles)
    )
    refused = [
        {"receipt_handle": handle, **error_body(error)}
        for handle, error in zip(handles, acked.refused, strict=True)
        if error is not None
    ]
    return answer({"acked": len(handles) - len(refused), "refused": refused})
