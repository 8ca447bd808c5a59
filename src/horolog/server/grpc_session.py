"""Handlers of a client's session: Telemetry, heartbeats, routes, assignments, termination."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import CALL_BYTES_MAX, ENDPOINTS_BYTES_MAX, HEARTBEAT_NAME_MAX
from horolog.protocol.commands import ClientGone, ClientSeen, DescribeTopic, TopicView
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.settings import (
    consumer_policy,
    merged_settings,
    order,
    polling_ms,
    route,
)
from horolog.protocol.grpc.status import OK, status_of
from horolog.protocol.grpc.translate import name_of
from horolog.protocol.queue_commands import FindGroup, GroupView
from horolog.protocol.rocketmq.names import check_group, check_topic
from horolog.server.call import Call
from horolog.server.connected import Origin
from horolog.server.grpc_access import GrpcAccess
from horolog.server.grpc_clients import CONSUMERS, Clients, ClientSettings, Streams
from horolog.server.grpc_stacks import ThreadStacks
from horolog.server.grpc_transactions import GrpcProducers
from horolog.server.running import GrpcEngine
from horolog.server.ticket import ignore_result

_NAME_MAX = 64  # characters kept of a language or a version
_OLD_GO_VERSIONS = "5.0."  # what Go clients up to 5.1.3 call their version


def client_id_of(call: Call) -> str:
    """Return the id of the calling client.

    Raise CLIENT_ID_REQUIRED if the header is missing, BAD_REQUEST if the id is too long.
    """
    client_id = call.header(b"x-mq-client-id")
    if not client_id.strip():
        raise refused(
            "x-mq-client-id", "the header is missing or blank", code=ErrorCode.CLIENT_ID_REQUIRED
        )
    if len(client_id) > HEARTBEAT_NAME_MAX:
        raise refused(
            "x-mq-client-id",
            f"{len(client_id)} characters; at most {HEARTBEAT_NAME_MAX} are allowed",
            f"{HEARTBEAT_NAME_MAX} characters",
        )
    return client_id


class TelemetryStream:
    """A client's Telemetry stream; settings are answered in the order in which they came."""

    def __init__(self, sessions: SessionCalls, call: Call, client_id: str) -> None:
        self._sessions = sessions
        self._call = call
        self.client_id = client_id
        self.language = call.header(b"x-mq-language")[:_NAME_MAX]
        self.version = call.header(b"x-mq-client-version")[:_NAME_MAX]
        self._has_settings = False
        self._has_ended = False  # also while its last answers wait for room
        self._unanswered = 0
        self._on_answered: Callable[[], None] | None = None

    @property
    def origin(self) -> Origin:
        """The connection of the stream."""
        return self._call.origin

    def take_command(self, command: pb.TelemetryCommand) -> None:
        """Answer settings with the merged settings; a HorologError ends the stream.

        Refused settings are answered with their status.  If the first settings are refused, the
        stream ends too: the Go client does not start before settings have come, and ignores the
        status.
        """
        if command.HasField("thread_stack_trace"):
            self._sessions.stacks.take_answer(self, command.thread_stack_trace)
        if not command.HasField("settings"):
            return  # answers to commands that this broker never sends
        if command.settings.WhichOneof("pub_sub") is None:
            raise HorologError(
                ErrorCode.BAD_REQUEST, "settings: neither publishing nor subscription is set"
            )
        if (size := command.ByteSize()) > CALL_BYTES_MAX:
            raise refused("settings", f"{size} bytes; at most {CALL_BYTES_MAX} are allowed")
        try:
            self._sessions.check_access(self._call, command.settings)
            answer, seen = self._sessions.store_settings(
                self.client_id, command.settings, self.language
            )
        except HorologError as error:
            self._send(pb.TelemetryCommand(status=status_of(error)))
            if not self._has_settings:
                raise
            return
        self._has_settings = True
        self._sessions.add_client(self, command.settings)
        self._unanswered += 1
        seen.add_done_callback(lambda result: self._seen(result, answer))

    def _seen(self, result: asyncio.Future[Any], answer: pb.TelemetryCommand) -> None:
        self._unanswered -= 1
        error = None if result.cancelled() else result.exception()
        if isinstance(error, HorologError) and error.code is not ErrorCode.GROUP_NOT_FOUND:
            answer = pb.TelemetryCommand(status=status_of(error))
        elif error is None and isinstance(view := result.result(), GroupView):
            policy = consumer_policy(view.settings, self.language)
            answer.settings.backoff_policy.CopyFrom(policy)
            order(answer.settings.subscription, self.language, orderly=view.settings.orderly)
        self._send(answer)
        if self._on_answered is not None and not self._unanswered:
            self._on_answered()

    def _send(self, answer: pb.TelemetryCommand) -> None:
        if self._call.is_open and not self._has_ended:
            self._call.send_message(answer.SerializeToString())

    def may_be_asked(self, topic: str) -> bool:
        """Return whether the client reads its stream, and may now send to `topic`."""
        return self._call.is_reading and self._sessions.may_publish(self._call, topic)

    def send_command(self, command: pb.TelemetryCommand) -> bool:
        """Send the client a command; return False if it has gone, or does not read its stream."""
        if not self._call.is_reading:
            return False
        self._send(command)
        return True

    def stream_ended(self) -> None:
        """Remove the stream everywhere: it has ended."""
        self._has_ended = True
        self._sessions.producers.remove(self)
        self._sessions.streams.remove(self)
        self._sessions.stacks.stream_ended(self)

    def when_answered(self, end: Callable[[], None]) -> None:
        """Call `end` when every command of the client is answered; the client sends no more."""
        self._on_answered = end
        if not self._unanswered:
            end()


class SessionCalls:
    """Handlers of the calls of a client's session."""

    def __init__(
        self,
        engine: GrpcEngine,
        broker_name: str,
        clients: Clients,
        producers: GrpcProducers,
        access: GrpcAccess | None,
    ) -> None:
        self.producers = producers
        self.streams = Streams()
        self.stacks = ThreadStacks()
        self._engine = engine
        self._access = access
        self._broker_name = broker_name
        self._clients = clients

    def begin_stream(self, call: Call) -> TelemetryStream:
        """Begin a Telemetry stream; raise CLIENT_ID_REQUIRED without a client id."""
        return TelemetryStream(self, call, client_id_of(call))

    def check_access(self, call: Call, settings: pb.Settings) -> None:
        """Raise UNAUTHORIZED or FORBIDDEN unless the client may do what its settings say."""
        if self._access is not None:
            self._access.check_settings(call, settings)

    def may_publish(self, call: Call, topic: str) -> bool:
        """Return whether the caller may send to a topic."""
        return self._access is None or self._access.may_publish(call, topic)

    def store_settings(
        self, client_id: str, settings: pb.Settings, language: str
    ) -> tuple[pb.TelemetryCommand, asyncio.Future[Any]]:
        """Store a client's settings; return the answer, and a future to wait for before it."""
        self._check(settings)
        merged = merged_settings(settings, language)
        self._clients.store_settings(
            client_id, ClientSettings(settings.client_type, polling_ms(merged))
        )
        answer = pb.TelemetryCommand(status=OK, settings=merged)
        if settings.HasField("publishing"):
            return answer, self._engine.submit(ClientSeen(client_id))
        self._engine.ask(ClientSeen(client_id), ignore_result)  # if refused, so is the next command
        return answer, self._engine.submit(FindGroup(name_of(settings.subscription.group)))

    def add_client(self, stream: TelemetryStream, settings: pb.Settings) -> None:
        """Record a client; a producer may be asked of transactions of its topics."""
        self.streams.store_settings(stream, settings)
        if settings.HasField("publishing"):
            self.producers.add(stream, settings.publishing.topics)

    @staticmethod
    def _check(settings: pb.Settings) -> None:
        if settings.HasField("publishing"):
            for topic in settings.publishing.topics:
                check_topic(name_of(topic))
            return
        check_group(name_of(settings.subscription.group))
        if settings.client_type in (pb.LITE_PUSH_CONSUMER, pb.LITE_SIMPLE_CONSUMER):
            # As an ordinary consumer it would take all messages of the topic of its lite topics.
            raise HorologError(
                ErrorCode.NOT_IMPLEMENTED,
                "client_type: consumers of lite topics are not supported",
                field="client_type",
            )
        for entry in settings.subscription.subscriptions:
            check_topic(name_of(entry.topic))

    async def heartbeat(self, request: pb.HeartbeatRequest, call: Call) -> pb.HeartbeatResponse:
        """Record that the client lives.

        Go clients up to 5.1.2 open a Telemetry stream that was lost when a heartbeat is refused as
        that of a client without a session, and else up to five minutes later.  Until then they are
        asked of no transaction.  Newer ones do not, and 5.1.4 is the first to tell its version.
        """
        client_id = client_id_of(call)
        if request.client_type in CONSUMERS or request.HasField("group"):
            check_group(name_of(request.group))
        is_known = self._clients.take_heartbeat(client_id, request.client_type)
        if is_known:
            await self._engine.submit(ClientSeen(client_id))
            is_old = call.header(b"x-mq-client-version").startswith(_OLD_GO_VERSIONS)
            is_old_go = is_old and call.header(b"x-mq-language") == "GO"
            is_known = not is_old_go or self.streams.of_client(client_id) is not None
        if not is_known:
            raise HorologError(
                ErrorCode.UNRECOGNIZED_CLIENT,
                f"client {client_id!r} has no session: open Telemetry first",
                field="client_type",
            )
        return pb.HeartbeatResponse(status=OK)

    async def notify_client_termination(
        self, request: pb.NotifyClientTerminationRequest, call: Call
    ) -> pb.NotifyClientTerminationResponse:
        """Forget a client that terminates.

        Its polls are answered now, and its leased messages become visible soon.  It is not listed
        any more and not asked anything: the Go client leaves its stream open, and is silent.
        """
        client_id = client_id_of(call)
        self._clients.forget(client_id)
        stream = self.streams.of_client(client_id)
        if stream is not None:
            self.streams.remove(stream)
            self.producers.remove(stream)
        await self._engine.submit(ClientGone(client_id))
        return pb.NotifyClientTerminationResponse(status=OK)

    @staticmethod
    def _endpoints(endpoints: pb.Endpoints) -> pb.Endpoints:
        """Return the endpoints that the client dialled, so that it opens no second connection."""
        if not endpoints.addresses or not endpoints.scheme:
            raise refused(
                "endpoints",
                "no address, or no scheme; the access point must be given",
                code=ErrorCode.ILLEGAL_ACCESS_POINT,
            )
        if (size := endpoints.ByteSize()) > ENDPOINTS_BYTES_MAX:
            raise refused(
                "endpoints",
                f"{size} bytes; at most {ENDPOINTS_BYTES_MAX} are allowed",
                f"{ENDPOINTS_BYTES_MAX} bytes",
                code=ErrorCode.ILLEGAL_ACCESS_POINT,
            )
        return endpoints

    async def _view(self, topic: pb.Resource) -> TopicView:
        describe = DescribeTopic(check_topic(name_of(topic)), with_pending=False)
        try:
            view: TopicView = await self._engine.submit(describe)
        except HorologError as error:
            if error.code is not ErrorCode.TOPIC_NOT_FOUND:
                raise
            # RocketMQ's words: clients, and the tests of some, look for them.
            words = (
                f"CODE: 17  DESC: No topic route info in name server for the topic: {describe.name}"
            )
            raise HorologError(error.code, f"{error.message}; {words}", field=error.field) from None
        return view

    async def query_route(self, request: pb.QueryRouteRequest, call: Call) -> pb.QueryRouteResponse:
        """Return all queues of a topic."""
        endpoints = self._endpoints(request.endpoints)
        view = await self._view(request.topic)
        return pb.QueryRouteResponse(
            status=OK,
            message_queues=route(request.topic, view, self._broker_name, endpoints),
        )

    async def query_assignment(
        self, request: pb.QueryAssignmentRequest, call: Call
    ) -> pb.QueryAssignmentResponse:
        """Return one assignment: any queue of this broker, since messages are balanced, not queues.

        A FIFO group gets every queue, as with official brokers: its clients poll each, and get the
        messages that may be delivered.
        """
        endpoints = self._endpoints(request.endpoints)
        group = check_group(name_of(request.group))
        view = await self._view(request.topic)
        readable = (pb.READ, pb.READ_WRITE)
        shown = route(request.topic, view, self._broker_name, endpoints)
        queues = [queue for queue in shown if queue.permission in readable]
        if not queues:
            raise HorologError(
                ErrorCode.FORBIDDEN,
                f"topic {view.name!r} has no queue that may be consumed: its permission is "
                f"{view.settings.perm}",
                field="topic",
            )
        if not await self._is_orderly(group):
            queues = queues[:1]
            queues[0].id = -1
        return pb.QueryAssignmentResponse(
            status=OK, assignments=[pb.Assignment(message_queue=queue) for queue in queues]
        )

    async def _is_orderly(self, group: str) -> bool:
        try:
            view: GroupView = await self._engine.submit(FindGroup(group))
        except HorologError as error:
            if error.code is not ErrorCode.GROUP_NOT_FOUND:
                raise
            return False
        return view.settings.orderly
