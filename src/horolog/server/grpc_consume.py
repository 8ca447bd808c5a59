"""Handlers of receives, acks and changes of invisible time of 5.x clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from google.protobuf.timestamp_pb2 import Timestamp

from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import (
    ACKS_PER_REQUEST_MAX,
    INVISIBLE_MIN_MS,
    POLL_MARGIN_MS,
    POLL_MAX_MS,
    UNREAD_SMALL,
)
from horolog.protocol.commands import (
    Ack,
    Acked,
    CancelReceive,
    Changed,
    ChangeInvisible,
    Receive,
    Received,
    Sent,
)
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.deliveries import Deliveries
from horolog.protocol.grpc.quick_acks import QuickAck
from horolog.protocol.grpc.ready import all_acknowledged
from horolog.protocol.grpc.settings import check_polling
from horolog.protocol.grpc.status import OK, common_status_named, status_of
from horolog.protocol.grpc.translate import duration_ms, name_of
from horolog.protocol.http2.grpc_wire import DEADLINE_EXCEEDED, framed
from horolog.protocol.retry_commands import ForwardToDeadLetters
from horolog.protocol.rocketmq.lease_time import check_invisible
from horolog.protocol.rocketmq.names import check_attempt_id, check_group, check_topic
from horolog.ready.filter import check_length
from horolog.server.call import Call, answer_all, answer_with, as_horolog_error
from horolog.server.grpc_clients import Clients
from horolog.server.grpc_session import client_id_of
from horolog.server.lease_release import release_leases
from horolog.server.running import GrpcEngine
from horolog.server.ticket import Ticket, ignore_result

_FOUND = framed(pb.ReceiveMessageResponse(status=OK).SerializeToString())
_NOTHING = framed(
    pb.ReceiveMessageResponse(
        status=pb.Status(code=pb.MESSAGE_NOT_FOUND, message="no message within the polling time")
    ).SerializeToString()
)


class ConsumerCalls:
    """Handlers of receives, acks, changes of invisible time, and moves to the dead letters."""

    def __init__(self, engine: GrpcEngine, clients: Clients) -> None:
        self._engine = engine
        self._clients = clients
        self._deliveries = Deliveries()

    def receive(self, request: pb.ReceiveMessageRequest, call: Call) -> None:
        """Answer with the status, the messages, the delivery time, before the caller's deadline."""
        client_id = client_id_of(call)
        if not call.is_reading:
            raise _too_many_unread()
        poll_ms = self._polling_ms(request, client_id, call.remaining_ms())
        command = _to_receive(request, client_id, poll_ms)
        if poll_ms:
            call.begin_poll()
        asked = request.message_queue.topic
        # Keep only the topic's name while the poll waits: the request may be large.
        named = pb.Resource(resource_namespace=asked.resource_namespace, name=asked.name)
        topic = named.SerializeToString()
        ticket = self._engine.ask(command, partial(self._on_received, command, topic, call))
        call.on_dropped = partial(self._cancel, ticket)

    def _on_received(self, command: Receive, topic: bytes, call: Call, given: object) -> None:
        if not isinstance(given, Received):
            call.answer(_refused(as_horolog_error(given)))
            return
        # Keep only the handles: the caller may read slowly, and the answer has the messages too.
        handles = [message.receipt_handle for message in given.messages]
        back = partial(release_leases, self._engine, command, handles)
        left_ms = call.remaining_ms()
        if call.is_open and (left_ms is None or left_ms > 0):
            call.on_dropped = back
            # Other leases end when their caller has said, whether it has read the answer or not.
            call.until_read = command.auto_renew and bool(handles)
            answer_with(call, lambda: self._room_checked(call, topic, given, back), _refused)
            return
        if call.is_open:  # the caller has stopped waiting, and cancels later, or never
            call.fail(DEADLINE_EXCEEDED, "the deadline of the call has passed")
        back()

    def _cancel(self, ticket: Ticket) -> None:
        """Cancel a receive whose caller has gone: its messages are for others."""
        if not ticket.over:
            self._engine.ask(CancelReceive(ticket), ignore_result)

    def _polling_ms(
        self, request: pb.ReceiveMessageRequest, client_id: str, remaining_ms: int | None
    ) -> int:
        """Return how long a poll waits, at most until shortly before the caller's deadline.

        The request says how long, or else the client's settings; otherwise it is the longest time.
        """
        wanted = self._clients.poll_ms(client_id)
        if request.HasField("long_polling_timeout"):
            timeout = request.long_polling_timeout
            wanted = check_polling(
                duration_ms(timeout, "long_polling_timeout", ErrorCode.ILLEGAL_POLLING_TIME)
            )
        poll_ms = POLL_MAX_MS if wanted is None else min(wanted, POLL_MAX_MS)
        if remaining_ms is not None:
            poll_ms = min(poll_ms, remaining_ms - POLL_MARGIN_MS)
        if self._clients.is_gone(client_id):
            poll_ms = 0
        return max(0, poll_ms)

    def _room_checked(
        self, call: Call, topic: bytes, given: Received, back: Callable[[], None]
    ) -> bytes:
        """Return the answer; give the messages back if it is large, and too many bytes wait."""
        answer = self._answer(topic, given)
        if len(answer) > UNREAD_SMALL and not call.is_reading:
            back()
            raise _too_many_unread()
        return answer

    def _answer(self, topic: bytes, given: Received) -> bytes:
        now = self._engine.clock.wall_ms()
        stamp = Timestamp(seconds=now // 1000, nanos=now % 1000 * 1_000_000)
        end = framed(pb.ReceiveMessageResponse(delivery_timestamp=stamp).SerializeToString())
        if not given.messages:
            return _NOTHING + end
        messages = self._deliveries.all_received(topic, given.messages)
        return b"".join((_FOUND, messages, end))

    def ack(self, request: pb.AckMessageRequest, call: Call) -> None:
        """Consume messages; the answer has an entry for each handle."""
        if not request.entries:
            raise refused("entries", "none; at least 1 is needed")
        if (count := len(request.entries)) > ACKS_PER_REQUEST_MAX:
            limit = f"{ACKS_PER_REQUEST_MAX} entries"
            raise refused("entries", f"{count}; at most {ACKS_PER_REQUEST_MAX} are allowed", limit)
        group, topic = check_group(name_of(request.group)), check_topic(name_of(request.topic))
        handles = [entry.receipt_handle for entry in request.entries[:]]
        self._engine.ask(Ack(group, topic, handles), partial(_answer_ack, request, call))

    def ack_all(self, acks: Sequence[tuple[QuickAck, Call]]) -> None:
        """Consume messages of requests that came together: one command a group and topic."""
        alike: dict[tuple[str, str], list[tuple[QuickAck, Call]]] = {}
        for request, call in acks:
            alike.setdefault((request.group, request.topic), []).append((request, call))
        for (group, topic), those in alike.items():
            handles = [handle for request, _ in those for handle in request.receipt_handles]
            try:
                command = Ack(check_group(group), check_topic(topic), handles)
                self._engine.ask(command, partial(_answer_acks, those))
            except Exception as error:  # noqa: BLE001 - a refusal, or our mistake: each caller gets it
                _answer_acks(those, error)

    async def change_invisible_duration(
        self, request: pb.ChangeInvisibleDurationRequest, call: Call
    ) -> pb.ChangeInvisibleDurationResponse:
        """Renew the lease of a message, or release the message.

        Java clients go on with the handle of any answer, so a refusal returns the old handle.
        """
        try:
            changed = await self._changed(request)
        except Exception as error:  # noqa: BLE001 - a refusal, or our mistake: both are answered
            status = status_of(as_horolog_error(error))
            kept = request.receipt_handle
            return pb.ChangeInvisibleDurationResponse(status=status, receipt_handle=kept)
        return pb.ChangeInvisibleDurationResponse(status=OK, receipt_handle=changed.receipt_handle)

    async def _changed(self, request: pb.ChangeInvisibleDurationRequest) -> Changed:
        changed: Changed = await self._engine.submit(
            ChangeInvisible(
                check_group(name_of(request.group)),
                check_topic(name_of(request.topic)),
                request.receipt_handle,
                duration_ms(
                    request.invisible_duration,
                    "invisible_duration",
                    ErrorCode.ILLEGAL_INVISIBLE_TIME,
                ),
                by_group=not request.HasField("invisible_duration"),
            )
        )
        return changed

    async def forward_to_dead_letters(
        self, request: pb.ForwardMessageToDeadLetterQueueRequest, call: Call
    ) -> pb.ForwardMessageToDeadLetterQueueResponse:
        """Move a leased message to the dead letters."""
        sent: Sent = await self._engine.submit(
            ForwardToDeadLetters(
                check_group(name_of(request.group)),
                check_topic(name_of(request.topic)),
                request.receipt_handle,
            )
        )
        for why in sent.refused.values():
            raise why
        return pb.ForwardMessageToDeadLetterQueueResponse(status=OK)


def _too_many_unread() -> HorologError:
    return refused(
        "message_queue",
        "the messages of earlier receives wait until the client reads them; receive fewer at a time",
        code=ErrorCode.TOO_MANY_REQUESTS,
    )


def _refused(error: HorologError) -> bytes:
    return framed(pb.ReceiveMessageResponse(status=status_of(error)).SerializeToString())


def _answer_acks(those: Sequence[tuple[QuickAck, Call]], result: object) -> None:
    """Answer acks that were one command, each as if it had come alone."""
    if not isinstance(result, Acked):
        for request, call in those:
            _answer_ack(request, call, result)
        return
    if not any(result.refused):
        answers = [request.acknowledged() for request, _ in those]
        answer_all([call for _, call in those], answers)
        return
    first = 0
    for request, call in those:
        stop = first + len(request.receipt_handles)
        _answer_ack(request, call, Acked(result.refused[first:stop]))
        first = stop


def _answer_ack(request: QuickAck | pb.AckMessageRequest, call: Call, result: object) -> None:
    if not isinstance(result, Acked):
        error = as_horolog_error(result)
        if error.code is not ErrorCode.INVALID_RECEIPT_HANDLE:
            answer = pb.AckMessageResponse(status=status_of(error))
            call.answer(framed(answer.SerializeToString()))
            return
        # INVALID_RECEIPT_HANDLE: the group has received nothing, so every handle is wrong.
        request = request.as_protobuf() if isinstance(request, QuickAck) else request
        call.answer(_some_refused(request, [error] * len(request.entries)))
        return
    refused = result.refused
    if isinstance(request, QuickAck):
        if not any(refused):
            call.answer(request.acknowledged())
            return
        request = request.as_protobuf()
    if not any(refused):
        call.answer(all_acknowledged((e.message_id, e.receipt_handle) for e in request.entries[:]))
        return
    call.answer(_some_refused(request, refused))


def _some_refused(request: pb.AckMessageRequest, refused: Sequence[HorologError | None]) -> bytes:
    """Return the framed answer with an entry for each handle, and why it was refused."""
    entries = [
        pb.AckMessageResultEntry(
            message_id=entry.message_id,
            receipt_handle=entry.receipt_handle,
            status=OK if why is None else status_of(why),
        )
        for entry, why in zip(request.entries, refused, strict=True)
    ]
    status = common_status_named(entry.status for entry in entries)
    answer = pb.AckMessageResponse(status=status, entries=entries)
    return framed(answer.SerializeToString())


def _to_receive(request: pb.ReceiveMessageRequest, client_id: str, poll_ms: int) -> Receive:
    if request.filter_expression.type not in (pb.TAG, pb.SQL, pb.FILTER_TYPE_UNSPECIFIED):
        raise refused(
            "filter_expression",
            f"unknown type {request.filter_expression.type}; use TAG or SQL",
            code=ErrorCode.ILLEGAL_FILTER,
        )
    if request.batch_size < 0:
        raise refused("batch_size", f"{request.batch_size}; 0 or more messages are allowed")
    invisible = 0
    if not request.auto_renew:
        invisible = check_invisible(
            duration_ms(
                request.invisible_duration, "invisible_duration", ErrorCode.ILLEGAL_INVISIBLE_TIME
            ),
            INVISIBLE_MIN_MS,
        )
    return Receive(
        check_group(name_of(request.group)),
        check_topic(name_of(request.message_queue.topic)),
        request.message_queue.id,
        check_length(request.filter_expression.expression),
        request.batch_size,
        invisible,
        request.auto_renew,
        poll_ms,
        client_id,
        check_attempt_id(request.attempt_id),
        gives_up=True,
        is_sql=request.filter_expression.type == pb.SQL,
        inflates=True,
    )
