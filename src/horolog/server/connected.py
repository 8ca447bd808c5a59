"""Who is connected: what the doors tell operators of their clients.

A client of the gRPC door is one with an open Telemetry stream; of the remoting doors, one that has sent a heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from horolog.limits import CLIENT_TOPICS_SHOWN_MAX
from horolog.protocol.remoting.heartbeat import Subscription

GRPC, REMOTING = "grpc", "remoting"
PUSH, PULL, SIMPLE, POP = "push", "pull", "simple", "pop"


class Origin(NamedTuple):
    """A connection: the peer's address and port, whether it is encrypted, and since when it is there."""

    address: str
    tls: bool
    connected_ms: int


class ConnectedClient(NamedTuple):
    """A client and its connection.

    language, version  what it says of itself; of 4.x clients the ordinal of RocketMQ's MQVersion
    consumes           how it takes messages: push, pull, pop, simple; "": it does not
    groups             consumer groups that it is in
    producer_groups    as 4.x producers name them
    topics             that it publishes to or has subscribed to, as it says; 100 at most
    connected_ms       of this machine's clock
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
    """A front end that knows who is connected."""

    def connected(self) -> Iterator[ConnectedClient]:
        """All clients, made one by one as they are asked for."""
        ...

    def members(self, group: str) -> Sequence[ConnectedClient]:
        """Those in a consumer group."""
        ...

    def member_count(self, group: str) -> int:
        """How many these are."""
        ...

    def tell_reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """A group goes on at these offsets, by queue: tell those of its members that keep offsets themselves."""
        ...


class Neighbour(Protocol):
    """Another door, of whose clients admin tools are told at this one."""

    def members(self, group: str) -> Sequence[ConnectedClient]:
        """Those in a consumer group."""
        ...

    def publishers(self) -> Iterator[ConnectedClient]:
        """Clients that send: they have no group, so each of their topics stands for one."""
        ...

    def subscriptions(self, group: str) -> Mapping[str, Subscription]:
        """What a consumer group wants, by topic."""
        ...

    def groups_of(self, topic: str) -> Sequence[str]:
        """Consumer groups with a member that wants something of a topic."""
        ...

    async def thread_stacks(self, group: str, client_id: str, within_s: float) -> str:
        """What a member says that its threads do; "" if it does not say so in time."""
        ...


def shown_topics(names: Sequence[str]) -> tuple[str, ...]:
    """Topics by name, as many as are kept of one client."""
    return tuple(sorted(set(names))[:CLIENT_TOPICS_SHOWN_MAX])


def kind_of(members: Sequence[ConnectedClient]) -> str:
    """How the members of a group consume: a kind, "mixed", or "" without members."""
    kinds = {member.consumes for member in members}
    return "mixed" if len(kinds) > 1 else next(iter(kinds), "")
