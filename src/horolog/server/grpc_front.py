"""The front door of RocketMQ 5.x clients: `apache.rocketmq.v2.MessagingService` over HTTP/2.

Handlers translate a request, pass a command to the engine and translate the result back; `protocol`
and the core decide what is right or wrong.  Errors travel inside the answers with gRPC status OK;
only Telemetry, and requests that are not protobuf at all, end with a gRPC error.

The calls that carry messages have no task of their own: their handlers pass the command to the
engine, and answer from its callback.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence

from google.protobuf.message import DecodeError

from horolog.access.guard import Guard
from horolog.errors import HorologError
from horolog.limits import (
    CLIENT_SWEEP_MS,
    STREAMS_MAX,
    TELEMETRY_BYTES_MAX,
    TELEMETRY_STREAMS_MAX,
)
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.http2.events import Limits
from horolog.protocol.http2.grpc_wire import INVALID_ARGUMENT, RESOURCE_EXHAUSTED
from horolog.protocol.remoting.heartbeat import Subscription
from horolog.server.call import Call
from horolog.server.connected import ConnectedClient
from horolog.server.door import Door
from horolog.server.grpc_access import GrpcAccess
from horolog.server.grpc_clients import Clients
from horolog.server.grpc_consume import ConsumerCalls
from horolog.server.grpc_produce import ProducerCalls
from horolog.server.grpc_session import SessionCalls, TelemetryStream
from horolog.server.grpc_transactions import GrpcProducers, TransactionCalls
from horolog.server.grpc_unary import SERVICE, UnaryCalls
from horolog.server.http2_link import Http2Link
from horolog.server.intake import Intake
from horolog.server.ports import bind, port_in_use
from horolog.server.running import GrpcEngine
from horolog.server.shares import Share
from horolog.server.tls import Certificate

_log = logging.getLogger("horolog.grpc")
_TELEMETRY = f"/{SERVICE}/Telemetry".encode()


class GrpcFront:
    """One listening port.  `start` returns the real port; `stop` lets calls end in a grace time."""

    streaming = frozenset({_TELEMETRY})

    def __init__(
        self,
        engine: GrpcEngine,
        host: str = "127.0.0.1",
        port: int = 0,
        broker_name: str = "broker-a",
        *,
        certificate: Certificate | None = None,
        intake: Intake | None = None,
        guard: Guard | None = None,
        quiet_ms: int = 60_000,
        unanswered_ms: int = 20_000,
    ) -> None:
        """Make the door; `start` opens it.

        guard          checks permissions; None: every client may do everything
        quiet_ms       a connection that is quiet for so long is pinged
        unanswered_ms  a connection that does not answer the ping for so long is closed: half-open
        """
        clients = self._clients = Clients()
        self._access = GrpcAccess(guard) if guard is not None else None
        self.producers = GrpcProducers()
        self._sessions = sessions = SessionCalls(
            engine, broker_name, clients, self.producers, self._access
        )
        transactions = TransactionCalls(engine, self.producers)
        self._unary = UnaryCalls(
            ProducerCalls(engine, broker_name, transactions),
            ConsumerCalls(engine, clients),
            transactions,
            sessions,
            self._access,
            engine,
        )
        self._streams: dict[Call, TelemetryStream] = {}
        self._refused: dict[Call, str] = {}  # Telemetry calls without a client id, and the refusal
        self._engine = engine
        self._host, self._port = host, port
        self._certificate = certificate
        self._intake = intake or Intake()
        self._quiet_ms, self._unanswered_ms = quiet_ms, unanswered_ms

    async def start(self) -> int:
        """Listen; return the real port.  Raise CONFIG if the port is taken."""
        limits = Limits(streams=STREAMS_MAX)
        self._door = Door(
            lambda door: Http2Link(door, self, limits),
            bind(self._host, self._port, "--grpc-port"),
            certificate=self._certificate,
            intake=self._intake,
            log=_log,
            quiet_ms=self._quiet_ms,
            unanswered_ms=self._unanswered_ms,
        )
        self._engine.on_answers.append(self._intake.pending_output.flush)
        port = await self._door.start()
        self._sweep_later()
        return port

    @property
    def doors(self) -> dict[str, Door]:
        """The listening doors, by name."""
        return {"grpc": self._door}

    @property
    def certificate_ends_s(self) -> float | None:
        """When the configured certificate ends, epoch seconds; None: none is configured."""
        return None if self._certificate is None else self._certificate.ends_s

    async def open(self) -> dict[str, int]:
        """Listen, as a part of the process; return the port by the name of its setting."""
        try:
            return {"grpc-port": await self.start()}
        except OSError as error:
            raise port_in_use("--grpc-port", self._port, str(error)) from None

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(CLIENT_SWEEP_MS / 1000, self._sweep)

    def _sweep(self) -> None:
        self._clients.sweep()
        self._sweep_later()

    def reload(self) -> None:
        """Read the certificate's files again, if any; keep the old one if they are refused."""
        if self._certificate is not None and self._certificate.reload():
            self._certificate.warn()
            _log.info("certificate read again")

    async def stop(self, grace_s: float = 0.5) -> None:
        """Refuse new calls, give those under way `grace_s` seconds, close."""
        self._sweeper.cancel()
        await self._door.stop(grace_s)
        self._unary.stop()

    # --- connected clients ------------------------------------------------------------------------

    def connected(self) -> Iterator[ConnectedClient]:
        """Yield all clients with a Telemetry stream."""
        return iter(self._sessions.streams)

    def members(self, group: str) -> Iterator[ConnectedClient]:
        """Yield the connected clients of a consumer group."""
        return self._sessions.streams.members(group)

    def member_count(self, group: str) -> int:
        """Return how many clients of a consumer group are connected."""
        return self._sessions.streams.member_count(group)

    def member(self, group: str, client_id: str) -> ConnectedClient | None:
        """Return a connected client of a consumer group, or None."""
        return self._sessions.streams.shown_member(group, client_id)

    def member_ids(self, group: str) -> list[str]:
        """Return the ids of the connected clients of a consumer group."""
        return self._sessions.streams.member_ids(group)

    def publishers(self, topic: str = "") -> Iterator[ConnectedClient]:
        """Yield clients that send (to a topic)."""
        return self._sessions.streams.publishers(topic)

    def subscriptions(self, group: str) -> Mapping[str, Subscription]:
        """Return the subscriptions of a consumer group, by topic."""
        return self._sessions.streams.subscriptions.of(group)

    def groups_of(self, topic: str) -> list[str]:
        """Return the consumer groups with a connected client that subscribes to a topic."""
        return self._sessions.streams.subscriptions.groups_of(topic)

    async def thread_stacks(self, group: str, client_id: str, within_s: float) -> str:
        """Return the thread stacks that a client reports; "" if it does not report them in time."""
        stream = self._sessions.streams.member(group, client_id)
        return await self._sessions.stacks.ask(stream, within_s) if stream is not None else ""

    async def notify_reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Do nothing: 5.x clients take what the broker gives them, and keep no offsets."""

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """Do nothing: nothing is noted of offsets of 5.x clients."""

    @property
    def paths(self) -> set[bytes]:
        """Paths of the calls that the door answers."""
        return {*self._unary.paths, *self.streaming}

    def calls_received(self, calls: Sequence[tuple[Call, bytes]]) -> None:
        """Take calls with one request message each, which came together."""
        self._unary.calls_received(calls)

    # --- Telemetry --------------------------------------------------------------------------------

    def stream_opened(self, call: Call) -> None:
        """Begin the Telemetry stream of a client."""
        share = call.link.share
        if why := self._why_full(share):
            call.fail(RESOURCE_EXHAUSTED, why)
            return
        if share is not None:
            share.streams += 1
        call.on_dropped = lambda: self._remove_stream(call)
        try:
            self._streams[call] = self._sessions.begin_stream(call)
            call.begin()
        except HorologError as error:
            # Report it once the client has sent something: grpc.aio takes an answer before that for
            # an error of its own.
            self._refused[call] = error.message

    def _why_full(self, share: Share | None) -> str:
        """Return why no further Telemetry stream is taken; "" if there is room."""
        count = len(self._streams) + len(self._refused)
        if count >= TELEMETRY_STREAMS_MAX:
            return f"{count} Telemetry streams are open, the most that are allowed"
        if share is not None and share.streams >= share.bounds.streams:
            return (
                f"{share.streams} Telemetry streams of {share.key} are open, "
                "the most that are allowed of one address"
            )
        return ""

    def message_received(self, call: Call, message: bytes) -> None:
        """Take a command that a client sends on its Telemetry stream."""
        self._refuse_stream(call)
        stream = self._streams.get(call)
        if stream is None:
            return
        if (size := len(message)) > TELEMETRY_BYTES_MAX:
            why = f"{size} bytes; at most {TELEMETRY_BYTES_MAX} are allowed"
            self._end_stream(call, RESOURCE_EXHAUSTED, why)
            return
        try:
            stream.take_command(pb.TelemetryCommand.FromString(message))
        except DecodeError as error:
            self._end_stream(call, INVALID_ARGUMENT, f"malformed request: {error}")
        except HorologError as error:
            self._end_stream(call, INVALID_ARGUMENT, error.message)

    def input_ended(self, call: Call) -> None:
        """End the stream of a client that sends no more, once its commands are answered."""
        self._refuse_stream(call)
        stream = self._streams.get(call)
        if stream is not None:
            stream.when_answered(lambda: self._end_stream(call))

    def _refuse_stream(self, call: Call) -> None:
        if (why := self._refused.get(call)) is not None:
            self._remove_stream(call)
            call.fail(INVALID_ARGUMENT, why)

    def _end_stream(self, call: Call, status: int = 0, why: str = "") -> None:
        self._remove_stream(call)
        call.finish(status, why)

    def _remove_stream(self, call: Call) -> None:
        stream = self._streams.pop(call, None)
        refusal = self._refused.pop(call, None)
        if stream is not None:
            stream.stream_ended()
        share = call.link.share
        if share is not None and (stream is not None or refusal is not None):
            share.streams -= 1
