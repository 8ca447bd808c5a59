"""The doors of RocketMQ 4.x clients, name server and broker, and the handler of each code.

Each of the two has a port.  All ports answer all codes, for some set-ups have one address for both.
Handlers belong to families, classes with `handlers()`; `protocol` and the core decide what is right
or wrong.  A handler answers by itself, now or later (and returns None), or returns its `Answer`, or
an awaitable of the answer, for which a task is made: only rare requests do that.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from horolog.access.guard import Guard
from horolog.access.rules import Identity
from horolog.clock import monotonic_ms
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import REMOTING_IDLE_MS
from horolog.protocol.queue_commands import ListGroups, ReadMessage
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.request import Answer, integer
from horolog.protocol.remoting.send_reader import Alike
from horolog.protocol.transaction_commands import TopicOfTransaction
from horolog.server.connected import ConnectedClient
from horolog.server.door import Door
from horolog.server.intake import Intake
from horolog.server.ports import bind
from horolog.server.remoting.access import (
    BY_POSITION,
    RemotingAccess,
    check_half,
    check_stored,
    names_no_topic,
)
from horolog.server.remoting.administration import admin_families
from horolog.server.remoting.assignments import AssignmentCodes
from horolog.server.remoting.clients import ClientCodes
from horolog.server.remoting.family import Family, Handler
from horolog.server.remoting.kv import KvCodes
from horolog.server.remoting.link import RemotingLink
from horolog.server.remoting.locks import LockCodes
from horolog.server.remoting.node import TEMPLATE_TOPIC, Node
from horolog.server.remoting.offsets import OffsetCodes
from horolog.server.remoting.pop import PopCodes
from horolog.server.remoting.produce import ProduceCodes
from horolog.server.remoting.pull import PullCodes
from horolog.server.remoting.queries import QueryCodes
from horolog.server.remoting.replies import ReplyCodes
from horolog.server.remoting.request import Request
from horolog.server.remoting.resets import notify_reset
from horolog.server.remoting.retries import RetryCodes
from horolog.server.remoting.routes import RouteCodes
from horolog.server.remoting.transactions import TransactionCodes
from horolog.server.tls import Certificate

_SWEEP_S = 10.0
_REFUSE_PULLS_S = 0.2  # clients whose pull was answered just before have pulled again by then
_log = logging.getLogger("horolog.remoting")


class Ports(NamedTuple):
    """The ports of the doors."""

    namesrv: int
    broker: int


class RemotingFront:
    """Two listening ports, and a third one if it is free.

    `start` returns the ports; `stop` lets requests end in a grace time.

    doors          the listening doors, by name
    vip_port       a third port, for clients older than 4.5; 0: none
    broker_socket  a bound socket for the broker's port, where the port had to be known before
    idle_ms        a connection of which nothing was heard for so long is closed
    """

    def __init__(
        self,
        node: Node,
        host: str = "127.0.0.1",
        namesrv_port: int = 0,
        broker_port: int = 0,
        *,
        vip_port: int = 0,
        broker_socket: socket.socket | None = None,
        certificate: Certificate | None = None,
        intake: Intake | None = None,
        guard: Guard | None = None,
        idle_ms: int = REMOTING_IDLE_MS,
    ) -> None:
        self.node = node
        open_routes = frozenset({TEMPLATE_TOPIC, node.cluster_name, node.reply_topic})
        self._access = RemotingAccess(guard, open_routes) if guard is not None else None
        self._clients = ClientCodes(node)
        self.producers = TransactionCodes(node)
        self._produce = ProduceCodes(node, self.producers)
        self._pull = PullCodes(node)
        self._pop = PopCodes(node)
        self._locks = LockCodes(node)
        self._families: list[Family] = [
            RouteCodes(node),
            self._clients,
            self._produce,
            self._pull,
            OffsetCodes(node),
            KvCodes(node),
            QueryCodes(node),
            *admin_families(node),
            self._locks,
            RetryCodes(node),
            ReplyCodes(node),
            self.producers,
            self._pop,
            AssignmentCodes(node),
        ]
        self._handlers: dict[int, Handler] = {}
        for family in self._families:
            handlers = family.handlers()
            assert not self._handlers.keys() & handlers.keys()
            for code, handle in handlers.items():
                self._handlers[code] = handle
        self._host, self._namesrv_port, self._broker_port = host, namesrv_port, broker_port
        self._broker_socket, self._vip_port = broker_socket, vip_port
        self._certificate = certificate
        self._intake = intake or Intake()
        self._idle_ms = idle_ms
        self.doors: dict[str, Door] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sends: list[tuple[RemotingLink, Sequence[Frame | Alike]]] = []  # until `_store`

    @property
    def codes(self) -> list[Code]:
        """Codes that have a handler; all others are answered with REQUEST_CODE_NOT_SUPPORTED."""
        return sorted(map(Code, self._handlers))

    def handler(self, code: Code) -> Handler:
        """Return the handler of a code."""
        return self._handlers[code]

    # --- doors ------------------------------------------------------------------------------------

    async def start(self) -> Ports:
        """Listen; return the real ports.

        Raise CONFIG if a port is taken, DISK_FAILED if the name server's table cannot be read.
        """
        _ = self.node.kv  # read here, so that a start fails instead of a request
        if await self.node.engine.submit(ListGroups("")):
            self.node.returning.await_all(monotonic_ms())
        broker = self._broker_socket or bind(self._host, self._broker_port, "--broker-port")
        try:
            namesrv = bind(self._host, self._namesrv_port, "--namesrv-port")
        except HorologError:
            broker.close()
            raise
        listeners = {"namesrv": namesrv, "broker": broker}
        if (vip := self._bind_vip()) is not None:
            listeners["vip"] = vip
        self.doors = {name: self._door(listener) for name, listener in listeners.items()}
        self.node.broker_port = int(broker.getsockname()[1])
        ports = {name: await door.start() for name, door in self.doors.items()}
        self.node.engine.on_answers.append(self._intake.pending_output.flush)
        self.node.rates.start()
        self._sweep_later()
        return Ports(ports["namesrv"], ports["broker"])

    def _bind_vip(self) -> socket.socket | None:
        """Bind the VIP port, if one is wanted and it is free."""
        if not self._vip_port:
            return None
        try:
            return bind(self._host, self._vip_port, "--broker-port")
        except HorologError as error:
            _log.warning("no VIP port for clients of before 4.5: %s", error.message)
            return None

    async def open(self) -> dict[str, int]:
        """Listen, as a part of the process; return the ports by the names of their settings."""
        ports = await self.start()
        return {"namesrv-port": ports.namesrv, "broker-port": ports.broker}

    def reload(self) -> None:
        """Do nothing: the doors share the certificate with the gRPC door, which reads it again."""

    def _door(self, listener: socket.socket) -> Door:
        return Door(
            lambda door: RemotingLink(door, self),
            listener,
            intake=self._intake,
            log=_log,
            certificate=self._certificate,
            quiet_ms=self._idle_ms,
        )

    async def stop(self, grace_s: float = 0.5) -> None:
        """Refuse new requests, give those under way `grace_s` seconds, close."""
        self._sweeper.cancel()
        self._pull.stop()
        if any(door.connections for door in self.doors.values()):
            await asyncio.sleep(min(grace_s, _REFUSE_PULLS_S))
        await self.node.rates.stop()
        await asyncio.gather(*[door.stop(grace_s) for door in self.doors.values()])
        for task in list(self._tasks):
            task.cancel()

    def _sweep_later(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        now_ms = monotonic_ms()
        self._clients.sweep(now_ms)
        self._locks.sweep(now_ms)
        self._sweep_later()

    # --- connected clients ------------------------------------------------------------------------

    def connected(self) -> Iterator[ConnectedClient]:
        """Yield all clients that have sent a heartbeat."""
        return self.node.registry.connected()

    def members(self, group: str) -> Iterator[ConnectedClient]:
        """Yield the connected clients of a consumer group."""
        return self.node.registry.connected_members(group)

    def member_count(self, group: str) -> int:
        """Return how many clients of a consumer group are connected."""
        return self.node.registry.member_count(group)

    async def notify_reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Tell the members of a group to go on at these offsets, by queue."""
        await notify_reset(self.node, group, topic, offsets)

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """Drop what was noted of the consumers of a deleted group, or of a deleted topic."""
        self.node.forget(group=group, topic=topic)

    # --- calls from links -------------------------------------------------------------------------

    def request_received(self, request: Request) -> None:
        """Check and handle a request."""
        handle = self._handlers.get(request.frame.code)
        if handle is None:
            request.fail(_unknown(request.frame.code))
            return
        try:
            if self._access is not None:
                identity = self._access.check(request.link, request.frame)
                if request.frame.code in BY_POSITION and not identity.is_admin:
                    handle = partial(self._after_look, identity, handle)
                elif names_no_topic(request.frame) and not identity.is_admin:
                    handle = partial(self._after_look_at_half, identity, handle)
            answer = handle(request)
        except Exception as error:  # noqa: BLE001 - a refusal, or our mistake: both are answered
            request.fail(error)
            return
        if isinstance(answer, Answer):
            request.answer(answer)
        elif answer is not None:
            task = asyncio.ensure_future(self._finish(request, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _after_look(self, identity: Identity, handle: Handler, request: Request) -> Answer:
        """Handle a request for a message by its position, if the message there may be read."""
        position = integer(request.frame, "offset", low=0)
        try:
            layout: bytes = await self.node.engine.submit(ReadMessage(position))
        except HorologError:
            pass  # the handler reports it
        else:
            check_stored(identity, bytes(layout))
        return await _awaited(handle, request)

    async def _after_look_at_half(
        self, identity: Identity, handle: Handler, request: Request
    ) -> Answer:
        """Handle the end of a transaction known only by position, if its topic may be sent to."""
        position = integer(request.frame, "commitLogOffset")
        if name := await self.node.engine.submit(TopicOfTransaction(position)):
            check_half(identity, name)
        return await _awaited(handle, request)

    @staticmethod
    async def _finish(request: Request, pending: Awaitable[Answer]) -> None:
        try:
            answer = await pending
        except Exception as error:  # noqa: BLE001 - as in `request_received`
            request.fail(error)
        else:
            request.answer(answer)

    def sends_received(self, link: RemotingLink, frames: Sequence[Frame | Alike]) -> None:
        """Take all sends of a chunk; store them together with sends of other connections."""
        if self._access is not None:
            frames = self._allowed(self._access, link, frames)
        if frames:
            if not self._sends:
                self.node.engine.before_turn(self._store)
            self._sends.append((link, frames))

    def _store(self) -> None:
        sends, self._sends = self._sends, []
        self._produce.store_all(sends)

    @staticmethod
    def _allowed(
        access: RemotingAccess, link: RemotingLink, frames: Sequence[Frame | Alike]
    ) -> list[Frame | Alike]:
        """Return the sends that are allowed, and refuse the others."""
        found: list[Frame | Alike] = []
        for each in frames:
            if isinstance(each, Alike) and access.may_send(link, each):
                found.append(each)
                continue
            for frame in each.frames() if isinstance(each, Alike) else (each,):
                try:
                    access.check(link, frame)
                except HorologError as error:
                    link.fail(frame, error)
                else:
                    found.append(frame)
        return found

    def connection_ended(self, link: RemotingLink) -> None:
        """Drop what families keep of a connection that has ended."""
        self._pull.connection_ended(link)
        self._pop.connection_ended(link)
        self.producers.connection_ended(link)
        self._clients.connection_ended(link)


def _unknown(code: int) -> HorologError:
    known = code in Code.__members__.values()
    what = f"{Code(code).name} ({code})" if known else str(code)
    return refused("code", f"{what} is not supported", code=ErrorCode.NOT_IMPLEMENTED)


async def _awaited(handle: Handler, request: Request) -> Answer:
    answer = handle(request)
    assert isinstance(answer, Awaitable)
    return await answer
