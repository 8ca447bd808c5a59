"""What clients do apart from messages: Telemetry, heartbeats, routes, assignments, good-byes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import ClientGone, ClientSeen, DescribeTopic, TopicView
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.settings import merged_settings, polling_ms, route
from horolog.protocol.grpc.status import OK, status_of
from horolog.protocol.grpc.translate import name_of
from horolog.protocol.rocketmq.names import check_group, check_topic
from horolog.server.grpc_clients import Clients, ClientSettings
from horolog.server.loop import Engine

Context = grpc.aio.ServicerContext[Any, Any]


def header(context: Context, name: str) -> str:
    """A request header, "" if it is not there."""
    for key, value in context.invocation_metadata() or ():
        if key == name:
            return value if isinstance(value, str) else value.decode("utf-8", "replace")
    return ""


def client_id_of(context: Context) -> str:
    """Who calls; CLIENT_ID_REQUIRED if it does not say."""
    client_id = header(context, "x-mq-client-id")
    if not client_id.strip():
        raise HorologError(
            ErrorCode.CLIENT_ID_REQUIRED,
            "x-mq-client-id: the header is missing or blank",
            field="x-mq-client-id",
        )
    return client_id


class SessionCalls:
    """The calls of a client's session."""

    def __init__(self, engine: Engine, broker_name: str, clients: Clients) -> None:
        self._engine = engine
        self._broker_name = broker_name
        self._clients = clients

    async def telemetry(
        self, requests: AsyncIterator[pb.TelemetryCommand], context: Context
    ) -> AsyncIterator[pb.TelemetryCommand]:
        """Answer every settings command with the merged settings; the stream stays open."""
        try:
            client_id = client_id_of(context)
        except HorologError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.message)
        language = header(context, "x-mq-language")
        async for command in requests:
            if not command.HasField("settings"):
                continue  # answers to commands that this broker never sends
            settings = command.settings
            if settings.WhichOneof("pub_sub") is None:
                await context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    "settings: neither publishing nor subscription is set",
                )
            try:
                self._check(settings)
                merged = merged_settings(settings, language)
                poll_ms = polling_ms(merged)
            except HorologError as error:
                yield pb.TelemetryCommand(status=status_of(error))
                continue
            self._clients.settle(client_id, ClientSettings(settings.client_type, poll_ms))
            await self._engine.submit(ClientSeen(client_id))
            yield pb.TelemetryCommand(status=OK, settings=merged)

    @staticmethod
    def _check(settings: pb.Settings) -> None:
        if settings.HasField("publishing"):
            for topic in settings.publishing.topics:
                check_topic(name_of(topic))
            return
        check_group(name_of(settings.subscription.group))
        for entry in settings.subscription.subscriptions:
            check_topic(name_of(entry.topic))

    async def heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        """The client lives."""
        client_id = client_id_of(context)
        if not self._clients.beat(client_id, request.client_type):
            raise HorologError(
                ErrorCode.UNRECOGNIZED_CLIENT,
                f"client {client_id!r} has no session: open Telemetry first",
                field="client_type",
            )
        await self._engine.submit(ClientSeen(client_id))
        return pb.HeartbeatResponse(status=OK)

    async def notify_client_termination(
        self, request: pb.NotifyClientTerminationRequest, context: Context
    ) -> pb.NotifyClientTerminationResponse:
        """The client goes: its polls are answered now, what it holds becomes visible soon."""
        client_id = client_id_of(context)
        self._clients.forget(client_id)
        await self._engine.submit(ClientGone(client_id))
        return pb.NotifyClientTerminationResponse(status=OK)

    @staticmethod
    def _endpoints(endpoints: pb.Endpoints) -> pb.Endpoints:
        """What the client dialled; it is given back, so that it opens no second connection."""
        if not endpoints.addresses or not endpoints.scheme:
            raise HorologError(
                ErrorCode.ILLEGAL_ACCESS_POINT,
                "endpoints: no address, or no scheme; the access point must be given",
                field="endpoints",
            )
        return endpoints

    async def _view(self, topic: pb.Resource) -> TopicView:
        describe = DescribeTopic(check_topic(name_of(topic)), with_pending=False)
        view: TopicView = await self._engine.submit(describe)
        return view

    async def query_route(
        self, request: pb.QueryRouteRequest, context: Context
    ) -> pb.QueryRouteResponse:
        """All queues of a topic."""
        endpoints = self._endpoints(request.endpoints)
        view = await self._view(request.topic)
        return pb.QueryRouteResponse(
            status=OK,
            message_queues=route(request.topic, view, self._broker_name, endpoints),
        )

    async def query_assignment(
        self, request: pb.QueryAssignmentRequest, context: Context
    ) -> pb.QueryAssignmentResponse:
        """One assignment: any queue of this broker (messages are balanced, not queues)."""
        endpoints = self._endpoints(request.endpoints)
        check_group(name_of(request.group))
        view = await self._view(request.topic)
        queue = route(request.topic, view, self._broker_name, endpoints)[0]
        queue.id = -1
        return pb.QueryAssignmentResponse(
            status=OK, assignments=[pb.Assignment(message_queue=queue)]
        )
