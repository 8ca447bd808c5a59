"""What the broker can filter by."""

from __future__ import annotations

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.remoting.heartbeat import TAG, Subscription
from horolog.ready.filter import parse_tags


def check_filter(subscription: Subscription) -> None:
    """ILLEGAL_FILTER unless the broker can filter by it."""
    if subscription.type != TAG:
        raise HorologError(
            ErrorCode.ILLEGAL_FILTER,
            f"expressionType: {subscription.type[:40]!r} is not supported; use {TAG}",
            field="expressionType",
            limit=TAG,
        )
    parse_tags(subscription.expression)
