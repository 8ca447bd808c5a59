"""The messages that a topic has handed over, by receiving and acknowledging all of them."""

from __future__ import annotations

from typing import Any

from horolog.admin.client import path_of


def received(broker: Any, topic: str, group: str = "g") -> list[dict[str, Any]]:
    """Return every visible message that the group has not had yet, in the order of delivery."""
    found: list[dict[str, Any]] = []
    while True:
        wanted = {"topic": topic, "group": group, "limit": 32}
        messages = broker.admin.post(path_of("receive"), wanted)["messages"]
        if not messages:
            return found
        handles = [message["receipt_handle"] for message in messages]
        acked = {"topic": topic, "group": group, "receipt_handles": handles}
        broker.admin.post(path_of("ack"), acked)
        found += messages


def bodies(broker: Any, topic: str, group: str = "g") -> list[str]:
    """Return the bodies of `received` as text."""
    return [message["body"] for message in received(broker, topic, group)]
