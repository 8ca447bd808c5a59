"""What handlers of the remoting doors share."""

from __future__ import annotations

from dataclasses import dataclass, field

from horolog.server.loop import Engine
from horolog.server.remoting.registry import Registry
from horolog.server.remoting.request import Request

TEMPLATE_TOPIC = "TBW102"  # clients ask for its route when a topic is unknown, and send as if that were its route
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"  # clients that trace send to it, whether it is there or not


@dataclass(slots=True)
class Node:
    """The broker as 4.x clients see it.

    advertised   name or address in routes; "": the address that the client has dialled
    broker_port  of the broker's door, once it is open
    auto_create  whether a send of an unknown topic makes it
    """

    engine: Engine
    broker_name: str = "broker-a"
    cluster_name: str = "DefaultCluster"
    advertised: str = ""
    broker_port: int = 0
    auto_create: bool = True
    registry: Registry = field(default_factory=Registry)

    @property
    def reply_topic(self) -> str:
        """Where answers of clients to clients would be kept."""
        return f"{self.cluster_name}_REPLY_TOPIC"

    def address(self, request: Request) -> str:
        """host:port under which the client who asks reaches the broker's door."""
        return f"{self.advertised or request.link.dialled}:{self.broker_port}"
