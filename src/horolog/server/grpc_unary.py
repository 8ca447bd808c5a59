"""Calls of 5.x clients with one request message each: read, handle and refuse them.

Sends and acks that came together become one command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from horolog.errors import ErrorCode, HorologError
from horolog.limits import CALL_BYTES_MAX
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.quick_acks import QuickAck, read_ack
from horolog.protocol.grpc.quick_sends import QuickSend, read_send
from horolog.protocol.grpc.status import status_of
from horolog.protocol.http2.grpc_wire import (
    INVALID_ARGUMENT,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    framed,
)
from horolog.protocol.http2.request_head import RequestHead
from horolog.server.batching import batches
from horolog.server.call import Call, CallLink, as_horolog_error
from horolog.server.grpc_access import GrpcAccess
from horolog.server.grpc_consume import ConsumerCalls
from horolog.server.grpc_produce import ProducerCalls
from horolog.server.grpc_session import SessionCalls, client_id_of
from horolog.server.grpc_transactions import TransactionCalls
from horolog.server.running import GrpcEngine

NOT_IMPLEMENTED = (
    "UpdateOffset",
    "GetOffset",
    "QueryOffset",
    "SyncLiteSubscription",
    "PullMessage",
)
"""Calls that are answered with that status."""
SERVICE = "apache.rocketmq.v2.MessagingService"
_READ_QUICKLY: dict[str, Callable[[bytes], Any]] = {
    "SendMessage": read_send,
    "AckMessage": read_ack,
}
Handler = Callable[[Any, Call], Awaitable[Any] | None]
_Sent = tuple[Any, Call]  # the request is a QuickSend, or protobuf's


class _Method(NamedTuple):
    """How a call is read, handled, and refused.

    handle  answers by itself, now or later (and returns None), or returns the answer's awaitable
    """

    name: str
    read: Callable[[bytes], Any]
    answer: Any
    handle: Handler


class UnaryCalls:
    """The unary calls of all connections of a front."""

    def __init__(
        self,
        producers: ProducerCalls,
        consumers: ConsumerCalls,
        transactions: TransactionCalls,
        sessions: SessionCalls,
        access: GrpcAccess | None,
        engine: GrpcEngine,
    ) -> None:
        self._engine = engine
        self._producers = producers
        self._consumers = consumers
        self._access = access
        self._tasks: set[asyncio.Task[None]] = set()
        self._sends: list[_Sent] = []  # that wait for `_store`
        handlers: dict[str, Handler] = {
            "SendMessage": producers.send,
            "ReceiveMessage": consumers.receive,
            "AckMessage": consumers.ack,
            "ChangeInvisibleDuration": consumers.change_invisible_duration,
            "ForwardMessageToDeadLetterQueue": consumers.forward_to_dead_letters,
            "RecallMessage": producers.recall,
            "EndTransaction": transactions.end,
            "QueryRoute": sessions.query_route,
            "QueryAssignment": sessions.query_assignment,
            "Heartbeat": sessions.heartbeat,
            "NotifyClientTermination": sessions.notify_client_termination,
        }
        handlers |= {name: _not_implemented(name) for name in NOT_IMPLEMENTED}
        self._methods = {
            f"/{SERVICE}/{name}".encode(): _method(name, handle)
            for name, handle in handlers.items()
        }
        self._send = self._methods[f"/{SERVICE}/SendMessage".encode()]

    @property
    def paths(self) -> set[bytes]:
        """Paths of the calls that this class answers."""
        return set(self._methods)

    def stop(self) -> None:
        """Cancel the calls that are under way in tasks."""
        for task in list(self._tasks):
            task.cancel()

    def calls_received(self, calls: Sequence[tuple[Call, bytes]]) -> None:
        """Take calls with one message each that came together.

        Acks become one command for each group and topic; the other calls come after them, in their
        order.  Sends wait for sends of other connections (`_store`).
        """
        sends: list[_Sent] = []
        acks: list[tuple[QuickAck, Call]] = []
        others: list[tuple[_Method, Any, Call]] = []
        named: RequestHead | None = None  # the last head whose client id was checked
        for call, message in calls:
            method = self._methods.get(call.head.path)
            if method is None:
                path = call.head.path.decode("latin-1")[:200]
                call.fail(UNIMPLEMENTED, f"{path}: no such method")
                continue
            if method is not self._send and len(message) > CALL_BYTES_MAX:
                why = f"{method.name}: {len(message)} bytes; at most {CALL_BYTES_MAX} are allowed"
                call.fail(RESOURCE_EXHAUSTED, why)
                continue
            try:
                request = method.read(message)
            except DecodeError as error:
                call.fail(INVALID_ARGUMENT, f"malformed request: {error}")
                continue
            except HorologError as error:
                call.answer(_refusal(method, error))
                continue
            if call.head is not named or self._access is not None:
                if not self._is_allowed(method, request, call):
                    continue
                named = call.head
            if method is self._send:
                sends.append((request, call))
            elif type(request) is QuickAck:
                acks.append((request, call))
            else:
                others.append((method, request, call))
        if sends:
            if not self._sends:
                self._engine.before_turn(self._store)
            self._sends += sends
        if acks:
            self._consumers.ack_all(acks)
        for each in others:
            self._handle(*each)

    def _is_allowed(self, method: _Method, request: Any, call: Call) -> bool:
        """Return whether the call may be made; answer it with the refusal if not."""
        try:
            client_id_of(call)
            if self._access is not None:
                self._access.check(method.name, request, call)
        except Exception as error:  # noqa: BLE001 - a refusal, or our mistake: both are answered
            call.answer(_refusal(method, error))
            return False
        return True

    def _store(self) -> None:
        """Pass on all waiting sends, as one command a topic; those of a connection stay in order.

        A connection with a send that could not be read quickly has commands of its own.
        """
        sends, self._sends = self._sends, []
        apart: dict[CallLink, list[_Sent]] = {
            call.link: [] for request, call in sends if type(request) is not QuickSend
        }
        if apart:
            for each in sends:
                if (own := apart.get(each[1].link)) is not None:
                    own.append(each)
            sends = [each for each in sends if each[1].link not in apart]
        self._store_quickly(sends)
        for own in apart.values():
            for is_quick, run in groupby(own, key=lambda each: type(each[0]) is QuickSend):
                if is_quick:
                    self._store_quickly(list(run))
                else:
                    for request, call in run:
                        self._handle(self._send, request, call)

    def _store_quickly(self, sends: list[tuple[QuickSend, Call]]) -> None:
        if len(sends) == 1 and len(sends[0][0].ids) == 1:
            self._handle(self._send, *sends[0])
            return
        for batch in batches(sends, lambda each: (len(each[0].ids), len(each[0].raw))):
            try:
                self._producers.send_all(batch)
            except Exception as error:  # noqa: BLE001 - as in `_is_allowed`
                for _, call in batch:
                    call.answer(_refusal(self._send, error))

    def _handle(self, method: _Method, request: Any, call: Call) -> None:
        try:
            pending = method.handle(request, call)
        except Exception as error:  # noqa: BLE001 - as in `_is_allowed`
            call.answer(_refusal(method, error))
            return
        if pending is not None:
            task = asyncio.ensure_future(self._finish(method, call, pending))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _finish(method: _Method, call: Call, pending: Awaitable[Any]) -> None:
        try:
            content = framed((await pending).SerializeToString())
        except Exception as error:  # noqa: BLE001 - as in `_is_allowed`
            content = _refusal(method, error)
        call.answer(content)


def _method(name: str, handle: Handler) -> _Method:
    read = _READ_QUICKLY.get(name) or getattr(pb, f"{name}Request").FromString
    return _Method(name, read, getattr(pb, f"{name}Response"), handle)


def _refusal(method: _Method, error: Exception) -> bytes:
    """Return the framed answer that reports an error."""
    return framed(method.answer(status=status_of(as_horolog_error(error))).SerializeToString())


def _not_implemented(name: str) -> Handler:
    def refuse(request: Any, call: Call) -> None:
        raise HorologError(ErrorCode.NOT_IMPLEMENTED, f"{name} is not supported yet", field=name)

    return refuse
