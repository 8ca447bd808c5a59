"""Bodies about connected clients for admin tools, with the field names of Java's classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from horolog.protocol.remoting.heartbeat import ConsumerData, Subscription
from horolog.protocol.remoting.topic_bodies import encode


class Connected(NamedTuple):
    """A client and its connection."""

    client_id: str
    address: str
    language: str
    version: int
    seen_ms: int  # when the client was last heard of


def connection(client: Connected) -> bytes:
    """Encode a Connection, for the list of a body."""
    return encode(
        {
            "clientAddr": client.address,
            "clientId": client.client_id,
            "language": client.language,
            "version": client.version,
        }
    )


def producer_connections(connections: Iterable[bytes]) -> bytes:
    """Encode a ProducerConnection."""
    return encode({"connectionSet": list(map(orjson.Fragment, connections))})


def producer_table(groups: Mapping[str, Iterable[bytes]]) -> bytes:
    """Encode a ProducerTableInfo of these `producer_info` by group."""
    table = {group: list(map(orjson.Fragment, clients)) for group, clients in groups.items()}
    return encode({"data": table})


def producer_info(client: Connected) -> bytes:
    """Encode a ProducerInfo, for the table of all producers."""
    return encode(
        {
            "clientId": client.client_id,
            "language": client.language,
            "lastUpdateTimestamp": client.seen_ms,
            "remoteIP": client.address,
            "version": client.version,
        }
    )


def consumer_connections(
    connections: Iterable[bytes],
    consumer: ConsumerData,
    subscriptions: Mapping[str, Mapping[str, Any]],
) -> bytes:
    """Encode a ConsumerConnection.

    consumer       the settings of one member, which count for the whole group
    subscriptions  `subscription_data` by topic
    """
    return encode(
        {
            "connectionSet": list(map(orjson.Fragment, connections)),
            "consumeFromWhere": consumer.consume_from.name,
            "consumeType": consumer.consume_type.name,
            "messageModel": consumer.model.name,
            "subscriptionTable": subscriptions,
        }
    )


def subscription_data(
    subscription: Subscription, tags: Iterable[str], codes: Iterable[int]
) -> dict[str, Any]:
    """Build a SubscriptionData; `tags` and `codes` are those of the expression."""
    return {
        "classFilterMode": False,
        "codeSet": sorted(codes),
        "expressionType": subscription.type,
        "subString": subscription.expression,
        "subVersion": subscription.version,
        "tagsSet": sorted(tags),
        "topic": subscription.topic,
    }
