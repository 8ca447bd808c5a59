"""What the doors tell operators about connected clients.

A client of the gRPC door has an open Telemetry stream; a client of the remoting doors has sent a
heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from horolog.limits import CLIENT_TOPICS_SHOWN_MAX
from horolog.protocol.remoting.heartbeat import Subscription

GRPC, REMOTING = "grpc", "remoting"
PUSH, PULL, SIMPLE, POP = "push", "pull", "simple", "pop"


class Origin(NamedTuple):
    """A connection: the peer's address and port, whether it uses TLS, and when it was made."""

    address: str
    tls: bool
    connected_ms: int


class ConnectedClient(NamedTuple):
    """A client and its connection.

    language, version  as the client reports them; of 4.x clients the ordinal of MQVersion
    consumes           how the client takes messages: push, pull, pop, simple; "": it does not
    groups             consumer groups that the client is in
    producer_groups    as 4.x producers name them
    topics             that the client says it publishes to or has subscribed to; 100 at most
    connected_ms       by this machine's clock
    """

    client_id: str
    door: str
    address: str
    language: str
    version: str
    consumes: str
    groups: Sequence[str]
    producer_groups: Sequence[str]
    topics: Sequence[str]
    connected_ms: int
    tls: bool


class KnowsClients(Protocol):
    """A front end that knows its connected clients."""

    def connected(self) -> Iterator[ConnectedClient]:
        """Yield all clients, each made when it is asked for."""
        ...

    def members(self, group: str) -> Iterator[ConnectedClient]:
        """Yield the connected clients of a consumer group, each made when it is asked for."""
        ...

    def member_count(self, group: str) -> int:
        """Return how many clients of a consumer group are connected."""
        ...

    async def notify_reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Tell the clients of a group that keep offsets themselves to go on at these, by queue."""
        ...

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """Drop what was noted of the consumers of a deleted group, or of a deleted topic."""
        ...


class Neighbour(Protocol):
    """Another door, whose clients admin tools can see at this door."""

    def members(self, group: str) -> Iterator[ConnectedClient]:
        """Yield the connected clients of a consumer group, each made when it is asked for."""
        ...

    def member(self, group: str, client_id: str) -> ConnectedClient | None:
        """Return a connected client of a consumer group, or None."""
        ...

    def member_ids(self, group: str) -> list[str]:
        """Return the ids of the connected clients of a consumer group."""
        ...

    def publishers(self, topic: str = "") -> Iterator[ConnectedClient]:
        """Yield clients that send (to a topic), each made when it is asked for.

        They have no group, so each of their topics stands for one.
        """
        ...

    def subscriptions(self, group: str) -> Mapping[str, Subscription]:
        """Return the subscriptions of a consumer group, by topic."""
        ...

    def groups_of(self, topic: str) -> Sequence[str]:
        """Return the consumer groups with a connected client that subscribes to a topic."""
        ...

    async def thread_stacks(self, group: str, client_id: str, within_s: float) -> str:
        """Return the thread stacks that a client reports; "" if it does not report them in time."""
        ...


def shown_topics(names: Sequence[str]) -> tuple[str, ...]:
    """Return topics by name, as many as are kept of one client."""
    return tuple(sorted(set(names))[:CLIENT_TOPICS_SHOWN_MAX])


def kind_of(members: Sequence[ConnectedClient]) -> str:
    """Return how the clients of a group consume: a kind, "mixed", or "" without clients."""
    kinds = {member.consumes for member in members}
    return "mixed" if len(kinds) > 1 else next(iter(kinds), "")
