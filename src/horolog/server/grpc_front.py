"""The front door of RocketMQ 5.x clients: `apache.rocketmq.v2.MessagingService` on grpc.aio.

Handlers translate, hand a command to the engine and translate back; what is right or wrong is decided by
`protocol` and the core.  Errors travel inside the answers with gRPC status OK; only Telemetry, and requests
that are not protobuf at all, end with a gRPC error (protocol notes §1.3).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from horolog.errors import ErrorCode, HorologError
from horolog.limits import PARKED_POLLS_MAX, REQUEST_BYTES_MAX, STREAMS_MAX
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.status import status_of
from horolog.server.grpc_clients import Clients
from horolog.server.grpc_consume import ConsumerCalls
from horolog.server.grpc_produce import ProducerCalls
from horolog.server.grpc_session import SessionCalls, client_id_of
from horolog.server.loop import Engine

NOT_IMPLEMENTED = (
    "ForwardMessageToDeadLetterQueue",
    "EndTransaction",
    "UpdateOffset",
    "GetOffset",
    "QueryOffset",
    "SyncLiteSubscription",
)
"""Unary calls that are answered with that status; PullMessage, a stream, is too."""
_log = logging.getLogger("horolog.grpc")
SERVICE = "apache.rocketmq.v2.MessagingService"
# All who may wait can come back in one moment after a restart, and as many others with them.
QUEUED_CALLS_MAX = 2 * PARKED_POLLS_MAX
_OPTIONS = [
    ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
    ("grpc.max_send_message_length", REQUEST_BYTES_MAX),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    # Streams that the client has reset count until their call has ended; those beyond are refused at once.
    ("grpc.max_concurrent_streams", STREAMS_MAX),
    # Beyond its soft limit (1 000) gRPC cancels calls at random, before any handler can say why.
    ("grpc.server.max_pending_requests", QUEUED_CALLS_MAX),
    ("grpc.server.max_pending_requests_hard_limit", QUEUED_CALLS_MAX),
    ("grpc.so_reuseport", 0),
]
Context = grpc.aio.ServicerContext[Any, Any]
Call = Callable[[Any, Context], Awaitable[Any]]
StreamCall = Callable[[Any, Context], Awaitable[None]]
Commands = Callable[[AsyncIterator[Any], Context], AsyncIterator[Any]]


class GrpcFront:
    """One listening port.  `start` gives the real port; `stop` lets calls end within a grace time."""

    def __init__(
        self,
        engine: Engine,
        host: str = "127.0.0.1",
        port: int = 0,
        broker_name: str = "broker-a",
        *,
        quiet_ms: int = 60_000,
        unanswered_ms: int = 20_000,
    ) -> None:
        """A connection quiet for `quiet_ms` is pinged; unanswered for `unanswered_ms` it is closed: half-open."""
        self._keepalive = [
            ("grpc.keepalive_time_ms", quiet_ms),
            ("grpc.keepalive_timeout_ms", unanswered_ms),
            ("grpc.http2.ping_timeout_ms", unanswered_ms),  # overrides it, and is 60 s by itself
        ]
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._port = port
        clients = Clients()
        sessions = SessionCalls(engine, broker_name, clients)
        producers = ProducerCalls(engine, broker_name)
        consumers = ConsumerCalls(engine, clients)
        self._unary: dict[str, tuple[Any, Any, Call]] = {
            "QueryRoute": (pb.QueryRouteRequest, pb.QueryRouteResponse, sessions.query_route),
            "Heartbeat": (pb.HeartbeatRequest, pb.HeartbeatResponse, sessions.heartbeat),
            "QueryAssignment": (
                pb.QueryAssignmentRequest,
                pb.QueryAssignmentResponse,
                sessions.query_assignment,
            ),
            "NotifyClientTermination": (
                pb.NotifyClientTerminationRequest,
                pb.NotifyClientTerminationResponse,
                sessions.notify_client_termination,
            ),
            "SendMessage": (pb.SendMessageRequest, pb.SendMessageResponse, producers.send),
            "RecallMessage": (pb.RecallMessageRequest, pb.RecallMessageResponse, producers.recall),
            "AckMessage": (pb.AckMessageRequest, pb.AckMessageResponse, consumers.ack),
            "ChangeInvisibleDuration": (
                pb.ChangeInvisibleDurationRequest,
                pb.ChangeInvisibleDurationResponse,
                consumers.change_invisible_duration,
            ),
        }
        for name in NOT_IMPLEMENTED:
            answer = getattr(pb, f"{name}Response")
            self._unary[name] = (getattr(pb, f"{name}Request"), answer, _not_implemented(name))
        self._receive = consumers.receive
        self._telemetry = sessions.telemetry

    async def start(self) -> int:
        """Listen; gives the real port.  CONFIG if the port is taken."""
        self._server = grpc.aio.server(options=_OPTIONS + self._keepalive)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, self._handlers()),)
        )
        try:
            port = self._server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise HorologError(
                ErrorCode.CONFIG,
                f"--grpc-port: cannot listen on {self._address}: is it in use?",
                field="--grpc-port",
            ) from error
        await self._server.start()
        return int(port)

    async def stop(self, grace_s: float = 0.5) -> None:
        """Refuse new calls, give those under way `grace_s` seconds, close."""
        await self._server.stop(grace_s)

    def _handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        handlers: dict[str, Any] = {}
        for name, (request, answer, call) in self._unary.items():
            handlers[name] = grpc.unary_unary_rpc_method_handler(
                _guarded(call, answer),
                request_deserializer=_reader(request),
                response_serializer=answer.SerializeToString,
            )
        handlers["ReceiveMessage"] = grpc.unary_stream_rpc_method_handler(
            _guarded_stream(self._receive, pb.ReceiveMessageResponse),
            request_deserializer=_reader(pb.ReceiveMessageRequest),
            response_serializer=pb.ReceiveMessageResponse.SerializeToString,
        )
        handlers["PullMessage"] = grpc.unary_stream_rpc_method_handler(
            _guarded_stream(_pull_not_implemented, pb.PullMessageResponse),
            request_deserializer=_reader(pb.PullMessageRequest),
            response_serializer=pb.PullMessageResponse.SerializeToString,
        )
        handlers["Telemetry"] = grpc.stream_stream_rpc_method_handler(
            _guarded_commands(self._telemetry),
            request_deserializer=_reader(pb.TelemetryCommand),
            response_serializer=pb.TelemetryCommand.SerializeToString,
        )
        return handlers


class _Malformed:
    """A request that is not the protobuf message it should be."""

    def __init__(self, why: str) -> None:
        self.why = f"malformed request: {why}"


def _reader(message: Any) -> Callable[[bytes], Any]:
    """Parse requests; what cannot be parsed is told to that caller, not to the log."""

    def read(content: bytes) -> Any:
        try:
            return message.FromString(content)
        except DecodeError as error:
            return _Malformed(str(error))

    return read


def _guarded_stream(call: StreamCall, answer: Any) -> StreamCall:
    """As `_guarded`, for a call that writes its answers to the context."""

    async def guarded(request: Any, context: Context) -> None:
        if isinstance(request, _Malformed):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, request.why)
        try:
            await call(request, context)
        except Exception as error:  # noqa: BLE001 - our own mistake: told in the protocol's way
            await context.write(answer(status=_unexpected(error)))

    return guarded


def _guarded(call: Call, answer: Any) -> Call:
    """The call, with refusals turned into the answer's status."""

    async def guarded(request: Any, context: Context) -> Any:
        if isinstance(request, _Malformed):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, request.why)
        try:
            client_id_of(context)
            return await call(request, context)
        except HorologError as error:
            return answer(status=status_of(error))
        except Exception as error:  # noqa: BLE001 - our own mistake: told in the protocol's way
            return answer(status=_unexpected(error))

    return guarded


def _unexpected(error: Exception) -> pb.Status:
    _log.error("unexpected %r", error, exc_info=error)
    return status_of(HorologError(ErrorCode.INTERNAL, f"unexpected {type(error).__name__}"))


def _guarded_commands(call: Commands) -> Commands:
    """The stream, ended with a clear error by a command that is not protobuf."""

    async def readable(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        async for request in requests:
            if isinstance(request, _Malformed):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, request.why)
            yield request

    async def guarded(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        async for answer in call(readable(requests, context), context):
            yield answer

    return guarded


def _not_implemented(name: str) -> Call:
    async def refuse(request: Any, context: Context) -> Any:
        raise HorologError(ErrorCode.NOT_IMPLEMENTED, f"{name} is not supported yet", field=name)

    return refuse


async def _pull_not_implemented(request: pb.PullMessageRequest, context: Context) -> None:
    try:
        client_id_of(context)
        error = HorologError(ErrorCode.NOT_IMPLEMENTED, "PullMessage is not supported yet")
    except HorologError as refusal:
        error = refusal
    await context.write(pb.PullMessageResponse(status=status_of(error)))
