"""Heartbeats: every 30 s a 4.x client sends its groups and subscriptions.

Values of enums come as names from Java and Go and as ordinals from C++; some clients send numbers
as texts.  All of these are accepted.  The tag hashes that clients send are ignored, since those of
C++ clients are wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from horolog.errors import refused
from horolog.limits import FILTER_EXPRESSION_MAX, HEARTBEAT_NAME_MAX
from horolog.protocol.rocketmq.names import check_group_name
from horolog.units import parse_signed

TAG, SQL92 = "TAG", "SQL92"
ALL = "*"  # the TAG expression that matches every message
_SUBSCRIPTION_BYTES = 200  # approximate memory of a subscription besides its text


class ConsumeType(IntEnum):
    """How a consumer takes messages; the names are RocketMQ's."""

    CONSUME_ACTIVELY = 0
    CONSUME_PASSIVELY = 1
    CONSUME_POP = 2


class MessageModel(IntEnum):
    """Whether the members of a group share its messages, or each member gets all of them."""

    BROADCASTING = 0
    CLUSTERING = 1


class ConsumeFrom(IntEnum):
    """Where a group without progress begins; the client decides by this, not the broker."""

    CONSUME_FROM_LAST_OFFSET = 0
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = 1
    CONSUME_FROM_MIN_OFFSET = 2
    CONSUME_FROM_MAX_OFFSET = 3
    CONSUME_FROM_FIRST_OFFSET = 4
    CONSUME_FROM_TIMESTAMP = 5


class Subscription(NamedTuple):
    """The subscription of a group to a topic; `version` rises when it changes."""

    topic: str
    expression: str = ALL
    type: str = TAG
    version: int = 0

    @property
    def size_bytes(self) -> int:
        """Approximate size in memory."""
        return _SUBSCRIPTION_BYTES + len(self.topic) + len(self.expression)


class ConsumerData(NamedTuple):
    """Membership of a client in a consumer group."""

    group: str
    consume_type: ConsumeType
    model: MessageModel
    consume_from: ConsumeFrom
    subscriptions: dict[str, Subscription]  # by topic

    @property
    def topics(self) -> Set[str]:
        """Topics that the client subscribes to."""
        return self.subscriptions.keys()


class Heartbeat(NamedTuple):
    """The content of a heartbeat."""

    client_id: str
    producers: list[str]  # group names
    consumers: list[ConsumerData]


def read_heartbeat(content: dict[str, Any]) -> Heartbeat:
    """Parse the body of a heartbeat.  BAD_REQUEST or ILLEGAL_GROUP, naming the field."""
    return Heartbeat(
        _required_text(content, "clientID"),
        [_required_text(entry, "groupName") for entry in _entries(content, "producerDataSet")],
        [_consumer(entry) for entry in _entries(content, "consumerDataSet")],
    )


def read_subscription(entry: dict[str, Any]) -> Subscription:
    """Parse a subscription, of a heartbeat or alone.

    BAD_REQUEST names a field that is missing, no text, or too long.
    """
    expression = entry.get("subString")
    if expression is not None and not isinstance(expression, str):
        raise refused("subString", "no text")
    if expression and len(expression) > FILTER_EXPRESSION_MAX:
        raise refused(
            "subString",
            f"{len(expression)} characters; at most {FILTER_EXPRESSION_MAX} are allowed",
        )
    kind = entry.get("expressionType")
    if kind is not None and not isinstance(kind, str):
        raise refused("expressionType", "no text")
    return Subscription(
        _required_text(entry, "topic"),
        expression or ALL,
        kind or TAG,
        _integer(entry, "subVersion"),
    )


def _consumer(entry: dict[str, Any]) -> ConsumerData:
    found = map(read_subscription, _entries(entry, "subscriptionDataSet"))
    return ConsumerData(
        check_group_name(_required_text(entry, "groupName")),
        _choice(entry, "consumeType", ConsumeType, ConsumeType.CONSUME_PASSIVELY),
        _choice(entry, "messageModel", MessageModel, MessageModel.CLUSTERING),
        _choice(entry, "consumeFromWhere", ConsumeFrom, ConsumeFrom.CONSUME_FROM_LAST_OFFSET),
        {subscription.topic: subscription for subscription in found},
    )


def _entries(content: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    entries = content.get(name)
    if entries is None:
        return
    if not isinstance(entries, list):
        raise refused(name, "no list")
    for entry in entries:
        if not isinstance(entry, dict):
            raise refused(name, "an entry is no JSON object")
        yield entry


def _required_text(entry: dict[str, Any], name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not value.strip():
        raise refused(name, "missing or blank")
    if len(value) > HEARTBEAT_NAME_MAX:
        raise refused(name, f"{len(value)} characters; at most {HEARTBEAT_NAME_MAX} are allowed")
    return value


_Choice = TypeVar("_Choice", bound=IntEnum)


def _choice(entry: dict[str, Any], name: str, choices: type[_Choice], default: _Choice) -> _Choice:
    value = entry.get(name)
    if value is None:
        return default
    if isinstance(value, str) and value in choices.__members__:
        return choices[value]
    try:
        return choices(int(value))
    except (ValueError, TypeError):
        raise refused(
            name, f"{str(value)[:40]!r} is none of {', '.join(choices.__members__)}"
        ) from None


def _integer(entry: dict[str, Any], name: str) -> int:
    value = entry.get(name, 0)
    number = parse_signed(value) if isinstance(value, str) else value
    if not isinstance(number, int) or not -(1 << 63) <= number < 1 << 63:
        raise refused(name, f"{str(value)[:40]!r} is no number")
    return number
