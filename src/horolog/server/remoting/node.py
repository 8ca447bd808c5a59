"""State that the handlers of the remoting doors share."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import CreateTopic, TopicType
from horolog.protocol.remoting.gathered import Site
from horolog.protocol.remoting.queue_locks import QueueLocks
from horolog.protocol.rocketmq.delays import DEFAULT_LEVELS, Levels, parse_levels
from horolog.protocol.rocketmq.names import CLOUD_TRACE_PREFIX
from horolog.protocol.rocketmq.retry import DEAD_LETTER_PREFIX, RETRY_PREFIX
from horolog.server.connected import Neighbour
from horolog.server.loop import Engine
from horolog.server.message_id import MessageIds
from horolog.server.rates import Rates
from horolog.server.remoting.asked import AskedSubscriptions
from horolog.server.remoting.kv_table import KvTable
from horolog.server.remoting.pulled import PulledOffsets
from horolog.server.remoting.registry import Registry
from horolog.server.remoting.request import Request
from horolog.server.remoting.returning import ReturningConsumers
from horolog.server.remoting.unseen_resets import UnseenResets

TEMPLATE_TOPIC = "TBW102"  # clients ask for its route if a topic is unknown, and use that
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"  # clients that trace send to it, whether it exists or not

_LEVELS = parse_levels(DEFAULT_LEVELS)
_MADE_AT_USE = (RETRY_PREFIX, DEAD_LETTER_PREFIX, CLOUD_TRACE_PREFIX)


@dataclass(slots=True)
class Node:
    """The broker as 4.x clients see it.

    advertised   name or address in routes; "": the address that the client has dialled
    broker_port  of the broker's door, once it is open
    auto_create  whether a send to an unknown topic creates it
    store_host   4 bytes of IPv4 and 4 of port, as messages name their store
    levels       delays that clients name by level
    settings     that admin tools are shown; the keys are RocketMQ's
    data_dir     whose disk figures admin tools are shown; None: none are shown
    neighbours   other doors, whose clients admin tools are shown too
    """

    engine: Engine
    broker_name: str = "broker-a"
    cluster_name: str = "DefaultCluster"
    advertised: str = ""
    broker_port: int = 0
    auto_create: bool = True
    store_host: bytes = b"\x7f\0\0\1\0\0\0\0"
    levels: Levels = _LEVELS
    settings: Mapping[str, object] = field(default_factory=dict)
    data_dir: Path | None = None
    neighbours: Sequence[Neighbour] = ()
    registry: Registry = field(default_factory=Registry)
    asked: AskedSubscriptions = field(default_factory=AskedSubscriptions)
    returning: ReturningConsumers = field(default_factory=ReturningConsumers)
    locks: QueueLocks = field(default_factory=QueueLocks)
    pulled: PulledOffsets = field(default_factory=PulledOffsets)
    unseen_resets: UnseenResets = field(default_factory=UnseenResets)
    rates: Rates = field(init=False)
    _ids: MessageIds = field(default_factory=MessageIds)
    _kv: KvTable | None = None

    def __post_init__(self) -> None:
        self.rates = Rates(self.engine)

    @property
    def reply_topic(self) -> str:
        """The topic that keeps replies of clients to requests of clients."""
        return f"{self.cluster_name}_REPLY_TOPIC"

    @property
    def kv(self) -> KvTable:
        """The name server's table, read at the first use."""
        if self._kv is None:
            self._kv = KvTable(self.engine.storage)
        return self._kv

    @property
    def site(self) -> Site:
        """The facts about the broker that answers to sends contain."""
        return Site(self.broker_name, self.store_host, self.levels, self.cluster_name)

    def new_ids(self, count: int) -> list[bytes]:
        """Return ids for messages whose senders give none."""
        return self._ids.take(self.engine.clock.wall_ms(), count)

    def is_internal(self, topic: str) -> bool:
        """Return whether clients use a topic that no user has created."""
        return topic.startswith(_MADE_AT_USE) or topic in (TRACE_TOPIC, self.reply_topic)

    def may_create_topic(self, topic: str) -> bool:
        """Return whether a send to a missing topic creates it."""
        return self.auto_create or self.is_internal(topic)

    async def create_topic(self, topic: str, queues: int) -> None:
        """Create a topic at its first use; a topic that exists already stays as it is."""
        try:
            await self.engine.submit(CreateTopic(topic, TopicType.MIXED, queues))
        except HorologError as error:
            if error.code is not ErrorCode.TOPIC_EXISTS:
                raise

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """Drop what was noted of a deleted group and its consumers, or of a deleted topic."""
        self.pulled.forget(group, topic)
        self.unseen_resets.forget(group, topic)
        self.rates.forget(group=group, topic=topic)

    def store_host_for(self, request: Request) -> bytes:
        """Return the store host as the asking client knows it: tools compare it with routes."""
        if self.advertised:
            return self.store_host
        try:
            return socket.inet_aton(request.link.dialled) + self.broker_port.to_bytes(4, "big")
        except OSError:  # an IPv6 address
            return self.store_host

    def address(self, request: Request) -> str:
        """Return host:port at which the asking client reaches the broker's door."""
        if ":" in self.advertised:  # an IPv6 address
            return f"[{self.advertised}]:{self.broker_port}"
        return f"{self.advertised or request.link.dialled}:{self.broker_port}"
