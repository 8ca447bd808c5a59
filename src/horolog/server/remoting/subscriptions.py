"""Check which subscriptions the broker can filter by, and describe them for tools."""

from __future__ import annotations

from typing import Any

from horolog.errors import ErrorCode, HorologError, refused
from horolog.protocol.remoting.client_bodies import subscription_data
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.heartbeat import ALL, SQL92, TAG, Subscription
from horolog.protocol.remoting.request import text
from horolog.ready.filter import ALL_TAGS, TagFilter, parse_filter, parse_tags


def filter_asked(frame: Frame, topic: str, expression: str, kind: str) -> Subscription:
    """Return the filter that a request names in two of its fields; all messages if in none.

    Raise ILLEGAL_FILTER if the broker cannot filter by it.

    expression, kind  names of the fields
    """
    asked = Subscription(topic, text(frame, expression, ALL) or ALL, text(frame, kind, TAG) or TAG)
    if (asked.expression, asked.type) != (ALL, TAG):
        check_filter(asked)
    return asked


def check_filter(subscription: Subscription) -> None:
    """Raise ILLEGAL_FILTER unless the broker can filter by the subscription."""
    if subscription.type not in (TAG, SQL92):
        raise refused(
            "expressionType",
            f"{subscription.type[:40]!r} is not supported; use {TAG} or {SQL92}",
            f"{TAG}, {SQL92}",
            code=ErrorCode.ILLEGAL_FILTER,
        )
    parse_filter(subscription.expression, is_sql=subscription.type == SQL92)


def tags_of(subscription: Subscription | None) -> TagFilter:
    """Return the tags of a subscription; all tags if it does not filter by tags."""
    if subscription is None or subscription.type != TAG:
        return ALL_TAGS
    return parse_tags(subscription.expression)


def as_java(subscription: Subscription | None) -> dict[str, Any] | None:
    """Return Java's SubscriptionData; without tags if the expression cannot be parsed."""
    if subscription is None:
        return None
    try:
        tags = tags_of(subscription)
    except HorologError:
        return subscription_data(subscription, (), ())
    return subscription_data(subscription, tags.tags or (), tags.codes)
