"""Messages that are visible at once, in a simulated world."""

from __future__ import annotations

from horolog.protocol.commands import SendMessages
from horolog.protocol.rocketmq.message import encode


def plain(topic: str, count: int, tag: str | None = None, first: int = 0) -> SendMessages:
    """Build a send of `count` messages, numbered from `first` on."""
    numbers = range(first, first + count)
    return SendMessages(
        topic, [encode(topic=topic, body=b"x", message_id=f"m{i}", tag=tag) for i in numbers]
    )


def send_plain(world, topic: str, count: int, tag: str | None = None) -> None:
    """Send `count` messages, a thousand at a time."""
    for first in range(0, count, 1_000):
        world.broker.ask(plain(topic, min(1_000, count - first), tag, first))
