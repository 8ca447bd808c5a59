"""Connected clients, for admin tools: those of the remoting doors and of their neighbour doors.

5.x clients are shown as RocketMQ's own broker shows them: each topic of a producer stands for a
producer group, push consumers are passive, simple ones active, and all share their messages.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from horolog.clock import monotonic_ms
from horolog.protocol.remoting.client_bodies import Connected
from horolog.protocol.remoting.codes import Status
from horolog.protocol.remoting.frame import LANGUAGES, OTHER, VERSION
from horolog.protocol.remoting.heartbeat import (
    ConsumeFrom,
    ConsumerData,
    ConsumeType,
    MessageModel,
    Subscription,
)
from horolog.protocol.remoting.request import Answer
from horolog.server.connected import PUSH, ConnectedClient, Neighbour
from horolog.server.remoting.node import Node
from horolog.server.remoting.registry import Client
from horolog.server.remoting.subscriptions import as_java

if TYPE_CHECKING:
    from horolog.server.remoting.link import RemotingLink

AWAITING = Answer(
    Status.SYSTEM_ERROR,
    remark="consumerGroup: a client of it has come back, but has sent no heartbeat yet; ask later",
)

_VERSION = re.compile(r"[vV]?5[._](\d)[._](\d)(?!\d)")
_OF_VERSION = 33  # 3.3: VERSION is the ordinal of 5.3.3; each version has a snapshot before it


def consumers(node: Node, group: str) -> Iterator[Connected]:
    """Yield the clients of a consumer group, each made when it is asked for."""
    yield from map(_of_4x, node.registry.members(group))
    for door in node.neighbours:
        yield from map(_of_5x, door.members(group))


def consumer(node: Node, group: str) -> ConsumerData | None:
    """Return what the first client of a consumer group reports; None: it has no client."""
    members = node.registry.members(group)
    if members:
        return members[0].consumer
    others = (each for door in node.neighbours for each in door.members(group))
    first = next(others, None)
    return None if first is None else _consumer(group, first)


def client_ids(node: Node, group: str, link: RemotingLink) -> list[str]:
    """Return the client ids of a consumer group, for the client that asks on `link`.

    A member shares the queues among the ids that it gets.  It must not get ids of 5.x clients:
    those take messages of all queues, and would leave alone the queues assigned to them.  A tool
    gets all ids.
    """
    members = node.registry.members(group)
    found = [member.client_id for member in members]
    if not any(member.link is link for member in members):
        found += [each for door in node.neighbours for each in door.member_ids(group)]
    return found


def is_awaiting(node: Node, group: str) -> bool:
    """Return whether a client of a group is awaited, so that nobody must share out its queues."""
    return node.returning.has(group, monotonic_ms())


def neighbour_of(
    node: Node, group: str, client_id: str
) -> tuple[Neighbour, ConnectedClient] | None:
    """Return a client of a consumer group at another door, and that door."""
    for door in node.neighbours:
        client = door.member(group, client_id)
        if client is not None:
            return door, client
    return None


def running_info(node: Node, group: str, client: ConnectedClient, stacks: str) -> dict[str, Any]:
    """Return ConsumerRunningInfo of a 5.x client, as far as a broker knows it.

    Queues and rates are missing: only 4.x clients report them.
    """
    consumer = _consumer(group, client)
    wanted = [as_java(each) for each in subscriptions(node, group).values()]
    return {
        "jstack": stacks or None,
        "mqPopTable": {},
        "mqTable": {},
        "properties": {
            "PROP_CLIENT_VERSION": f"{client.language} {client.version}".strip(),
            "PROP_CONSUMEORDERLY": "false",  # the broker keeps the order of 5.x groups
            "PROP_CONSUMER_START_TIMESTAMP": str(client.connected_ms),
            "PROP_CONSUME_TYPE": consumer.consume_type.name,
        },
        "statusTable": {},
        "subscriptionSet": wanted,
        "userConsumerInfo": {},
    }


def subscriptions(node: Node, group: str) -> Mapping[str, Subscription]:
    """Return the subscriptions of a consumer group, by topic."""
    wanted = dict(node.registry.subscriptions(group))
    for door in node.neighbours:
        wanted = {**door.subscriptions(group), **wanted}
    return dict(sorted(wanted.items()))


def producers(node: Node, group: str) -> Iterator[Connected]:
    """Yield the clients of a producer group, which for 5.x producers is a topic."""
    yield from map(_of_4x, node.registry.producers(group))
    for door in node.neighbours:
        yield from map(_of_5x, door.publishers(group))


def all_producers(node: Node) -> Iterator[tuple[str, Connected]]:
    """Yield the clients of all producer groups with their group, each made when asked for."""
    registry = node.registry
    for group in registry.producer_groups:
        for producer in registry.producers(group):
            yield group, _of_4x(producer)
    for door in node.neighbours:
        for client in door.publishers():
            shown = _of_5x(client)
            for topic in client.topics:
                yield topic, shown


def _consumer(group: str, member: ConnectedClient) -> ConsumerData:
    passive = member.consumes == PUSH
    kind = ConsumeType.CONSUME_PASSIVELY if passive else ConsumeType.CONSUME_ACTIVELY
    begin = ConsumeFrom.CONSUME_FROM_LAST_OFFSET
    return ConsumerData(group, kind, MessageModel.CLUSTERING, begin, {})


def _of_4x(client: Client) -> Connected:
    ago_ms = monotonic_ms() - client.seen_ms
    return Connected(
        client.client_id,
        client.link.peer.text,
        client.language,
        client.version,
        time.time_ns() // 1_000_000 - ago_ms,
    )


def _of_5x(client: ConnectedClient) -> Connected:
    """Return a 5.x client as seen now: its stream is open."""
    return Connected(
        client.client_id,
        client.address,
        client.language if client.language in LANGUAGES else OTHER,
        version_ordinal(client.version),
        time.time_ns() // 1_000_000,
    )


def version_ordinal(text: str) -> int:
    """Return RocketMQ's ordinal of a version such as 5.0.3; for an unknown one the broker's own."""
    found = _VERSION.match(text)
    if found is None:
        return VERSION
    return VERSION + 2 * (int(found[1] + found[2]) - _OF_VERSION)
