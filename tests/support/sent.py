"""Messages for a broker under test, sent without a protocol."""

from __future__ import annotations

from typing import Any

from horolog.protocol.commands import NewMessage, SendMessages, Sent
from horolog.protocol.rocketmq.message import encode


def encoded(
    topic: str, *bodies: bytes, due_ms: int = 0, tag: str | None = None
) -> list[NewMessage]:
    """Build one message for each body; the id is made from the body."""
    return [
        encode(topic=topic, body=body, message_id=f"{topic}-{body.hex()}", due_ms=due_ms, tag=tag)
        for body in bodies
    ]


def send(door: Any, topic: str, *bodies: bytes, due_ms: int = 0, tag: str | None = None) -> Sent:
    """Send one message for each body; `door.submit` waits for a command's result."""
    sent: Sent = door.submit(SendMessages(topic, encoded(topic, *bodies, due_ms=due_ms, tag=tag)))
    assert not sent.refused, sent.refused
    return sent
